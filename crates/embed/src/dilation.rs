//! Time dilation factors as floating-point numbers. C and Python use these, not ratios.

use lorentz_clock::Rate;

use crate::error::{Error, Result};

/// Returns the rate of a TDF, real seconds per virtual second: the exact inverse.
///
/// A number that no ratio of small whole numbers equals in binary (0.1, 1.0 / 3.0) stands for the simplest ratio with that value:
/// [`simplest_ratio`].
///
/// # Errors
///
/// The TDF is not a number from 1/1000000 to 1000000.
pub fn rate_of_tdf(tdf: f64) -> Result<Rate> {
    let ratio = simplest_ratio(tdf, |num, den| num as f64 / den as f64 == tdf);
    let rate = ratio.and_then(|(num, den)| Rate::new(den, num));
    rate.ok_or_else(|| {
        Error::wrong_input(format!(
            "TDF {tdf}: expected a number above 0, from 1/1000000 to 1000000"
        ))
    })
}

/// Returns the first convergent of the continued fraction of `value` that `is_same` accepts. `None` if `value` is not above 0,
/// not finite, or too great.
///
/// ```
/// use lorentz_embed::simplest_ratio;
///
/// let third = 1.0_f32 / 3.0;
/// let same = |num: u64, den: u64| num as f32 / den as f32 == third;
/// assert_eq!(simplest_ratio(third.into(), same), Some((1, 3)));
/// ```
pub fn simplest_ratio(value: f64, is_same: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
    /// Upper bound of both terms, so that a product of two fits.
    const LIMIT: f64 = (1_u64 << 31) as f64;
    let positive = value.is_finite() && value > 0.0 && value < LIMIT;
    let mut rest = positive.then_some(value)?;
    let (mut before, mut last) = ((0_u64, 1_u64), (1_u64, 0_u64));
    loop {
        let whole = rest.floor();
        let next = (
            (whole as u64).checked_mul(last.0)?.checked_add(before.0)?,
            (whole as u64).checked_mul(last.1)?.checked_add(before.1)?,
        );
        if is_same(next.0, next.1) {
            return Some(next);
        }
        (before, last) = (last, next);
        rest = 1.0 / (rest - whole);
        if !rest.is_finite() || rest >= LIMIT {
            return Some(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_meant_is_found() {
        for (tdf, rate) in [
            (10.0, "0.1"),
            (0.1, "10"),
            (1.0 / 3.0, "3"),
            (2.5, "0.4"),
            (0.000_001, "1000000"),
            (1e6, "0.000001"),
            (1.0002, "5000/5001"),
        ] {
            assert_eq!(rate_of_tdf(tdf), Ok(rate.parse().unwrap()), "{tdf}");
        }
    }

    #[test]
    fn what_is_no_tdf_is_refused() {
        for tdf in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-7, 1.1e6, 1e300] {
            let line = rate_of_tdf(tdf).unwrap_err().text;
            assert!(line.contains("expected a number above 0"), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_ratio_comes_back(num in 1_u64..100_000, den in 1_u64..100_000) {
            let rate = rate_of_tdf(num as f64 / den as f64).unwrap();
            prop_assert_eq!(Some(rate), Rate::new(den, num));
        }

        #[test]
        fn any_number_is_met_to_the_last_digit_but_one(tdf in 1e-5_f64..1e5) {
            let rate = rate_of_tdf(tdf).unwrap();
            prop_assert!((rate.inverse().as_f64() / tdf - 1.0).abs() < 1e-14);
        }
    }
}
