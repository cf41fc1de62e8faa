//! The system's own clocks and sleep, by libc, or by the functions that a preload library has found behind itself.

use std::sync::atomic::{AtomicPtr, Ordering};

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// clock_gettime(2).
pub type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
/// clock_nanosleep(2). A cancelled thread unwinds from it.
pub type ClockNanosleep = unsafe extern "C-unwind" fn(
    libc::clockid_t,
    libc::c_int,
    *const libc::timespec,
    *mut libc::timespec,
) -> libc::c_int;

mod libc_own {
    extern "C-unwind" {
        pub fn clock_nanosleep(
            clock: libc::clockid_t,
            flags: libc::c_int,
            request: *const libc::timespec,
            remaining: *mut libc::timespec,
        ) -> libc::c_int;
    }
}

static GETTIME: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());
static NANOSLEEP: AtomicPtr<()> = AtomicPtr::new(libc_own::clock_nanosleep as *mut ());

/// Makes this module read the system's clocks and sleep by these functions. For a library that is preloaded in front of
/// libc and has taken the names of libc's functions.
///
/// # Safety
/// The functions must do what those of libc do, and stay in memory.
pub unsafe fn use_functions(gettime: ClockGettime, nanosleep: ClockNanosleep) {
    GETTIME.store(gettime as *mut (), Ordering::Release);
    NANOSLEEP.store(nanosleep as *mut (), Ordering::Release);
}

/// Reads `clock`, ns.
#[inline]
pub fn read(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: only functions of this type are ever stored, and `now` is a local variable.
    unsafe {
        let gettime: ClockGettime = std::mem::transmute(GETTIME.load(Ordering::Acquire));
        gettime(clock, &mut now);
    }
    now.tv_sec.saturating_mul(NANOS_PER_SEC).saturating_add(now.tv_nsec)
}

/// Sleeps until `clock` shows `nanos`. Returns 0, or EINTR after a signal.
#[inline]
pub fn sleep_until(clock: libc::clockid_t, nanos: i64) -> libc::c_int {
    let until = timespec(nanos.max(0));
    // SAFETY: only functions of this type are ever stored, and `until` is a local variable.
    unsafe {
        let nanosleep: ClockNanosleep = std::mem::transmute(NANOSLEEP.load(Ordering::Acquire));
        nanosleep(clock, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
    }
}

/// Sleeps while `word` is 0, until CLOCK_MONOTONIC shows `nanos`. Returns 0, ETIMEDOUT, EINTR, or EAGAIN if `word` is
/// not 0.
pub fn wait_on(word: &std::sync::atomic::AtomicU32, nanos: i64) -> libc::c_int {
    let until = timespec(nanos.max(0));
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let (everybody, unused) = (u32::MAX, std::ptr::null::<u32>());
    // SAFETY: the word and the time outlive the call.
    let result = unsafe {
        let (nr, word) = (libc::SYS_futex, word.as_ptr());
        libc::syscall(nr, word, operation, 0u32, &raw const until, unused, everybody)
    };
    match result {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
    }
}

/// Wakes the threads that sleep on `word`.
pub fn wake(word: &std::sync::atomic::AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address only to find sleepers.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

fn timespec(nanos: i64) -> libc::timespec {
    libc::timespec { tv_sec: nanos / NANOS_PER_SEC, tv_nsec: nanos % NANOS_PER_SEC }
}

/// Sets the thread's timer slack to 1 ns, the least. Within the slack, the kernel may delay a wake-up to wake several
/// threads at once.
pub fn least_timer_slack() {
    // SAFETY: the call concerns only the calling thread's timers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}

/// Whether rdtsc raises SIGSEGV in this process (prctl PR_SET_TSC).
pub fn tsc_traps() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: the kernel writes an int to `mode`.
    let result = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    result == 0 && mode == libc::PR_TSC_SIGSEGV
}

/// Runs `work` with all signals blocked in this thread.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`, and pthread_sigmask initialises `before`. The second call restores the
    // mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        result
    }
}

/// Registers `child` to be called in every child that the process forks.
pub fn after_fork(child: unsafe extern "C" fn()) {
    // SAFETY: `child` has no requirements.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}
