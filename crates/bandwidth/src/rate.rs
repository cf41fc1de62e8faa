//! Bit rates, and their text.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bits per second, of whole IP packets.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Makes a rate of `bits` bits per second, rounded to the nearest. NaN and negative numbers become 0.
    pub fn from_f64(bits: f64) -> BitRate {
        BitRate(bits.round().max(0.0) as u64)
    }

    /// Returns the rate as a number for computing, bits per second.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Returns the time from one packet of `bytes` to the next at this rate, ns.
    pub fn interval(self, bytes: u32) -> u64 {
        (f64::from(bytes) * 8e9 / self.as_f64().max(1.0)).round() as u64
    }
}

/// The reason why a text is no rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected a bandwidth such as 500kbit, 300mbit, 2.5gbit or 10000000, from 1kbit to 1000gbit"
)]
pub struct RateError;

impl FromStr for BitRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<BitRate, RateError> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = match unit.to_ascii_lowercase().as_str() {
            "" | "bit" | "bps" => 1.0,
            "k" | "kbit" => 1e3,
            "m" | "mbit" => 1e6,
            "g" | "gbit" => 1e9,
            _ => return Err(RateError),
        };
        let bits = number.parse::<f64>().map_err(|_| RateError)? * unit;
        if (1e3..=1e12).contains(&bits) {
            Ok(BitRate::from_f64(bits))
        } else {
            Err(RateError)
        }
    }
}

/// Prints a rate as `293.4 Mbit/s`.
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            1_000_000_000.. => (1e9, "Gbit/s"),
            1_000_000.. => (1e6, "Mbit/s"),
            1_000.. => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        let number = self.as_f64() / unit;
        let decimals = if unit == 1.0 { 0 } else { (2 - number.log10() as i32).max(1) as usize };
        f.pad(&format!("{number:.decimals$} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_write_them() {
        for (text, bits) in [
            ("300mbit", 300_000_000),
            ("2.5gbit", 2_500_000_000),
            ("10G", 10_000_000_000),
            ("500kbit", 500_000),
            ("1000", 1_000),
            ("1000000bps", 1_000_000),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        }
        for text in
            ["", "fast", "-1mbit", "0", "999", "2000gbit", "1e9", "1 mbit", "1..2m", "3mbyte"]
        {
            assert_eq!(text.parse::<BitRate>(), Err(RateError), "{text}");
        }
        assert_eq!(BitRate(293_400_000).to_string(), "293.4 Mbit/s");
        assert_eq!(BitRate(8_922_000_000).to_string(), "8.92 Gbit/s");
        assert_eq!(BitRate(12).to_string(), "12 bit/s");
        assert_eq!(BitRate(300_000_000).interval(1500), 40_000);
    }
}
