//! Values of a link as people write them: bit rates, delays, probabilities, queue sizes.
//!
//! Each value is kept exactly, as a whole number, and printed in a form that can be read again.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lorentz_clock::Span;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The error for a text that is no value of a link. It says what is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {0}")]
pub struct ValueError(pub &'static str);

/// Bits per second; 0 stands for no limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BitRate(u64);

/// A length of virtual time, from 0 to a day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Delay(Span);

/// A probability, in billionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Probability(u32);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(u64);

impl BitRate {
    /// No limit: serialization takes no time.
    pub const UNLIMITED: BitRate = BitRate(0);
    const ACCEPTED: &'static str =
        "a bit rate from 8bit to 1tbit such as 500kbit, 10mbit, 2.5gbit, or none for no limit";

    /// Makes a rate from bits per second, 8 to 10^12.
    pub const fn new(bits: u64) -> Option<BitRate> {
        if bits >= 8 && bits <= 1_000_000_000_000 {
            Some(BitRate(bits))
        } else {
            None
        }
    }

    /// Bits per second; `None` without a limit.
    pub fn limit(self) -> Option<u64> {
        (self.0 > 0).then_some(self.0)
    }
}

impl FromStr for BitRate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<BitRate, ValueError> {
        const UNITS: &[(&str, u64)] = &[
            ("tbit", 1_000_000_000_000),
            ("gbit", 1_000_000_000),
            ("mbit", 1_000_000),
            ("kbit", 1_000),
            ("bit", 1),
        ];
        if text == "none" {
            return Ok(BitRate::UNLIMITED);
        }
        let bits = with_unit(&text.to_ascii_lowercase(), UNITS);
        bits.and_then(BitRate::new).ok_or(ValueError(Self::ACCEPTED))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")];
        let unit = units.into_iter().find(|(size, _)| self.0.is_multiple_of(*size));
        let (size, name) = unit.unwrap_or((1, "bit"));
        write!(f, "{}{name}", self.0 / size)
    }
}

impl Delay {
    const MAX: Span = Span::from_secs(86_400);
    const ACCEPTED: &'static str = "a duration from 0 to 1d such as 5ms, 1.5s";

    /// Makes a delay from a span, 0 to 1 day.
    pub fn new(span: Span) -> Option<Delay> {
        (Span::ZERO..=Self::MAX).contains(&span).then_some(Delay(span))
    }

    /// Makes a delay of so many milliseconds, at most a day's.
    pub const fn of_millis(millis: u16) -> Delay {
        Delay(Span(millis as i64 * 1_000_000))
    }

    /// The delay as a span.
    pub const fn span(self) -> Span {
        self.0
    }
}

impl FromStr for Delay {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Delay, ValueError> {
        let span = text.parse().ok();
        span.and_then(Delay::new).ok_or(ValueError(Self::ACCEPTED))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Probability {
    /// Probability 0.
    pub const NEVER: Probability = Probability(0);
    /// Probability 1.
    pub const ALWAYS: Probability = Probability(Self::ONE);
    const ONE: u32 = 1_000_000_000;
    const ACCEPTED: &'static str = "a percentage from 0% to 100% such as 0.1%";

    /// Makes a probability from billionths, up to 10^9.
    pub fn from_billionths(billionths: u32) -> Option<Probability> {
        (billionths <= Self::ONE).then_some(Probability(billionths))
    }

    /// The probability in billionths.
    pub const fn billionths(self) -> u32 {
        self.0
    }

    /// The probability as a fraction, for arithmetic that is not exact anyway.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }
}

impl FromStr for Probability {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Probability, ValueError> {
        const UNITS: &[(&str, u64)] = &[("%", 10_000_000)];
        // A bare number other than 0 would be ambiguous: a fraction, or a percentage.
        let billionths = if text == "0" { Some(0) } else { with_unit(text, UNITS) };
        let billionths = billionths.and_then(|value| u32::try_from(value).ok());
        billionths.and_then(Probability::from_billionths).ok_or(ValueError(Self::ACCEPTED))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000_000, self.0 % 10_000_000);
        match format!("{rest:07}").trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            rest => write!(f, "{whole}.{rest}%"),
        }
    }
}

