//! A monitor's watch over its container's directory, which a user may delete (`rm -rf /run/lorentz`). The monitor has the clock
//! open and knows the record, so it makes the directory anew.
//!
//! The watch is a directory notification (`F_NOTIFY`, SIGIO). inotify would name the events, but the end of an inotify instance
//! waits 10 to 18 ms for a grace period of SRCU, and so would the end of every container.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use lorentz_control::host_time::{now, HostMoment};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::{Container, StateError};

/// Time from the last deletion of a file until the directory is made anew: `rm -rf` is done by then.
const RESTORE_DELAY: Duration = Duration::from_millis(100);
/// Time until the next try, if it cannot be made.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The watch of one monitor. A process has one at most, because SIGIO does not tell two apart.
pub(crate) struct DirectoryWatch {
    /// The container as last seen.
    container: Container,
    /// The clock's file. It stays open when its name is deleted.
    clock: File,
    /// Receives SIGIO, which this process blocks.
    signals: SignalFd,
    /// The watched directory; `None` if the kernel refuses to watch it, or the container was removed. Closing it ends the watch.
    watched: Option<File>,
    /// When to make the directory anew; `None` if it exists.
    due: Option<HostMoment>,
}

impl DirectoryWatch {
    /// Begins the watch. `clock` is the clock's file; the directory may be deleted by now.
    ///
    /// # Errors
    ///
    /// If the kernel has no directory notifications.
    pub(crate) fn of(container: &Container, clock: BorrowedFd) -> io::Result<DirectoryWatch> {
        let clock = File::from(clock.try_clone_to_owned()?);
        if !container.is_clock_held() {
            let _ = container.take_clock_over(clock.as_fd());
        }
        let mut notifications = SigSet::empty();
        notifications.add(Signal::SIGIO);
        notifications.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&notifications, flags)?;
        let watched = match watch(container) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            watched => watched.ok(),
        };
        let due = due_after(RESTORE_DELAY, container);
        Ok(DirectoryWatch { container: container.clone(), clock, signals, watched, due })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.since(now()))
    }

    /// Handles a change of the directory, and makes it anew when it has been deleted.
    pub(crate) fn attend(&mut self) {
        let mut changed = false;
        while let Ok(Some(_)) = self.signals.read_signal() {
            changed = true;
        }
        if changed {
            self.look();
        }
        if self.due.take_if(|due| *due <= HostMoment::now()).is_none() {
            return;
        }
        match self.container.restore(self.clock.as_fd()) {
            Ok(restored) => {
                self.container = restored;
                self.watched = watch(&self.container).ok();
                // The directory may be deleted again by now.
                self.due = due_after(RESTORE_DELAY, &self.container);
            }
            Err(StateError::NameInUse(_)) => {}
            // Its parent was being deleted, for example.
            Err(_) => self.due = due_after(RETRY_INTERVAL, &self.container),
        }
    }

    /// Looks at the directory, in which a file was renamed or deleted.
    fn look(&mut self) {
        if self.is_removed() {
            (self.watched, self.due) = (None, None);
            return;
        }
        let found = self.container.reload();
        if let Some(found) = found.filter(|found| found.is_same(&self.container)) {
            self.container = found;
        }
        if let Some(due) = due_after(RESTORE_DELAY, &self.container) {
            self.due = Some(due);
        }
    }

    /// Whether `lorentz rm` or the last monitor has removed the container. They move the directory away before they delete it, so
    /// that its last name is another one.
    fn is_removed(&self) -> bool {
        let Some(watched) = &self.watched else { return true };
        let link = std::fs::read_link(format!("/proc/self/fd/{}", watched.as_raw_fd()));
        let name = link.ok().and_then(|link| link.file_name()?.to_str().map(str::to_string));
        // The kernel marks the name of a deleted directory. No container's name has a space.
        let name = name.as_deref().map(|name| name.strip_suffix(" (deleted)").unwrap_or(name));
        name.is_some_and(|name| name != self.container.name())
    }
}

/// When to make the directory of `container` anew; `None` if it exists.
fn due_after(delay: Duration, container: &Container) -> Option<HostMoment> {
    (!container.is_complete()).then(|| HostMoment::now().after(delay))
}

/// Has the kernel send SIGIO to this process when a file is renamed or deleted in the directory of `container`.
fn watch(container: &Container) -> io::Result<File> {
    const DN_DELETE: libc::c_int = 0x8;
    const DN_RENAME: libc::c_int = 0x10;
    const DN_MULTISHOT: libc::c_int = 1 << 31;
    let directory = File::open(container.dir())?;
    // SAFETY: the call takes plain numbers.
    let refused = unsafe {
        libc::fcntl(directory.as_raw_fd(), libc::F_NOTIFY, DN_DELETE | DN_RENAME | DN_MULTISHOT)
    };
    match refused {
        0 => Ok(directory),
        _ => Err(io::Error::last_os_error()),
    }
}
