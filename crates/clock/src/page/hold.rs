//! Holding timers back while a controller prepares a change that makes deadlines later.
//!
//! Race: a timer of the kernel is set by the piece in force. A controller publishes a slower piece, and is killed or stopped
//! before it has notified the timer's process. The timer goes off at the old deadline: too early. Therefore the controller first
//! asks every process to *hold back* the timers that are due after an instant T: the processes set them [`HOLD_DELAY`] later. When
//! all have done so, the controller publishes the change, to begin at T or later, and ends the hold. Each process then sets its
//! timers by the new pieces. If controller and monitor die at any step, a timer is at most [`HOLD_DELAY`] late. It is early only if
//! they die between the change and its signals, and the change moves the timer by more than [`HOLD_DELAY`].

use super::ClockPage;
use crate::instant::{RealInstant, Span};
use crate::sync::{fence, Ordering};

/// Delay of a timer that is held back, if no thread sets the timer anew before.
pub const HOLD_DELAY: Span = Span(1_000_000_000);

impl ClockPage {
    /// Asks processes to hold back timers that are due after `from`. A second call may give a later instant.
    ///
    /// The caller holds the clock's lock, notifies the processes, and waits until every timer is set by
    /// [`ClockPage::timers_state`].
    pub fn hold_timers(&self, from: RealInstant) {
        self.hold_from.store(from.0, Ordering::Relaxed);
        let holds = self.holds.load(Ordering::Relaxed);
        self.holds.store(holds.wrapping_add(1 + (holds & 1)), Ordering::Release);
        // A thread whose timer's setting is not found after this fence sees the hold.
        fence(Ordering::SeqCst);
    }

    /// Ends the hold, if there is one. The caller holds the clock's lock, and notifies the processes.
    pub fn release_timers(&self) {
        let holds = self.holds.load(Ordering::Relaxed);
        self.holds.store(holds.wrapping_add(holds & 1), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns the instant after which due timers are held back; `None` if no timer is.
    pub fn timers_held(&self) -> Option<RealInstant> {
        let held = self.holds.load(Ordering::Acquire) & 1 != 0;
        held.then(|| RealInstant(self.hold_from.load(Ordering::Acquire)))
    }

    /// Returns the number of the state by which timers are set. It changes with [`ClockPage::state`], and with the hold.
    pub fn timers_state(&self) -> u32 {
        // Both terms only count up, so the sum is a new number after each change of either.
        self.holds.load(Ordering::Acquire).wrapping_add(self.state())
    }
}
