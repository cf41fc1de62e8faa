//! Precise timers for programs that do not use them by themselves: `LD_PRELOAD=liblorentz_timers_preload.so PROGRAM`.
//!
//! clock_gettime, gettimeofday, time, timespec_get, ftime, sleep, usleep, nanosleep, clock_nanosleep and thrd_sleep are those of
//! [`lorentz_timers`]; with `LORENTZ_TIMERS_WAITS=1` the timeouts of poll, select and epoll too ([`waits`]). For clocks that it does
//! not follow, and for wrong arguments, libc's own functions are called. The library has no effect on statically linked programs
//! and on programs that make system calls themselves. `LORENTZ_TIMERS_SOURCE=tsc|hpet|os` forces a time source.

mod waits;

use libc::{c_int, c_long, c_void, clockid_t, time_t, timespec, timeval};
use lorentz_timers::os::{use_functions, ClockGettime, ClockNanosleep};
use lorentz_timers::{sleep_until_date, Reference, Woken};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// The functions of libc that this library stands in front of.
struct Behind {
    clock_gettime: ClockGettime,
    clock_nanosleep: ClockNanosleep,
    gettimeofday: unsafe extern "C" fn(*mut timeval, *mut c_void) -> c_int,
    timespec_get: unsafe extern "C" fn(*mut timespec, c_int) -> c_int,
}

static BEHIND: OnceLock<Behind> = OnceLock::new();
/// Whether the timers have been given libc's functions.
static READY: AtomicBool = AtomicBool::new(false);

fn behind() -> &'static Behind {
    let behind = BEHIND.get_or_init(find);
    if !READY.load(Ordering::Acquire) {
        // SAFETY: the functions are libc's, and stay as long as the process.
        unsafe { use_functions(behind.clock_gettime, behind.clock_nanosleep) };
        READY.store(true, Ordering::Release);
    }
    behind
}

fn find() -> Behind {
    // SAFETY: libc's functions of these names have these types.
    unsafe {
        Behind {
            clock_gettime: std::mem::transmute::<*mut c_void, ClockGettime>(next(c"clock_gettime")),
            clock_nanosleep: std::mem::transmute::<*mut c_void, ClockNanosleep>(next(
                c"clock_nanosleep",
            )),
            gettimeofday: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut timeval, *mut c_void) -> c_int,
            >(next(c"gettimeofday")),
            timespec_get: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut timespec, c_int) -> c_int,
            >(next(c"timespec_get")),
        }
    }
}

fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Nothing works in a libc without these functions.
        std::process::abort();
    }
    found
}

fn spec(nanos: i64) -> timespec {
    timespec {
        tv_sec: nanos.div_euclid(NANOS_PER_SEC) as time_t,
        tv_nsec: nanos.rem_euclid(NANOS_PER_SEC) as c_long,
    }
}

/// Runs `work` and preserves errno. The timers look for a virtual clock and calibrate themselves on the way; some
/// programs look at errno after a call that succeeded.
fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: errno belongs to this thread. There is no guard with a destructor, because a cancelled sleep unwinds
    // through here.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let result = work();
    // SAFETY: as above.
    unsafe { *place = before };
    result
}

fn now(reference: Reference) -> timespec {
    keeping_errno(|| spec(reference.now()))
}

/// clock_gettime(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    let behind = behind();
    match Reference::from_id(clock) {
        Some(reference) if !out.is_null() => {
            // SAFETY: the caller guarantees it.
            unsafe { out.write(now(reference)) };
            0
        }
        // SAFETY: the caller guarantees it.
        _ => unsafe { (behind.clock_gettime)(clock, out) },
    }
}

/// gettimeofday(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C" fn gettimeofday(out: *mut timeval, zone: *mut c_void) -> c_int {
    let behind = behind();
    if out.is_null() || !zone.is_null() {
        // SAFETY: the caller guarantees it.
        return unsafe { (behind.gettimeofday)(out, zone) };
    }
    let now = now(Reference::Realtime);
    // SAFETY: the caller guarantees it.
    unsafe { out.write(timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 }) };
    0
}

/// time(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C" fn time(out: *mut time_t) -> time_t {
    behind();
    let now = now(Reference::Realtime).tv_sec;
    if !out.is_null() {
        // SAFETY: the caller guarantees it.
        unsafe { out.write(now) };
    }
    now
}

