//! For tests, also those of other crates: a test process on a clock, mapped as by the shim.

use std::fs::File;
use std::io::{pipe, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

use lorentz_clock::file::PAGE_ADDRESS;

/// A process that has a container's clock mapped where the shim would map it.
pub(crate) struct TestProcess(pub u32);

impl TestProcess {
    /// Starts a process on the clock in `file`, which must be at least a page long.
    pub(crate) fn on(file: &Path) -> TestProcess {
        let clock = File::open(file).unwrap();
        let (mut mapped, report) = pipe().unwrap();
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let address = PAGE_ADDRESS as *mut libc::c_void;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a new mapping that replaces no other; after it the child only waits.
            unsafe {
                libc::alarm(60);
                libc::mmap(address, 4096, libc::PROT_READ, flags, clock.as_raw_fd(), 0);
                libc::write(report.as_raw_fd(), c"m".as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
        }
        drop(report);
        mapped.read_exact(&mut [0]).unwrap();
        TestProcess(u32::try_from(pid).unwrap())
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // SAFETY: a child that has not been waited for.
        unsafe {
            libc::kill(self.0 as libc::pid_t, libc::SIGKILL);
            libc::waitpid(self.0 as libc::pid_t, std::ptr::null_mut(), 0);
        }
    }
}
