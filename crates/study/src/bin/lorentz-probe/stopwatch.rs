//! The stopwatch: the time-stamp counter with a fence on both sides. No level makes the counter virtual.

use std::arch::x86_64::_mm_lfence;

use lorentz_study::protocol::Ticks;
use lorentz_timers::tsc;

/// Reads the counter. The fences keep the measured instructions between two reads.
#[inline(always)]
pub fn now() -> i64 {
    let ticks = tsc::ordered();
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _mm_lfence() };
    ticks
}

/// Measures the time of `work`.
#[inline(always)]
pub fn time(work: impl FnOnce()) -> Ticks {
    let start = now();
    work();
    Ticks(now() - start)
}
