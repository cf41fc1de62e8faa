//! Times of files, and the way to the files that tell the time.

use super::file_marks::{self, File, Mark};
use super::proc_files;
use crate::call::{Arguments, Call};
use crate::layout::data;
use crate::sys::{
    self, sys, to_fd, AtFlags, Errno, Fd, OpenFlags, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use crate::timestamps::HostWall;
use crate::trap_mask;
use crate::user::Access;
use crate::wait::{self, Masking};
use core::sync::atomic::Ordering::Relaxed;

/// The stat family: the kernel's answer with its times translated.
pub fn stat(call: &Arguments) -> SysResult {
    let result = call.by_kernel()?;
    // Access and modification first: a program can set these.
    let (out, offsets): (UserPtr<u8>, _) = match call.nr {
        Sysno::statx => (call.arg(4), [64, 112, 96, 80].as_slice()),
        Sysno::newfstatat => (call.arg(2), [72, 88, 104].as_slice()),
        _ => (call.arg(1), [72, 88, 104].as_slice()),
    };
    let time = |index: usize| StatTime {
        at: out.field(offsets[index]),
        nanos_are_short: call.nr == Sysno::statx,
    };
    // Most files are older than the clock, and show their timestamps.
    let old_stamps_end = data().old_stamps_end.load(Relaxed);
    // SAFETY: within the structure that the kernel has just written.
    if (0..offsets.len()).all(|index| unsafe { time(index).get() }.secs < old_stamps_end) {
        return Ok(result);
    }
    let host_wall = HostWall::read();
    // SAFETY: as above.
    unsafe {
        let mark = Mark::of(|| named_by(call), [time(0).get(), time(1).get()], host_wall);
        for index in 0..offsets.len() {
            let stamp = time(index).get();
            // All zero where the file system has no such time.
            if call.nr != Sysno::statx || stamp != Timespec::default() {
                time(index).set(match index {
                    0 | 1 => mark.shown(index, stamp, host_wall),
                    _ => host_wall.file_to_virtual(stamp),
                });
            }
        }
    }
    Ok(result)
}

/// The file of a call of the stat or utime family that has succeeded.
fn named_by(call: &Arguments) -> Option<File> {
    let (dir, path, flags): (Fd, UserPtr<u8>, AtFlags) = match call.nr {
        Sysno::stat | Sysno::utime | Sysno::utimes => return Some(File::Path(call.arg(0))),
        Sysno::lstat => return Some(File::Link(call.arg(0))),
        Sysno::fstat => return Some(File::Descriptor(call.arg(0))),
        Sysno::statx => (call.arg(0), call.arg(1), call.arg(2)),
        Sysno::futimesat => (call.arg(0), call.arg(1), AtFlags::new(0)),
        _ => (call.arg(0), call.arg(1), call.arg(3)),
    };
    // SAFETY: the kernel has just read the path.
    unsafe { File::at(dir, path, flags) }
}

/// A time in a struct stat, or in a struct statx, whose nanoseconds have 32 bits.
struct StatTime {
    at: UserPtr<i64>,
    nanos_are_short: bool,
}

impl StatTime {
    /// # Safety
    /// The kernel has just written this time.
    unsafe fn get(&self) -> Timespec {
        let (long, short): (UserPtr<i64>, UserPtr<u32>) = (self.at.field(8), self.at.field(8));
        // SAFETY: the caller's promise.
        unsafe {
            let nanos = if self.nanos_are_short { short.get().into() } else { long.get() };
            Timespec { secs: self.at.get(), nanos }
        }
    }

    /// # Safety
    /// As for [`StatTime::get`].
    unsafe fn set(&self, time: Timespec) {
        let (long, short): (UserPtr<i64>, UserPtr<u32>) = (self.at.field(8), self.at.field(8));
        // SAFETY: the caller's promise.
        unsafe {
            self.at.set(time.secs);
            match self.nanos_are_short {
                true => short.set(time.nanos as u32),
                false => long.set(time.nanos),
            }
        }
    }
}

/// The utime family with explicit times: all as utimensat, which can say nanoseconds.
pub fn set_times(call: &Call) -> SysResult {
    let (dir, path): (Fd, UserPtr<u8>) = match call.nr {
        Sysno::utimensat | Sysno::futimesat => (call.arg(0), call.arg(1)),
        _ => (Fd::AT_FDCWD, call.arg(0)),
    };
    let flags = match call.nr {
        Sysno::utimensat => call.arg(3),
        _ => AtFlags::new(0),
    };
    let times = read_times(call)?;
    let host_wall = HostWall::read();
    let host = times.map(|time| to_host(time, host_wall));
    // SAFETY: the program's own call, with our copy of the times.
    let result = unsafe { sys!(Sysno::utimensat, dir, path, host.as_ptr(), flags)? };
    file_marks::keep(|| named_by(call), times, host);
    Ok(result)
}

/// Access and modification time.
fn read_times(call: &Call) -> SysResult<[Timespec; 2]> {
    match call.nr {
        Sysno::utimensat => call.arg::<UserPtr<[Timespec; 2]>>(2).read(),
        Sysno::utime => {
            let secs = call.arg::<UserPtr<[i64; 2]>>(1).read()?;
            Ok(secs.map(|secs| Timespec { secs, nanos: 0 }))
        }
        _ => {
            let index = if call.nr == Sysno::futimesat { 2 } else { 1 };
            let times = call.arg::<UserPtr<[Timeval; 2]>>(index).read()?;
            if !times.iter().all(|time| time.is_normal()) {
                return Err(Errno::EINVAL);
            }
            Ok(times.map(Timeval::to_timespec))
        }
    }
}

/// UTIME_NOW, UTIME_OMIT and what is invalid are left to the kernel.
fn to_host(time: Timespec, host_wall: HostWall) -> Timespec {
    if file_marks::is_explicit(time) {
        host_wall.file_to_host(time)
    } else {
        time
    }
}

/// open and openat: the kernel's, but for the files of /proc that tell the time.
pub fn open(call: &Call) -> SysResult {
    let fd = to_fd(wait::blocking(call, Masking::Repeats)?);
    if let Some(path) = time_file(call) {
        // SAFETY: the kernel has just read this path.
        unsafe { proc_files::opened(fd, path) };
    }
    Ok(fd.number() as isize)
}

/// The same for a call without a trap, which runs under the program's own signal mask.
pub fn open_directly(call: &Arguments) -> SysResult {
    let result = call.by_kernel()?;
    if let Some(path) = time_file(call) {
        let before = sys::replace_mask(trap_mask::get());
        // SAFETY: the kernel has just read this path.
        unsafe { proc_files::opened(to_fd(result), path) };
        sys::set_mask(before);
    }
    Ok(result)
}

/// The path of an open that has succeeded, where its last part is the name of a file of /proc that tells the time.
fn time_file(call: &Arguments) -> Option<UserPtr<u8>> {
    let (path, flags): (UserPtr<u8>, OpenFlags) = match call.nr {
        Sysno::open => (call.arg(0), call.arg(1)),
        _ => (call.arg(1), call.arg(2)),
    };
    // SAFETY: the kernel has just read this path.
    let is_one = || unsafe { proc_files::may_tell_time(path) };
    (!flags.contains(OpenFlags::O_PATH) && is_one()).then_some(path)
}
