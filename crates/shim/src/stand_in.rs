//! Content of ours in the place of a file that the program has opened.

use crate::sys::{close, sys, to_fd, Fd, OpenFlags, Sysno};

/// The file that the program reads instead: a file in memory; or a pipe, for programs that may not write a file so long.
/// RLIMIT_FSIZE counts files in memory as well, and the kernel would send SIGXFSZ.
pub struct StandIn {
    /// The descriptor to write the content to.
    pub write: Fd,
    read: Fd,
}

impl StandIn {
    /// Makes an empty one. None where the kernel refuses.
    pub fn new() -> Option<StandIn> {
        if may_write_files() {
            // SAFETY: a new descriptor.
            let file = unsafe { sys!(Sysno::memfd_create, c"lorentz-proc".as_ptr(), 0) };
            let file = to_fd(file.ok()?);
            return Some(StandIn { write: file, read: file });
        }
        const F_SETPIPE_SZ: i32 = 1031;
        const PIPE_LEN: i32 = 1 << 20;
        let mut ends = [Fd::NONE; 2];
        // SAFETY: writes two new descriptors.
        unsafe { sys!(Sysno::pipe2, ends.as_mut_ptr(), OpenFlags::O_NONBLOCK).ok()? };
        let [read, write] = ends;
        // SAFETY: our own pipe. Where the kernel refuses, it has room for 64 KiB.
        let _ = unsafe { sys!(Sysno::fcntl, write, F_SETPIPE_SZ, PIPE_LEN) };
        Some(StandIn { write, read })
    }

    /// Whether it is a file, which can be written anew later.
    pub fn is_file(&self) -> bool {
        self.write == self.read
    }

    /// Makes `fd` a name of it, with the close-on-exec flag of `fd`. False where the kernel refuses: then `fd` is as it was.
    pub fn replace(&self, fd: Fd) -> bool {
        const F_GETFD: i32 = 1;
        const FD_CLOEXEC: isize = 1;
        // SAFETY: a descriptor of our own, and the one just opened.
        unsafe {
            let flags = sys!(Sysno::fcntl, fd, F_GETFD);
            let closes = !flags.is_ok_and(|flags| flags & FD_CLOEXEC == 0);
            let keep = if closes { OpenFlags::O_CLOEXEC } else { OpenFlags::new(0) };
            sys!(Sysno::dup3, self.read, fd, keep).is_ok()
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        close(self.read);
        if !self.is_file() {
            close(self.write);
        }
    }
}

/// Whether RLIMIT_FSIZE leaves room for any file of /proc.
fn may_write_files() -> bool {
    const RLIMIT_FSIZE: u32 = 1;
    const MIN_LIMIT: u64 = 1 << 20;
    let mut limits = [u64::MAX; 2];
    // SAFETY: writes two words.
    let _ = unsafe { sys!(Sysno::getrlimit, RLIMIT_FSIZE, limits.as_mut_ptr()) };
    limits[0] >= MIN_LIMIT
}