impl Bytes {
    const ACCEPTED: &'static str = "a size from 64 to 4gb such as 1500, 64kb, 1mb";

    /// Makes a size from bytes, 64 to 4 * 10^9.
    pub fn new(bytes: u64) -> Option<Bytes> {
        (64..=4_000_000_000).contains(&bytes).then_some(Bytes(bytes))
    }

    /// The size in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Bytes, ValueError> {
        const UNITS: &[(&str, u64)] =
            &[("gb", 1_000_000_000), ("mb", 1_000_000), ("kb", 1_000), ("b", 1), ("", 1)];
        with_unit(text, UNITS).and_then(Bytes::new).ok_or(ValueError(Self::ACCEPTED))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses a decimal number and one of `units` as a whole number of the smallest unit. `None` if it is not whole.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, size) = units.iter().find_map(|(unit, size)| {
        let number = text.strip_suffix(unit)?;
        number.ends_with(|c: char| c.is_ascii_digit()).then_some((number, *size))
    })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let empty = whole.is_empty() || (fraction.is_empty() && number.contains('.'));
    if empty || !digits(whole) || !digits(fraction) || fraction.len() > 12 {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let all = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(u128::from(size))?;
    (all % scale == 0).then(|| u64::try_from(all / scale).ok()).flatten()
}

/// Reads a value from a YAML or JSON scalar, whatever kind of scalar it looks like.
struct Scalar<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = ValueError>> Visitor<'_> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value with its unit")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|error| E::custom(format!("{text:?}: {error}")))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}

macro_rules! scalar {
    ($type:ident, $description:expr, $examples:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(Scalar::<$type>(std::marker::PhantomData))
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description, "type": ["string", "number"], "examples": $examples
                })
            }
        }
    };
}

scalar!(BitRate, format!("Bits per second: {}", BitRate::ACCEPTED), ["10mbit", "2.5gbit", "none"]);
scalar!(
    Delay,
    format!("Virtual time, one way: {}; a number alone is seconds", Delay::ACCEPTED),
    ["5ms", "1.5s"]
);
scalar!(Probability, format!("A probability: {}", Probability::ACCEPTED), ["0.1%", "50%"]);
scalar!(Bytes, format!("Bytes: {}", Bytes::ACCEPTED), ["64kb", "1500"]);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_read_exactly() {
        let rate = |text: &str| text.parse::<BitRate>().ok().and_then(BitRate::limit);
        assert_eq!(rate("2.5gbit"), Some(2_500_000_000));
        assert_eq!(rate("9.6kbit"), Some(9_600));
        assert_eq!("none".parse(), Ok(BitRate::UNLIMITED));
        assert_eq!("0.1%".parse::<Probability>().unwrap().billionths(), 1_000_000);
        assert_eq!("100%".parse(), Ok(Probability::ALWAYS));
        assert_eq!("5ms".parse::<Delay>().unwrap().span(), Span(5_000_000));
        assert_eq!("64kb".parse::<Bytes>().unwrap().get(), 64_000);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "0", "0bit", "7bit", "10", "10 mbit", "-1mbit", "mbit", "1.mbit", "2tbit", "1e3bit",
        ] {
            assert!(text.parse::<BitRate>().is_err(), "{text:?}");
        }
        for text in ["", "1", "0.5", "101%", "-1%", "%", "0.00000000001%"] {
            assert!(text.parse::<Probability>().is_err(), "{text:?}");
        }
        for text in ["", "-1ms", "2d", "soon"] {
            assert!(text.parse::<Delay>().is_err(), "{text:?}");
        }
        for text in ["", "63", "5gb", "1.5", "x"] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bits in 8_u64..=1_000_000_000_000, billionths in 0_u32..=1_000_000_000) {
            let rate = BitRate::new(bits).unwrap();
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let probability = Probability::from_billionths(billionths).unwrap();
            prop_assert_eq!(probability.to_string().parse(), Ok(probability));
        }
    }
}
