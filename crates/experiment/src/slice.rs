//! A slice: one container's part of a round. Its tasks run, alone on their processors, until the clock stands at the round's end or
//! they have nothing left to do.
//!
//! While the tasks run, the clock runs at the container's rate. When all of them sleep, the clock jumps to their first deadline. If
//! that lies beyond the round's end, the slice is over. The freezer of the control group stops tasks that still run at the end.
//! However long that takes, their clock has been standing since it reached the limit.
//!
//! All tasks may sleep because one of them has something to send that containers behind it must not see yet (send ordering). Then
//! the clock stands there, and the slice continues when the others have come as far.
//!
//! A container whose computing takes no virtual time has slices of another kind ([`stepped`]).

mod context;
mod stepped;
mod waking;

pub use context::{SliceContext, SliceEnd};

use std::time::{Duration, Instant};

use lorentz_clock::{failpoint, saturate, Failpoint, Span, VirtualInstant};

use crate::compute::ComputeTime;
use crate::container::ExperimentContainer;
use context::{MAX_UNINTERRUPTED, POLL_TIME};
use waking::{TaskActivity, WakingThreads};

/// Time before the limit, ns, at which the worker wakes; it spins for the rest, to be exact.
const SPIN_TIME: Span = Span(60_000);
/// A deadline nearer than this, ns, comes by itself sooner than a jump would take.
const MIN_JUMP: Span = Span(20_000);
/// Time of looking without a pause for tasks to stop; most stop within it. Then the worker pauses after each look: a task may need
/// that very processor to stop.
const FREEZE_SPIN_TIME: Duration = Duration::from_micros(100);
const FREEZE_PAUSE: Duration = Duration::from_micros(20);
/// Time that tasks may take to stop. A task in an uninterruptible wait stops when it returns; its clock stands meanwhile.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);

/// Gives `container` its slice, up to `end`.
pub fn run(
    container: &mut ExperimentContainer,
    end: VirtualInstant,
    context: &SliceContext<'_>,
) -> SliceEnd {
    if container.compute == ComputeTime::None {
        return stepped::run(container, end, context);
    }
    let begun = Instant::now();
    let from = beginning(container, end);
    if container.stopped && from >= end {
        // The container had all of this slice and more when it ran on after an earlier one, or it joined with a later time.
        container.statistics.slices += 1;
        container.statistics.at_limit += 1;
        container.clock.stand(end);
        return SliceEnd::Over;
    }
    let ahead = begin(container, from, end, context);
    let (outcome, was_idle) = until_end(container, from, end, context);
    match outcome {
        SliceOutcome::Idle => {
            container.clock.stand(end);
            container.account.forget_deficit();
        }
        SliceOutcome::StepsUsed => container.clock.stand(VirtualInstant(0)),
        SliceOutcome::AtLimit | SliceOutcome::WaitsToSend | SliceOutcome::BrokenOff => {
            if outcome != SliceOutcome::AtLimit {
                // The clock stands where it is.
                container.clock.stand(VirtualInstant(0));
            }
            let overrun = if outcome == SliceOutcome::WaitsToSend {
                Span::ZERO
            } else {
                stop(container, end)
            };
            let seen = context.watch.look(container.group, &container.cgroup, context.tasks);
            let took = begun.elapsed();
            let due = match was_idle {
                // The container had all that it wanted, except the time that others took.
                true => took.as_nanos() as i128 - i128::from(overrun.0),
                false => {
                    let ran = container.real_of(container.clock.now().since(from).max(Span::ZERO));
                    i128::from(ran.0) + ahead.as_nanos() as i128
                }
            };
            container.settle_account(took, Span(saturate(due)), &seen);
        }
    }
    container.waits_to_send = outcome == SliceOutcome::WaitsToSend;
    let over = matches!(outcome, SliceOutcome::AtLimit | SliceOutcome::Idle);
    container.statistics.slices += u64::from(over);
    container.statistics.at_limit += u64::from(outcome == SliceOutcome::AtLimit);
    container.statistics.wanted += begun.elapsed() * container.processors();
    match outcome {
        SliceOutcome::BrokenOff => SliceEnd::BrokenOff,
        SliceOutcome::StepsUsed => SliceEnd::StepsUsed,
        _ => SliceEnd::Over,
    }
}

/// Returns the virtual time in a slice up to `end` from which the container has something to do.
fn beginning(container: &mut ExperimentContainer, end: VirtualInstant) -> VirtualInstant {
    match container.next_deadline() {
        next if container.stopped || container.tasks.awake => {
            let now = container.clock.now();
            // A deadline before `end` is not skipped.
            let until = next.map_or(end, |next| next.min(end));
            now.plus(container.skip_surplus(until.since(now).max(Span::ZERO)))
        }
        Some(next) if next <= end => next,
        _ => end,
    }
}

