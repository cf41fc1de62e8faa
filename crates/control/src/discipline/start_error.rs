//! The error of a clock from its start, as people write it.

use std::fmt;
use std::str::FromStr;

use lorentz_clock::Span;

use super::state::MAX_DRIFT;

const EXPECTED: &str =
    "expected offset=DUR, drift=DRIFT, wander=DRIFT and seed=N, as offset=100ms,drift=+100ppm";
const EXPECTED_DRIFT: &str = "expected a drift like +100ppm, -20ppb or 1%, at most 10% either way";
/// Units of a drift, and how many parts of 10^12 they are.
const UNITS: [(&str, f64); 3] = [("ppm", 1e6), ("ppb", 1e3), ("%", 1e10)];

/// How a clock errs from its start: `offset=100ms,drift=+100ppm,wander=1ppb,seed=7`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StartError {
    /// By how much the wall clock is ahead of the truth.
    pub offset: Span,
    /// By how much all clocks are too fast, parts in 10^12; at most 10 %.
    pub drift: i64,
    /// How far the drift wanders in a second, parts in 10^12: the standard deviation of a random walk.
    pub wander: i64,
    /// The seed of that walk.
    pub seed: u64,
}

impl FromStr for StartError {
    type Err = String;

    fn from_str(text: &str) -> Result<StartError, String> {
        let mut error = StartError::default();
        for part in text.split(',') {
            match part.trim().split_once('=') {
                Some(("offset", value)) => {
                    error.offset = value.parse().map_err(|error| format!("offset: {error}"))?;
                }
                Some(("drift", value)) => error.drift = parse_frequency(value)?,
                Some(("wander", value)) => error.wander = parse_frequency(value)?.abs(),
                Some(("seed", value)) => {
                    error.seed = value.parse().map_err(|_| "seed: expected a whole number")?;
                }
                _ => return Err(EXPECTED.to_string()),
            }
        }
        Ok(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ppm = self.drift as f64 / 1e6;
        write!(f, "offset={},drift={ppm:+}ppm", self.offset)?;
        match self.wander {
            0 => Ok(()),
            wander => write!(f, ",wander={}ppm,seed={}", wander as f64 / 1e6, self.seed),
        }
    }
}

/// Reads a drift, as `+100ppm`, `-5ppb` or `1%`, in parts of 10^12.
///
/// # Errors
///
/// The values that are accepted.
pub fn parse_frequency(text: &str) -> Result<i64, String> {
    let unit = |(unit, parts): &(&str, f64)| Some((text.strip_suffix(unit)?, *parts));
    let (number, parts) = UNITS.iter().find_map(unit).ok_or(EXPECTED_DRIFT)?;
    let number: f64 = number.trim().parse().map_err(|_| EXPECTED_DRIFT)?;
    let drift = number * parts;
    // Not a number is no drift either.
    if drift.is_nan() || drift.abs() > MAX_DRIFT as f64 {
        return Err(EXPECTED_DRIFT.to_string());
    }
    Ok(drift.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_as_it_is_shown() {
        let error: StartError = "offset=-100ms,drift=+0.25ppm".parse().unwrap();
        assert_eq!(
            error,
            StartError { offset: Span(-100_000_000), drift: 250_000, ..StartError::default() }
        );
        assert_eq!(error.to_string().parse(), Ok(error));
        let error: StartError = "wander=1ppb,seed=7".parse().unwrap();
        assert_eq!((error.wander, error.seed), (1_000, 7));
        assert_eq!(error.to_string().parse(), Ok(error));
        assert_eq!(
            "drift=1%".parse(),
            Ok(StartError { drift: 10_000_000_000, ..StartError::default() })
        );
        for wrong in [
            "",
            "offset",
            "offset=soon",
            "drift=1",
            "drift=11%",
            "drift=nanppm",
            "wander=1",
            "seed=x",
        ] {
            assert!(wrong.parse::<StartError>().is_err(), "{wrong}");
        }
    }
}
