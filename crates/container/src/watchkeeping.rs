//! A monitor's watch over its clock: it goes on with what a controller has left that was killed, and with changes that were
//! announced for an instant ahead.
//!
//! In a container's directory lies a pipe, `changes`. A controller holds it open for writing as long as it has the clock's lock;
//! the kernel closes it whatever becomes of the controller, and the monitor, which has it open for reading, is woken. So a monitor
//! does nothing while nobody changes its clock. Containers that share a clock share the pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lorentz_inject::Attendant;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::control::ToCome;
use crate::home::Home;
use crate::host_time::{now, Moment};
use crate::{freeze, skip, Clock, Container, Mechanism};

/// The pipe's name.
const NAME: &str = "changes";

/// The pipe of the clock at `clock`.
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
        // A clock of an older version has none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}

/// A controller's end, for as long as it changes the clock; none where no monitor listens.
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
    /// The watch over its directory, where the kernel lets it.
    home: Option<Home>,
    /// When to look without being woken.
    due: Option<Moment>,
    /// The next change that was announced.
    next: Option<Announced>,
}

struct Announced {
    begins: Moment,
    frozen: bool,
}

impl Watchkeeper {
    /// Begins the watch over the clock of `container`; none where it cannot be changed.
    ///
    /// # Errors
    ///
    /// Where the clock cannot be opened.
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
        watch.attend();
        Ok(Some(watch))
    }

    /// Stops the tasks, or lets them go, where a freeze or its end was announced and has come.
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

impl Attendant for Watchkeeper {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.home.iter().map(Home::fd).chain([self.changes.as_fd()]).collect()
    }

    fn left(&self) -> Option<Duration> {
        let clock = self.due.map(|due| due.since(now()));
        [clock, self.home.as_ref().and_then(Home::left)].into_iter().flatten().min()
    }

    fn attend(&mut self) {
        if let Some(home) = &mut self.home {
            home.attend();
        }
        // Opened anew, the pipe is quiet until the next controller closes it. One that has closed it before is seen below.
        if let Ok(changes) = listen(&self.container.clock_path()) {
            self.changes = changes;
        }
        let left = self.clock.care().ok().flatten();
        self.due = left.map(|left| Moment::now().after(left));
        self.follow_with_tasks();
        self.next = self.announced();
        // A command inside cannot start it: it would be one of those whose sleep it waits for.
        let _ = skip::start_where_asked(&self.container);
    }
}
