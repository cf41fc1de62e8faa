//! A monitor's watch over its clock. It completes the change of a controller that was killed, and takes announced changes through
//! their start.
//!
//! The pipe `changes` wakes the monitor ([`lorentz_control::change_pipe`]). Therefore a monitor does nothing while nobody changes
//! its clock.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lorentz_control::change_pipe::listen;
use lorentz_control::host_time::{now, HostMoment};
use lorentz_control::{Clock, ToCome};
use lorentz_inject::LoopTask;
use nix::unistd::Pid;

use crate::directory_watch::DirectoryWatch;
use crate::{freeze, skip, Container, Mechanism};

/// The watch of one monitor over its container's clock.
pub(crate) struct ClockWatch {
    container: Container,
    clock: Clock,
    /// The pipe; `None` while the container's directory is deleted.
    changes: Option<File>,
    /// The watch over the container's directory; `None` if the kernel refuses it.
    directory: Option<DirectoryWatch>,
    /// When to look without being woken.
    due: Option<HostMoment>,
    /// The next announced change.
    next: Option<Announced>,
}

struct Announced {
    begins: HostMoment,
    frozen: bool,
}

impl ClockWatch {
    /// Begins the watch over the clock of `container`. `None` if the clock cannot be changed.
    pub(crate) fn of(
        container: &Container,
        clock: Clock,
        directory: Option<DirectoryWatch>,
    ) -> Option<ClockWatch> {
        if container.record().mechanism != Mechanism::Shim {
            return None;
        }
        let changes = listen(&container.clock_path()).ok();
        if changes.is_none() && directory.is_none() {
            return None;
        }
        let mut watch = ClockWatch {
            container: container.clone(),
            clock,
            changes,
            directory,
            due: None,
            next: None,
        };
        watch.run();
        Some(watch)
    }

    /// Stops the tasks, or lets them go, if an announced freeze or its end has begun.
    fn follow_with_tasks(&mut self) {
        let come = |next: &mut Announced| next.begins <= HostMoment::now();
        let Some(next) = self.next.take_if(come) else { return };
        if self.clock.is_frozen() == next.frozen {
            // A container that is gone has no tasks.
            let _ = freeze::follow_clock(&self.container, &self.clock);
        }
    }

    fn announced(&self) -> Option<Announced> {
        let ToCome { left, frozen, .. } = *self.clock.reading().to_come.first()?;
        let begins = HostMoment::now().after(Duration::from_nanos(left.0.max(0) as u64));
        Some(Announced { begins, frozen })
    }
}

impl LoopTask for ClockWatch {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let changes = self.changes.iter().map(AsFd::as_fd);
        self.directory.iter().map(DirectoryWatch::fd).chain(changes).collect()
    }

    fn timeout(&self) -> Option<Duration> {
        let clock = self.due.map(|due| due.since(now()));
        [clock, self.directory.as_ref().and_then(DirectoryWatch::left)].into_iter().flatten().min()
    }

    fn run(&mut self) -> Vec<Pid> {
        if let Some(directory) = &mut self.directory {
            directory.attend();
        }
        // The pipe that is opened anew is quiet until the next controller closes it. The care below sees the work of a controller
        // that has closed it before.
        if let Ok(changes) = listen(&self.container.clock_path()) {
            self.changes = Some(changes);
        }
        let left = self.clock.supervise().ok().flatten();
        // Of a clock without an error nothing is to be done. An experiment looks after the clocks that it moves, and wakes this monitor
        // when it lets one go.
        let is_own = || matches!(self.container.experiment(), Ok(None));
        let error = match self.clock.has_error() && is_own() {
            true => self.clock.refresh_error().ok().flatten(),
            false => None,
        };
        let left = [left, error].into_iter().flatten().min();
        self.due = left.map(|left| HostMoment::now().after(left));
        self.follow_with_tasks();
        self.next = self.announced();
        // The monitor starts the skipper also for a command inside, which cannot: the skipper would be one of the tasks whose sleep
        // it waits for.
        let _ = skip::start_where_asked(&self.container, &self.clock);
        Vec::new()
    }
}
