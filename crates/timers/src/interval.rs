//! Lengths of time, as signed counts of ticks.

use crate::scale::Scale;
use crate::source;
use lorentz_clock::Span;
use std::fmt;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::time::Duration;

const NANOS_PER_SEC: i128 = 1_000_000_000;

/// The error of a result that does not fit into 64 bits of ticks, or into the type asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("beyond what a 64-bit count of ticks, or the type asked for, can hold")]
pub struct OutOfRange;

/// A length of time with a sign, in ticks of the process's [`TimeSource`](crate::TimeSource).
///
/// The value is the count of ticks. Seconds and nanoseconds are computed on request, with the frequency that was
/// determined when the source was chosen. The range is 112 years either way at 2.6 GHz.
///
/// `+` and `-` panic if the result is out of range; the `checked_` and `saturating_` forms do not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Interval(i64);

/// An [`Interval`] split into `secs` and `nanos` (0..1e9). Both count backwards if `negative` is true.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Parts {
    /// Whether the interval is below zero.
    pub negative: bool,
    /// Whole seconds.
    pub secs: u64,
    /// Nanoseconds above the whole seconds.
    pub nanos: u32,
}

fn scale() -> Scale {
    source::scale()
}

impl Interval {
    /// The interval of length zero.
    pub const ZERO: Interval = Interval(0);
    /// The longest interval.
    pub const MAX: Interval = Interval(i64::MAX);
    /// The longest negative interval.
    pub const MIN: Interval = Interval(i64::MIN);

    /// Makes an interval of `ticks` ticks.
    pub const fn from_ticks(ticks: i64) -> Interval {
        Interval(ticks)
    }

    /// Makes an interval of `nanos` nanoseconds, rounded to the nearest tick.
    pub fn from_nanos(nanos: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(nanos.into())
    }

    /// Makes an interval of `micros` microseconds, rounded to the nearest tick.
    pub fn from_micros(micros: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(micros) * 1_000)
    }

    /// Makes an interval of `millis` milliseconds, rounded to the nearest tick.
    pub fn from_millis(millis: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(millis) * 1_000_000)
    }

    /// Makes an interval of `secs` seconds, rounded to the nearest tick.
    pub fn from_secs(secs: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(secs) * NANOS_PER_SEC)
    }

    /// Makes an interval of `secs` seconds.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also for NaN.
    pub fn from_secs_f64(secs: f64) -> Result<Interval, OutOfRange> {
        let nanos = (secs * 1e9).round();
        // No source's ticks fit a longer interval.
        if nanos.is_nan() || nanos.abs() >= 1e25 {
            return Err(OutOfRange);
        }
        Interval::from_wide_nanos(nanos as i128)
    }

    /// Makes an interval of its parts. Nanoseconds from 1e9 on are carried over to the seconds.
    pub fn from_parts(parts: Parts) -> Result<Interval, OutOfRange> {
        let nanos = i128::from(parts.secs) * NANOS_PER_SEC + i128::from(parts.nanos);
        Interval::from_wide_nanos(if parts.negative { -nanos } else { nanos })
    }

    fn from_wide_nanos(nanos: i128) -> Result<Interval, OutOfRange> {
        scale().ticks(nanos).map(Interval).ok_or(OutOfRange)
    }

    /// Returns the ticks.
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// Returns the nanoseconds, rounded to the nearest.
    pub fn nanos(self) -> i128 {
        scale().nanos(self.0)
    }

    /// Returns the whole microseconds, rounded towards zero.
    pub fn micros(self) -> i128 {
        self.nanos() / 1_000
    }

    /// Returns the whole seconds, rounded towards zero.
    pub fn secs(self) -> i128 {
        self.nanos() / NANOS_PER_SEC
    }

    /// Returns the seconds.
    pub fn secs_f64(self) -> f64 {
        self.nanos() as f64 / 1e9
    }

    /// Splits the interval into sign, seconds and nanoseconds.
    pub fn parts(self) -> Parts {
        let nanos = self.nanos();
        let magnitude = nanos.unsigned_abs();
        Parts {
            negative: nanos < 0,
            secs: (magnitude / NANOS_PER_SEC as u128) as u64,
            nanos: (magnitude % NANOS_PER_SEC as u128) as u32,
        }
    }

    /// Whether the interval is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the interval is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns the sum; `None` if it is out of range.
    pub const fn checked_add(self, other: Interval) -> Option<Interval> {
        match self.0.checked_add(other.0) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the difference; `None` if it is out of range.
    pub const fn checked_sub(self, other: Interval) -> Option<Interval> {
        match self.0.checked_sub(other.0) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the interval `times` times as long; `None` if it is out of range.
    pub const fn checked_mul(self, times: i64) -> Option<Interval> {
        match self.0.checked_mul(times) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the interval divided by `parts`, rounded towards zero. `None` if `parts` is zero, or the result is out
    /// of range.
    pub const fn checked_div(self, parts: i64) -> Option<Interval> {
        match self.0.checked_div(parts) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the interval with the other sign. `None` for [`Interval::MIN`], which has no counterpart.
    pub const fn checked_neg(self) -> Option<Interval> {
        match self.0.checked_neg() {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the interval without its sign. `None` for [`Interval::MIN`], which has no counterpart.
    pub const fn checked_abs(self) -> Option<Interval> {
        match self.0.checked_abs() {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Returns the sum. A result out of range becomes the nearest end of the range.
    pub const fn saturating_add(self, other: Interval) -> Interval {
        Interval(self.0.saturating_add(other.0))
    }

    /// Returns the difference. A result out of range becomes the nearest end of the range.
    pub const fn saturating_sub(self, other: Interval) -> Interval {
        Interval(self.0.saturating_sub(other.0))
    }

    /// Adds `ticks` ticks.
    pub fn add_ticks(self, ticks: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval(ticks)).ok_or(OutOfRange)
    }

    /// Adds `nanos` nanoseconds.
    pub fn add_nanos(self, nanos: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_nanos(nanos)?).ok_or(OutOfRange)
    }

    /// Adds `micros` microseconds.
    pub fn add_micros(self, micros: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_micros(micros)?).ok_or(OutOfRange)
    }

    /// Adds `secs` seconds.
    pub fn add_secs(self, secs: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_secs(secs)?).ok_or(OutOfRange)
    }

    /// Subtracts `ticks` ticks.
    pub fn sub_ticks(self, ticks: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval(ticks)).ok_or(OutOfRange)
    }

    /// Subtracts `nanos` nanoseconds.
    pub fn sub_nanos(self, nanos: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_nanos(nanos)?).ok_or(OutOfRange)
    }

    /// Subtracts `micros` microseconds.
    pub fn sub_micros(self, micros: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_micros(micros)?).ok_or(OutOfRange)
    }

    /// Subtracts `secs` seconds.
    pub fn sub_secs(self, secs: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_secs(secs)?).ok_or(OutOfRange)
    }

    /// Returns a timespec. `tv_nsec` is 0..1e9, so the seconds of a negative interval are rounded down.
    pub fn timespec(self) -> libc::timespec {
        let nanos = self.nanos();
        libc::timespec {
            tv_sec: nanos.div_euclid(NANOS_PER_SEC) as libc::time_t,
            tv_nsec: nanos.rem_euclid(NANOS_PER_SEC) as libc::c_long,
        }
    }

    /// Returns a timeval, rounded down to microseconds. `tv_usec` is 0..1e6.
    pub fn timeval(self) -> libc::timeval {
        let spec = self.timespec();
        libc::timeval { tv_sec: spec.tv_sec, tv_usec: spec.tv_nsec / 1_000 }
    }
}

