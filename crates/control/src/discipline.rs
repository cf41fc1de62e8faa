//! A clock that errs, and is disciplined: how far its time is from the truth, and what adjtimex(2) and operators do to it.
//!
//! Without an error a container's clock runs at its rate, and that is the truth. With one, it runs at `rate * (1 + drift) * length`:
//! its oscillator drifts, and `length` is how long NTP makes its seconds ([`kernel::Discipline`]). The truth is a line beside it, a
//! function of virtual time alone: `T(V) = T0 + (V - V0) / ((1 + drift) * length)`. So leaps, freezes and other rates move both.
//! CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME err together, as the kernel's do; a step moves CLOCK_REALTIME alone.
//!
//! An experiment moves its clocks by the truth: there nothing is published, and `held` leads from the truth to the clock's own time.
//!
//! The state lies in a file beside the clock's and is read and written under the clock's lock. It is stored before the change is
//! published, with the rates that may be in force afterwards: a process that dies in between leaves a clock whose next refresh
//! publishes what the file says.

mod apply;
mod held;
mod history;
pub mod kernel;
mod line;
mod part;
mod reading;
mod start_error;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use line::ErrorLine;

pub use apply::{ClockErrorChange, FILE as ERROR_FILE};
pub use history::ErrorHistory;
pub use kernel::{Discipline, LeapSecond};
pub use reading::ErrorReading;
pub use start_error::{parse_frequency, StartError};
pub use state::MAX_DRIFT;
