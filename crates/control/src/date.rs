//! Dates as people say them: `tomorrow`, `next monday 9:00`, `+2d`, `2038-01-19 03:14 Europe/Berlin`.

use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lorentz_clock::{Span, WallTime, NANOS_PER_SEC};
use parse_datetime::parse_datetime_at_date;

use crate::host_time::HostNow;

const EXPECTED: &str =
    "expected a time such as 2038-01-19T03:14:00Z, '2038-01-19 03:14 Europe/Berlin', \
     @1700000000, +2d, tomorrow, '2 days ago', 'next monday 9:00'";

/// A point on a wall clock, absolute or from now on.
///
/// - As [`WallTime`] reads it: `2038-01-19T03:14:00Z`, `2030-01-01`, `@1700000000`. These forms are in UTC unless they name an offset.
/// - A duration with a sign, from now: `+2d`, `-1h30m`.
/// - All that `date --date` of GNU takes: `yesterday`, `2 days ago`, `next monday 9:00`, `24 Dec 2030 10:00`. These, and a date with
///   a blank before its time (`2038-01-19 03:14`), are in the local time zone: that of `TZ`, else of /etc/localtime.
/// - One of the latter with the name of a time zone behind it: `2038-01-19 03:14 Europe/Berlin`.
///
/// ```
/// use lorentz_clock::WallTime;
/// use lorentz_control::Date;
///
/// let now = "2030-01-05T12:00:00Z".parse::<WallTime>()?;
/// let at = |text: &str| Ok::<_, String>(text.parse::<Date>()?.from(now)?.to_string());
/// assert_eq!(at("+1d12h")?, "2030-01-07T00:00:00Z");
/// assert_eq!(at("next monday 9:00 Asia/Tokyo")?, "2030-01-07T00:00:00Z");
/// assert_eq!(at("2038-01-19T03:14:00Z")?, "2038-01-19T03:14:00Z");
/// assert!("tomorow".parse::<Date>().unwrap_err().starts_with("expected a time such as"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Date {
    /// A point that does not depend on now.
    At(WallTime),
    /// This long after now, or before it.
    FromNow(Span),
    /// As `date --date` reads it. Only [`Date::from_str`] makes one: the words are known to be right.
    Words(Words),
}

/// Words for a date, in a time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    words: String,
    zone: TimeZone,
}

impl Date {
    /// Returns the point in time, if it is `now`.
    ///
    /// # Errors
    ///
    /// `now` or the point lies beyond the years that the calendar of these words has: -9999 to 9999.
    pub fn from(&self, now: WallTime) -> Result<WallTime, String> {
        match self {
            Date::At(wall) => Ok(*wall),
            Date::FromNow(span) => Ok(now.plus(*span)),
            Date::Words(Words { words, zone }) => {
                let now = Timestamp::from_nanosecond(now.as_nanos())
                    .map_err(|_| format!("a date in words cannot be told from {now}"))?
                    .to_zoned(zone.clone());
                read_words(now, words).ok_or_else(|| EXPECTED.to_string())
            }
        }
    }

    /// Reads a date as `date --date` of GNU does, in the local time zone also where the text is one that [`WallTime`] reads.
    ///
    /// # Errors
    ///
    /// Anything that is no date.
    pub fn in_words(text: &str, now: WallTime) -> Result<WallTime, String> {
        Date::Words(read_zone(text)?).from(now)
    }

