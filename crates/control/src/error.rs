//! Errors, one line each: the flag, its value, and the accepted values.

use lorentz_clock::{Span, WallTime};
use thiserror::Error;

/// An option, or a combination of options, that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WrongOption {
    /// Two options that exclude each other.
    #[error("{first} and {second} exclude each other: give one of them")]
    Both {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// An offset that would make a clock negative.
    #[error("{flag} {by}: would make the container's {clock} negative; expected {least} or more")]
    Negative {
        /// The flag.
        flag: &'static str,
        /// Its value.
        by: Span,
        /// The clock in question.
        clock: &'static str,
        /// The least accepted value.
        least: Span,
    },
    /// A date no wall clock of Linux can show.
    #[error("{flag} {time}: a wall clock cannot show a time before 1970-01-01T00:00:00Z")]
    BeforeEpoch {
        /// The flag.
        flag: &'static str,
        /// Its value.
        time: WallTime,
    },
    /// A change that leaves the range of the kernel's clocks.
    #[error(
        "{flag} {value}: would take the container's {clock} beyond 290 years, where the kernel's \
         clocks end"
    )]
    TooLate {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// The clock in question.
        clock: &'static str,
    },
    /// A leap into the past.
    #[error("{flag} {value}: leaps go forward; {hint}")]
    Backwards {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// Advice: a command that does it.
        hint: String,
    },
}
