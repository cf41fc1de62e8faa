//! For tests: a process on a clock, as the shim would have put it there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::processes;

/// A process on a container's clock, as the shim would have put it there.
pub(crate) struct Inhabitant(pub u32);

impl Inhabitant {
    /// On the clock in `file`, at least a page long.
    pub(crate) fn of(file: &Path) -> Inhabitant {
        let clock = File::open(file).unwrap();
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let address = processes::CLOCK_ADDRESS as *mut libc::c_void;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a fresh mapping that replaces none; then nothing but waiting.
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

    /// Waits for its end, which somebody else sees to.
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
