//! A slice of a container whose computing takes no virtual time (`compute: none`).
//!
//! Its clock stands while tasks run. When all of them sleep, the clock goes to their first deadline, and stands there. So a program
//! sees the same instants in every run, however fast or busy the machine is. A task that runs for long takes real time only. A
//! thread that spins on the clock sleeps now and then (`shim/src/spinning.rs`).

use std::time::Instant;

use lorentz_clock::VirtualInstant;

use super::context::{SliceContext, SliceEnd, MAX_UNINTERRUPTED, POLL_TIME};
use super::waking::{TaskActivity, WakingThreads};
use crate::container::ExperimentContainer;

/// Gives `container` its slice, up to `end`.
pub(super) fn run(
    container: &mut ExperimentContainer,
    end: VirtualInstant,
    context: &SliceContext<'_>,
) -> SliceEnd {
    let begun = Instant::now();
    begin(container, end);
    let slice_end = until_end(container, end, context);
    container.statistics.wanted += begun.elapsed() * container.processors();
    // Tasks that still run have their slice continued where the clock stands.
    container.tasks.awake |= matches!(slice_end, SliceEnd::BrokenOff | SliceEnd::Interrupted);
    if slice_end == SliceEnd::Over && !container.waits_to_send {
        container.clock.stand(end);
        container.statistics.slices += 1;
    }
    slice_end
}

/// Moves the clock to the first instant at which the container has something to do, and lets its tasks run.
fn begin(container: &mut ExperimentContainer, end: VirtualInstant) {
    container.waits_to_send = false;
    let from = match container.next_deadline() {
        _ if container.stopped || container.tasks.awake => container.clock.now(),
        next => next.unwrap_or(end).min(end),
    };
    container.clock.stand(from);
    container.let_tasks_run();
}

/// Moves the clock from deadline to deadline, until none is left before `end`.
fn until_end(
    container: &mut ExperimentContainer,
    end: VirtualInstant,
    context: &SliceContext<'_>,
) -> SliceEnd {
    let begun = Instant::now();
    let mut polling_since = begun;
    let mut due = WakingThreads::since(container.clock.now(), container);
    loop {
        let activity = match container.awaits_first_program() {
            true => TaskActivity::Running,
            false => due.look(container, context),
        };
        match activity {
            TaskActivity::Running => {}
            TaskActivity::Waking => continue,
            TaskActivity::Resting { waits_to_send: true, .. } => {
                container.waits_to_send = true;
                return SliceEnd::Over;
            }
            TaskActivity::Resting { next: Some(next), .. } if next <= end => {
                if !container.may_step() {
                    return SliceEnd::StepsUsed;
                }
                container.clock.stand(next);
                container.clock.notify_due(&container.tasks.pids);
                polling_since = Instant::now();
            }
            TaskActivity::Resting { .. } => return SliceEnd::Over,
        }
        if polling_since.elapsed() > POLL_TIME {
            if begun.elapsed() >= MAX_UNINTERRUPTED {
                if (context.request_waits)() {
                    return SliceEnd::Interrupted;
                }
                if container.timeline.is_some() && (context.other_timeline_waits)() {
                    return SliceEnd::BrokenOff;
                }
            }
            context.watch.wait(MAX_UNINTERRUPTED);
            polling_since = Instant::now();
        }
    }
}
