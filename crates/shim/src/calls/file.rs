//! Times of files, and the way to the files that tell the time.

use crate::stamps;
use crate::sys::{errno, sys, Itimerspec, Sysno, Timespec};
use crate::trap::Call;
use crate::user;
use crate::wait::{self, Masking};

/// The stat family: the kernel's answer with its times translated.
pub fn stat(call: &Call) -> isize {
    let result = call.by_kernel();
    if result != 0 {
        return result;
    }
    const STAT_TIMES: [u64; 3] = [72, 88, 104];
    const STATX_TIMES: [u64; 4] = [64, 80, 96, 112];
    match call.nr {
        Sysno::statx => STATX_TIMES.iter().for_each(|at| translate_statx(call.args[4] + at)),
        Sysno::newfstatat => STAT_TIMES.iter().for_each(|at| translate(call.args[2] + at)),
        _ => STAT_TIMES.iter().for_each(|at| translate(call.args[1] + at)),
    }
    0
}

fn translate(at: u64) {
    let at = at as *mut Timespec;
    // SAFETY: within the structure that the kernel has just written.
    unsafe { at.write_unaligned(stamps::to_virtual(at.read_unaligned())) };
}

/// struct statx_timestamp: seconds, 32 bits of nanoseconds, padding. All zero where the file system has none.
fn translate_statx(at: u64) {
    // SAFETY: within the structure that the kernel has just written.
    unsafe {
        let (secs, nanos) = (at as *mut i64, (at + 8) as *mut u32);
        let stamp = Timespec { secs: secs.read_unaligned(), nanos: nanos.read_unaligned() as i64 };
        if stamp != Timespec::default() {
            let told = stamps::to_virtual(stamp);
            secs.write_unaligned(told.secs);
            nanos.write_unaligned(told.nanos as u32);
        }
    }
}

/// The utime family with explicit times: all as utimensat, which can say nanoseconds.
pub fn set_times(call: &Call) -> isize {
    const AT_FDCWD: u64 = -100i64 as u64;
    let (dir, path, at, flags) = match call.nr {
        Sysno::utimensat => (call.args[0], call.args[1], call.args[2], call.args[3]),
        Sysno::futimesat => (call.args[0], call.args[1], call.args[2], 0),
        _ => (AT_FDCWD, call.args[0], call.args[1], 0),
    };
    let times = match read_times(call.nr, at) {
        Ok(times) => times,
        Err(error) => return error,
    };
    let host = times.map(to_host);
    // SAFETY: the program's own call, with our copy of the times.
    unsafe { sys!(Sysno::utimensat, dir, path, host.as_ptr(), flags) }
}

fn read_times(nr: Sysno, at: u64) -> Result<[Timespec; 2], isize> {
    if nr == Sysno::utime {
        let pair = user::read_timespec(at)?;
        return Ok([pair.secs, pair.nanos].map(|secs| Timespec { secs, nanos: 0 }));
    }
    let Itimerspec { interval: access, value: modification } = user::read_itimer(at)?;
    let times = [access, modification];
    if nr == Sysno::utimensat {
        return Ok(times);
    }
    if times.iter().any(|tv| !(0..1_000_000).contains(&tv.nanos)) {
        return Err(-errno::EINVAL);
    }
    Ok(times.map(|tv| Timespec { secs: tv.secs, nanos: tv.nanos * 1000 }))
}

/// UTIME_NOW, UTIME_OMIT and what is invalid are left to the kernel.
fn to_host(time: Timespec) -> Timespec {
    if (0..lorentz_clock::NANOS_PER_SEC).contains(&time.nanos) {
        stamps::to_host(time)
    } else {
        time
    }
}

/// open and openat: the kernel's, but for the files of /proc that tell the time.
pub fn open(call: &Call) -> isize {
    const O_PATH: u64 = 0o10000000;
    let [path, flags] = match call.nr {
        Sysno::open => [call.args[0], call.args[1]],
        _ => [call.args[1], call.args[2]],
    };
    let result = wait::blocking(call, Masking::Repeats);
    if result >= 0 && flags & O_PATH == 0 {
        // SAFETY: the kernel has just read this path.
        unsafe { super::proc_files::opened(result as u32, path) };
    }
    result
}
