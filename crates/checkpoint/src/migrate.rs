//! Migration: a container goes on at another host.
//!
//! ```text
//! migrate                                receive, at the other host
//!   freezes, makes a checkpoint
//!   the checkpoint, as a tar file ----->  restores, frozen
//!   <---------------------------- ready
//!   commits
//!   go -------------------------------->  unfreezes
//!   <-------------------------- running
//!   ends the container here
//! ```
//!
//! Until `migrate` commits, a failure on either side lets the container go on here, and nothing is left there. From then on nobody
//! can know whether it runs there if the connection breaks. It stays frozen here then, and the user decides.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{bail, Context};
use lorentz_container::{criu as installed, unfreeze, Container, StateDir};

use nix::sys::signal::{signal, SigHandler, Signal};

use crate::directory::{Place, Whole};
use crate::dump::Subject;
use crate::guard::Guard;
use crate::restore::{remove, restore_on_trial};
use crate::{CheckpointOptions, CheckpointRefused, RestoreOptions, WallPolicy};

/// Where a container goes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrateOptions<'a> {
    /// The other host, as ssh takes it.
    pub host: &'a str,
    /// The command in place of ssh, in words.
    pub ssh: &'a [String],
    /// The command `lorentz` there.
    pub lorentz: &'a str,
    /// The container's name there; `None` for the one that it has here.
    pub name: Option<&'a str>,
    /// Its wall clock.
    pub wall: WallPolicy,
}

const READY: &str = "ready\n";
const GO: &[u8] = b"g";
const RUNNING: &str = "running\n";
/// A file in the scratch directory: the other host may run the container.
const COMMITTED: &str = "committed";
const SCRATCH: &str = "lorentz-migration-";

/// Moves `container` to another host. It is ended here when it runs there. The caller must have one thread only.
///
/// # Errors
///
/// [`CheckpointRefused`]; CRIU's first error; or the connection broke. The message says whether the container goes on here.
pub fn migrate(container: &Container, options: &MigrateOptions) -> anyhow::Result<()> {
    outlive_connection()?;
    let subject = Subject::of(container)?;
    let criu = installed::locate().map_err(|found| CheckpointRefused::NoCriu { found })?;
    let scratch = new_scratch_path();
    let committed = scratch.join(COMMITTED);
    let settled = scratch.with_extension("settled");
    // It must be there before the directory.
    let guard = Guard::start(|| {
        if scratch.exists() && !committed.exists() {
            subject.go_on()?;
        }
        let _ = fs::remove_dir_all(&settled);
        Ok(fs::remove_dir_all(&scratch)?)
    })?;
    let done = migrate_through(&scratch, &committed, &subject, &criu, &guard, options);
    // At once: the guard must not find the directory without the mark.
    let _ = fs::rename(&scratch, &settled);
    let _ = fs::remove_dir_all(&settled);
    guard.disarm();
    done
}

/// A path in the directory for temporary files that nobody can foresee.
fn new_scratch_path() -> PathBuf {
    let random = RandomState::new().build_hasher().finish();
    std::env::temp_dir().join(format!("{SCRATCH}{random:016x}"))
}

fn migrate_through(
    scratch: &Path,
    committed: &Path,
    subject: &Subject,
    criu: &Path,
    guard: &Guard,
    options: &MigrateOptions,
) -> anyhow::Result<()> {
    DirBuilder::new().mode(0o700).create(scratch)?;
    let place = Place::beside(&scratch.join("checkpoint"))?;
    let name = subject.name();
    let sent = subject
        .dump(criu, &place, guard, CheckpointOptions::default())
        .and_then(|()| Receiver::start(options, name))
        .and_then(|mut receiver| {
            receiver.send(&place.target)?;
            Ok(receiver)
        });
    match sent {
        Ok(receiver) => {
            File::create(committed)?;
            receiver.commit(name, options.host).and_then(|()| subject.end())
        }
        Err(error) => subject.go_on().and(Err(error)),
    }
}

/// `lorentz receive` at the other host.
struct Receiver {
    ssh: Child,
    answers: BufReader<ChildStdout>,
}

