//! Lengths of time, rates and dates as people write them.
//!
//! Each parser reads a value exactly, in whole numbers, or refuses it with a [`TextError`] that says what would be accepted. Each
//! printed value reads back as the same value.

mod rate;
mod span;
mod wall;

use core::fmt::{self, Write};

/// The reason why a text is no duration, rate, TDF or date: a short phrase that says what is accepted and, where that helps, what
/// is wrong.
///
/// The phrase names neither the flag nor the value. The caller that read them puts them in front.
///
/// ```
/// use lorentz_clock::{Rate, TextError};
///
/// let error: TextError = "0".parse::<Rate>().unwrap_err();
/// assert_eq!(
///     format!("--rate 0: {error}"),
///     "--rate 0: must be above 0; expected a rate from 1/1000000 to 1000000 \
///      such as 2, 0.1, 1/10, 60x, +200ppm",
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextError {
    /// A description of the accepted texts.
    expected: &'static str,
    /// A description of the mistake; empty if `expected` says enough.
    problem: Problem,
}

/// A description of the mistake in a text; empty if naming the accepted texts says enough.
type Problem = &'static str;

impl TextError {
    /// Whether the error names the mistake, and not only the accepted texts.
    pub fn is_specific(&self) -> bool {
        !self.problem.is_empty()
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.problem.is_empty() {
            write!(f, "{}; ", self.problem)?;
        }
        write!(f, "expected {}", self.expected)
    }
}

impl core::error::Error for TextError {}

/// A decimal number as it was written. At most one of its two parts has no digits.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    /// The digits before the point.
    whole: &'a str,
    /// The digits after the point, without trailing zeros.
    fraction: &'a str,
}

/// The reason why a decimal number cannot be represented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Misfit {
    /// The whole part is too large.
    TooLarge,
    /// The fraction has digits that would be lost.
    TooFine,
}

impl<'a> Decimal<'a> {
    /// Splits `text` into the decimal number at its beginning (`12`, `1.5`, `.5`) and the rest.
    fn take(text: &'a str) -> Option<(Decimal<'a>, &'a str)> {
        let (whole, rest) = take_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after_point) => take_digits(after_point),
            None if whole.is_empty() => return None,
            None => return Some((Decimal { whole, fraction: "" }, rest)),
        };
        if fraction.is_empty() {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        Some((Decimal { whole, fraction }, rest))
    }

    /// Multiplies this number by `unit` and returns the exact product.
    ///
    /// # Errors
    ///
    /// [`Misfit::TooLarge`] and [`Misfit::TooFine`], if the product is no whole number in range.
    fn times(self, unit: u64) -> Result<u128, Misfit> {
        let (numerator, denominator) = self.fraction_terms()?;
        let small = u128::from(numerator) * u128::from(unit);
        if small % u128::from(denominator) != 0 {
            return Err(Misfit::TooFine);
        }
        let whole = u128::from(number(self.whole).ok_or(Misfit::TooLarge)?);
        // Both products are below 2^127 for any unit in use. The longest unit is a year, below 2^55 ns.
        Ok(whole * u128::from(unit) + small / u128::from(denominator))
    }

    /// Returns this number as a ratio.
    fn ratio(self) -> Result<(u64, u64), Misfit> {
        let whole = number(self.whole).ok_or(Misfit::TooLarge)?;
        let (numerator, denominator) = self.fraction_terms()?;
        let scaled = whole.checked_mul(denominator).ok_or(Misfit::TooFine)?;
        let numerator = scaled.checked_add(numerator).ok_or(Misfit::TooFine)?;
        Ok((numerator, denominator))
    }

    /// Returns the part after the point as a ratio.
    fn fraction_terms(self) -> Result<(u64, u64), Misfit> {
        let places = u32::try_from(self.fraction.len()).map_err(|_| Misfit::TooFine)?;
        let denominator = 10_u64.checked_pow(places).ok_or(Misfit::TooFine)?;
        let numerator = number(self.fraction).ok_or(Misfit::TooFine)?;
        Ok((numerator, denominator))
    }
}

/// Splits `text` after the ASCII digits it begins with.
fn take_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// Parses a run of digits; 0 if there are none.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok()
}

/// Returns whether there is a minus sign, and `text` without its sign.
fn take_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// A line under construction, so that width and alignment apply to the whole of it.
struct TextBuffer {
    bytes: [u8; TextBuffer::CAPACITY],
    len: usize,
}

impl TextBuffer {
    /// Length of the line, bytes. It exceeds the longest value printed: two 16-digit terms, or a sign, 19 digits, a point and 9
    /// digits.
    const CAPACITY: usize = 48;

    fn new() -> TextBuffer {
        TextBuffer { bytes: [0; TextBuffer::CAPACITY], len: 0 }
    }

    /// Writes `numerator` / 10^`places`, which is below 1, as a point and digits without trailing zeros. Writes nothing for zero.
    fn write_fraction(&mut self, mut numerator: u64, mut places: usize) -> fmt::Result {
        if numerator == 0 {
            return Ok(());
        }
        while numerator.is_multiple_of(10) {
            numerator /= 10;
            places -= 1;
        }
        write!(self, ".{numerator:0places$}")
    }

    /// Prints the line with the width, fill and alignment asked for.
    fn pad(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = core::str::from_utf8(&self.bytes[..self.len]).map_err(|_| fmt::Error)?;
        f.pad(text)
    }
}

impl Write for TextBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let space = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        space.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
