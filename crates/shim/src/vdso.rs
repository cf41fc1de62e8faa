//! The functions that programs call in place of the kernel's vDSO: clock reads without a system call.

use crate::layout::{clock, data};
use crate::read;
use crate::sys::{sys, ClockId, Errno, SysResult, Sysno, Timespec, Timeval};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Changed, FastClock};

/// clock_gettime(2). By the fast path where that is open, the rest by [`read::clock_time`].
///
/// # Safety
/// `out` must be writable, as for the kernel's.
pub unsafe extern "C" fn clock_gettime(clock: ClockId, out: *mut Timespec) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let fast = match clock {
            ClockId::REALTIME => read_fast(ClockId::MONOTONIC, FastClock::Wall, out),
            ClockId::MONOTONIC | ClockId::MONOTONIC_RAW => {
                read_fast(ClockId::MONOTONIC, FastClock::Monotonic, out)
            }
            ClockId::REALTIME_COARSE => read_fast(ClockId::MONOTONIC_COARSE, FastClock::Wall, out),
            ClockId::MONOTONIC_COARSE => {
                read_fast(ClockId::MONOTONIC_COARSE, FastClock::Monotonic, out)
            }
            ClockId::BOOTTIME => read_fast(ClockId::MONOTONIC, FastClock::Boot, out),
            _ => None,
        };
        fast.unwrap_or_else(|| read(clock, out))
    }
}

/// Reads a clock by the fast path: the host's clock, and what the page says of it. `None` where the fast path is closed, or where
/// the kernel's vDSO cannot be used.
///
/// # Safety
/// `out` must be writable.
#[inline(always)]
unsafe fn read_fast(host: ClockId, clock_shown: FastClock, out: *mut Timespec) -> Option<i32> {
    let function = data().clock_gettime.load(Relaxed);
    if function == 0 {
        return None;
    }
    loop {
        let look = clock().fast();
        // SAFETY: the boot code found this function in the kernel's vDSO; for these clocks it always writes.
        let now = unsafe {
            core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(
                host.number(),
                out,
            );
            out.read_unaligned()
        };
        let lags = host == ClockId::MONOTONIC_COARSE;
        match look.at(clock(), now.secs, now.nanos, clock_shown, lags) {
            Ok(Some((secs, nanos))) => {
                // SAFETY: the caller's promise. The program's memory may be misaligned.
                unsafe { out.write_unaligned(Timespec { secs, nanos }) };
                return Some(0);
            }
            Ok(None) => return None,
            // At most once for each change that was published meanwhile.
            Err(Changed) => {}
        }
    }
}

/// Reads any clock.
///
/// # Safety
/// `out` must be writable.
#[cold]
#[inline(never)]
unsafe fn read(clock: ClockId, out: *mut Timespec) -> i32 {
    match read::clock_time(clock) {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { out.write_unaligned(value) };
            0
        }
        Err(error) => error.in_register() as i32,
    }
}

/// gettimeofday(2).
///
/// # Safety
/// Both pointers must be null or writable, as for the kernel's.
pub unsafe extern "C" fn gettimeofday(out: *mut Timeval, zone: *mut [i32; 2]) -> i32 {
    if !zone.is_null() {
        // The time zone is the kernel's own.
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { sys!(Sysno::gettimeofday, 0, zone) } {
            return error.in_register() as i32;
        }
    }
    if !out.is_null() {
        // SAFETY: the caller's promise; a timeval is as large as a timespec.
        unsafe {
            clock_gettime(ClockId::REALTIME, out.cast());
            let time = out.cast::<Timespec>().read_unaligned();
            out.write_unaligned(Timeval::from_timespec(time));
        }
    }
    0
}

/// time(2).
///
/// # Safety
/// `out` must be null or writable, as for the kernel's.
pub unsafe extern "C" fn time(out: *mut i64) -> i64 {
    let mut now = Timespec::default();
    // SAFETY: `now` is ours.
    let secs = match unsafe { read_fast(ClockId::MONOTONIC_COARSE, FastClock::Wall, &mut now) } {
        Some(_) => now.secs,
        None => read::seconds(),
    };
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write_unaligned(secs) };
    }
    secs
}

/// A result as a function of the vDSO returns it.
fn register(result: SysResult) -> i32 {
    result.unwrap_or_else(Errno::in_register) as i32
}

/// clock_getres(2): the kernel's own.
///
/// # Safety
/// `out` must be null or writable, as for the kernel's.
pub unsafe extern "C" fn clock_getres(clock: ClockId, out: *mut Timespec) -> i32 {
    match data().clock_getres.load(Relaxed) {
        // SAFETY: the caller's promise.
        0 => register(unsafe { sys!(Sysno::clock_getres, clock, out) }),
        // SAFETY: the boot code found this function in the kernel's vDSO.
        function => unsafe {
            core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(
                clock.number(),
                out,
            )
        },
    }
}

/// getcpu(2): the kernel's own.
///
/// # Safety
/// All pointers must be null or writable, as for the kernel's.
pub unsafe extern "C" fn getcpu(cpu: *mut u32, node: *mut u32, unused: *mut u8) -> i32 {
    match data().getcpu.load(Relaxed) {
        // SAFETY: the caller's promise.
        0 => register(unsafe { sys!(Sysno::getcpu, cpu, node, unused) }),
        // SAFETY: as above.
        function => unsafe {
            core::mem::transmute::<usize, extern "C" fn(*mut u32, *mut u32, *mut u8) -> i32>(
                function,
            )(cpu, node, unused)
        },
    }
}

type Getrandom = extern "C" fn(*mut u8, usize, u32, *mut u8, usize) -> isize;

/// getrandom(2): the kernel's own. Where its vDSO has none, ENOSYS sends libc to the system call.
///
/// # Safety
/// As the kernel's.
pub unsafe extern "C" fn getrandom(
    buf: *mut u8,
    len: usize,
    flags: u32,
    state: *mut u8,
    state_len: usize,
) -> isize {
    match data().getrandom.load(Relaxed) {
        0 => Errno::ENOSYS.in_register(),
        // SAFETY: as above.
        function => unsafe {
            core::mem::transmute::<usize, Getrandom>(function)(buf, len, flags, state, state_len)
        },
    }
}