impl Receiver {
    fn start(options: &MigrateOptions, own_name: &str) -> anyhow::Result<Receiver> {
        let MigrateOptions { host, ssh, lorentz, name, wall } = options;
        let wall = match wall {
            WallPolicy::Keep => "keep",
            WallPolicy::Host => "host",
        };
        let name = name.unwrap_or(own_name);
        let (program, words) = ssh.split_first().context("--ssh: expected a command")?;
        let mut command = Command::new(program);
        command.args(words).arg(host);
        command.arg(format!("{lorentz} receive --name {name} --wall {wall}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = command.spawn().with_context(|| program.clone())?;
        let answers = BufReader::new(ssh.stdout.take().context("the output of ssh")?);
        Ok(Receiver { ssh, answers })
    }

    /// Sends the checkpoint, and waits until it is restored.
    fn send(&mut self, dir: &Path) -> anyhow::Result<()> {
        let refused = || "it is not restored there, and goes on here";
        let input = self.ssh.stdin.as_mut().context("the input of ssh")?;
        let mut archive = tar::Builder::new(input);
        let sent = archive.append_dir_all(".", dir).and_then(|()| archive.into_inner()?.flush());
        // The other side has told why it does not go on reading.
        let answered = self.expect(READY);
        sent.with_context(refused).and(answered.with_context(refused))
    }

    /// Has it unfrozen there.
    fn commit(mut self, name: &str, host: &str) -> anyhow::Result<()> {
        let told = self.ssh.stdin.as_mut().map(|input| input.write_all(GO).and(input.flush()));
        let done = told.context("the input of ssh")?.map_err(Into::into).and(self.expect(RUNNING));
        done.with_context(|| {
            format!(
                "{name} may run at {host}, and stands still here: 'lorentz unfreeze {name}' lets it go on here, \
                 'lorentz rm --force {name}' ends it here"
            )
        })
    }

    fn expect(&mut self, word: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        anyhow::ensure!(line == word, "the connection to the other host has ended");
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.ssh.stdin.take());
        let _ = self.ssh.wait();
    }
}

/// The other side of [`migrate`]: restores the container `name` from `input`, and answers to `output`. The caller must have one thread
/// only.
///
/// # Errors
///
/// As [`crate::restore()`]; or the connection broke. Nothing of the container is left then.
pub fn receive(
    state: &StateDir,
    name: &str,
    wall: WallPolicy,
    input: &mut impl Read,
    output: &mut impl Write,
) -> anyhow::Result<()> {
    outlive_connection()?;
    state.check_new_name(name)?;
    let scratch = new_scratch_path();
    let guard = Guard::start(|| Ok(fs::remove_dir_all(&scratch)?))?;
    let done = receive_into(&scratch, state, name, wall, (input, output));
    let _ = fs::remove_dir_all(&scratch);
    guard.disarm();
    done
}

fn receive_into(
    scratch: &Path,
    state: &StateDir,
    name: &str,
    wall: WallPolicy,
    (input, output): (&mut impl Read, &mut impl Write),
) -> anyhow::Result<()> {
    DirBuilder::new().mode(0o700).create(scratch)?;
    let dir = scratch.join("checkpoint");
    tar::Archive::new(&mut *input).unpack(&dir).context("receiving the checkpoint")?;
    let was_frozen = Whole::open(&dir)?.checkpoint.frozen;
    let (name, frozen, is_detached) = (Some(name), true, true);
    let trial = restore_on_trial(
        state,
        &dir,
        &RestoreOptions { name, wall, frozen, is_detached, ..Default::default() },
    )?;
    let container = state.container(name.unwrap_or_default())?;
    let ready = output.write_all(READY.as_bytes()).and_then(|()| output.flush());
    if let Err(error) = ready.map_err(Into::into).and_then(|()| await_go(input)) {
        trial.withdraw();
        return Err(error);
    }
    // A monitor that was killed cannot keep it.
    trial.keep().inspect_err(|_| remove(&container))?;
    if !was_frozen {
        unfreeze(&container)?;
    }
    output.write_all(RUNNING.as_bytes())?;
    Ok(output.flush()?)
}

/// A connection that ends is an error of the next write, and does not end this process.
fn outlive_connection() -> anyhow::Result<()> {
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
    Ok(())
}

/// Waits for the word to go on, behind the padding of the tar file.
fn await_go(input: &mut impl Read) -> anyhow::Result<()> {
    let mut byte = [0];
    loop {
        if input.read(&mut byte)? == 0 {
            bail!("the connection has ended before the container was to go on here");
        }
        if byte == GO {
            return Ok(());
        }
    }
}
