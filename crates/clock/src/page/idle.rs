//! How the clock treats idle time, and the time for which tasks run: one word of the page.

use super::ClockPage;
use crate::instant::Span;
use crate::leaps::{SkipMode, Skipping};
use crate::sync::Ordering;

impl ClockPage {
    /// Returns how the clock treats idle time.
    pub fn skipping(&self) -> Skipping {
        let bits = self.skip.load(Ordering::Relaxed);
        Skipping {
            mode: SkipMode::from_bits(bits),
            leaps_enabled: bits & SkipMode::LEAPS_ENABLED != 0,
            read_cost: Span(self.read_cost.load(Ordering::Relaxed)),
        }
    }

    /// Sets how the clock treats idle time. Idle time that was skipped stays skipped. Before it turns skipping on, the caller
    /// must make readers add leaps ([`ClockPage::enable_leaps`]).
    pub fn set_skipping(&self, mode: SkipMode, read_cost: Span) {
        const KEPT: u32 =
            SkipMode::LEAPS_ENABLED | SkipMode::STANDS_WHILE_TASKS_RUN | SkipMode::SHOWS_OWN_TIME;
        let kept = self.skip.load(Ordering::Relaxed) & KEPT;
        self.read_cost.store(read_cost.0, Ordering::Relaxed);
        self.skip.store(mode.to_bits() | kept, Ordering::Relaxed);
    }

    /// Makes leaps part of the clock's time from the next state on.
    ///
    /// The caller holds the clock's lock and makes that state next ([`ClockPage::renew`]). Readers of the state before do not add
    /// leaps, and nobody may leap yet.
    pub fn enable_leaps(&self) {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip | SkipMode::LEAPS_ENABLED, Ordering::Relaxed);
    }

    /// Whether [`crate::Leaps`] are part of the clock's time.
    #[inline(always)]
    pub fn leaps_enabled(&self) -> bool {
        self.skip.load(Ordering::Relaxed) & SkipMode::LEAPS_ENABLED != 0
    }

    /// Whether the clock stands while tasks run, and moves only when all of them sleep. Then a thread that reads the same time again
    /// and again sleeps now and then, or it would never see another.
    pub fn stands_while_tasks_run(&self) -> bool {
        self.skip.load(Ordering::Relaxed) & SkipMode::STANDS_WHILE_TASKS_RUN != 0
    }

    /// Sets whether the clock stands while tasks run. The caller holds the clock's lock. It has readers use the slow path from the
    /// next change on.
    pub fn set_stands_while_tasks_run(&self, stands: bool) {
        self.set_bit(SkipMode::STANDS_WHILE_TASKS_RUN, stands);
    }

    /// Whether the clock errs in an experiment: at an instant of the experiment it shows a time of its own.
    pub fn shows_own_time(&self) -> bool {
        self.skip.load(Ordering::Relaxed) & SkipMode::SHOWS_OWN_TIME != 0
    }

    /// Sets whether the clock shows a time of its own in its experiment. The caller holds the clock's lock.
    pub fn set_shows_own_time(&self, shows: bool) {
        self.set_bit(SkipMode::SHOWS_OWN_TIME, shows);
    }

    fn set_bit(&self, bit: u32, set: bool) {
        let rest = self.skip.load(Ordering::Relaxed) & !bit;
        self.skip.store(rest | if set { bit } else { 0 }, Ordering::Relaxed);
    }

    /// Whether every read takes the slow path.
    pub(super) fn needs_slow_reads(&self) -> bool {
        self.leaps_enabled() || self.stands_while_tasks_run()
    }
}
