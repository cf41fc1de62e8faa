//! Durations: `10ms`, `1h30m`, `+3d`.

use core::fmt::{self, Write};
use core::str::FromStr;

use super::{take_sign, Decimal, Misfit, Problem, TextBuffer, TextError};
use crate::instant::Span;

const EXPECTED: &str = "a duration such as 10ms, 1h30m, +3d, -1h30m (units ns us ms s m h d w y)";
const TOO_LONG: Problem = "longer than 292 years";
const TOO_FINE: Problem = "finer than a nanosecond";
const NO_UNIT: Problem = "number without a unit";
const UNKNOWN_UNIT: Problem = "unknown unit";
const SPACE: Problem = "no spaces allowed";

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Returns the nanoseconds in the unit called `name`.
fn unit_nanos(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        // Unicode has the sign twice: as the micro sign and as the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" | "sec" => SECOND,
        "m" | "min" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => 7 * DAY,
        "y" => 365 * DAY,
        _ => return None,
    })
}

/// Reads a duration as people write it.
///
/// An optional sign, then numbers each with its unit, which are added up: `10ms`, `1.5s`, `1h30m`,
/// `-2d12h`. The sign holds for the whole. A number alone is in seconds: `90`, `0.5`.
///
/// | unit | is |
/// |---|---|
/// | `ns`, `us` or `µs`, `ms` | nano-, micro-, milliseconds |
/// | `s` or `sec`, `m` or `min`, `h` | seconds, minutes, hours |
/// | `d`, `w`, `y` | days of 24 hours, weeks, years of 365 days |
///
/// The value is exact: any `i64` of nanoseconds can be written.
///
/// # Errors
///
/// Anything else, spaces included; a value beyond 292 years (an `i64` of nanoseconds); one that is
/// not a whole number of nanoseconds.
///
/// ```
/// use lorentz_clock::Span;
///
/// assert_eq!("1h30m".parse(), Ok(Span::from_secs(5400)));
/// assert_eq!("-1.5ms".parse(), Ok(Span(-1_500_000)));
/// assert_eq!("+3d".parse(), Ok(Span::from_secs(3 * 86_400)));
/// assert_eq!("90".parse(), Ok(Span::from_secs(90)));
///
/// let error = "1h 30m".parse::<Span>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "no spaces allowed; expected a duration such as 10ms, 1h30m, +3d, -1h30m (units ns us ms s m h d w y)",
/// );
/// ```
impl FromStr for Span {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Span, TextError> {
        read(text).map_err(|problem| {
            let spaced = text.contains(char::is_whitespace);
            TextError { expected: EXPECTED, problem: if spaced { SPACE } else { problem } }
        })
    }
}

fn read(text: &str) -> Result<Span, Problem> {
    let (negative, mut rest) = take_sign(text);
    let mut nanos = 0_i128;
    let mut first = true;
    while first || !rest.is_empty() {
        let (value, after) = Decimal::take(rest).ok_or("")?;
        let (unit, after) = take_unit(after, first)?;
        let part = value.times(unit).map_err(|misfit| match misfit {
            Misfit::TooLarge => TOO_LONG,
            Misfit::TooFine => TOO_FINE,
        })?;
        let part = i128::try_from(part).map_err(|_| TOO_LONG)?;
        nanos = nanos.checked_add(part).ok_or(TOO_LONG)?;
        first = false;
        rest = after;
    }
    let nanos = if negative { -nanos } else { nanos };
    i64::try_from(nanos).map(Span).map_err(|_| TOO_LONG)
}

/// Splits the unit off the beginning of `text`: its nanoseconds, and the rest. If `lone` is true, the end of the text means
/// seconds.
fn take_unit(text: &str, lone: bool) -> Result<(u64, &str), Problem> {
    if text.is_empty() {
        return if lone { Ok((SECOND, "")) } else { Err(NO_UNIT) };
    }
    let end = text.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    // After a second point or a second sign, the list of accepted texts helps more than "unknown unit".
    let named = name.starts_with(char::is_alphabetic);
    let unknown = if named { UNKNOWN_UNIT } else { "" };
    Ok((unit_nanos(name).ok_or(unknown)?, rest))
}

/// Prints the duration in days, hours, minutes and seconds, or in the largest of `ms`, `us` and
/// `ns` that it reaches: `1h30m`, `1.5s`, `10ms`, `0s`, `-3d`. It reads back as the same duration.
///
/// Width, fill and alignment are honoured, and `{:+}` prints a sign in any case.
///
/// ```
/// use lorentz_clock::Span;
///
/// assert_eq!(Span::from_secs(5400).to_string(), "1h30m");
/// assert_eq!(Span(1_500_000_000).to_string(), "1.5s");
/// assert_eq!(format!("[{:>6}] [{:+}]", Span(10_000_000), Span::from_secs(86_400)), "[  10ms] [+1d]");
/// ```
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = TextBuffer::new();
        if self.0 < 0 {
            line.write_char('-')?;
        } else if f.sign_plus() {
            line.write_char('+')?;
        }
        let mut rest = self.0.unsigned_abs();
        for (unit, name) in [(DAY, 'd'), (HOUR, 'h'), (MINUTE, 'm')] {
            if rest >= unit {
                write!(line, "{}{name}", rest / unit)?;
                rest %= unit;
            }
        }
        if rest != 0 {
            write_below_minute(&mut line, rest)?;
        } else if self.0 == 0 {
            line.write_str("0s")?;
        }
        line.pad(f)
    }
}

/// Writes `nanos`, above 0 and below a minute, in the largest unit that it reaches.
fn write_below_minute(line: &mut TextBuffer, nanos: u64) -> fmt::Result {
    let (unit, places, name) = match nanos {
        SECOND.. => (SECOND, 9, "s"),
        MILLISECOND.. => (MILLISECOND, 6, "ms"),
        MICROSECOND.. => (MICROSECOND, 3, "us"),
        _ => (1, 0, "ns"),
    };
    write!(line, "{}", nanos / unit)?;
    line.write_fraction(nanos % unit, places)?;
    line.write_str(name)
}
