//! The stopwatch: the time-stamp counter, fenced on both sides, which no level makes virtual.

use std::arch::x86_64::_mm_lfence;

use lorentz_study::protocol::Ticks;
use lorentz_timers::tsc;

/// The counter; nothing that is measured leaks out of the interval between two of these.
#[inline(always)]
pub fn now() -> i64 {
    let ticks = tsc::ordered();
    // SAFETY: it is there on every x86-64 processor.
    unsafe { _mm_lfence() };
    ticks
}

/// How long `work` took.
#[inline(always)]
pub fn time(work: impl FnOnce()) -> Ticks {
    let start = now();
    work();
    Ticks(now() - start)
}
