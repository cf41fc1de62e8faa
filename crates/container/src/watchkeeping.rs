//! A monitor's watch over its clock. It completes the change of a controller that was killed, and takes announced changes through
//! their start.
//!
//! A container's directory has a pipe, `changes`. A controller holds it open for writing while it has the clock's lock. The kernel
//! closes the pipe when the controller is done or dies, and so wakes the monitor, which has the pipe open for reading. Therefore a
//! monitor does nothing while nobody changes its clock. Containers that share a clock share the pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lorentz_inject::LoopTask;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::control::ToCome;
use crate::home::Home;
use crate::host_time::{now, Moment};
use crate::{freeze, skip, Clock, Container, Mechanism};

/// The pipe's name.
const NAME: &str = "changes";

/// The path of the pipe of the clock at `clock`.
fn beside(clock: &Path) -> PathBuf {
    clock.with_file_name(NAME)
}

/// Makes the pipe beside a new clock.
pub(crate) fn make(clock: &Path) -> io::Result<()> {
    Ok(mkfifo(&beside(clock), Mode::from_bits_truncate(0o600))?)
}

/// Gives a second name of a clock the same pipe.
pub(crate) fn share(owner: &Path, clock: &Path) -> io::Result<()> {
    match std::fs::hard_link(beside(owner), beside(clock)) {
        // A clock made by an older version of Lorentz has no pipe.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}

/// Opens the pipe for a controller, for as long as it changes the clock. `None` if no monitor listens.
pub(crate) fn tell(clock: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK).open(beside(clock)).ok()
}

fn listen(clock: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(beside(clock))
}

/// The watch of one monitor over its container's clock.
pub(crate) struct Watchkeeper {
    container: Container,
    clock: Clock,
    changes: File,
    /// The watch over the container's directory; `None` if the kernel refuses it.
    home: Option<Home>,
    /// When to look without being woken.
    due: Option<Moment>,
    /// The next announced change.
    next: Option<Announced>,
}

struct Announced {
    begins: Moment,
    frozen: bool,
}

impl Watchkeeper {
    /// Begins the watch over the clock of `container`. `None` if the clock cannot be changed.
    ///
    /// # Errors
    ///
    /// If the clock cannot be opened.
    pub(crate) fn of(container: &Container) -> anyhow::Result<Option<Watchkeeper>> {
        if container.record().mechanism != Mechanism::Shim {
            return Ok(None);
        }
        let Ok(changes) = listen(&container.clock_path()) else { return Ok(None) };
        let clock = container.clock()?;
        let home = Home::of(container).ok();
        let mut watch = Watchkeeper {
            container: container.clone(),
            clock,
            changes,
            home,
            due: None,
            next: None,
        };
        watch.run();
        Ok(Some(watch))
    }

    /// Stops the tasks, or lets them go, if an announced freeze or its end has begun.
    fn follow_with_tasks(&mut self) {
        let come = |next: &mut Announced| next.begins <= Moment::now();
        let Some(next) = self.next.take_if(come) else { return };
        if self.clock.is_frozen() == next.frozen {
            // A container that is gone has no tasks.
            let _ = freeze::follow_clock(&self.container, &self.clock);
        }
    }

    fn announced(&self) -> Option<Announced> {
        let ToCome { left, frozen, .. } = *self.clock.reading().to_come.first()?;
        let begins = Moment::now().after(Duration::from_nanos(left.0.max(0) as u64));
        Some(Announced { begins, frozen })
    }
}

impl LoopTask for Watchkeeper {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.home.iter().map(Home::fd).chain([self.changes.as_fd()]).collect()
    }

    fn timeout(&self) -> Option<Duration> {
        let clock = self.due.map(|due| due.since(now()));
        [clock, self.home.as_ref().and_then(Home::left)].into_iter().flatten().min()
    }

    fn run(&mut self) {
        if let Some(home) = &mut self.home {
            home.attend();
        }
        // The pipe that is opened anew is quiet until the next controller closes it. The care below sees the work of a controller
        // that has closed it before.
        if let Ok(changes) = listen(&self.container.clock_path()) {
            self.changes = changes;
        }
        let left = self.clock.care().ok().flatten();
        self.due = left.map(|left| Moment::now().after(left));
        self.follow_with_tasks();
        self.next = self.announced();
        // The monitor starts the skipper also for a command inside, which cannot: the skipper would be one of the tasks whose sleep
        // it waits for.
        let _ = skip::start_where_asked(&self.container);
    }
}
