//! The sole thread on a clock that skips idle time leaps over its own sleep, and wakes no other process for it.

use crate::clocks;
use crate::deadline::{due, reached};
use crate::layout::{clock, registry};
use crate::sys::SigSet;
use crate::wait::signal_waits;
use crate::{process, sys, timestamps};
use lorentz_clock::{Deadline, Pace, SkipMode, Span, VirtualInstant};

/// Leaps to `deadline` if this thread is the sole one and nothing but the deadline, or a signal that `mask` lets through, can end
/// its wait. True where the deadline has been reached by that.
pub fn leap_to(deadline: Deadline, mask: SigSet) -> bool {
    /// As for who skips from outside: nearer ones come by themselves.
    const MIN_LEAP: Span = Span(50_000);
    if clock().skipping().mode == SkipMode::Off || !is_sole_thread() || signal_waits(mask) {
        return false;
    }
    let leaps = &registry().leaps;
    let (sum, look) = (leaps.sum(), clocks::snapshot());
    let target = due(deadline, &look);
    let ahead = look.real_at(target).since(look.real);
    if look.limit != VirtualInstant::NEVER || look.segment.pace == Pace::Frozen || ahead < MIN_LEAP
    {
        return false;
    }
    let by = target.since(look.now());
    if by <= Span::ZERO {
        return false;
    }
    let line = timestamps::draw_line().unwrap_or(look.real);
    is_sole_thread() && registry().leap(sum, by, line) && reached(deadline)
}

/// Whether no other thread is on the clock, none is about to begin, and no armed timer can go off.
fn is_sole_thread() -> bool {
    let registry = registry();
    let timers = || registry.timers().any(|timer| timer.setting().deadline != Deadline::Never);
    registry.task_counters.is_sole_thread((process::own(), sys::gettid()))
        && registry.waiters().next().is_none()
        && !timers()
}
