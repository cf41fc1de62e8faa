//! Programs that enter a container from outside: brought onto its clock, ended, or left alone.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;

use lorentz_control::processes::{self, Process};
use lorentz_inject::{Error, ExecMonitor, LoopTask};
use lorentz_newcomers::{Membership, NewcomerWatch};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::{Container, Mechanism, Newcomers};

pub use lorentz_newcomers::{check as check_newcomers, is_first_process};

/// A monitor's watch over those who enter its container.
pub(crate) struct NewcomerTask {
    container: Container,
    policy: Newcomers,
    /// The watch, once the first program is known.
    watch: Option<NewcomerWatch>,
}

impl NewcomerTask {
    /// `None` if the container ignores newcomers.
    pub(crate) fn of(container: &Container) -> Option<NewcomerTask> {
        let policy = container.record().newcomers?;
        let watches =
            policy != Newcomers::Ignore && container.record().mechanism == Mechanism::Shim;
        watches.then(|| NewcomerTask { container: container.clone(), policy, watch: None })
    }

    /// Ends process `pid`, and tells its user on the process's standard error.
    fn end(&self, pid: Pid, why: &str) {
        let number = pid.as_raw() as u32;
        let Some(process) = Process::read(number).filter(|process| !process.has_ended()) else {
            return;
        };
        let (name, command) = (self.container.name(), process.command());
        let word =
            format!("lorentz: {command}: has entered container {name} and is ended: {why}\n");
        let mut errors = OpenOptions::new();
        errors.append(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
        // A process without standard error, or whose pipe is full, ends without a word.
        if let Ok(mut errors) = errors.open(format!("/proc/{pid}/fd/2")) {
            let _ = errors.write_all(word.as_bytes());
        }
        let _ = kill(pid, Signal::SIGKILL);
    }
}

impl LoopTask for NewcomerTask {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.watch.iter().filter_map(NewcomerWatch::fd).collect()
    }

    fn run(&mut self) -> Vec<Pid> {
        let found = self.watch.as_mut().map(NewcomerWatch::take).unwrap_or_default();
        let outside = |pid: &u32| processes::clock_of(*pid).is_none();
        let found = found.into_iter().filter(outside).map(|pid| Pid::from_raw(pid as i32));
        match self.policy {
            Newcomers::Attach => found.collect(),
            _ => {
                found.for_each(|pid| self.end(pid, "--newcomers refuse"));
                Vec::new()
            }
        }
    }

    fn refused(&mut self, pid: Pid, why: &Error) {
        if processes::clock_of(pid.as_raw() as u32).is_none() {
            self.end(pid, &format!("it cannot be brought onto the container's clock: {why}"));
        }
    }

    fn program_begins(&mut self, pid: Pid) {
        // The group was recorded after the monitor had begun.
        let group = self.container.reload().and_then(|container| container.cgroup());
        let group = group.as_ref().map(|group| group.path());
        // A first program that has ended leaves nothing to enter by.
        let membership = Membership::of(pid.as_raw() as u32, group).ok().flatten();
        // Without a thread or a socket, newcomers stay in the host's time.
        self.watch = membership.and_then(|membership| NewcomerWatch::begin(membership).ok());
    }
}

/// Makes a monitor that has taken over the programs of `container` watch over newcomers, as the monitor before did.
pub(crate) fn go_on_watching(monitor: &mut ExecMonitor, container: &Container) {
    let programs = container.record().monitors.iter().filter_map(|monitor| monitor.program);
    if let Some(first) = programs.into_iter().next() {
        monitor.program_begins(Pid::from_raw(first as i32));
    }
}
