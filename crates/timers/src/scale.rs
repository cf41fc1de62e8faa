//! The length of a counter's tick.

/// Converts ticks to nanoseconds and back: `nanoseconds = ticks * multiplier / 2^40`, rounded to the nearest.
///
/// The multiplier is exact to two parts in 10^11 for counters up to 40 GHz.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    multiplier: u64,
}

const SHIFT: u32 = 40;
const HALF: i128 = 1 << (SHIFT - 1);
/// Range of multipliers: a tick takes a 40th of a nanosecond to a millisecond.
const MULTIPLIERS: std::ops::RangeInclusive<u128> = (1 << SHIFT) / 40..=1_000_000 << SHIFT;

impl Scale {
    /// The scale of a counter whose tick is one nanosecond.
    pub const NANOS: Scale = Scale { multiplier: 1 << SHIFT };

    /// Returns the scale at which `ticks` take `nanos`; `None` outside 1 kHz to 40 GHz.
    pub fn from_ratio(nanos: u64, ticks: u64) -> Option<Scale> {
        let (nanos, ticks) = (u128::from(nanos), u128::from(ticks));
        let multiplier = ((nanos << SHIFT) + ticks / 2).checked_div(ticks)?;
        MULTIPLIERS.contains(&multiplier).then_some(Scale { multiplier: multiplier as u64 })
    }

    /// Returns the scale of a counter of `hertz`; `None` outside 1 kHz to 40 GHz.
    pub fn from_hertz(hertz: u64) -> Option<Scale> {
        Scale::from_ratio(1_000_000_000, hertz)
    }

    /// Returns the ticks in a second.
    pub fn hertz(self) -> u64 {
        let second = 1_000_000_000u128 << SHIFT;
        ((second + u128::from(self.multiplier) / 2) / u128::from(self.multiplier)) as u64
    }

    /// Returns the nanoseconds in a tick.
    pub fn nanos_per_tick(self) -> f64 {
        self.multiplier as f64 / (1u64 << SHIFT) as f64
    }

    /// Returns the nanoseconds that `ticks` take.
    #[inline]
    pub fn nanos(self, ticks: i64) -> i128 {
        let scaled = i128::from(ticks) * i128::from(self.multiplier);
        // Halves are rounded away from zero, so that -x is as long as x.
        ((scaled.abs() + HALF) >> SHIFT) * scaled.signum()
    }

    /// Does the same as [`Scale::nanos`], at a lower cost, for ticks that are not negative. A result out of range
    /// becomes the end of the range.
    #[inline(always)]
    pub(crate) fn nanos_forward(self, ticks: u64) -> i64 {
        let scaled = (u128::from(ticks) * u128::from(self.multiplier) + HALF as u128) >> SHIFT;
        scaled.min(i64::MAX as u128) as i64
    }

    /// Returns the ticks in `nanos`; `None` if they do not fit into 64 bits.
    #[inline]
    pub fn ticks(self, nanos: i128) -> Option<i64> {
        let scaled = nanos.abs().checked_mul(1 << SHIFT)?;
        let multiplier = i128::from(self.multiplier);
        i64::try_from((scaled + multiplier / 2) / multiplier * nanos.signum()).ok()
    }

    /// Returns the fixed-point number itself, for the shared segments.
    pub(crate) fn multiplier(self) -> u64 {
        self.multiplier
    }

    /// Makes a scale from [`Scale::multiplier`].
    pub(crate) fn from_multiplier(multiplier: u64) -> Scale {
        Scale { multiplier }
    }

    /// Returns a scale whose ticks are longer by `millionths` parts per million.
    pub(crate) fn faster_by(self, millionths: f64) -> Scale {
        let multiplier = self.multiplier as f64;
        Scale { multiplier: (multiplier + multiplier * millionths * 1e-6) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_scales() {
        assert_eq!(Scale::NANOS.nanos(-7), -7);
        assert_eq!(Scale::from_hertz(2_000_000_000).unwrap().nanos(5), 3);
        assert_eq!(Scale::from_hertz(2_000_000_000).unwrap().nanos(-5), -3);
        assert_eq!(Scale::from_hertz(14_318_180).unwrap().hertz(), 14_318_180);
        assert_eq!(Scale::from_hertz(0), None);
        assert_eq!(Scale::from_hertz(999), None);
        assert_eq!(Scale::from_hertz(u64::MAX), None);
        assert_eq!(Scale::NANOS.ticks(i128::MAX), None);
        assert_eq!(Scale::NANOS.ticks(i64::MIN.into()), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn there_and_back_is_within_a_tick(hertz in 1_000u64..10_000_000_000, nanos: i64) {
            let scale = Scale::from_hertz(hertz).unwrap();
            if let Some(ticks) = scale.ticks(nanos.into()) {
                let off = (scale.nanos(ticks) - i128::from(nanos)).abs();
                let tick = scale.nanos(1).max(1);
                prop_assert!(off <= tick, "{nanos} came back {off} off, a tick is {tick}");
            }
        }

        #[test]
        fn longer_is_never_shorter(hertz in 1_000u64..10_000_000_000, a: i64, b: i64) {
            let scale = Scale::from_hertz(hertz).unwrap();
            prop_assert!(a > b || scale.nanos(a) <= scale.nanos(b));
            if a != i64::MIN {
                prop_assert_eq!(scale.nanos(-a), -scale.nanos(a));
            }
            let forward = scale.nanos(a.saturating_abs()).min(i64::MAX.into());
            prop_assert_eq!(i128::from(scale.nanos_forward(a.saturating_abs() as u64)), forward);
        }

        #[test]
        fn a_scale_is_exact(hertz in 1_000u64..10_000_000_000) {
            let scale = Scale::from_hertz(hertz).unwrap();
            let off = scale.hertz() as f64 / hertz as f64 - 1.0;
            prop_assert!(off.abs() < 1e-9, "{off}");
        }
    }
}
