//! Points in time: a count of ticks.

use crate::interval::{Interval, OutOfRange};
use crate::reference::Reference;
use crate::source;
use lorentz_clock::{Span, WallTime};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A point in time, in ticks of the process's [`TimeSource`](crate::TimeSource).
///
/// The count of ticks is the value: taking a moment is one read of the counter. What it is in nanoseconds or as a
/// date is computed when asked for. `+` and `-` panic where the result is out of range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(i64);

impl Moment {
    /// Now. Never earlier than what any other thread took before and told this one.
    #[inline]
    pub fn now() -> Moment {
        Moment(source::ticks())
    }

    /// Now, cheaper: the processor may read the counter some instructions earlier or later than is written, so that
    /// moments of different threads may be out of order by some ten nanoseconds. For measuring within a thread.
    #[inline]
    pub fn now_unordered() -> Moment {
        Moment(source::ticks_unordered())
    }

    /// When the counter shows so many ticks.
    pub const fn from_ticks(ticks: i64) -> Moment {
        Moment(ticks)
    }

    /// The ticks.
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// What CLOCK_MONOTONIC_RAW showed, in nanoseconds. The counter's drift against it is followed, without a jump
    /// or a step back; the first question may take some milliseconds.
    pub fn nanos(self) -> i64 {
        Reference::MonotonicRaw.surely_at(self.0)
    }

    /// The date, by what CLOCK_REALTIME shows at this moment of asking. Where that clock is set, the answer changes.
    pub fn wall(self) -> WallTime {
        let (now, wall) = (Moment::now(), Reference::Realtime.now());
        let since = now.since(self).nanos();
        WallTime::from_nanos(i128::from(wall) - since)
    }

    /// The moment at which CLOCK_REALTIME shows `wall`, as it runs now.
    pub fn from_wall(wall: WallTime) -> Result<Moment, OutOfRange> {
        let (now, wall_now) = (Moment::now(), Reference::Realtime.now());
        let until =
            i64::try_from(wall.as_nanos() - i128::from(wall_now)).map_err(|_| OutOfRange)?;
        now.checked_add(Interval::from_nanos(until)?).ok_or(OutOfRange)
    }

    /// How long after `earlier` this is; negative where it is before it, held at the ends of the range.
    pub const fn since(self, earlier: Moment) -> Interval {
        Interval::from_ticks(self.0.saturating_sub(earlier.0))
    }

    /// How long ago this was.
    #[inline]
    pub fn elapsed(self) -> Interval {
        Moment::now().since(self)
    }

    /// So much later, where it is in range.
    pub const fn checked_add(self, interval: Interval) -> Option<Moment> {
        match self.0.checked_add(interval.ticks()) {
            Some(ticks) => Some(Moment(ticks)),
            None => None,
        }
    }

    /// So much earlier, where it is in range.
    pub const fn checked_sub(self, interval: Interval) -> Option<Moment> {
        match self.0.checked_sub(interval.ticks()) {
            Some(ticks) => Some(Moment(ticks)),
            None => None,
        }
    }

    /// So much later, held at the end of time.
    pub const fn saturating_add(self, interval: Interval) -> Moment {
        Moment(self.0.saturating_add(interval.ticks()))
    }

    /// So much earlier, held at the beginning of time.
    pub const fn saturating_sub(self, interval: Interval) -> Moment {
        Moment(self.0.saturating_sub(interval.ticks()))
    }

    /// [`Moment::nanos`] as a timespec.
    pub fn timespec(self) -> libc::timespec {
        let nanos = self.nanos();
        libc::timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        }
    }

    /// [`Moment::nanos`] as a timeval, cut off downwards to microseconds.
    pub fn timeval(self) -> libc::timeval {
        let spec = self.timespec();
        libc::timeval { tv_sec: spec.tv_sec, tv_usec: spec.tv_nsec / 1_000 }
    }

    /// Later by `span`.
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

/// The date: `2026-08-16T12:00:00.000000001Z`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wall().fmt(f)
    }
}
