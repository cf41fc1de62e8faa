//! Precise timers: a clock read from the processor's counter, and sleep to within a hundred nanoseconds.
//!
//! - [`Moment`] and [`Interval`] are counts of ticks; seconds and nanoseconds are computed on request.
//! - [`TimeSource`] is the origin of ticks: the TSC if it is invariant and the kernel trusts it, else the system's clock, or the
//!   HPET. The library measures the sources and chooses one. A program can ask for the choice and its reason, and can force a
//!   source.
//! - [`Reference`]: the clocks of the system as the counter follows them, drift included, without a jump or a step back.
//! - [`sleep()`], [`sleep_until`] and [`Sleeper`]: the kernel sleeps until shortly before the target, then the thread spins.
//!
//! It is the system of *Impact of Modern Virtualization Methods on Timing Precision and Performance of High-Speed Applications*
//! (Kirova et al., Future Internet 11(8):179, 2019), section 2.1.1. Unlike in the paper, a thread learns the spin window and does
//! not spin for a whole jiffy. In a container with a virtual clock all functions keep virtual time: the source is then the
//! system's clock, as the program sees it.
//!
//! The package `lorentz-timers-c` has the C interface, `include/lorentz_timers.h`. The package `lorentz-timers-preload` gives these timers to programs that do not
//! use them by themselves.
//!
//! ```
//! use lorentz_timers::{sleep_until, Interval, Moment};
//! let start = Moment::now();
//! let target = start + Interval::from_micros(1_500)?;
//! sleep_until(target);
//! let late = target.elapsed();
//! assert!(!late.is_negative());
//! println!("{} s too late", late);
//! # Ok::<(), lorentz_timers::OutOfRange>(())
//! ```

mod hpet;
mod interval;
mod lateness;
mod moment;
pub mod os;
mod reference;
mod scale;
mod sleep;
mod source;
mod track;
#[cfg(target_arch = "x86_64")]
pub mod tsc;
mod virtual_time;

pub use hpet::{Hpet, HpetError};
pub use interval::{Interval, OutOfRange, Parts};
pub use moment::Moment;
pub use reference::Reference;
pub use scale::Scale;
pub use sleep::{
    sleep, sleep_for, sleep_until, sleep_until_date, sleep_until_signal, spin_window,
    use_fifo_scheduling, wait_for_event, Interrupter, Sleeper, Woken,
};
pub use source::{SourceError, TimeSource, UnknownSource, SOURCE_VARIABLE};
