//! The host's time, for a process that may itself be in virtual time.

use std::fs;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use lorentz_clock::WallTime;
use lorentz_control::processes;
use object::{Object, ObjectSymbol};

use crate::error::{Error, ErrorKind, Result};

/// The kernel's own `clock_gettime`, in its vDSO.
type ClockGettime = extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// Returns the host's CLOCK_REALTIME, whether or not the calling process is in virtual time.
///
/// In virtual time, the clock functions that a program finds are the shim's. The kernel's functions are still mapped. A call of
/// them makes no system call that the filter could trap.
///
/// # Errors
///
/// The process is in virtual time and the kernel has no vDSO.
pub fn real_wall_clock() -> Result<WallTime> {
    static KERNELS: OnceLock<Option<ClockGettime>> = OnceLock::new();
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    let status = match is_inside() {
        // SAFETY: `time` may be written to.
        false => unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, time.as_mut_ptr()) },
        true => match KERNELS.get_or_init(find) {
            Some(clock_gettime) => clock_gettime(libc::CLOCK_REALTIME, time.as_mut_ptr()),
            None => return Err(Error::failed("the host's time: the kernel has no vDSO here")),
        },
    };
    if status != 0 {
        return Err(Error::failed("the host's time: the kernel does not tell"));
    }
    // SAFETY: the memory was zeroed before, and any numbers are valid.
    let time = unsafe { time.assume_init() };
    Ok(WallTime { secs: time.tv_sec, nanos: time.tv_nsec as u32 })
}

/// Whether the calling process is in virtual time.
pub fn is_inside() -> bool {
    processes::clock_of(std::process::id()).is_some()
}

/// Refuses a call that would use the clocks of a process in virtual time.
///
/// # Errors
///
/// The calling process is in virtual time.
pub fn check_outside() -> Result<()> {
    match is_inside() {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Refused,
            "this process is in virtual time itself; expected a caller in real time",
        )),
    }
}

/// Finds `__vdso_clock_gettime` in the kernel's mapping.
fn find() -> Option<ClockGettime> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let from = usize::from_str_radix(from, 16).ok()?;
    let to = usize::from_str_radix(to, 16).ok()?;
    // SAFETY: the kernel maps the range readable as long as the process lives, and nobody writes to it.
    let image = unsafe { std::slice::from_raw_parts(from as *const u8, to - from) };
    let file = object::File::parse(image).ok()?;
    let symbol = file.dynamic_symbols().find(|one| one.name() == Ok("__vdso_clock_gettime"))?;
    let entry = from + usize::try_from(symbol.address()).ok()?;
    // SAFETY: the kernel's function of this name has this signature and follows the C calling convention.
    Some(unsafe { std::mem::transmute::<usize, ClockGettime>(entry) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_function_tells_the_same_as_libcs() {
        assert!(!is_inside());
        let kernels = find().unwrap();
        let mut time = MaybeUninit::<libc::timespec>::zeroed();
        assert_eq!(kernels(libc::CLOCK_REALTIME, time.as_mut_ptr()), 0);
        // SAFETY: the memory was zeroed before.
        let time = unsafe { time.assume_init() };
        let libcs = real_wall_clock().unwrap();
        assert!((0..5).contains(&(libcs.secs - time.tv_sec)), "{time:?} {libcs:?}");
    }
}
