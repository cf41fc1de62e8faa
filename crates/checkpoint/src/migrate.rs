//! Migration: a container goes on at another host.
//!
//! ```text
//! migrate                                receive, at the other host
//!   (pre-copy: saves memory while
//!    the programs run, in rounds) ----->
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
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{bail, Context};
use lorentz_container::{criu as installed, unfreeze, Container, StateDir};

use nix::sys::signal::{signal, SigHandler, Signal};

use crate::directory::{Place, Unfinished, Whole};
use crate::dump::Subject;
use crate::guard::Guard;
use crate::pre_copy::{copy_ahead, is_sent_ahead};
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
    /// Memory is sent while the programs run.
    pub pre_copy: bool,
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
    if options.pre_copy {
        installed::check_memory_tracking().map_err(CheckpointRefused::NoMemoryTracking)?;
    }
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
    match send(&place, subject, criu, guard, options) {
        Ok(receiver) => {
            File::create(committed)?;
            receiver.commit(name, options.host).and_then(|()| subject.end())
        }
        Err(error) => subject.go_on().and(Err(error)),
    }
}

/// Makes a checkpoint in `place`, sends it, and waits until it is restored there.
fn send(
    place: &Place,
    subject: &Subject,
    criu: &Path,
    guard: &Guard,
    options: &MigrateOptions,
) -> anyhow::Result<Receiver> {
    let unfinished = Unfinished::make(place)?;
    // The other host hears of it when CRIU has not refused.
    let mut receiver = None;
    let start = || Receiver::start(options, subject.name());
    let parent = match options.pre_copy {
        true => {
            let save =
                |images: &Path, parent: Option<&str>| subject.pre_dump(criu, images, parent, guard);
            let send = |name: &str, dir: &Path| {
                let mut started = receiver.take().map_or_else(start, Ok)?;
                started.send_dir(name, dir)?;
                receiver = Some(started);
                Ok(())
            };
            Some(copy_ahead(&unfinished, save, send)?)
        }
        false => None,
    };
    subject.dump(criu, unfinished, parent.as_deref(), guard, CheckpointOptions::default())?;
    let mut receiver = receiver.map_or_else(start, Ok)?;
    receiver.send_rest(&place.target)?;
    Ok(receiver)
}

/// `lorentz receive` at the other host.
struct Receiver {
    ssh: Child,
    /// The input of ssh.
    archive: Option<Archive>,
    answers: BufReader<ChildStdout>,
}

type Archive = tar::Builder<ChildStdin>;

impl Receiver {
    fn start(options: &MigrateOptions, own_name: &str) -> anyhow::Result<Receiver> {
        let MigrateOptions { host, ssh, lorentz, name, wall, .. } = options;
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
        let archive = ssh.stdin.take().map(archive_to);
        Ok(Receiver { ssh, archive, answers })
    }

    fn archive(&mut self) -> anyhow::Result<&mut Archive> {
        self.archive.as_mut().context("the input of ssh")
    }

    /// Sends the directory `dir` of the checkpoint, under its name.
    fn send_dir(&mut self, name: &str, dir: &Path) -> anyhow::Result<()> {
        let archive = self.archive()?;
        let sent = archive.append_dir_all(name, dir).and_then(|()| archive.get_mut().flush());
        sent.context(NOT_RESTORED)
    }

    /// Sends what was not sent of the checkpoint in `dir`, and waits until it is restored.
    fn send_rest(&mut self, dir: &Path) -> anyhow::Result<()> {
        let archive = self.archive()?;
        let sent = append_rest(archive, dir).and_then(|()| archive.get_mut().flush());
        // The other side has told why it does not go on reading.
        let answered = self.expect(READY);
        sent.context(NOT_RESTORED).and(answered.context(NOT_RESTORED))
    }

    /// Has it unfrozen there.
    fn commit(mut self, name: &str, host: &str) -> anyhow::Result<()> {
        let input = self.archive()?.get_mut();
        let told = input.write_all(GO).and_then(|()| input.flush());
        told.map_err(Into::into).and_then(|()| self.expect(RUNNING)).with_context(|| {
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

const NOT_RESTORED: &str = "it is not restored there, and goes on here";

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.archive.take());
        let _ = self.ssh.wait();
    }
}

/// An archive that keeps symbolic links: CRIU's images name their parents by such.
fn archive_to<Output: Write>(output: Output) -> tar::Builder<Output> {
    let mut archive = tar::Builder::new(output);
    archive.follow_symlinks(false);
    archive
}

/// Adds the checkpoint in `dir` without the memory that was sent ahead, and ends the archive.
fn append_rest<Output: Write>(archive: &mut tar::Builder<Output>, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if is_sent_ahead(&name) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => archive.append_dir_all(&name, path)?,
            false => archive.append_path_with_name(path, &name)?,
        }
    }
    archive.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_ahead_and_the_rest_are_the_whole_checkpoint() {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = here.path();
        for dir in ["pre-1", "criu"] {
            fs::create_dir(saved.join(dir)).unwrap();
            fs::write(saved.join(dir).join("pages-1.img"), dir).unwrap();
        }
        fs::write(saved.join("clock"), "clock").unwrap();
        std::os::unix::fs::symlink("../pre-1", saved.join("criu/parent")).unwrap();
        let mut archive = archive_to(Vec::new());
        archive.append_dir_all("pre-1", saved.join("pre-1")).unwrap();
        append_rest(&mut archive, saved).unwrap();
        let sent = archive.into_inner().unwrap();
        let received = there.path().join("checkpoint");
        tar::Archive::new(&sent[..]).unpack(&received).unwrap();
        let read = |file: &str| fs::read_to_string(received.join(file)).unwrap();
        assert_eq!(read("clock"), "clock");
        assert_eq!(read("criu/pages-1.img"), "criu");
        assert_eq!(read("criu/parent/pages-1.img"), "pre-1");
        assert_eq!(fs::read_link(received.join("criu/parent")).unwrap(), Path::new("../pre-1"));
        // Each once.
        let mut again = tar::Archive::new(&sent[..]);
        let entries = again.entries().unwrap();
        let names = entries.map(|entry| entry.unwrap().path().unwrap().into_owned());
        assert_eq!(names.filter(|name| name.starts_with("pre-1")).count(), 2);
    }
}
