//! Restore: a directory becomes a container.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lorentz_clock::{saturate, PidNamespace, Span};
use lorentz_container::{
    close_standard_streams, criu as installed, keep_only, monitor_of, start_process, unfreeze,
    Container, MonitorKind, NewContainer, StateDir,
};
use lorentz_control::host_time::sleep;
use lorentz_control::processes::Process;
use lorentz_control::{number_inside, Cgroup, HostNow};
use lorentz_inject::{ExecMonitor, RestoredProcess};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::{dup, geteuid};
use rust_criu::rust_criu_protobuf::rpc::{Criu_opts, Criu_req_type, Inherit_fd};

use crate::compress::expand;
use crate::criu::{self, Moment, Request, RootMount, Start, Survival};
use crate::directory::Whole;
use crate::init::Init;
use crate::{Checkpoint, CheckpointRefused};

/// The wall clock after a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WallPolicy {
    /// It goes on where it stood.
    #[default]
    Keep,
    /// It moves forward by as much as the host's did since the checkpoint. All other clocks go on where they stood.
    Host,
}

/// How a checkpoint is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreOptions<'a> {
    /// The container's name; `None` for the one that it had.
    pub name: Option<&'a str>,
    /// Its wall clock.
    pub wall: WallPolicy,
    /// The clock and the programs stand still.
    pub frozen: bool,
    /// TCP connections to outside are restored too.
    pub tcp_established: bool,
    /// Its standard streams that were pipes lead nowhere, not to those of the caller.
    pub is_detached: bool,
}

/// Checks whether `dir` can be restored here, as [`restore`] would.
///
/// # Errors
///
/// [`CheckpointRefused`].
pub fn check(dir: &Path, options: &RestoreOptions) -> anyhow::Result<()> {
    Plan::without_bundle(dir, options)?;
    installed::find().map_err(|found| CheckpointRefused::NoCriu { found })?;
    Ok(())
}

/// Makes a container of the checkpoint in `dir`, under the name that `options` say. A process in the background supervises it. The caller must have
/// one thread only.
///
/// # Errors
///
/// [`CheckpointRefused`]; or CRIU's first error. Nothing of the container is left then.
pub fn restore(state: &StateDir, dir: &Path, options: &RestoreOptions) -> anyhow::Result<()> {
    restore_by(state, dir, options, Keeping::Always).map(drop)
}

/// As [`restore`]; but the container is removed again unless [`Trial::keep`] is called, also if this process is killed.
pub(crate) fn restore_on_trial(
    state: &StateDir,
    dir: &Path,
    options: &RestoreOptions,
) -> anyhow::Result<Trial> {
    restore_by(state, dir, options, Keeping::WhenTold).map(Trial)
}

/// A container that has been restored on trial.
pub(crate) struct Trial(UnixStream);

impl Trial {
    /// Keeps the container.
    pub fn keep(mut self) -> io::Result<()> {
        self.0.write_all(KEEP)
    }

    /// Has it removed. Returns when it is gone.
    pub fn withdraw(mut self) {
        // The other process ends after that.
        let _ = self.0.shutdown(Shutdown::Write).and_then(|()| self.0.read_to_end(&mut Vec::new()));
    }
}

/// Whether a restored container stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Always,
    /// As soon as the caller says so.
    WhenTold,
}

const KEEP: &[u8] = b"k";

fn restore_by(
    state: &StateDir,
    dir: &Path,
    options: &RestoreOptions,
    keeping: Keeping,
) -> anyhow::Result<UnixStream> {
    let plan = Plan::without_bundle(dir, options)?;
    state.check_new_name(plan.name())?;
    let (ours, theirs) = UnixStream::pair()?;
    start_process(|ready| {
        keep_only(&[ready.as_fd(), theirs.as_fd()]);
        drop(ready);
        plan.restore_and_stay(state, theirs, keeping)
    })?;
    let mut answer = Vec::new();
    BufReader::new(&ours).read_until(END, &mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.strip_prefix(ERROR) {
        Some(error) => anyhow::bail!("{error}"),
        None if answer == RESTORED => Ok(ours),
        None => {
            plan.clear(state);
            anyhow::bail!("the process that restored {} was killed", plan.name())
        }
    }
}

const RESTORED: &str = "ok\0";
const END: u8 = 0;
const ERROR: &str = "error ";

/// The surroundings in which CRIU restores processes.
pub(crate) struct Surroundings<'a> {
    /// The control group in which CRIU begins.
    pub group: Option<&'a Cgroup>,
    /// Puts CRIU into the control groups in which the processes begin. Returns the one whose freezer stops them.
    pub enter: &'a dyn Fn(u32) -> anyhow::Result<Cgroup>,
    /// Their root file system, if they have one of their own.
    pub root: Option<RootMount<'a>>,
    /// Descriptors of this process that CRIU inherits.
    pub inherited: &'a [RawFd],
    /// Adds to the request to CRIU, which has this process id.
    pub adjust: &'a dyn Fn(u32, &mut Criu_opts) -> anyhow::Result<()>,
}