impl From<Interval> for libc::timespec {
    fn from(interval: Interval) -> libc::timespec {
        interval.timespec()
    }
}

impl From<Interval> for libc::timeval {
    fn from(interval: Interval) -> libc::timeval {
        interval.timeval()
    }
}

impl TryFrom<libc::timespec> for Interval {
    type Error = OutOfRange;

    /// Carries nanoseconds outside 0..1e9 over to the seconds.
    fn try_from(spec: libc::timespec) -> Result<Interval, OutOfRange> {
        let nanos = i128::from(spec.tv_sec) * NANOS_PER_SEC + i128::from(spec.tv_nsec);
        Interval::from_wide_nanos(nanos)
    }
}

impl TryFrom<libc::timeval> for Interval {
    type Error = OutOfRange;

    /// Carries microseconds outside 0..1e6 over to the seconds.
    fn try_from(val: libc::timeval) -> Result<Interval, OutOfRange> {
        let nanos = i128::from(val.tv_sec) * NANOS_PER_SEC + i128::from(val.tv_usec) * 1_000;
        Interval::from_wide_nanos(nanos)
    }
}

impl TryFrom<Duration> for Interval {
    type Error = OutOfRange;

    fn try_from(duration: Duration) -> Result<Interval, OutOfRange> {
        let nanos = i128::try_from(duration.as_nanos()).map_err(|_| OutOfRange)?;
        Interval::from_wide_nanos(nanos)
    }
}

impl TryFrom<Interval> for Duration {
    type Error = OutOfRange;

    /// Fails for a negative interval: there is no negative [`Duration`].
    fn try_from(interval: Interval) -> Result<Duration, OutOfRange> {
        let parts = interval.parts();
        if parts.negative {
            return Err(OutOfRange);
        }
        Ok(Duration::new(parts.secs, parts.nanos))
    }
}

impl TryFrom<Span> for Interval {
    type Error = OutOfRange;

    fn try_from(span: Span) -> Result<Interval, OutOfRange> {
        Interval::from_nanos(span.0)
    }
}

impl TryFrom<Interval> for Span {
    type Error = OutOfRange;

    fn try_from(interval: Interval) -> Result<Span, OutOfRange> {
        i64::try_from(interval.nanos()).map(Span).map_err(|_| OutOfRange)
    }
}

const OVERFLOW: &str = "interval out of range";

impl Add for Interval {
    type Output = Interval;
    fn add(self, other: Interval) -> Interval {
        self.checked_add(other).expect(OVERFLOW)
    }
}

impl Sub for Interval {
    type Output = Interval;
    fn sub(self, other: Interval) -> Interval {
        self.checked_sub(other).expect(OVERFLOW)
    }
}

impl Neg for Interval {
    type Output = Interval;
    fn neg(self) -> Interval {
        self.checked_neg().expect(OVERFLOW)
    }
}

impl AddAssign for Interval {
    fn add_assign(&mut self, other: Interval) {
        *self = *self + other;
    }
}

impl SubAssign for Interval {
    fn sub_assign(&mut self, other: Interval) {
        *self = *self - other;
    }
}

/// Prints seconds with nine decimals: `-0.000001500`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { negative, secs, nanos } = self.parts();
        f.pad(&format!("{}{secs}.{nanos:09}", if negative { "-" } else { "" }))
    }
}
