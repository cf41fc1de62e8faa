//! Leaps over idle time, and the tasks on a clock that makes them.

use std::collections::HashSet;
use std::time::Duration;

use lorentz_clock::{
    failpoint, Failpoint, Pace, ProcessId, RealInstant, Span, TaskCount, VirtualInstant, Waiter,
};

use crate::file_timestamps::{host_wall_ahead, FileTimestamps};
use crate::Clock;

impl Clock {
    /// Whether the clock runs: a frozen clock cannot leap.
    pub fn can_leap(&self) -> bool {
        self.look().segment.pace != Pace::Frozen
    }

    /// Number of programs that have been brought onto the clock so far.
    pub fn entries(&self) -> u32 {
        self.registry().task_counters.programs()
    }

    /// The task counters at this moment.
    pub fn task_counters(&self) -> TaskCount {
        self.registry().task_counters.count()
    }

    /// Whether [`Clock::mark_sole_thread`] would set a new mark.
    pub fn may_mark_sole_thread(&self, head: TaskCount) -> bool {
        self.policy().counts_tasks && !self.registry().task_counters.has_mark(head)
    }

    /// Returns the thread that waits, if there is only one.
    pub fn sole_waiter(&self) -> Option<(ProcessId, u32)> {
        let mut waiting = self.registry().waiters().filter_map(Waiter::owner);
        waiting.next().filter(|_| waiting.next().is_none())
    }

    /// Marks the sole thread on the clock, which was found alone after [`Clock::task_counters`] was `head`. Until another task comes,
    /// that thread leaps by itself.
    pub fn mark_sole_thread(&self, thread: (ProcessId, u32), head: TaskCount) {
        self.registry().mark_sole_thread(thread, head);
    }

    /// Whether a thread on the clock waits that is not among the threads `known`.
    pub fn has_unknown_waiter(&self, known: &HashSet<u32>) -> bool {
        self.notifier().has_unknown_waiter(known)
    }

    /// Whether any wait or timer has a deadline to come.
    pub fn has_deadlines(&self) -> bool {
        self.next_deadline().is_some()
    }

    /// Returns the earliest deadline to come of all waits and timers.
    pub fn next_deadline(&self) -> Option<VirtualInstant> {
        self.notifier().earliest_deadline(&self.look())
    }

    /// Leaps to the earliest deadline and wakes the tasks with that deadline, and returns whether it did. It leaps only if the
    /// deadline is far enough away and `still` returns true; it calls `still` as late as possible.
    ///
    /// The caller must know that all tasks that could read the clock sleep. `timestamps` separate files written after the leap from
    /// those written before. `since` is as for [`Clock::notify_late`]; `known` are processes known to be on the clock.
    pub fn leap_to_next(
        &self,
        since: VirtualInstant,
        known: &[u32],
        timestamps: Option<&FileTimestamps>,
        still: impl FnOnce() -> bool,
    ) -> bool {
        /// A nearer deadline comes by itself before a leap would be done.
        const MIN_LEAP: Span = Span(50_000);
        let leaps = &self.registry().leaps;
        let (sum, look) = (leaps.sum(), self.look());
        let notifier = self.notifier_with(known);
        let Some(earliest) = notifier.earliest_deadline(&look) else { return false };
        let target = earliest.min(look.limit);
        let ahead = look.real_at(target).since(look.real);
        if look.segment.pace == Pace::Frozen || ahead.0 < MIN_LEAP.0 || !still() {
            return false;
        }
        let host_wall = host_wall_ahead(self.page().host_wall());
        let line = timestamps.and_then(|files| files.draw_line(host_wall).ok());
        let line = line.unwrap_or(look.real);
        // Time has gone on a little in between.
        let now = self.look();
        let by = target.since(now.now());
        if by.0 <= 0 || now.state != look.state || !self.registry().leap(sum, by, line) {
            return false;
        }
        failpoint(self.registry(), Failpoint::LeapBeforeNotify);
        notifier.notify_late(since, target, leaps.sum(), &now.with_leaps(by));
        true
    }

    /// Wakes the threads whose deadlines a leap has brought nearer than their kernel timers are set, if the deadlines come within
    /// `soon` of real time. `since` is the return value of the last call; this call returns the next. `known` are processes known
    /// to be on the clock.
    pub fn notify_late(
        &self,
        since: VirtualInstant,
        known: &[u32],
        soon: Duration,
    ) -> VirtualInstant {
        let sum = self.registry().leaps.sum();
        let look = self.look();
        if look.segment.pace != Pace::Frozen && sum > Span::ZERO {
            let soon = RealInstant(look.real.0.saturating_add(soon.as_nanos() as i64));
            let until = look.segment.virtual_at(soon);
            self.notifier_with(known).notify_late(since, until, sum, &look);
        }
        look.now()
    }
}
