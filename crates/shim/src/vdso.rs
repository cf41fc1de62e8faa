//! The functions that programs call in place of the kernel's vDSO: clock reads without a system call.

use crate::clocks;
use crate::layout::{clock, data};
use crate::sys::{clk, errno, nr, sys, Timespec};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::NANOS_PER_SEC;

/// clock_gettime(2). Where the clock's page has a short way it is read here, the rest by [`clocks::read`].
///
/// # Safety
/// `out` must be writable, as for the kernel's.
pub unsafe extern "C" fn clock_gettime(clock: i32, out: *mut Timespec) -> i32 {
    let (host, wall) = match clock {
        clk::REALTIME => (clk::MONOTONIC, true),
        clk::MONOTONIC | clk::MONOTONIC_RAW => (clk::MONOTONIC, false),
        clk::REALTIME_COARSE => (clk::MONOTONIC_COARSE, true),
        clk::MONOTONIC_COARSE => (clk::MONOTONIC_COARSE, false),
        // SAFETY: the caller's promise.
        _ => return unsafe { read(clock, out) },
    };
    // SAFETY: the caller's promise.
    unsafe {
        read_even(host, wall, out)
            .or_else(|| read_piece(host, wall, out))
            .unwrap_or_else(|| read(clock, out))
    }
}

/// Reads a clock at another rate, or one with a limit. `None` where it is neither. At another rate the tick of the coarse clock
/// would be longer or shorter: there it is as fine as the others.
///
/// # Safety
/// `out` must be writable.
#[inline(always)]
unsafe fn read_piece(host: i32, wall: bool, out: *mut Timespec) -> Option<i32> {
    let (secs, nanos) = clock().in_piece(wall, host == clk::MONOTONIC_COARSE, clocks::host)?;
    // SAFETY: the caller's promise.
    unsafe { *out = Timespec { secs, nanos } };
    Some(0)
}

/// Reads a clock that runs at rate one: the host's monotonic clock, and what has to be added. `None` where it does not,
/// or where the kernel's vDSO cannot be used.
///
/// # Safety
/// `out` must be writable.
#[inline(always)]
unsafe fn read_even(host: i32, wall: bool, out: *mut Timespec) -> Option<i32> {
    let function = data().clock_gettime.load(Relaxed);
    if function == 0 {
        return None;
    }
    loop {
        let (sequence, secs, nanos) = clock().ahead(wall)?;
        // SAFETY: the boot code found this function in the kernel's vDSO; for these clocks it always writes.
        let now = unsafe {
            core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(
                host, out,
            );
            &mut *out
        };
        let lags = host == clk::MONOTONIC_COARSE
            && now.secs * NANOS_PER_SEC + now.nanos < clock().began().0;
        if clock().is_still(sequence) {
            if lags {
                return None;
            }
            let nanos = now.nanos + nanos;
            let carry = (nanos >= NANOS_PER_SEC) as i64;
            *now = Timespec { secs: now.secs + secs + carry, nanos: nanos - carry * NANOS_PER_SEC };
            return Some(0);
        }
    }
}

/// Reads any clock.
///
/// # Safety
/// `out` must be writable.
#[cold]
#[inline(never)]
unsafe fn read(clock: i32, out: *mut Timespec) -> i32 {
    match clocks::read(clock) {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { *out = value };
            0
        }
        Err(error) => error as i32,
    }
}

/// gettimeofday(2).
///
/// # Safety
/// Both pointers must be null or writable, as for the kernel's.
pub unsafe extern "C" fn gettimeofday(out: *mut Timespec, zone: *mut [i32; 2]) -> i32 {
    if !zone.is_null() {
        // The kernel's time zone is nobody's time: pass it on.
        // SAFETY: the caller's promise.
        let result = unsafe { sys!(nr::GETTIMEOFDAY, 0u64, zone) };
        if result != 0 {
            return result as i32;
        }
    }
    if !out.is_null() {
        // SAFETY: the caller's promise; a timeval is as large as a timespec.
        unsafe {
            clock_gettime(clk::REALTIME, out);
            (*out).nanos /= 1000;
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
    let coarse = clk::MONOTONIC_COARSE;
    // SAFETY: `now` is ours.
    let read =
        unsafe { read_even(coarse, true, &mut now).or_else(|| read_piece(coarse, true, &mut now)) };
    let secs = match read {
        Some(_) => now.secs,
        None => clocks::seconds(),
    };
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *out = secs };
    }
    secs
}

/// clock_getres(2): the kernel's own.
///
/// # Safety
/// `out` must be null or writable, as for the kernel's.
pub unsafe extern "C" fn clock_getres(clock: i32, out: *mut Timespec) -> i32 {
    match data().clock_getres.load(Relaxed) {
        // SAFETY: the caller's promise.
        0 => unsafe { sys!(nr::CLOCK_GETRES, clock as i64, out) as i32 },
        // SAFETY: the boot code found this function in the kernel's vDSO.
        function => unsafe {
            core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(
                clock, out,
            )
        },
    }
}

/// getcpu(2): the kernel's own.
///
/// # Safety
/// All pointers must be null or writable, as for the kernel's.
pub unsafe extern "C" fn getcpu(cpu: *mut u32, node: *mut u32, unused: *mut u8) -> i32 {
    const GETCPU: u32 = 309;
    match data().getcpu.load(Relaxed) {
        // SAFETY: the caller's promise.
        0 => unsafe { sys!(GETCPU, cpu, node, unused) as i32 },
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
        0 => -errno::ENOSYS,
        // SAFETY: as above.
        function => unsafe {
            core::mem::transmute::<usize, Getrandom>(function)(buf, len, flags, state, state_len)
        },
    }
}
