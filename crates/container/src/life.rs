//! The life of a container: its programs are started, looked after, and cleared up after.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::Context;
use lorentz_inject::{Monitor, Target};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{fork, pipe, setsid, ForkResult, Pid};

use crate::{Cgroup, Clock, Container, MonitorKind};

/// What an attach brought into virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The processes.
    pub pids: Vec<u32>,
}

/// Runs `command` in a new container and returns its exit status, as a shell tells it. The calling process is the monitor
/// meanwhile; it must have one thread only. Where programs are left when the command ends, a process in the background
/// goes on looking after them.
///
/// # Errors
///
/// A command that cannot be found or started; a kernel that refuses.
pub fn run(
    container: Container,
    command: &[OsString],
    wait_while_frozen: bool,
) -> anyhow::Result<i32> {
    look_after(container, command, MonitorKind::Run, wait_while_frozen)
}

/// Runs one more command on the clock of `container`.
///
/// # Errors
///
/// As [`run`].
pub fn exec(container: &Container, command: &[OsString]) -> anyhow::Result<i32> {
    let container = container.enter(MonitorKind::Exec)?;
    look_after(container, command, MonitorKind::Exec, false)
}

fn look_after(
    mut container: Container,
    command: &[OsString],
    kind: MonitorKind,
    wait_while_frozen: bool,
) -> anyhow::Result<i32> {
    let clock = container.clock()?;
    let launched = launch(&mut container, &clock, command, wait_while_frozen);
    let (mut monitor, ended) = match launched.and_then(|mut monitor| {
        let ended = monitor.serve()?;
        Ok((monitor, ended))
    }) {
        Ok(both) => both,
        Err(error) => {
            container.leave()?;
            return Err(error);
        }
    };
    if !monitor.is_abandoned() {
        hand_over(&mut monitor, &container, kind)?;
    }
    container.leave()?;
    Ok(ended.code())
}

fn launch(
    container: &mut Container,
    clock: &Clock,
    command: &[OsString],
    wait_while_frozen: bool,
) -> anyhow::Result<Monitor> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>().context("a command without NUL bytes")?;
    if container.cgroup().is_none() {
        if let Some(cgroup) = Cgroup::create(container.name()) {
            container.set_cgroup(Some(&cgroup))?;
        }
    }
    let target = target(container, clock)?;
    let prepare = |pid: Pid| {
        let number = pid.as_raw() as u32;
        container.set_program(number).map_err(io::Error::other)?;
        if let Some(cgroup) = container.cgroup() {
            cgroup.add(number)?;
        }
        if wait_while_frozen {
            wait_until_unfrozen(clock)?;
        }
        Ok(())
    };
    Ok(Monitor::launch(&words, target, prepare)?)
}

fn target(container: &Container, clock: &Clock) -> anyhow::Result<Target> {
    let file = OpenOptions::new().read(true).write(true).open(container.clock_path())?;
    Ok(Target { clock: file.into(), policy: clock.policy() })
}

/// A container that was started frozen begins with its first instruction when it is unfrozen.
fn wait_until_unfrozen(clock: &Clock) -> io::Result<()> {
    const OFTEN: Duration = Duration::from_millis(2);
    const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    while clock.is_frozen() {
        let mut pending = SigSet::empty();
        // SAFETY: writes the set. The monitor has these signals blocked, to read them later.
        unsafe { libc::sigpending(pending_set(&mut pending)) };
        if ENDING.iter().any(|signal| pending.contains(*signal)) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "ended before it began"));
        }
        std::thread::sleep(OFTEN);
    }
    Ok(())
}

fn pending_set(set: &mut SigSet) -> *mut libc::sigset_t {
    // SigSet is a transparent wrapper.
    std::ptr::from_mut(set).cast()
}

/// Goes on looking after what is left in a process of its own, so that this one can end with the command's status.
fn hand_over(
    monitor: &mut Monitor,
    container: &Container,
    kind: MonitorKind,
) -> anyhow::Result<()> {
    let (ready, tell) = pipe()?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => {
            drop(tell);
            // Ends when the other has entered the container, or is gone.
            let _ = nix::unistd::read(&ready, &mut [0]);
            Ok(())
        }
        ForkResult::Child => {
            drop(ready);
            let status = match background(monitor, container, kind, tell) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            // SAFETY: ends this process; nothing of the parent's is to be run again.
            unsafe { libc::_exit(status) }
        }
    }
}

fn background(
    monitor: &mut Monitor,
    container: &Container,
    kind: MonitorKind,
    tell: std::os::fd::OwnedFd,
) -> anyhow::Result<()> {
    let _ = setsid();
    let container = container.enter(kind)?;
    close_standard_streams()?;
    drop(tell);
    monitor.serve_rest()?;
    container.leave()?;
    Ok(())
}

/// A pipe that the caller reads to its end must not be kept open by who only looks after others.
fn close_standard_streams() -> anyhow::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}

/// Brings a running process in.
///
/// # Errors
///
/// Always, for now.
pub fn attach(pid: u32, tree: bool, container: Container) -> anyhow::Result<Attached> {
    let _ = (container, pid, tree);
    anyhow::bail!("not built yet")
}