/// Lets the clock run from `from`, and the tasks. Returns the real time for which the tasks ran before the clock did.
fn begin(
    container: &mut ExperimentContainer,
    from: VirtualInstant,
    end: VirtualInstant,
    context: &SliceContext<'_>,
) -> Duration {
    let ahead = match container.stopped {
        true => container.account.take_deficit(container.real_of(end.since(from))),
        false => Span::ZERO,
    };
    if ahead > MIN_JUMP {
        container.clock.stand(from);
    } else {
        container.clock.run(from, end, container.rate);
    }
    container.let_tasks_run();
    if ahead <= MIN_JUMP {
        return Duration::ZERO;
    }
    let ran = run_ahead(container, Duration::from_nanos(ahead.0 as u64), context);
    container.clock.run(from, end, container.rate);
    container.clock.notify_due(&container.tasks.pids);
    ran
}

/// Lets the tasks run for `ahead` while their clock stands. Returns how long they ran: less than `ahead` if all of them slept
/// before.
fn run_ahead(
    container: &ExperimentContainer,
    ahead: Duration,
    context: &SliceContext<'_>,
) -> Duration {
    let begun = Instant::now();
    while let Some(left) = ahead.checked_sub(begun.elapsed()) {
        context.watch.wait(left);
        if context.watch.idle(container.group, &container.cgroup, context.tasks) {
            break;
        }
    }
    begun.elapsed()
}

/// The end of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SliceOutcome {
    /// The tasks still run when the clock has come to the end.
    AtLimit,
    /// The tasks sleep, and none has a deadline before the end.
    Idle,
    /// The tasks sleep, one of them because it has something to send (send ordering).
    WaitsToSend,
    /// The tasks still run, and another timeline's container waits for one of their processors.
    BrokenOff,
    /// The tasks sleep, and the clock has made as many steps as it may.
    StepsUsed,
}

/// Waits for the end of a slice that began at `from`. Also returns whether the clock jumped to a deadline of the container.
fn until_end(
    container: &mut ExperimentContainer,
    from: VirtualInstant,
    end: VirtualInstant,
    context: &SliceContext<'_>,
) -> (SliceOutcome, bool) {
    let begun = Instant::now();
    let (mut polling_since, mut was_idle) = (begun, false);
    let mut due = WakingThreads::since(from, container);
    loop {
        match due.look(container, context) {
            TaskActivity::Running if container.clock.until_limit() == Span::ZERO => {
                return (SliceOutcome::AtLimit, was_idle);
            }
            TaskActivity::Running => {}
            TaskActivity::Waking => continue,
            TaskActivity::Resting { waits_to_send: true, .. } => {
                return (SliceOutcome::WaitsToSend, was_idle);
            }
            TaskActivity::Resting { next: Some(next), .. } if next <= end => {
                // The container had nothing to do; nobody took time from it.
                container.account.forget_deficit();
                was_idle = true;
                if next.since(container.clock.now()) > MIN_JUMP {
                    if !container.may_step() {
                        return (SliceOutcome::StepsUsed, was_idle);
                    }
                    container.clock.run(next, end, container.rate);
                    container.clock.notify_due(&container.tasks.pids);
                }
                polling_since = Instant::now();
            }
            TaskActivity::Resting { .. } => return (SliceOutcome::Idle, was_idle),
        }
        if polling_since.elapsed() > POLL_TIME {
            let left = container.clock.until_limit();
            if left <= SPIN_TIME {
                while container.clock.until_limit() > Span::ZERO {
                    std::hint::spin_loop();
                }
                return (SliceOutcome::AtLimit, was_idle);
            }
            let left = Duration::from_nanos((left.0 - SPIN_TIME.0) as u64);
            if container.timeline.is_none() {
                context.watch.wait(left);
            } else {
                context.watch.wait(left.min(MAX_UNINTERRUPTED));
                if begun.elapsed() >= MAX_UNINTERRUPTED && (context.other_timeline_waits)() {
                    return (SliceOutcome::BrokenOff, was_idle);
                }
            }
            polling_since = Instant::now();
        }
    }
}

/// Stops the tasks. Adds and returns the overrun: the real time for which they ran on while their clock stood.
fn stop(container: &mut ExperimentContainer, end: VirtualInstant) -> Span {
    let stopping = Instant::now();
    if container.cgroup.begin_freeze().is_err() {
        // The control group is gone and has no tasks.
        return Span::ZERO;
    }
    while stopping.elapsed() < FREEZE_TIMEOUT
        && container.cgroup.is_frozen().is_ok_and(|frozen| !frozen)
    {
        if stopping.elapsed() < FREEZE_SPIN_TIME {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(FREEZE_PAUSE);
        }
    }
    failpoint(container.clock.registry(), Failpoint::SliceStopped);
    let overrun = container.clock.since_limit();
    container.stopped = true;
    // These include processes that have come since the last look.
    container.clock.repeat_interrupted_calls(&container.cgroup.pids().unwrap_or_default());
    container.statistics.overruns.note(overrun);
    let perceived = container.clock.now().since(end);
    container.statistics.perceived_overshoot =
        container.statistics.perceived_overshoot.max(perceived);
    overrun
}