/// timespec_get(3).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C" fn timespec_get(out: *mut timespec, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    let behind = behind();
    if base != TIME_UTC || out.is_null() {
        // SAFETY: the caller guarantees it.
        return unsafe { (behind.timespec_get)(out, base) };
    }
    // SAFETY: the caller guarantees it.
    unsafe { out.write(now(Reference::Realtime)) };
    base
}

/// The result of ftime(3).
#[repr(C)]
pub struct timeb {
    time: time_t,
    millitm: libc::c_ushort,
    timezone: libc::c_short,
    dstflag: libc::c_short,
}

/// ftime(3). Programs that were linked with a glibc before 2.31 call it.
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C" fn ftime(out: *mut timeb) -> c_int {
    behind();
    let now = now(Reference::Realtime);
    let millitm = (now.tv_nsec / 1_000_000) as libc::c_ushort;
    // SAFETY: the caller guarantees it.
    unsafe { out.write(timeb { time: now.tv_sec, millitm, timezone: 0, dstflag: 0 }) };
    0
}

/// clock_nanosleep(2). Returns 0 or an error number.
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    request: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    let behind = behind();
    // SAFETY: the caller guarantees it.
    let wanted = unsafe { request.as_ref() }.and_then(nanos);
    let absolute = flags & libc::TIMER_ABSTIME != 0;
    let (Some(reference), Some(wanted)) = (sleeps_on(clock), wanted) else {
        // SAFETY: the caller guarantees it.
        return unsafe { (behind.clock_nanosleep)(clock, flags, request, remaining) };
    };
    // A relative sleep does not follow a clock that is set.
    let reference = match reference {
        Reference::Realtime if !absolute => Reference::Monotonic,
        other => other,
    };
    keeping_errno(|| {
        let until = if absolute { wanted } else { reference.now().saturating_add(wanted) };
        match sleep_until_date(reference, until) {
            Woken::Signalled => {
                if !absolute && !remaining.is_null() {
                    let left = until.saturating_sub(reference.now()).max(0);
                    // SAFETY: the caller guarantees it.
                    unsafe { remaining.write(spec(left)) };
                }
                libc::EINTR
            }
            Woken::Elapsed | Woken::Interrupted => 0,
        }
    })
}

fn sleeps_on(clock: clockid_t) -> Option<Reference> {
    // The kernel does not sleep on CLOCK_MONOTONIC_RAW.
    Reference::from_id(clock).filter(|reference| *reference != Reference::MonotonicRaw)
}

/// Returns the nanoseconds of a request that the kernel would accept.
fn nanos(request: &timespec) -> Option<i64> {
    let accepted = request.tv_sec >= 0 && (0..NANOS_PER_SEC).contains(&request.tv_nsec);
    accepted.then(|| request.tv_sec.saturating_mul(NANOS_PER_SEC).saturating_add(request.tv_nsec))
}

/// nanosleep(2).
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn nanosleep(
    request: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    // SAFETY: the caller guarantees it. The kernel's nanosleep runs on the monotonic clock, whatever POSIX says.
    match unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, request, remaining) } {
        0 => 0,
        error => {
            // SAFETY: errno belongs to this thread.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

/// sleep(3). Returns the whole seconds that are left after a signal.
///
/// # Safety
/// It has no requirements.
#[no_mangle]
pub unsafe extern "C-unwind" fn sleep(secs: libc::c_uint) -> libc::c_uint {
    let mut left = spec(i64::from(secs) * NANOS_PER_SEC);
    let request = left;
    // SAFETY: both are local variables.
    match unsafe { nanosleep(&request, &mut left) } {
        0 => 0,
        _ => left.tv_sec as libc::c_uint,
    }
}

/// thrd_sleep(3): -1 after a signal, -2 for a wrong request.
///
/// # Safety
/// The requirements are those of libc's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn thrd_sleep(
    request: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    // SAFETY: the caller guarantees it.
    match unsafe { clock_nanosleep(libc::CLOCK_REALTIME, 0, request, remaining) } {
        0 => 0,
        libc::EINTR => -1,
        _ => -2,
    }
}

/// usleep(3).
///
/// # Safety
/// It has no requirements.
#[no_mangle]
pub unsafe extern "C-unwind" fn usleep(micros: libc::c_uint) -> c_int {
    let request = spec(i64::from(micros) * 1_000);
    // SAFETY: `request` is a local variable.
    unsafe { nanosleep(&request, std::ptr::null_mut()) }
}
