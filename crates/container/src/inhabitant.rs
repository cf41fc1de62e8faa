//! For tests: a test process on a clock, mapped as by the shim.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::processes;

/// A process that has a container's clock mapped where the shim would map it.
pub(crate) struct Inhabitant(pub u32);

impl Inhabitant {
    /// Starts a process on the clock in `file`, which must be at least a page long.
    pub(crate) fn of(file: &Path) -> Inhabitant {
        let clock = File::open(file).unwrap();
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let address = processes::CLOCK_ADDRESS as *mut libc::c_void;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a new mapping that replaces no other; after it the child only waits.
            unsafe {
                libc::alarm(60);
                libc::mmap(address, 4096, libc::PROT_READ, flags, clock.as_raw_fd(), 0);
                loop {
                    libc::pause();
                }
            }
        }
        let pid = u32::try_from(pid).unwrap();
        while processes::clock_of(pid).is_none() {
            std::thread::yield_now();
        }
        Inhabitant(pid)
    }

    /// Waits until the process has ended, and returns its wait status. The caller must make sure that it ends.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: the status may be written.
        unsafe { libc::waitpid(self.0 as libc::pid_t, &mut status, 0) };
        std::mem::forget(self);
        status
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        // SAFETY: a child that has not been waited for.
        unsafe {
            libc::kill(self.0 as libc::pid_t, libc::SIGKILL);
            libc::waitpid(self.0 as libc::pid_t, std::ptr::null_mut(), 0);
        }
    }
}
