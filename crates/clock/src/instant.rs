//! Points and lengths of time, each with its unit in its type.
//!
//! Everything is whole nanoseconds. `i64` nanoseconds reach 292 years, as the kernel's own `ktime_t` does;
//! the wall clock alone carries seconds apart, so that a container may live beyond the year 2262.

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: i64 = 1_000_000_000;

/// The first second that Linux lets no program set a wall clock to: 30 years before 64 bits of nanoseconds end.
pub const MOST_SETTABLE_SECS: i64 = i64::MAX / NANOS_PER_SEC - 30 * 365 * 86_400;

/// A length of time in nanoseconds, with a sign. Which clock it was measured on is said where it is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub i64);

/// A point on the host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RealInstant(pub i64);

/// A point on a container's virtual CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VirtualInstant(pub i64);

/// A point on a wall clock: seconds since 1970-01-01T00:00:00Z and nanoseconds (0..1e9) above them.
/// As an offset it is what has to be added to a monotonic clock to get wall time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallTime {
    /// Whole seconds since the epoch, negative before it.
    pub secs: i64,
    /// Nanoseconds above `secs`, 0..1e9.
    pub nanos: u32,
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span there is, 292 years.
    pub const MAX: Span = Span(i64::MAX);

    /// A span of whole seconds, held at the ends of the range.
    pub const fn from_secs(secs: i64) -> Span {
        Span(secs.saturating_mul(NANOS_PER_SEC))
    }
}

impl RealInstant {
    /// Later than anything that happens.
    pub const NEVER: RealInstant = RealInstant(i64::MAX);

    /// This instant moved by `span`, held at the ends of the range.
    pub const fn plus(self, span: Span) -> RealInstant {
        RealInstant(self.0.saturating_add(span.0))
    }

    /// How long it is from `earlier` to here.
    pub const fn since(self, earlier: RealInstant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl VirtualInstant {
    /// Later than anything that happens.
    pub const NEVER: VirtualInstant = VirtualInstant(i64::MAX);

    /// This instant moved by `span`, held at the ends of the range.
    pub const fn plus(self, span: Span) -> VirtualInstant {
        VirtualInstant(self.0.saturating_add(span.0))
    }

    /// How long it is from `earlier` to here.
    pub const fn since(self, earlier: VirtualInstant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl WallTime {
    /// The wall time `nanos` nanoseconds after the epoch.
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

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i128 {
        self.secs as i128 * NANOS_PER_SEC as i128 + self.nanos as i128
    }

    /// This wall time moved by `span`.
    pub const fn plus(self, span: Span) -> WallTime {
        WallTime::from_nanos(self.as_nanos() + span.0 as i128)
    }
}

/// `nanos` held within what an `i64` can say.
pub const fn saturate(nanos: i128) -> i64 {
    if nanos > i64::MAX as i128 {
        i64::MAX
    } else if nanos < i64::MIN as i128 {
        i64::MIN
    } else {
        nanos as i64
    }
}
