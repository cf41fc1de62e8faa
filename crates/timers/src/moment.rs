//! Points in time, as counts of ticks.

use crate::interval::{Interval, OutOfRange};
use crate::reference::Reference;
use crate::source;
use lorentz_clock::{Span, WallTime};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A point in time, in ticks of the process's [`TimeSource`](crate::TimeSource).
///
/// The value is the count of ticks: taking a moment is one read of the counter. Its nanoseconds and its date are
/// computed on request. `+` and `-` panic if the result is out of range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(i64);

impl Moment {
    /// Returns the current moment. It is never earlier than a moment that another thread took before and passed to this
    /// thread.
    #[inline]
    pub fn now() -> Moment {
        Moment(source::ticks())
    }

    /// Returns the current moment at a lower cost, for measurements within one thread. The processor may read the
    /// counter some instructions earlier or later than written. Moments of different threads may therefore be out of
    /// order by some ten nanoseconds.
    #[inline]
    pub fn now_unordered() -> Moment {
        Moment(source::ticks_unordered())
    }

    /// Returns the moment at which the counter shows `ticks`.
    pub const fn from_ticks(ticks: i64) -> Moment {
        Moment(ticks)
    }

    /// Returns the ticks.
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// Returns CLOCK_MONOTONIC_RAW at this moment, ns. The conversion follows the counter's drift against that clock,
    /// without a jump or a step back. The first call may take some milliseconds.
    pub fn nanos(self) -> i64 {
        Reference::MonotonicRaw.at_or_wait(self.0)
    }

    /// Returns the date, computed from CLOCK_REALTIME at the time of the call. The result changes when that clock is
    /// set.
    pub fn wall(self) -> WallTime {
        let (now, wall) = (Moment::now(), Reference::Realtime.now());
        let since = now.since(self).nanos();
        WallTime::from_nanos(i128::from(wall) - since)
    }

    /// Returns the moment at which CLOCK_REALTIME shows `wall`, as that clock runs at the time of the call.
    pub fn from_wall(wall: WallTime) -> Result<Moment, OutOfRange> {
        let (now, wall_now) = (Moment::now(), Reference::Realtime.now());
        let until =
            i64::try_from(wall.as_nanos() - i128::from(wall_now)).map_err(|_| OutOfRange)?;
        now.checked_add(Interval::from_nanos(until)?).ok_or(OutOfRange)
    }

    /// Returns the interval from `earlier` to this moment; negative if `earlier` is later. A result out of range
    /// becomes the nearest end of the range.
    pub const fn since(self, earlier: Moment) -> Interval {
        Interval::from_ticks(self.0.saturating_sub(earlier.0))
    }

    /// Returns the interval from this moment to now.
    #[inline]
    pub fn elapsed(self) -> Interval {
        Moment::now().since(self)
    }

    /// Returns the moment `interval` later; `None` if it is out of range.
    pub const fn checked_add(self, interval: Interval) -> Option<Moment> {
        match self.0.checked_add(interval.ticks()) {
            Some(ticks) => Some(Moment(ticks)),
            None => None,
        }
    }

    /// Returns the moment `interval` earlier; `None` if it is out of range.
    pub const fn checked_sub(self, interval: Interval) -> Option<Moment> {
        match self.0.checked_sub(interval.ticks()) {
            Some(ticks) => Some(Moment(ticks)),
            None => None,
        }
    }

    /// Returns the moment `interval` later. A result out of range becomes the nearest end of the range.
    pub const fn saturating_add(self, interval: Interval) -> Moment {
        Moment(self.0.saturating_add(interval.ticks()))
    }

    /// Returns the moment `interval` earlier. A result out of range becomes the nearest end of the range.
    pub const fn saturating_sub(self, interval: Interval) -> Moment {
        Moment(self.0.saturating_sub(interval.ticks()))
    }

    /// Returns [`Moment::nanos`] as a timespec.
    pub fn timespec(self) -> libc::timespec {
        let nanos = self.nanos();
        libc::timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        }
    }

    /// Returns [`Moment::nanos`] as a timeval, rounded down to microseconds.
    pub fn timeval(self) -> libc::timeval {
        let spec = self.timespec();
        libc::timeval { tv_sec: spec.tv_sec, tv_usec: spec.tv_nsec / 1_000 }
    }

    /// Returns the moment `span` later.
    pub fn plus(self, span: Span) -> Result<Moment, OutOfRange> {
        self.checked_add(Interval::try_from(span)?).ok_or(OutOfRange)
    }
}

const OVERFLOW: &str = "moment out of range";

impl Add<Interval> for Moment {
    type Output = Moment;
    fn add(self, interval: Interval) -> Moment {
        self.checked_add(interval).expect(OVERFLOW)
    }
}

impl Sub<Interval> for Moment {
    type Output = Moment;
    fn sub(self, interval: Interval) -> Moment {
        self.checked_sub(interval).expect(OVERFLOW)
    }
}

impl Sub for Moment {
    type Output = Interval;
    fn sub(self, earlier: Moment) -> Interval {
        Interval::from_ticks(self.0.checked_sub(earlier.0).expect(OVERFLOW))
    }
}

impl AddAssign<Interval> for Moment {
    fn add_assign(&mut self, interval: Interval) {
        *self = *self + interval;
    }
}

impl SubAssign<Interval> for Moment {
    fn sub_assign(&mut self, interval: Interval) {
        *self = *self - interval;
    }
}

/// Prints the date: `2026-08-16T12:00:00.000000001Z`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wall().fmt(f)
    }
}
