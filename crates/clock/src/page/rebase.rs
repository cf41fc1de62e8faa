//! A clock that goes on by another host's clocks: after a migration, or after the host's next boot.

use super::shift::add;
use super::ClockPage;
use crate::instant::{Span, WallTime};
use crate::registry::Registry;
use crate::sync::Ordering;

impl ClockPage {
    /// Adds `by` to each instant of the host's CLOCK_MONOTONIC that the clock remembers. `by` is the difference between the two
    /// hosts' CLOCK_MONOTONIC at one moment of the wall clock: files then show the same times as before.
    ///
    /// The clock is frozen, no change is to come, and nobody else uses the clock meanwhile.
    pub fn rebase(&self, registry: &Registry, by: Span) {
        registry.start.rebase(self.version(), by);
        registry.leaps.rebase(by);
        for piece in &self.pieces {
            piece.rebase(by);
        }
        for view in &self.views {
            add(&view.at, by);
            view.fast.rebase(by);
        }
        add(&self.hold_from, by);
        let host_wall = WallTime::from_nanos(self.host_wall().as_nanos() - i128::from(by.0));
        self.host_wall_secs.store(host_wall.secs, Ordering::Relaxed);
        self.host_wall_nanos.store(host_wall.nanos, Ordering::Relaxed);
    }
}
