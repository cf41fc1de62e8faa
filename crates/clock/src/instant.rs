//! Points and lengths of time, each with its unit in its type.
//!
//! All values are whole nanoseconds. `i64` nanoseconds reach 292 years, as the kernel's own `ktime_t` does. Only the wall clock
//! stores its seconds apart, so that a container can live beyond the year 2262.

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: i64 = 1_000_000_000;

/// The first second to which Linux does not let a program set the wall clock, in seconds since 1970. It lies 30 years before the
/// end of `i64` nanoseconds.
pub const MAX_SETTABLE_SECS: i64 = i64::MAX / NANOS_PER_SEC - 30 * 365 * 86_400;

/// A length of time in nanoseconds, with a sign. Each use says on which clock the length was measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub i64);

/// A point on the host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RealInstant(pub i64);

/// A point on a container's virtual CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VirtualInstant(pub i64);

/// A point on a wall clock: seconds since 1970-01-01T00:00:00Z and nanoseconds (0..1e9) above them. As an offset, a `WallTime` is
/// the amount to add to a monotonic clock to get wall time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallTime {
    /// Whole seconds since the epoch, negative before it.
    pub secs: i64,
    /// Nanoseconds above `secs`, 0..1e9.
    pub nanos: u32,
}

impl Span {
    /// The span of length zero.
    pub const ZERO: Span = Span(0);
    /// The longest span, 292 years.
    pub const MAX: Span = Span(i64::MAX);

    /// Makes a span of whole seconds. A result out of range becomes the nearest end of the range.
    pub const fn from_secs(secs: i64) -> Span {
        Span(secs.saturating_mul(NANOS_PER_SEC))
    }
}

impl RealInstant {
    /// An instant that never comes.
    pub const NEVER: RealInstant = RealInstant(i64::MAX);

    /// Returns this instant moved by `span`. A result out of range becomes the nearest end of the range.
    pub const fn plus(self, span: Span) -> RealInstant {
        RealInstant(self.0.saturating_add(span.0))
    }

    /// Returns the time from `earlier` to this instant.
    pub const fn since(self, earlier: RealInstant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl VirtualInstant {
    /// An instant that never comes.
    pub const NEVER: VirtualInstant = VirtualInstant(i64::MAX);

    /// Returns this instant moved by `span`. A result out of range becomes the nearest end of the range.
    pub const fn plus(self, span: Span) -> VirtualInstant {
        VirtualInstant(self.0.saturating_add(span.0))
    }

    /// Returns the time from `earlier` to this instant.
    pub const fn since(self, earlier: VirtualInstant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl WallTime {
    /// Returns the wall time `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: i128) -> WallTime {
        let secs = nanos.div_euclid(NANOS_PER_SEC as i128);
        let rest = nanos.rem_euclid(NANOS_PER_SEC as i128) as u32;
        if secs > i64::MAX as i128 {
            return WallTime { secs: i64::MAX, nanos: rest };
        }
        if secs < i64::MIN as i128 {
            return WallTime { secs: i64::MIN, nanos: rest };
        }
        WallTime { secs: secs as i64, nanos: rest }
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i128 {
        self.secs as i128 * NANOS_PER_SEC as i128 + self.nanos as i128
    }

    /// Returns this wall time moved by `span`.
    pub const fn plus(self, span: Span) -> WallTime {
        WallTime::from_nanos(self.as_nanos() + span.0 as i128)
    }
}

/// Converts `nanos` to `i64`. A value out of range becomes the nearest end of the range.
pub const fn saturate(nanos: i128) -> i64 {
    if nanos > i64::MAX as i128 {
        i64::MAX
    } else if nanos < i64::MIN as i128 {
        i64::MIN
    } else {
        nanos as i64
    }
}
