//! Rates and time dilation factors: `2`, `0.1`, `1/10`, `60x`, `+200ppm`.

use core::fmt::{self, Write};
use core::str::FromStr;

use super::{number, take_digits, Decimal, Misfit, Problem, TextBuffer, TextError};
use crate::rate::Rate;

const EXPECTED_RATE: &str = "a rate from 1/1000000 to 1000000 such as 2, 0.1, 1/10, 60x, +200ppm";
const EXPECTED_TDF: &str =
    "a TDF (the inverse of a rate) from 1/1000000 to 1000000 such as 10, 0.5, 1/3";
const NOT_ABOVE_ZERO: Problem = "must be above 0";
const TOO_GREAT: Problem = "must be at most 1000000";
const TOO_SMALL: Problem = "must be at least 1/1000000";
const TOO_FINE: Problem = "has more digits than can be kept exactly";
const NO_SIGN: Problem = "ppm needs a sign";

const PARTS_IN_MILLION: u64 = 1_000_000;
/// Largest number of decimal places printed. A rate that needs more is printed as a ratio.
const PLACES: usize = 6;
/// 10^`PLACES`.
const PLACES_SCALE: u64 = 1_000_000;

/// Reads a rate, virtual seconds per real second, as people write it:
///
/// - a number or a ratio of whole numbers: `2`, `0.1`, `1/10`;
/// - the same with an `x` before or after it: `60x`, `x60`, `0.5x`;
/// - a deviation from real time in parts per million, its sign required: `+200ppm` is 1.0002,
///   `-50ppm` is 0.99995.
///
/// The value is exact, never a binary fraction: `0.1` is 1/10.
///
/// # Errors
///
/// Anything else, spaces, percentages and exponents included; a rate outside 1/1000000..=1000000,
/// so zero and below; one whose ratio in lowest terms has a term of 2^50 or more, or that has over
/// 19 decimal places.
///
/// ```
/// use lorentz_clock::Rate;
///
/// assert_eq!("0.1".parse::<Rate>(), "1/10".parse::<Rate>());
/// assert_eq!("x60".parse::<Rate>().ok(), Rate::new(60, 1));
/// assert_eq!("+200ppm".parse::<Rate>().ok(), Rate::new(1_000_200, 1_000_000));
///
/// let error = "-2".parse::<Rate>().unwrap_err();
/// assert!(error.to_string().starts_with("must be above 0; expected a rate"));
/// ```
impl FromStr for Rate {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Rate, TextError> {
        read(text).map_err(|problem| TextError { expected: EXPECTED_RATE, problem })
    }
}

impl Rate {
    /// Reads a time dilation factor, real seconds per virtual second: the rate that comes back is
    /// its inverse.
    ///
    /// A TDF is written as a rate is (`3`, `0.5`, `1/3`) and has the same range,
    /// 1/1000000..=1000000.
    ///
    /// # Errors
    ///
    /// As for a rate.
    ///
    /// ```
    /// use lorentz_clock::Rate;
    ///
    /// assert_eq!(Rate::parse_tdf("3").ok(), Rate::new(1, 3));
    /// assert_eq!(Rate::parse_tdf("0.5").ok(), Rate::new(2, 1));
    /// assert!(Rate::parse_tdf("0").is_err());
    /// ```
    pub fn parse_tdf(text: &str) -> Result<Rate, TextError> {
        match read(text) {
            Ok(tdf) => Ok(tdf.inverse()),
            Err(problem) => Err(TextError { expected: EXPECTED_TDF, problem }),
        }
    }
}

fn read(text: &str) -> Result<Rate, Problem> {
    if let Some(deviation) = text.strip_suffix("ppm") {
        return read_deviation(deviation);
    }
    let Some(positive) = text.strip_prefix('-') else {
        return read_positive(text);
    };
    match read_positive(positive) {
        Err("") => Err(""),
        _ => Err(NOT_ABOVE_ZERO),
    }
}

/// Reads `2`, `0.1`, `1/10`, with or without an `x`.
fn read_positive(text: &str) -> Result<Rate, Problem> {
    let text = match text.strip_prefix('x') {
        Some(rest) => rest,
        None => text.strip_suffix('x').unwrap_or(text),
    };
    if let Some((num, den)) = text.split_once('/') {
        return checked(read_term(num)?, read_term(den)?);
    }
    let (num, den) = read_decimal(text)?;
    checked(num, den)
}

/// Reads the `+200` of `+200ppm`.
fn read_deviation(text: &str) -> Result<Rate, Problem> {
    let (negative, magnitude) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(magnitude), _) => (true, magnitude),
        (_, Some(magnitude)) => (false, magnitude),
        _ => return Err(if read_decimal(text).is_ok() { NO_SIGN } else { "" }),
    };
    let (deviation, scale) = read_decimal(magnitude)?;
    let one = scale.checked_mul(PARTS_IN_MILLION).ok_or(TOO_FINE)?;
    if negative {
        let num = one.checked_sub(deviation).ok_or(NOT_ABOVE_ZERO)?;
        return checked(num, one);
    }
    let num = one.checked_add(deviation).ok_or(TOO_GREAT)?;
    checked(num, one)
}

/// Reads the whole of `text` as a decimal number and returns it as a ratio.
fn read_decimal(text: &str) -> Result<(u64, u64), Problem> {
    let (decimal, "") = Decimal::take(text).ok_or("")? else {
        return Err("");
    };
    decimal.ratio().map_err(|misfit| match misfit {
        Misfit::TooLarge => TOO_GREAT,
        Misfit::TooFine => TOO_FINE,
    })
}

/// Reads the whole of `text` as a term of a ratio.
fn read_term(text: &str) -> Result<u64, Problem> {
    match take_digits(text) {
        ("", _) => Err(""),
        (digits, "") => number(digits).ok_or(TOO_FINE),
        _ => Err(""),
    }
}

/// Returns the rate `num`/`den`, or a description of what is wrong with it.
fn checked(num: u64, den: u64) -> Result<Rate, Problem> {
    if num == 0 {
        return Err(NOT_ABOVE_ZERO);
    }
    let (wide_num, wide_den) = (u128::from(num), u128::from(den));
    if wide_num > wide_den * u128::from(Rate::MAX) {
        return Err(TOO_GREAT);
    }
    if wide_den > wide_num * u128::from(Rate::MAX) {
        return Err(TOO_SMALL);
    }
    Rate::new(num, den).ok_or(TOO_FINE)
}

/// Prints the rate as a number if six decimal places are enough, else as a ratio: `2`, `0.1`, `1/3`. The text reads back as the
/// same rate. Width, fill and alignment are honoured.
///
/// ```
/// use lorentz_clock::Rate;
///
/// assert_eq!(Rate::new(60, 1).unwrap().to_string(), "60");
/// assert_eq!(Rate::new(1, 10).unwrap().to_string(), "0.1");
/// assert_eq!(format!("[{:>5}]", Rate::new(1, 3).unwrap()), "[  1/3]");
/// ```
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = TextBuffer::new();
        let (num, den) = (self.num(), self.den());
        if PLACES_SCALE.is_multiple_of(den) {
            write!(line, "{}", num / den)?;
            line.write_fraction(num % den * (PLACES_SCALE / den), PLACES)?;
        } else {
            write!(line, "{num}/{den}")?;
        }
        line.pad(f)
    }
}
