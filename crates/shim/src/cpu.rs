//! CPU clocks: the shim reports CPU time in virtual seconds, so that it never exceeds the time that has passed.
//!
//! A process has used its CPU time under the rates of those moments. At the first look after a change the shim converts the
//! time used since the last look at the rate that was in force at that look; the figure never goes back.

use crate::clocks;
use crate::layout::{clock, fork_data, registry, CpuAnchor};
use crate::sys::{self, gettid, has_ended, ClockId};
use core::sync::atomic::compiler_fence;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use lorentz_clock::{failpoint, Failpoint, Rate, Span};

/// CPU time `real` of the clock `id` (a clock id of clock_gettime) as the program sees it.
pub fn reported(id: ClockId, real: Span) -> Span {
    let page = clock();
    if page.policy().real_cpu_clocks {
        return real;
    }
    match id {
        ClockId::PROCESS_CPUTIME_ID => reported_of_process(real),
        ClockId::THREAD_CPUTIME_ID => reported_of_thread(real),
        // Another's: nothing is remembered about it.
        _ => scaled(real, clocks::snapshot().rate),
    }
}

/// One thread at a time uses the process's anchor.
fn reported_of_process(real: Span) -> Span {
    if !hold_anchor() {
        return scaled(real, clocks::snapshot().rate);
    }
    failpoint(registry(), Failpoint::CpuTimeHeld);
    let anchor = &fork_data().anchors[0];
    // Another thread may have read the host's clock later, and been here first.
    let real = real.max(Span(anchor.real.load(Relaxed) as i64));
    let look = clocks::snapshot();
    let reported = advance(anchor, real, look.rate, look.state);
    fork_data().anchors_holder.store(0, Release);
    reported
}

/// A thread's anchor is its own: the thread waits for no other.
fn reported_of_thread(real: Span) -> Span {
    let thread = gettid();
    let look = clocks::snapshot();
    let Some(anchor) = anchor_of(thread) else { return scaled(real, look.rate) };
    // A handler of the program has interrupted the thread in here.
    if anchor.state.load(Relaxed) == CHANGING {
        return scaled(real, look.rate);
    }
    advance(anchor, real, look.rate, look.state)
}

/// Takes the right to use the process's anchor. False where a handler has interrupted its holder on this very thread, and where the
/// holder gets no processor for some milliseconds.
fn hold_anchor() -> bool {
    const MAX_TRIES: u32 = 400;
    let (word, thread) = (&fork_data().anchors_holder, gettid());
    for tries in 0..MAX_TRIES {
        let holder = match word.compare_exchange(0, thread, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(own) if own == thread => return false,
            Err(holder) => holder,
        };
        // A child made by vfork shares the anchors, and may have been killed while it held them.
        if tries == MAX_TRIES / 2 && has_ended(holder) {
            return word.compare_exchange(holder, thread, Acquire, Relaxed).is_ok();
        }
        sys::give_way(tries);
    }
    false
}

/// CPU time of others (children, other processes), at the rate in force.
pub fn reported_of_others(real: Span) -> Span {
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

/// The anchor of a thread, taken from a thread that has ended where none is free. None where there is no room.
fn anchor_of(thread: u32) -> Option<&'static CpuAnchor> {
    let places = || CpuAnchor::places(thread).map(|place| &fork_data().anchors[place]);
    if let Some(own) = places().find(|entry| entry.thread.load(Relaxed) == thread) {
        return Some(own);
    }
    let take = |entry: &&CpuAnchor, of: u32| {
        entry.thread.compare_exchange(of, thread, Relaxed, Relaxed).is_ok()
    };
    let taken = places().find(|entry| take(entry, 0)).or_else(|| {
        places().find(|entry| {
            let other = entry.thread.load(Relaxed);
            has_ended(other) && take(entry, other)
        })
    })?;
    taken.state.store(0, Relaxed);
    Some(taken)
}

/// In [`CpuAnchor::state`]: its thread is changing it.
const CHANGING: u32 = u32::MAX;

fn advance(entry: &CpuAnchor, real: Span, rate: Rate, state: u32) -> Span {
    let since = real.0 - entry.real.load(Relaxed) as i64;
    // The first look, or another thread with the same id.
    let fresh = entry.state.load(Relaxed) == 0 || since < 0;
    if fresh {
        change(entry, Span::ZERO, Span::ZERO, rate, state);
        return scaled(real, rate);
    }
    let then = Rate::new(entry.num.load(Relaxed), entry.den.load(Relaxed)).unwrap_or(rate);
    let reported = Span(entry.reported.load(Relaxed) as i64 + scaled(Span(since), then).0);
    if entry.state.load(Relaxed) != state {
        change(entry, real, reported, rate, state);
    }
    reported
}

fn change(entry: &CpuAnchor, real: Span, reported: Span, rate: Rate, state: u32) {
    entry.state.store(CHANGING, Relaxed);
    compiler_fence(SeqCst);
    entry.real.store(real.0 as u64, Relaxed);
    entry.reported.store(reported.0 as u64, Relaxed);
    entry.num.store(rate.num(), Relaxed);
    entry.den.store(rate.den(), Relaxed);
    compiler_fence(SeqCst);
    // No state has the numbers 0 and CHANGING here: they mean something else.
    entry.state.store(state.clamp(1, CHANGING - 1), Relaxed);
}