/// A restore that nothing speaks against yet.
pub(crate) struct Plan<'a> {
    whole: Whole,
    criu: PathBuf,
    options: &'a RestoreOptions<'a>,
}

impl<'a> Plan<'a> {
    pub fn of(dir: &Path, options: &'a RestoreOptions<'a>) -> anyhow::Result<Plan<'a>> {
        if !geteuid().is_root() {
            return Err(CheckpointRefused::NotRoot.into());
        }
        let criu = installed::locate().map_err(|found| CheckpointRefused::NoCriu { found })?;
        let whole = Whole::open(dir)?;
        whole.check_build()?;
        let refused = |why: String| CheckpointRefused::Directory { dir: dir.to_path_buf(), why };
        if whole.checkpoint.tcp_established && !options.tcp_established {
            let why = "made with --tcp-established; restore it with --tcp-established too";
            return Err(refused(why.into()).into());
        }
        Ok(Plan { whole, criu, options })
    }

    fn without_bundle(dir: &Path, options: &'a RestoreOptions<'a>) -> anyhow::Result<Plan<'a>> {
        let plan = Plan::of(dir, options)?;
        if plan.checkpoint().bundle.is_none() {
            return Ok(plan);
        }
        let why =
            "a container of an OCI runtime; its engine restores it ('podman container restore')";
        Err(CheckpointRefused::Directory { dir: dir.to_path_buf(), why: why.into() }.into())
    }

    /// The checkpoint's description.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.whole.checkpoint
    }

    /// The contents of the clock's file.
    pub fn clock(&self) -> io::Result<Vec<u8>> {
        self.whole.clock()
    }

    /// Whether other processes have process ids of the programs. Then these get a namespace of their own.
    fn ids_are_taken(&self) -> bool {
        let processes = self.whole.checkpoint.processes.iter();
        let mut threads = processes.flat_map(|process| &process.threads);
        threads.any(|thread| Path::new(&format!("/proc/{}", thread.tid)).exists())
    }

    fn name(&self) -> &str {
        self.options.name.unwrap_or(&self.whole.checkpoint.name)
    }

    /// Restores the container, sends the result to `answer`, and supervises it until the last program has ended.
    fn restore_and_stay(
        &self,
        state: &StateDir,
        mut answer: UnixStream,
        keeping: Keeping,
    ) -> anyhow::Result<()> {
        match self.restore(state) {
            Ok((mut monitor, container)) => {
                // After this no command may wait for the answer any more, nor read this process's streams to their end.
                close_standard_streams()?;
                std::env::set_current_dir("/")?;
                let _ = answer.write_all(RESTORED.as_bytes());
                if keeping == Keeping::WhenTold && answer.read_exact(&mut [0]).is_err() {
                    remove(&container);
                    return Ok(());
                }
                drop(answer);
                monitor.serve_rest()?;
                container.leave()?;
                Ok(())
            }
            Err(error) => {
                let _ = answer.write_all(format!("{ERROR}{error:#}").as_bytes());
                Err(error)
            }
        }
    }

    fn restore(&self, state: &StateDir) -> anyhow::Result<(ExecMonitor, Container)> {
        let command: Vec<_> = self.whole.checkpoint.command.iter().map(Into::into).collect();
        let new = NewContainer {
            name: Some(self.name()),
            command: &command,
            has_programs: true,
            ..NewContainer::monitored_by(MonitorKind::Restore)
        };
        let mut container = state.create_from(&new, &self.clock()?)?;
        match self.bring_back(&mut container) {
            Ok(monitor) => Ok((monitor, container)),
            Err(error) => {
                remove(&container);
                Err(error)
            }
        }
    }

    fn bring_back(&self, container: &mut Container) -> anyhow::Result<ExecMonitor> {
        let Some(group) = container.cgroup() else { return Err(CheckpointRefused::NotRoot.into()) };
        self.rebase(container)?;
        let mut monitor = monitor_of(container)?;
        // The children of a restored program that ends come to this process.
        set_child_subreaper(true)?;
        let enter = |criu: u32| {
            group.ensure(criu)?;
            Ok(group.clone())
        };
        let adjust = |_: u32, _: &mut Criu_opts| Ok(());
        let here = Surroundings {
            group: Some(&group),
            enter: &enter,
            root: None,
            inherited: &[],
            adjust: &adjust,
        };
        let init = match self.ids_are_taken() {
            true => Some(Init::start(|| self.restore_processes(container, &here).map(drop))?),
            false => {
                self.restore_processes(container, &here)?;
                None
            }
        };
        let space = match &init {
            Some(init) => container.clock()?.relocate(None, init.pid)?,
            None => PidNamespace::MONITOR,
        };
        let root = self.adopt(container, &group, &mut monitor, space)?;
        container.set_program(root)?;
        self.set_wall(container)?;
        if !self.options.frozen && !self.whole.checkpoint.frozen {
            unfreeze(container)?;
        }
        init.map_or(Ok(()), Init::release)?;
        Ok(monitor)
    }

    /// Makes the clock, which stands still, that of this host, with the error that it had.
    pub fn rebase(&self, container: &Container) -> anyhow::Result<()> {
        self.whole.put_error_beside(&container.clock_path())?;
        container.clock()?.rebase(self.whole.difference_of_hosts()?);
        Ok(())
    }

    /// Moves the wall clock, if the options say so.
    pub fn set_wall(&self, container: &Container) -> anyhow::Result<()> {
        if self.options.wall == WallPolicy::Host {
            let passed = HostNow::read()?.wall.as_nanos() - self.whole.checkpoint.host_wall_ns;
            container.clock()?.step_with_truth(Span(saturate(passed)))?;
        }
        Ok(())
    }

    /// Has CRIU restore the processes. Returns their control group, which is frozen: they have executed nothing.
    pub fn restore_processes(
        &self,
        container: &Container,
        surroundings: &Surroundings,
    ) -> anyhow::Result<Cgroup> {
        let work_path = container.dir();
        let expanded = expand(&self.whole.images(), &work_path)?;
        let images = expanded.as_ref().map_or(self.whole.images(), |copy| copy.path().into());
        let opened = File::open(images)?;
        let work = File::open(&work_path)?;
        let clock = OpenOptions::new().read(true).write(true).open(container.clock_path())?;
        let streams: Vec<(OwnedFd, &String)> = self.streams()?;
        let mut asked = criu::options(&opened, &work);
        asked.set_rst_sibling(true);
        asked.set_tcp_established(self.options.tcp_established);
        asked.set_notify_scripts(true);
        asked.inherit_fd.push(inherit(clock.as_raw_fd(), &self.whole.checkpoint.clock_key));
        asked.inherit_fd.extend(streams.iter().map(|(fd, key)| inherit(fd.as_raw_fd(), key)));
        let inherited: Vec<RawFd> = [opened.as_raw_fd(), work.as_raw_fd(), clock.as_raw_fd()]
            .into_iter()
            .chain(streams.iter().map(|(fd, _)| fd.as_raw_fd()))
            .chain(surroundings.inherited.iter().copied())
            .collect();
        let kind = Criu_req_type::RESTORE;
        let at = Start { root: surroundings.root.as_ref(), group: surroundings.group };
        let mut request = Request::begin_in(&self.criu, kind, &inherited, Survival::Ends, at)?;
        let criu = request.pid();
        request.version()?;
        // CRIU's children begin in its group.
        let group = (surroundings.enter)(criu)?;
        (surroundings.adjust)(criu, &mut asked)?;
        let own = Cgroup::of(std::process::id()).context("the own control group")?;
        // A move takes up to 20 ms. So CRIU leaves the group while the programs are restored.
        let mut has_left = false;
        let notify = |moment: Moment, step: &str| {
            match (moment, step) {
                (Moment::Meanwhile, "pre-restore") if child_appears(&group, criu) => {
                    has_left = own.add(criu).is_ok();
                }
                (Moment::Before, "pre-resume") => {
                    if !has_left {
                        own.add(criu)?;
                    }
                    group.begin_freeze()?;
                }
                _ => {}
            }
            Ok(())
        };
        request.send(asked, notify).map_err(|error| {
            let error = criu::explain(&work_path, &error);
            match self.whole.keep_log(&work_path.join(criu::LOG)) {
                Some(kept) => anyhow::anyhow!("{error:#} (its log: {})", kept.display()),
                None => error,
            }
        })?;
        criu::clear_work(&work_path);
        anyhow::ensure!(group.freeze()?, "a restored program does not stop");
        Ok(group)
    }

    /// The caller's standard streams, for the pipes and files of outside that the program had.
    fn streams(&self) -> anyhow::Result<Vec<(OwnedFd, &String)>> {
        let mut streams = Vec::new();
        let Checkpoint { pipes, files_of_outside, .. } = &self.whole.checkpoint;
        for (stream, key) in pipes.iter().chain(files_of_outside) {
            if self.options.is_detached {
                let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
                streams.push((null.into(), key));
                continue;
            }
            // SAFETY: the standard streams stay open.
            let stream = unsafe { BorrowedFd::borrow_raw(*stream) };
            streams.push((dup(stream)?, key));
        }
        Ok(streams)
    }

    /// Puts the processes, which are in namespace `space` of the registry, under `monitor`. `group` is frozen before and afterwards.
    /// Returns the process id of the first program.
    pub fn adopt(
        &self,
        container: &Container,
        group: &Cgroup,
        monitor: &mut ExecMonitor,
        space: PidNamespace,
    ) -> anyhow::Result<u32> {
        let rate = container.clock()?.reading().rate;
        let pids: BTreeMap<u32, u32> =
            group.pids()?.into_iter().filter_map(|pid| Some((number_inside(pid)?, pid))).collect();
        let here = |inside: u32| pids.get(&inside).copied().context("a restored program has ended");
        let mut stopped = Vec::new();
        for process in &self.whole.checkpoint.processes {
            stopped.push((process, RestoredProcess::stop(here(process.pid)?)?));
        }
        group.thaw();
        for (process, restored) in &stopped {
            restored.adopt(monitor, space, rate, &process.saved())?;
        }
        group.begin_freeze()?;
        drop(stopped);
        anyhow::ensure!(group.freeze()?, "a restored program does not stop");
        here(self.whole.checkpoint.root)
    }

    /// Removes what a restore has left that was killed.
    fn clear(&self, state: &StateDir) {
        if let Ok(container) = state.container(self.name()) {
            remove(&container);
        }
    }
}

/// Waits a moment for the first restored process in `group`, a sibling of the process `criu`. Returns whether it is there.
fn child_appears(group: &Cgroup, criu: u32) -> bool {
    const MAX_LOOKS: u32 = 100;
    const LOOK_INTERVAL: Duration = Duration::from_micros(100);
    let is_sibling = |pid: u32| {
        pid != criu && Process::read(pid).is_some_and(|one| one.parent == std::process::id())
    };
    (0..MAX_LOOKS).any(|_| {
        let is_there = group.pids().is_ok_and(|pids| pids.into_iter().any(is_sibling));
        if !is_there {
            sleep(LOOK_INTERVAL);
        }
        is_there
    })
}

pub(crate) fn inherit(fd: RawFd, key: &str) -> Inherit_fd {
    let mut inherit = Inherit_fd::new();
    inherit.set_fd(fd);
    inherit.set_key(key.to_string());
    inherit
}

/// Ends what runs of a container that could not be restored, and removes it.
pub(crate) fn remove(container: &Container) {
    if let Some(group) = container.cgroup() {
        let _ = group.kill();
    }
    let _ = container.remove();
}
