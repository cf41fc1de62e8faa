//! A clock's error, as commands show it.

use lorentz_clock::WallTime;

use super::kernel::{self, Discipline};
use super::state::ErrorState;

/// A clock's error at one instant.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorReading {
    /// By how much the wall clock is ahead of true time, ns.
    pub offset_ns: i128,
    /// By how much the clock is too fast, as a ratio: drift and discipline.
    pub frequency_error: f64,
    /// By how much the oscillator is too fast, parts in 10^12. Drifts that end are not in it.
    pub drift: i64,
    /// The state that adjtimex(2) shows.
    pub discipline: Discipline,
    /// The wall clock.
    pub wall: WallTime,
}

impl ErrorReading {
    pub(super) fn of(state: &ErrorState) -> ErrorReading {
        let (secs, nanos) = state.wall_clock();
        ErrorReading {
            offset_ns: state.offset(),
            frequency_error: state.frequency_error(),
            drift: state.drift,
            discipline: state.kernel,
            wall: WallTime { secs, nanos: nanos as u32 },
        }
    }

    /// Whether the clock's error is within the bound that its daemon has told the kernel (`maxerror`); `None` if no daemon has told
    /// one since the last step.
    pub fn is_within_bound(&self) -> Option<bool> {
        let bound = i128::from(self.discipline.max_error) * 1000;
        let is_told = self.discipline.max_error < kernel::MAX_ERROR;
        is_told.then_some(self.offset_ns.abs() <= bound)
    }
}
