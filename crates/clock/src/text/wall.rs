//! Dates: `2038-01-19T03:14:00Z`, `2030-01-01`, `@1700000000`.

use core::fmt::{self, Write};
use core::str::FromStr;

use super::{take_digits, take_sign, Decimal, Misfit, Problem, TextBuffer, TextError};
use crate::instant::{WallTime, NANOS_PER_SEC};

const EXPECTED: &str = "a time such as 2038-01-19T03:14:00Z, 2030-01-01, @1700000000";
const TOO_FAR: Problem = "beyond the range of a 64-bit clock";
const TOO_FINE: Problem = "finer than a nanosecond";
const NO_SUCH_DAY: Problem = "no such day";
const NO_SUCH_TIME: Problem = "no such time of day";
const NO_SUCH_ZONE: Problem = "no such zone offset";
const LEAP_SECOND: Problem = "a leap second has no number of its own, use :59 or the next minute";
const LONG_YEAR: Problem = "a year above 9999 needs a plus sign";

/// The nanoseconds of a second, as the unit of a decimal number.
const SECOND: u64 = NANOS_PER_SEC as u64;
const SECS_PER_DAY: i64 = 86_400;
/// The years that are printed as dates in UTC.
const DATED_YEARS: core::ops::RangeInclusive<i64> = 0..=9999;
/// Number of digits in the last year that an `i64` of seconds reaches, 292277026596.
const YEAR_DIGITS: usize = 12;

/// Reads a point on the wall clock as people write it.
///
/// - A date and time of RFC 3339: `2038-01-19T03:14:00Z`, with a fraction (`03:14:00.5Z`), with an
///   offset from UTC (`03:14:00+02:00`). A small `t` or a space may stand for the `T`, and a small
///   `z` for the `Z`. The seconds may be left out. **Without zone the time is in UTC**, whatever
///   the time zone of the reader.
/// - A date alone, which is its midnight in UTC: `2030-01-01`.
/// - Seconds since 1970-01-01T00:00:00Z, leap seconds not counted: `@1700000000`, `@1700000000.5`,
///   `@-5`. The sign holds for the fraction too: `@-0.5` is half a second before the epoch.
///
/// Dates are of the Gregorian calendar, also before it was introduced. Years have four digits, 0000
/// to 9999; later ones a plus sign and five digits or more, up to the last that fits:
/// `+292277026596-12-04T15:30:07Z`.
///
/// # Errors
///
/// Anything else; a day or time that does not exist (`2023-02-30`, `24:00:00`); leap seconds
/// (`23:59:60`), which a POSIX clock does not have; a fraction finer than a nanosecond; what an
/// `i64` of seconds does not reach.
///
/// ```
/// use lorentz_clock::WallTime;
///
/// let end_of_time = WallTime { secs: i32::MAX as i64, nanos: 0 };
/// assert_eq!("2038-01-19T03:14:07Z".parse(), Ok(end_of_time));
/// assert_eq!("2038-01-19 05:14:07+02:00".parse(), Ok(end_of_time));
/// assert_eq!("@2147483647".parse(), Ok(end_of_time));
/// assert_eq!("1970-01-02".parse(), Ok(WallTime { secs: 86_400, nanos: 0 }));
/// assert_eq!("@-0.5".parse(), Ok(WallTime { secs: -1, nanos: 500_000_000 }));
///
/// let error = "2023-02-30".parse::<WallTime>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "no such day; expected a time such as 2038-01-19T03:14:00Z, 2030-01-01, @1700000000",
/// );
/// ```
impl FromStr for WallTime {
    type Err = TextError;

    fn from_str(text: &str) -> Result<WallTime, TextError> {
        let read = match text.strip_prefix('@') {
            Some(secs) => read_epoch(secs),
            None => read_calendar(text),
        };
        read.map_err(|problem| TextError { expected: EXPECTED, problem })
    }
}

/// Reads the text after the `@`.
fn read_epoch(text: &str) -> Result<WallTime, Problem> {
    let (negative, magnitude) = take_sign(text);
    let (nanos, "") = take_seconds(magnitude)? else {
        return Err("");
    };
    wall_time(if negative { -nanos } else { nanos })
}

/// Reads a date, or a date and a time, with or without a zone.
fn read_calendar(text: &str) -> Result<WallTime, Problem> {
    let (days, rest) = take_date(text)?;
    let midnight = i128::from(days) * i128::from(SECS_PER_DAY) * i128::from(NANOS_PER_SEC);
    if rest.is_empty() {
        return wall_time(midnight);
    }
    let (time_of_day, zone) = take_time(rest.strip_prefix(['T', 't', ' ']).ok_or("")?)?;
    let ahead = i128::from(read_zone(zone)?) * i128::from(NANOS_PER_SEC);
    wall_time(midnight + time_of_day - ahead)
}

/// Splits a date off `text`: days since 1970-01-01, and the rest.
fn take_date(text: &str) -> Result<(i64, &str), Problem> {
    let (year, rest) = take_year(text)?;
    let (month, rest) = take_two(rest.strip_prefix('-').ok_or("")?)?;
    let (day, rest) = take_two(rest.strip_prefix('-').ok_or("")?)?;
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return Err(NO_SUCH_DAY);
    }
    Ok((days_from_civil(year, month, day), rest))
}

