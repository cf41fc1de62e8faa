//! Whether a container's tasks rest: they sleep, and none is about to wake.

use std::time::{Duration, Instant};

use lorentz_clock::{failpoint, Failpoint, Span, VirtualInstant};

use super::context::SliceContext;
use crate::container::ExperimentContainer;

/// Time that a notified task may take to wake, on a busy processor.
const WAKE_TIMEOUT: Duration = Duration::from_millis(5);
/// Time after the end of a wait from which the worker takes it that the thread left the wait by siglongjmp.
const ABANDONED_AFTER: Duration = Duration::from_millis(250);
/// Time that a timer set to a past moment may take. Its thread runs once to set it, and again when it expires.
const TIMER_EXPIRY_TIME: Duration = Duration::from_micros(50);

/// Whether any task of a container runs or is about to.
pub(super) enum TaskActivity {
    /// A task runs.
    Running,
    /// All sleep, but the deadline of one has come: it is about to wake.
    Waking,
    /// All sleep.
    Resting {
        /// Their first deadline.
        next: Option<VirtualInstant>,
        /// One of them waits to send (send ordering).
        waits_to_send: bool,
    },
}

/// Threads whose deadline has come and that still sleep: they are about to wake.
pub(super) struct WakingThreads {
    /// Virtual time up to which all deadlines are notified.
    notified_until: VirtualInstant,
    /// Value of `runs` at the last notification or finding of an overdue wait, and its time.
    last: Option<(u64, Instant)>,
}

impl WakingThreads {
    /// Begins at `from`, in a slice of `container`. All threads that slept have been notified.
    pub(super) fn since(from: VirtualInstant, container: &ExperimentContainer) -> WakingThreads {
        let last = (!container.tasks.awake).then(|| (container.tasks.runs, Instant::now()));
        WakingThreads { notified_until: from.plus(Span(-1)), last }
    }

    /// Looks at the tasks of `container`.
    pub(super) fn look(
        &mut self,
        container: &mut ExperimentContainer,
        context: &SliceContext<'_>,
    ) -> TaskActivity {
        let now = container.clock.now();
        let seen = &*container;
        // A timeout of the kernel may end at any moment, and its thread leave the registry. Therefore the registry is read while
        // the tasks are known to sleep.
        let idle = context.watch.while_idle(seen.group, &seen.cgroup, context.tasks, |runs| {
            failpoint(seen.clock.registry(), Failpoint::SliceLooked);
            let overdue = seen.clock.has_overdue_wait(seen.waits_handled_until);
            let awaited = self.are_awaited(seen, now, runs, overdue);
            let rest = || (overdue, seen.clock.next_deadline(), seen.clock.has_waiting_sender());
            (!awaited).then(rest)
        });
        match idle {
            None => TaskActivity::Running,
            Some((_, None)) => TaskActivity::Waking,
            Some((runs, Some((overdue, next, waits_to_send)))) => {
                if overdue {
                    container.waits_handled_until = now;
                }
                container.rested_at = Some(runs);
                self.last = None;
                TaskActivity::Resting { next, waits_to_send }
            }
        }
    }

    /// Whether a thread is about to wake at `now`. The caller has found all tasks asleep when they had run `runs` times. `overdue` says
    /// whether a wait has ended and not been left.
    fn are_awaited(
        &mut self,
        container: &ExperimentContainer,
        now: VirtualInstant,
        runs: u64,
        overdue: bool,
    ) -> bool {
        let before = std::mem::replace(&mut self.notified_until, now);
        let notified =
            now > before && container.clock.notify_between(before, now, &container.tasks.pids);
        let (seen, when) = match self.last {
            Some((seen, when)) if !notified && (seen == runs || !overdue) => (seen, when),
            None if !notified && !overdue => return false,
            _ => *self.last.insert((runs, Instant::now())),
        };
        let timeout = match overdue {
            true => ABANDONED_AFTER,
            false if seen == runs => WAKE_TIMEOUT,
            false => TIMER_EXPIRY_TIME,
        };
        when.elapsed() < timeout
    }
}
