//! The kernel's timestamps of files, and a line between files written before and after a change of the clock.
//!
//! The kernel stamps a file with the host's last tick. That tick may lie before a change although the file is written after it. On
//! Linux 6.13 and later, the kernel follows a timestamp that somebody has read with a finer one. From then on no file gets an
//! earlier timestamp. Therefore one such finer timestamp separates files written before from files written after.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;

use lorentz_clock::{saturate, RealInstant, WallTime, NANOS_PER_SEC};

use crate::host_time::{self, host_call};

/// A file in memory that is used to make timestamps.
pub struct FileTimestamps {
    file: i32,
}

impl FileTimestamps {
    /// Makes the file.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn new() -> io::Result<FileTimestamps> {
        const NAME: &CStr = c"lorentz-stamps";
        let flags = u64::from(libc::MFD_CLOEXEC);
        // SAFETY: the name is static.
        let file =
            unsafe { host_call(libc::SYS_memfd_create, [NAME.as_ptr() as u64, flags, 0, 0]) };
        Ok(FileTimestamps { file: file? as i32 })
    }

    /// Returns an instant such that every file written after the call has a later timestamp. On Linux 6.13 and later, every file
    /// written before the call has an earlier one. `host_wall` is the span by which the host's wall clock is ahead of its
    /// CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn draw_line(&self, host_wall: WallTime) -> io::Result<RealInstant> {
        // The first timestamp is the tick's. It is read, so that the second one is finer.
        self.modify()?;
        self.modified()?;
        self.modify()?;
        Ok(RealInstant(saturate(self.modified()? - host_wall.as_nanos())))
    }

    fn modify(&self) -> io::Result<()> {
        // SAFETY: our own file; no times are given.
        unsafe { host_call(libc::SYS_utimensat, [self.file as u64, 0, 0, 0]) }.map(drop)
    }

    /// Returns the modification time of the file by the host's wall clock, in nanoseconds.
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

impl Drop for FileTimestamps {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.file) };
    }
}

/// Returns the span by which the host's wall clock is ahead of its monotonic clock: `known`, unless somebody has set the wall clock
/// since.
pub fn host_wall_ahead(known: WallTime) -> WallTime {
    /// A smaller difference does not count as a setting of the clock.
    const MIN_STEP: i128 = 10_000_000;
    let sampled = host_time::clock_nanos(libc::CLOCK_REALTIME)
        .map(|wall| i128::from(wall) - i128::from(host_time::now().0));
    match sampled {
        Ok(sampled) if (sampled - known.as_nanos()).abs() >= MIN_STEP => {
            host_time::wall_ahead().unwrap_or(WallTime::from_nanos(sampled))
        }
        _ => known,
    }
}