    /// Reads a date of the host's wall clock.
    ///
    /// # Errors
    ///
    /// Anything that is no date, and a host whose clocks cannot be read.
    pub fn of_the_host(text: &str) -> Result<WallTime, String> {
        let now = HostNow::read().map_err(|error| format!("the host's clocks: {error}"))?;
        text.parse::<Date>()?.from(now.wall)
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Date, String> {
        let strict = text.parse::<WallTime>();
        match strict {
            Ok(wall) if !is_local(text) => return Ok(Date::At(wall)),
            Err(error) if error.is_specific() => return Err(error.to_string()),
            _ => {}
        }
        if let (true, Ok(span)) = (text.starts_with(['+', '-']), text.parse()) {
            return Ok(Date::FromNow(span));
        }
        let words = read_zone(text)?;
        let epoch = Timestamp::UNIX_EPOCH.to_zoned(words.zone.clone());
        read_words(epoch, &words.words).ok_or_else(|| EXPECTED.to_string())?;
        Ok(Date::Words(words))
    }
}

/// Prints a point of a wall clock in the local time zone, with its offset and name: `2038-01-18 22:14:00 -05:00 America/New_York`.
/// Outside the years -9999 to 9999 as [`WallTime`] prints it.
pub fn local_time(wall: WallTime) -> String {
    match Timestamp::from_nanosecond(wall.as_nanos()) {
        Ok(point) => point.to_zoned(TimeZone::system()).strftime("%F %T %:z %Q").to_string(),
        Err(_) => wall.to_string(),
    }
}

/// Whether `text`, which [`WallTime`] reads, is a time in the local zone: with a blank before the time of day, and no zone.
fn is_local(text: &str) -> bool {
    let time = text.split_once(' ').map(|(_, time)| time);
    time.is_some_and(|time| !time.contains(['Z', 'z', '+', '-']))
}

/// Splits the name of a time zone off `text`. Without one the words are in the local zone.
fn read_zone(text: &str) -> Result<Words, String> {
    // One letter is a zone of the military to `date`, and digits alone are a time of day.
    if text.len() < 2 || text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EXPECTED.to_string());
    }
    let (words, zone) = match text.rsplit_once(' ') {
        Some((words, name))
            if name.contains('/') && name.starts_with(|c: char| c.is_alphabetic()) =>
        {
            let zone = TimeZone::get(name).map_err(|_| {
                format!("no time zone {name} on this machine; expected one such as Europe/Berlin")
            })?;
            (words, zone)
        }
        _ => (text, TimeZone::system()),
    };
    Ok(Words { words: words.to_string(), zone })
}

/// Reads what GNU's `date --date` takes, at `now` and in its zone.
fn read_words(now: Zoned, words: &str) -> Option<WallTime> {
    let point = parse_datetime_at_date(now, words).ok()?;
    let (secs, nanos) = (point.unix_epoch_second(), point.subsec_nanosecond());
    Some(WallTime::from_nanos(i128::from(secs) * i128::from(NANOS_PER_SEC) + i128::from(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, now: &str) -> Result<String, String> {
        let now = now.parse::<WallTime>().expect("a time");
        Ok(text.parse::<Date>()?.from(now)?.to_string())
    }

    #[test]
    fn strict_forms_are_in_utc_and_do_not_depend_on_now() {
        for text in [
            "2038-01-19T03:14:00Z",
            "2038-01-19T03:14:00",
            "2030-01-01",
            "@5",
            "2030-01-01 01:00+01:00",
        ] {
            let wall = text.parse::<WallTime>().expect("a time");
            assert_eq!(text.parse(), Ok(Date::At(wall)), "{text}");
        }
    }

    #[test]
    fn words_and_spans_count_from_now() {
        // 2030-01-05 is a Saturday.
        for (text, expected) in [
            ("+2d", "2030-01-07T12:00:00Z"),
            ("-1h30m", "2030-01-05T10:30:00Z"),
            ("yesterday 9:00 Europe/Berlin", "2030-01-04T08:00:00Z"),
            ("2 days ago Europe/Berlin", "2030-01-03T12:00:00Z"),
            ("next monday 9:00 America/New_York", "2030-01-07T14:00:00Z"),
            ("2038-01-19 03:14 Europe/Berlin", "2038-01-19T02:14:00Z"),
            ("24 Dec 2030 10:00 UTC", "2030-12-24T10:00:00Z"),
        ] {
            assert_eq!(at(text, "2030-01-05T12:00:00Z"), Ok(expected.to_string()), "{text}");
        }
    }

    #[test]
    fn a_change_of_summer_time_between_now_and_then_moves_the_instant() {
        // Berlin's summer time begins on 2030-03-31.
        assert_eq!(
            at("tomorrow 12:00 Europe/Berlin", "2030-03-30T12:00:00Z"),
            Ok("2030-03-31T10:00:00Z".to_string())
        );
    }

    #[test]
    fn no_date_is_refused_with_the_accepted_forms() {
        for text in ["", "z", "5", "1700000000", "soon", "tomorow", "noon o'clock"] {
            let error = text.parse::<Date>().expect_err(text);
            assert!(
                error.starts_with("expected a time such as 2038-01-19T03:14:00Z, "),
                "{text}: {error}"
            );
        }
        assert!("2023-02-30".parse::<Date>().expect_err("no day").starts_with("no such day; "));
        let zone = "2038-01-19 03:14 Europe/Atlantis".parse::<Date>().expect_err("no zone");
        assert!(zone.starts_with("no time zone Europe/Atlantis"), "{zone}");
    }

    #[test]
    fn words_told_from_a_clock_beyond_their_calendar_are_refused() {
        let error = at("tomorrow", "@999999999999").expect_err("too far");
        assert_eq!(error, "a date in words cannot be told from @999999999999");
    }
}
