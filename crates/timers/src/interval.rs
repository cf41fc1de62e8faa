//! Lengths of time: a signed count of ticks.

use crate::scale::Scale;
use crate::source;
use lorentz_clock::Span;
use std::fmt;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::time::Duration;

const NANOS_PER_SEC: i128 = 1_000_000_000;

/// A result that 64 bits of ticks, or the type asked for, do not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("beyond what a 64-bit count of ticks, or the type asked for, can hold")]
pub struct OutOfRange;

/// A length of time with a sign, in ticks of the process's [`TimeSource`](crate::TimeSource).
///
/// The count of ticks is the value; seconds and nanoseconds are computed when they are asked for, with the frequency
/// that was found when the source was chosen. Reaches 112 years either way at 2.6 GHz.
///
/// `+` and `-` panic where the result is out of range; the `checked_` and `saturating_` forms do not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Interval(i64);

/// An [`Interval`] taken apart: `secs` and `nanos` (0..1e9), both to be counted backwards where `negative`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Parts {
    /// Whether it is below zero.
    pub negative: bool,
    /// Whole seconds.
    pub secs: u64,
    /// Nanoseconds above them.
    pub nanos: u32,
}

fn scale() -> Scale {
    source::scale()
}

impl Interval {
    /// No time at all.
    pub const ZERO: Interval = Interval(0);
    /// The longest interval.
    pub const MAX: Interval = Interval(i64::MAX);
    /// The longest interval backwards.
    pub const MIN: Interval = Interval(i64::MIN);

    /// So many ticks.
    pub const fn from_ticks(ticks: i64) -> Interval {
        Interval(ticks)
    }

    /// So many nanoseconds, to the nearest tick.
    pub fn from_nanos(nanos: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(nanos.into())
    }

