//! The kernel's time stamps of files, and a line between those written before and after a change of the clock.
//!
//! A file is stamped by the host's last tick, which may lie before a change that it is written after. On Linux 6.13 and later a
//! stamp that was looked at is followed by a finer one, and then no file gets an earlier one: so making such a stamp tells files
//! written before from those written after.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;

use lorentz_clock::{saturate, RealInstant, WallTime, NANOS_PER_SEC};

use crate::host_time::{self, host_call};

/// A file of its own, to make stamps with.
pub struct FileStamps {
    file: i32,
}

impl FileStamps {
    /// Makes the file, in memory.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn new() -> io::Result<FileStamps> {
        const NAME: &CStr = c"lorentz-stamps";
        let flags = u64::from(libc::MFD_CLOEXEC);
        // SAFETY: a name that lasts.
        let file =
            unsafe { host_call(libc::SYS_memfd_create, [NAME.as_ptr() as u64, flags, 0, 0]) };
        Ok(FileStamps { file: file? as i32 })
    }

    /// An instant which no file has as its stamp that is written after this returns, nor a lesser one; on Linux 6.13 and later,
    /// all that were written before have a lesser one. `host_wall` is what the host's wall clock is ahead of its CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn draw_line(&self, host_wall: WallTime) -> io::Result<RealInstant> {
        // The tick's; seen, so that the second one is finer.
        self.modify()?;
        self.modified()?;
        self.modify()?;
        Ok(RealInstant(saturate(self.modified()? - host_wall.as_nanos())))
    }

    fn modify(&self) -> io::Result<()> {
        // SAFETY: our own file; no times are given.
        unsafe { host_call(libc::SYS_utimensat, [self.file as u64, 0, 0, 0]) }.map(drop)
    }

    /// When the file was modified, by the host's wall clock, nanoseconds.
    fn modified(&self) -> io::Result<i128> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: our own file, and room for the kernel to write.
        unsafe {
            host_call(libc::SYS_fstat, [self.file as u64, stat.as_mut_ptr() as u64, 0, 0])?;
            let stat = stat.assume_init();
            Ok(i128::from(stat.st_mtime) * i128::from(NANOS_PER_SEC)
                + i128::from(stat.st_mtime_nsec))
        }
    }
}

impl Drop for FileStamps {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.file) };
    }
}

/// What the host's wall clock is ahead of its monotonic clock: as `known`, unless it has been set since.
pub fn host_wall_ahead(known: WallTime) -> WallTime {
    /// By less than this it is not believed to have been set.
    const SET: i128 = 10_000_000;
    let sampled = host_time::clock_nanos(libc::CLOCK_REALTIME)
        .map(|wall| i128::from(wall) - i128::from(host_time::now().0));
    match sampled {
        Ok(sampled) if (sampled - known.as_nanos()).abs() >= SET => {
            host_time::wall_ahead().unwrap_or(WallTime::from_nanos(sampled))
        }
        _ => known,
    }
}
