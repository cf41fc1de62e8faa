//! The functions that programs call in place of the kernel's vDSO: clock reads without a system call.

use crate::clocks::{self, wall_timespec};
use crate::layout::data;
use crate::sys::{clk, errno, nr, sys, Timespec};
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::NANOS_PER_SEC;

/// clock_gettime(2). The common clocks are computed here, the others by [`clocks::read`].
///
/// # Safety
/// `out` must be writable, as for the kernel's.
pub unsafe extern "C" fn clock_gettime(clock: i32, out: *mut Timespec) -> i32 {
    let value = match clock {
        clk::MONOTONIC | clk::MONOTONIC_RAW => {
            let virt = clocks::snapshot().now().0;
            if virt < 0 {
                Timespec { secs: virt.div_euclid(NANOS_PER_SEC), nanos: virt.rem_euclid(NANOS_PER_SEC) }
            } else {
                let virt = virt as u64;
                Timespec {
                    secs: (virt / NANOS_PER_SEC as u64) as i64,
                    nanos: (virt % NANOS_PER_SEC as u64) as i64,
                }
            }
        }
        clk::REALTIME => {
            let snapshot = clocks::snapshot();
            wall_timespec(&snapshot, snapshot.now())
        }
        _ => match clocks::read(clock) {
            Ok(value) => value,
            Err(error) => return error as i32,
        },
    };
    // SAFETY: the caller's promise.
    unsafe { *out = value };
    0
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
        let snapshot = clocks::snapshot();
        let wall = wall_timespec(&snapshot, snapshot.now());
        // SAFETY: the caller's promise.
        unsafe { *out = Timespec { secs: wall.secs, nanos: wall.nanos / 1000 } };
    }
    0
}

/// time(2).
///
/// # Safety
/// `out` must be null or writable, as for the kernel's.
pub unsafe extern "C" fn time(out: *mut i64) -> i64 {
    let secs = clocks::seconds();
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
            core::mem::transmute::<usize, extern "C" fn(i32, *mut Timespec) -> i32>(function)(clock, out)
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
            core::mem::transmute::<usize, extern "C" fn(*mut u32, *mut u32, *mut u8) -> i32>(function)(
                cpu, node, unused,
            )
        },
    }
}

type Getrandom = extern "C" fn(*mut u8, usize, u32, *mut u8, usize) -> isize;

/// getrandom(2): the kernel's own. Where its vDSO has none, ENOSYS sends libc to the system call.
///
/// # Safety
/// As the kernel's.
pub unsafe extern "C" fn getrandom(buf: *mut u8, len: usize, flags: u32, state: *mut u8, state_len: usize) -> isize {
    match data().getrandom.load(Relaxed) {
        0 => -errno::ENOSYS,
        // SAFETY: as above.
        function => unsafe {
            core::mem::transmute::<usize, Getrandom>(function)(buf, len, flags, state, state_len)
        },
    }
}
