//! A monitor's watch over its container's directory, which a user may delete (`rm -rf /run/lorentz`). The monitor has the clock
//! open and knows the record, so it makes the directory anew.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use lorentz_control::host_time::{now, HostMoment};

use crate::Container;

/// Time from the last deletion of a file until the directory is made anew: `rm -rf` is done by then.
const RESTORE_DELAY: Duration = Duration::from_millis(100);

/// The watch of one monitor.
pub(crate) struct DirectoryWatch {
    /// The container as last seen.
    container: Container,
    /// The clock's file. It stays open when its name is deleted.
    clock: File,
    events: File,
    /// When to make the directory anew; `None` if it exists.
    due: Option<HostMoment>,
    /// Whether `lorentz rm` or the last monitor has removed the container.
    removed: bool,
}

impl DirectoryWatch {
    /// Begins the watch.
    ///
    /// # Errors
    ///
    /// If the clock cannot be opened, or the kernel has no inotify instance left for this user.
    pub(crate) fn of(container: &Container) -> io::Result<DirectoryWatch> {
        let clock = File::options().read(true).write(true).open(container.clock_path())?;
        if !container.is_clock_held() {
            container.take_clock_over(clock.as_fd())?;
        }
        // SAFETY: the result is a new descriptor or -1.
        let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and belongs to nobody else.
        let events = unsafe { File::from_raw_fd(raw) };
        let watch = DirectoryWatch {
            container: container.clone(),
            clock,
            events,
            due: None,
            removed: false,
        };
        watch.add_watch()?;
        Ok(watch)
    }

    fn add_watch(&self) -> io::Result<()> {
        const MASK: u32 = libc::IN_MOVED_TO
            | libc::IN_DELETE
            | libc::IN_DELETE_SELF
            | libc::IN_MOVE_SELF
            | libc::IN_ONLYDIR;
        let mut path = self.container.dir().as_os_str().as_bytes().to_vec();
        path.push(0);
        // SAFETY: a string that ends in NUL.
        let watch =
            unsafe { libc::inotify_add_watch(self.events.as_raw_fd(), path.as_ptr().cast(), MASK) };
        if watch < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.since(now()))
    }

    /// Handles the events of the directory, and makes it anew when it has been deleted.
    pub(crate) fn attend(&mut self) {
        let seen = self.read_events();
        // These two move the directory away before they delete it.
        self.removed |= seen & libc::IN_MOVE_SELF != 0;
        if self.removed {
            self.due = None;
            return;
        }
        if seen & libc::IN_MOVED_TO != 0 {
            self.reload_record();
        }
        if seen & (libc::IN_DELETE | libc::IN_DELETE_SELF) != 0 {
            self.due = Some(HostMoment::now().after(RESTORE_DELAY));
        }
        if self.due.take_if(|due| *due <= HostMoment::now()).is_none() {
            return;
        }
        if let Ok(restored) = self.container.restore(self.clock.as_fd()) {
            self.container = restored;
            // If the kernel refuses, the directory is not watched any more.
            let _ = self.add_watch();
        }
    }

    /// Reads the record again, which may have changed.
    fn reload_record(&mut self) {
        let found = self.container.reload();
        if let Some(found) = found.filter(|found| found.is_same(&self.container)) {
            self.container = found;
        }
    }

    /// Reads all events. Returns the union of their masks.
    fn read_events(&mut self) -> u32 {
        /// Length of struct inotify_event: watch, mask, cookie, and the length of the name that follows.
        const EVENT_HEADER_LEN: usize = 16;
        let word = |bytes: &[u8], at: usize| {
            let word = bytes[at..at + 4].try_into().unwrap_or_default();
            u32::from_ne_bytes(word)
        };
        let (mut seen, mut buffer) = (0, [0_u8; 4096]);
        while let Ok(length @ 1..) = self.events.read(&mut buffer) {
            let mut rest = &buffer[..length];
            while rest.len() >= EVENT_HEADER_LEN {
                seen |= word(rest, 4);
                rest = rest.get(EVENT_HEADER_LEN + word(rest, 12) as usize..).unwrap_or_default();
            }
        }
        seen
    }
}