    /// So many microseconds, to the nearest tick.
    pub fn from_micros(micros: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(micros) * 1_000)
    }

    /// So many milliseconds, to the nearest tick.
    pub fn from_millis(millis: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(millis) * 1_000_000)
    }

    /// So many seconds, to the nearest tick.
    pub fn from_secs(secs: i64) -> Result<Interval, OutOfRange> {
        Interval::from_wide_nanos(i128::from(secs) * NANOS_PER_SEC)
    }

    /// So many seconds; out of range too where it is not a number.
    pub fn from_secs_f64(secs: f64) -> Result<Interval, OutOfRange> {
        let nanos = (secs * 1e9).round();
        // Beyond this no source's ticks fit either.
        if nanos.is_nan() || nanos.abs() >= 1e25 {
            return Err(OutOfRange);
        }
        Interval::from_wide_nanos(nanos as i128)
    }

    /// Put together again. Nanoseconds from 1e9 on are carried over.
    pub fn from_parts(parts: Parts) -> Result<Interval, OutOfRange> {
        let nanos = i128::from(parts.secs) * NANOS_PER_SEC + i128::from(parts.nanos);
        Interval::from_wide_nanos(if parts.negative { -nanos } else { nanos })
    }

    fn from_wide_nanos(nanos: i128) -> Result<Interval, OutOfRange> {
        scale().ticks(nanos).map(Interval).ok_or(OutOfRange)
    }

    /// The ticks.
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// In nanoseconds, to the nearest.
    pub fn nanos(self) -> i128 {
        scale().nanos(self.0)
    }

    /// In whole microseconds, towards zero.
    pub fn micros(self) -> i128 {
        self.nanos() / 1_000
    }

    /// In whole seconds, towards zero.
    pub fn secs(self) -> i128 {
        self.nanos() / NANOS_PER_SEC
    }

    /// In seconds.
    pub fn secs_f64(self) -> f64 {
        self.nanos() as f64 / 1e9
    }

    /// Sign, seconds and nanoseconds.
    pub fn parts(self) -> Parts {
        let nanos = self.nanos();
        let magnitude = nanos.unsigned_abs();
        Parts {
            negative: nanos < 0,
            secs: (magnitude / NANOS_PER_SEC as u128) as u64,
            nanos: (magnitude % NANOS_PER_SEC as u128) as u32,
        }
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The sum, where it is in range.
    pub const fn checked_add(self, other: Interval) -> Option<Interval> {
        match self.0.checked_add(other.0) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// The difference, where it is in range.
    pub const fn checked_sub(self, other: Interval) -> Option<Interval> {
        match self.0.checked_sub(other.0) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// So many times as long, where it is in range.
    pub const fn checked_mul(self, times: i64) -> Option<Interval> {
        match self.0.checked_mul(times) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// That part of it, towards zero; `None` for a division by zero, or out of range.
    pub const fn checked_div(self, parts: i64) -> Option<Interval> {
        match self.0.checked_div(parts) {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// The same length the other way, where it is in range: [`Interval::MIN`] has none.
    pub const fn checked_neg(self) -> Option<Interval> {
        match self.0.checked_neg() {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// Its length without the sign, where it is in range: [`Interval::MIN`] has none.
    pub const fn checked_abs(self) -> Option<Interval> {
        match self.0.checked_abs() {
            Some(ticks) => Some(Interval(ticks)),
            None => None,
        }
    }

    /// The sum, held at the ends of the range.
    pub const fn saturating_add(self, other: Interval) -> Interval {
        Interval(self.0.saturating_add(other.0))
    }

    /// The difference, held at the ends of the range.
    pub const fn saturating_sub(self, other: Interval) -> Interval {
        Interval(self.0.saturating_sub(other.0))
    }

    /// Longer by so many ticks.
    pub fn add_ticks(self, ticks: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval(ticks)).ok_or(OutOfRange)
    }

    /// Longer by so many nanoseconds (shorter by negative ones).
    pub fn add_nanos(self, nanos: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_nanos(nanos)?).ok_or(OutOfRange)
    }

    /// Longer by so many microseconds (shorter by negative ones).
    pub fn add_micros(self, micros: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_micros(micros)?).ok_or(OutOfRange)
    }

    /// Longer by so many seconds (shorter by negative ones).
    pub fn add_secs(self, secs: i64) -> Result<Interval, OutOfRange> {
        self.checked_add(Interval::from_secs(secs)?).ok_or(OutOfRange)
    }

    /// Shorter by so many ticks.
    pub fn sub_ticks(self, ticks: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval(ticks)).ok_or(OutOfRange)
    }

    /// Shorter by so many nanoseconds (longer by negative ones).
    pub fn sub_nanos(self, nanos: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_nanos(nanos)?).ok_or(OutOfRange)
    }

    /// Shorter by so many microseconds (longer by negative ones).
    pub fn sub_micros(self, micros: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_micros(micros)?).ok_or(OutOfRange)
    }

    /// Shorter by so many seconds (longer by negative ones).
    pub fn sub_secs(self, secs: i64) -> Result<Interval, OutOfRange> {
        self.checked_sub(Interval::from_secs(secs)?).ok_or(OutOfRange)
    }

    /// As a timespec: `tv_nsec` is 0..1e9, so that a negative interval has its seconds rounded down.
    pub fn timespec(self) -> libc::timespec {
        let nanos = self.nanos();
        libc::timespec {
            tv_sec: nanos.div_euclid(NANOS_PER_SEC) as libc::time_t,
            tv_nsec: nanos.rem_euclid(NANOS_PER_SEC) as libc::c_long,
        }
    }

    /// As a timeval: `tv_usec` is 0..1e6, and what is below a microsecond is cut off downwards.
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

    /// Nanoseconds outside 0..1e9 are carried over.
    fn try_from(spec: libc::timespec) -> Result<Interval, OutOfRange> {
        let nanos = i128::from(spec.tv_sec) * NANOS_PER_SEC + i128::from(spec.tv_nsec);
        Interval::from_wide_nanos(nanos)
    }
}

impl TryFrom<libc::timeval> for Interval {
    type Error = OutOfRange;

    /// Microseconds outside 0..1e6 are carried over.
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

    /// There is no negative [`Duration`].
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

/// Seconds with nine decimals: `-0.000001500`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { negative, secs, nanos } = self.parts();
        f.pad(&format!("{}{secs}.{nanos:09}", if negative { "-" } else { "" }))
    }
}
