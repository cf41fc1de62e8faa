//! Content of ours in the place of a file that the program has opened.

use crate::sys::{sys, Sysno};

/// What the program reads instead: a file in memory; or a pipe, for programs that may not write a file so long. RLIMIT_FSIZE counts
/// files in memory as well, and the kernel would send SIGXFSZ.
pub struct StandIn {
    /// The descriptor to write the content to.
    pub write: u32,
    read: u32,
}

impl StandIn {
    /// Makes an empty one. None where the kernel refuses.
    pub fn new() -> Option<StandIn> {
        if may_write_files() {
            // SAFETY: a new descriptor.
            let file = unsafe { sys!(Sysno::memfd_create, c"lorentz-proc".as_ptr(), 0u64) };
            return (file >= 0).then_some(StandIn { write: file as u32, read: file as u32 });
        }
        const NONBLOCK: u64 = 0o4000;
        const F_SETPIPE_SZ: u64 = 1031;
        const MOST: u64 = 1 << 20;
        let mut ends = [0u32; 2];
        // SAFETY: writes two new descriptors.
        if unsafe { sys!(Sysno::pipe2, ends.as_mut_ptr(), NONBLOCK) } != 0 {
            return None;
        }
        let [read, write] = ends;
        // SAFETY: our own pipe. Where the kernel refuses, it has room for 64 KiB.
        unsafe { sys!(Sysno::fcntl, write, F_SETPIPE_SZ, MOST) };
        Some(StandIn { write, read })
    }

    /// Whether it is a file, which can be written anew later.
    pub fn is_file(&self) -> bool {
        self.write == self.read
    }

    /// Makes `fd` a name of it, with the close-on-exec flag of `fd`. False where the kernel refuses: then `fd` is as it was.
    pub fn replace(&self, fd: u32) -> bool {
        const F_GETFD: u64 = 1;
        const FD_CLOEXEC: isize = 1;
        const O_CLOEXEC: u64 = 0o2000000;
        // SAFETY: a descriptor of our own, and the one just opened.
        unsafe {
            let flags = sys!(Sysno::fcntl, fd, F_GETFD);
            let keep = if flags & FD_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
            sys!(Sysno::dup3, self.read, fd, keep) >= 0
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // SAFETY: our own descriptors.
        unsafe {
            sys!(Sysno::close, self.read);
            if !self.is_file() {
                sys!(Sysno::close, self.write);
            }
        }
    }
}

/// Whether RLIMIT_FSIZE leaves room for any file of /proc.
fn may_write_files() -> bool {
    const RLIMIT_FSIZE: u64 = 1;
    const ANY: u64 = 1 << 20;
    let mut limits = [u64::MAX; 2];
    // SAFETY: writes two words.
    unsafe { sys!(Sysno::getrlimit, RLIMIT_FSIZE, limits.as_mut_ptr()) };
    limits[0] >= ANY
}
