//! Leaps over idle time, and who is on a clock that makes them.

use std::collections::HashSet;
use std::time::Duration;

use lorentz_clock::{failpoint, Failpoint, Head, Pace, RealInstant, Span, VirtualInstant, Waiter};

use crate::file_stamps::{host_wall_ahead, FileStamps};
use crate::Clock;

impl Clock {
    /// Whether time runs, and so can leap.
    pub fn can_leap(&self) -> bool {
        self.look().segment.pace != Pace::Frozen
    }

    /// How many programs have been brought onto the clock so far.
    pub fn entries(&self) -> u32 {
        self.registry().population.entries()
    }

    /// Who has come so far.
    pub fn population(&self) -> Head {
        self.registry().population.head()
    }

    /// Whether [`Clock::vouch_alone`] would say something new.
    pub fn may_vouch(&self, head: Head) -> bool {
        self.policy().counts_births && !self.registry().population.is_vouched_for(head)
    }

    /// Vouches for the only thread on the clock, found alone after [`Clock::population`] was `head`: until somebody comes it
    /// leaps by itself.
    pub fn vouch_alone(&self, head: Head) {
        let mut waiting = self.registry().waiters().filter_map(Waiter::owner);
        if let (Some(alone), None) = (waiting.next(), waiting.next()) {
            self.registry().vouch(alone, head);
        }
    }

    /// Whether somebody on the clock waits who is not among the threads `known`.
    pub fn has_strangers(&self, known: &HashSet<u32>) -> bool {
        self.followers().has_strangers(known)
    }

    /// Whether anybody waits for a moment to come.
    pub fn has_deadlines(&self) -> bool {
        self.followers().earliest(&self.look()).is_some()
    }

    /// Leaps to the earliest deadline and wakes whose it is, if that is far enough to be worth it and `still` holds, asked
    /// as late as possible. The caller knows that all who could look at the clock sleep. `stamps` tell files written after the leap
    /// from those written before. `since` is as for
    /// [`Clock::tell_late`]; `known` are processes known to be on the clock.
    pub fn leap_to_next(
        &self,
        since: VirtualInstant,
        known: &[u32],
        stamps: Option<&FileStamps>,
        still: impl FnOnce() -> bool,
    ) -> bool {
        /// Nearer ones come by themselves sooner than anything could be done about them.
        const WORTH_IT: Span = Span(50_000);
        let leaps = &self.registry().leaps;
        let (sum, look) = (leaps.sum(), self.look());
        let followers = self.followers_with(known);
        let Some(earliest) = followers.earliest(&look) else { return false };
        let target = earliest.min(look.limit);
        let ahead = look.real_at(target).since(look.real);
        if look.segment.pace == Pace::Frozen || ahead.0 < WORTH_IT.0 || !still() {
            return false;
        }
        let host_wall = host_wall_ahead(self.page().host_wall());
        let line = stamps.and_then(|stamps| stamps.draw_line(host_wall).ok());
        let line = line.unwrap_or(look.real);
        // Time has gone on by a little meanwhile.
        let now = self.look();
        let by = target.since(now.now());
        if by.0 <= 0 || now.state != look.state || !self.registry().leap(sum, by, line) {
            return false;
        }
        failpoint(self.registry(), Failpoint::LeapBeforeTell);
        followers.tell_late(since, target, leaps.sum(), &now.after(by));
        true
    }

    /// Wakes those whose deadlines have come nearer by a leap than the kernel knows, and that come within `soon` of real
    /// time. `since` is the virtual instant that the last call returned; this one returns the next. `known` are processes
    /// known to be on the clock.
    pub fn tell_late(
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
            self.followers_with(known).tell_late(since, until, sum, &look);
        }
        look.now()
    }
}