/// Splits a year off `text`: four digits, or a plus sign and more.
fn take_year(text: &str) -> Result<(i64, &str), Problem> {
    let unsigned = text.strip_prefix('+');
    let (digits, rest) = take_digits(unsigned.unwrap_or(text));
    match (unsigned.is_some(), digits.len()) {
        (false, 4) | (true, 5..=YEAR_DIGITS) => {}
        (false, 5..) if rest.starts_with('-') => return Err(LONG_YEAR),
        (true, 5..) => return Err(TOO_FAR),
        _ => return Err(""),
    }
    Ok((digits.parse().map_err(|_| TOO_FAR)?, rest))
}

/// Splits a time of day off `text`: nanoseconds since midnight, and the rest.
fn take_time(text: &str) -> Result<(i128, &str), Problem> {
    let (hour, rest) = take_two(text)?;
    let (minute, rest) = take_two(rest.strip_prefix(':').ok_or("")?)?;
    let (nanos, rest) = match rest.strip_prefix(':') {
        Some(seconds) => {
            take_two(seconds)?;
            take_seconds(seconds)?
        }
        None => (0, rest),
    };
    let second = nanos / i128::from(NANOS_PER_SEC);
    if hour > 23 || minute > 59 || second > 60 {
        return Err(NO_SUCH_TIME);
    }
    if second == 60 {
        return Err(LEAP_SECOND);
    }
    let whole = i128::from(hour * 3600 + minute * 60) * i128::from(NANOS_PER_SEC);
    Ok((whole + nanos, rest))
}

/// Returns the offset of the zone from UTC in seconds, positive to the east. No zone means UTC.
fn read_zone(text: &str) -> Result<i64, Problem> {
    let (behind, offset) = match text.as_bytes().first() {
        None => return Ok(0),
        Some(b'Z' | b'z') if text.len() == 1 => return Ok(0),
        Some(b'+') => (false, &text[1..]),
        Some(b'-') => (true, &text[1..]),
        _ => return Err(""),
    };
    let (hours, rest) = take_two(offset)?;
    let (minutes, "") = take_two(rest.strip_prefix(':').ok_or("")?)? else {
        return Err("");
    };
    if hours > 23 || minutes > 59 {
        return Err(NO_SUCH_ZONE);
    }
    let secs = hours * 3600 + minutes * 60;
    Ok(if behind { -secs } else { secs })
}

/// Splits a decimal number of seconds off `text`: nanoseconds, and the rest.
fn take_seconds(text: &str) -> Result<(i128, &str), Problem> {
    let (secs, rest) = Decimal::take(text).ok_or("")?;
    let nanos = secs.times(SECOND).map_err(|misfit| match misfit {
        Misfit::TooLarge => TOO_FAR,
        Misfit::TooFine => TOO_FINE,
    })?;
    Ok((i128::try_from(nanos).map_err(|_| TOO_FAR)?, rest))
}

/// Splits a two-digit number off `text`; a third digit is an error.
fn take_two(text: &str) -> Result<(i64, &str), Problem> {
    let (digits, rest) = take_digits(text);
    if digits.len() != 2 {
        return Err("");
    }
    Ok((digits.parse().map_err(|_| "")?, rest))
}

/// Returns the wall time `nanos` nanoseconds after the epoch, if it can be represented.
fn wall_time(nanos: i128) -> Result<WallTime, Problem> {
    let time = WallTime::from_nanos(nanos);
    if time.as_nanos() != nanos {
        return Err(TOO_FAR);
    }
    Ok(time)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01, where eras begin, to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Returns the days from 1970-01-01 to a day of the proleptic Gregorian calendar.
///
/// The function counts years from March. The leap day is then the last of its year, and the lengths of the months follow one
/// formula (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year.div_euclid(400) * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// Returns year, month and day of `days` since 1970-01-01: the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / (ERA_DAYS - 1);
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = days.div_euclid(ERA_DAYS) * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// Prints the point in time as RFC 3339 has it, in UTC, with as many digits of the second as are
/// needed: `2038-01-19T03:14:00Z`, `2038-01-19T03:14:00.5Z`. Outside the years 0000 to 9999, where
/// RFC 3339 ends, it is printed in seconds since 1970: `@253402300800`. It reads back as the same
/// point.
///
/// Width, fill and alignment are honoured.
///
/// ```
/// use lorentz_clock::WallTime;
///
/// assert_eq!(WallTime { secs: 1_700_000_000, nanos: 0 }.to_string(), "2023-11-14T22:13:20Z");
/// assert_eq!(WallTime { secs: -1, nanos: 500_000_000 }.to_string(), "1969-12-31T23:59:59.5Z");
/// assert_eq!(WallTime { secs: 253_402_300_800, nanos: 0 }.to_string(), "@253402300800");
/// ```
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = TextBuffer::new();
        let time = WallTime::from_nanos(self.as_nanos());
        let (year, month, day) = civil_from_days(time.secs.div_euclid(SECS_PER_DAY));
        if DATED_YEARS.contains(&year) {
            let second = time.secs.rem_euclid(SECS_PER_DAY);
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            write!(line, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
            line.write_fraction(time.nanos.into(), 9)?;
            line.write_char('Z')?;
        } else {
            write_epoch(&mut line, time)?;
        }
        line.pad(f)
    }
}

/// Writes `time` in seconds since 1970. The sign applies to the whole number, fraction included.
fn write_epoch(line: &mut TextBuffer, time: WallTime) -> fmt::Result {
    let nanos = time.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (magnitude, second) = (nanos.unsigned_abs(), u128::from(SECOND));
    write!(line, "@{sign}{}", magnitude / second)?;
    line.write_fraction((magnitude % second) as u64, 9)
}
