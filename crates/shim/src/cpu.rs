//! CPU clocks: CPU time is told in virtual seconds, so that it never exceeds the time that has passed.
//!
//! What a process has used so far was used under the rates of those moments. At the first look after a change the
//! time used since the last look is told at the rate that was in force at that look; the figure never goes back.

use crate::clocks;
use crate::layout::{clock, fork_data, registry, CpuAnchor, CPU_ANCHORS};
use crate::sys::{clk, errno, gettid, nr, sys};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lorentz_clock::{failpoint, Failpoint, Rate, Span};

/// CPU time `real` of the clock `id` (a clock id of clock_gettime) as the program is told.
pub fn told(id: i32, real: Span) -> Span {
    let page = clock();
    if page.policy().real_cpu_clocks {
        return real;
    }
    let thread = match id {
        clk::PROCESS_CPUTIME => 0,
        clk::THREAD_CPUTIME => gettid(),
        // Another's: nothing is remembered about it.
        _ => return scaled(real, clocks::snapshot().rate),
    };
    if !hold_anchors() {
        return scaled(real, clocks::snapshot().rate);
    }
    failpoint(registry(), Failpoint::AnchorsHeld);
    let look = clocks::snapshot();
    let result = match anchor(thread) {
        Some(anchor) => advance(anchor, thread, real, look.rate, look.state),
        None => scaled(real, look.rate),
    };
    fork_data().anchors_holder.store(0, Release);
    result
}

/// Takes the right to use the anchors. False where another thread has it: it holds it for some instructions only, but a handler may
/// have interrupted it on this very thread.
fn hold_anchors() -> bool {
    const TRIES: u32 = 1_000;
    let (word, thread) = (&fork_data().anchors_holder, gettid());
    for _ in 0..TRIES {
        match word.compare_exchange(0, thread, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(own) if own == thread => return false,
            Err(_) => core::hint::spin_loop(),
        }
    }
    // A child made by vfork shares the anchors, and may have been killed while it held them.
    let holder = word.load(Relaxed);
    // SAFETY: numbers only; no signal is sent.
    let ended = unsafe { sys!(nr::TKILL, holder, 0u64) } == -errno::ESRCH;
    ended && word.compare_exchange(holder, thread, Acquire, Relaxed).is_ok()
}

/// CPU time used by nobody in particular (children, other processes), at the rate in force.
pub fn told_of_others(real: Span) -> Span {
    let page = clock();
    if page.policy().real_cpu_clocks {
        real
    } else {
        scaled(real, clocks::snapshot().rate)
    }
}

fn scaled(real: Span, rate: Rate) -> Span {
    let nanos = real.0.max(0) as u128 * rate.num() as u128 / rate.den() as u128;
    Span(nanos.min(i64::MAX as u128) as i64)
}

fn anchor(thread: u32) -> Option<&'static CpuAnchor> {
    let anchors = &fork_data().anchors;
    if thread == 0 {
        return Some(&anchors[0]);
    }
    let first = thread as usize;
    (0..8).map(|i| &anchors[1 + (first + i) % (CPU_ANCHORS - 1)]).find(|entry| {
        let owner = entry.thread.load(Relaxed);
        owner == thread || owner == 0
    })
}

fn advance(entry: &CpuAnchor, thread: u32, real: Span, rate: Rate, sequence: u32) -> Span {
    let since = real.0 - entry.real.load(Relaxed) as i64;
    let fresh = entry.seen.load(Relaxed) == 0 || entry.thread.load(Relaxed) != thread || since < 0;
    if fresh {
        // The first look, or another thread with the same id.
        entry.thread.store(thread, Relaxed);
        entry.real.store(0, Relaxed);
        entry.told.store(0, Relaxed);
        entry.seen.store(sequence, Relaxed);
        entry.num.store(rate.num(), Relaxed);
        entry.den.store(rate.den(), Relaxed);
        return scaled(real, rate);
    }
    let then = Rate::new(entry.num.load(Relaxed), entry.den.load(Relaxed)).unwrap_or(rate);
    let told = Span(entry.told.load(Relaxed) as i64 + scaled(Span(since), then).0);
    if entry.seen.load(Relaxed) != sequence {
        entry.real.store(real.0 as u64, Relaxed);
        entry.told.store(told.0 as u64, Relaxed);
        entry.seen.store(sequence, Relaxed);
        entry.num.store(rate.num(), Relaxed);
        entry.den.store(rate.den(), Relaxed);
    }
    told
}
