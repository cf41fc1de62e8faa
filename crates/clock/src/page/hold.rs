//! Holding timers back while a change is prepared that makes deadlines later.
//!
//! Race: a timer of the kernel's is set by the piece in force. A controller publishes a slower piece and is killed, or stopped,
//! before the timer's process hears of it. The timer goes off at the old deadline: too early. Therefore the controller first
//! asks every process to *hold back* the timers that are due after an instant T: they are set for [`HELD_FOR`] later. When all
//! have done so it publishes the change, to begin at T or later, and lets the timers go: each process sets its timers by the new
//! pieces. If controller and monitor die at any step, a timer is late by [`HELD_FOR`] at most, and never early.

use super::ClockPage;
use crate::instant::{RealInstant, Span};
use crate::sync::{fence, Ordering};

/// A timer that is held back goes off so much later, if nobody sets it anew before.
pub const HELD_FOR: Span = Span(1_000_000_000);

impl ClockPage {
    /// Asks processes to hold back timers that are due after `from`; a later instant may be given by a second call. The caller
    /// holds the clock's lock, tells the processes, and waits until every timer was set by [`ClockPage::timers_state`].
    pub fn hold_timers(&self, from: RealInstant) {
        self.hold_from.store(from.0, Ordering::Relaxed);
        let holds = self.holds.load(Ordering::Relaxed);
        self.holds.store(holds.wrapping_add(1 + (holds & 1)), Ordering::Release);
        // A timer whose setting is not found after this sees the hold.
        fence(Ordering::SeqCst);
    }

    /// Ends the hold, where there is one. The caller holds the clock's lock, and tells the processes.
    pub fn let_timers_go(&self) {
        let holds = self.holds.load(Ordering::Relaxed);
        self.holds.store(holds.wrapping_add(holds & 1), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The instant after which due timers are held back; none where no timer is.
    pub fn timers_held(&self) -> Option<RealInstant> {
        let held = self.holds.load(Ordering::Acquire) & 1 != 0;
        held.then(|| RealInstant(self.hold_from.load(Ordering::Acquire)))
    }

    /// The number of the state of the clock that timers are set by. It changes with [`ClockPage::state`], and with the hold.
    pub fn timers_state(&self) -> u32 {
        // Both only count up, so their sum names one pair of them.
        self.holds.load(Ordering::Acquire).wrapping_add(self.state())
    }
}
