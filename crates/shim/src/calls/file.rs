//! Times of files, and the way to the files that tell the time.

use crate::call::Call;
use crate::stamps;
use crate::sys::{
    sys, to_fd, AtFlags, Errno, Fd, OpenFlags, SysResult, Sysno, Timespec, Timeval, UserPtr,
};
use crate::user::Access;
use crate::wait::{self, Masking};

/// The stat family: the kernel's answer with its times translated.
pub fn stat(call: &Call) -> SysResult {
    const STAT_TIMES: [u64; 3] = [72, 88, 104];
    const STATX_TIMES: [u64; 4] = [64, 80, 96, 112];
    let result = call.by_kernel()?;
    let out: UserPtr<u8> = call.arg(match call.nr {
        Sysno::statx => 4,
        Sysno::newfstatat => 2,
        _ => 1,
    });
    match call.nr {
        Sysno::statx => STATX_TIMES.iter().for_each(|at| translate_statx(out.field(*at))),
        _ => STAT_TIMES.iter().for_each(|at| translate(out.field(*at))),
    }
    Ok(result)
}

fn translate(time: UserPtr<Timespec>) {
    // SAFETY: within the structure that the kernel has just written.
    unsafe { time.set(stamps::file_to_virtual(time.get())) };
}

/// struct statx_timestamp: seconds, 32 bits of nanoseconds, padding.
type StatxTime = [u32; 4];

/// All zero where the file system has no such time.
fn translate_statx(time: UserPtr<StatxTime>) {
    let (secs, nanos): (UserPtr<i64>, UserPtr<u32>) = (time.field(0), time.field(8));
    // SAFETY: within the structure that the kernel has just written.
    unsafe {
        let stamp = Timespec { secs: secs.get(), nanos: nanos.get().into() };
        if stamp != Timespec::default() {
            let reported = stamps::file_to_virtual(stamp);
            secs.set(reported.secs);
            nanos.set(reported.nanos as u32);
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
    let host = read_times(call)?.map(to_host);
    // SAFETY: the program's own call, with our copy of the times.
    unsafe { sys!(Sysno::utimensat, dir, path, host.as_ptr(), flags) }
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
fn to_host(time: Timespec) -> Timespec {
    if (0..lorentz_clock::NANOS_PER_SEC).contains(&time.nanos) {
        stamps::file_to_host(time)
    } else {
        time
    }
}

/// open and openat: the kernel's, but for the files of /proc that tell the time.
pub fn open(call: &Call) -> SysResult {
    let (path, flags): (UserPtr<u8>, OpenFlags) = match call.nr {
        Sysno::open => (call.arg(0), call.arg(1)),
        _ => (call.arg(1), call.arg(2)),
    };
    let result = wait::blocking(call, Masking::Repeats)?;
    if !flags.contains(OpenFlags::O_PATH) {
        // SAFETY: the kernel has just read this path.
        unsafe { super::proc_files::opened(to_fd(result), path) };
    }
    Ok(result)
}
