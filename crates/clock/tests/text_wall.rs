//! Dates as people write them.

use lorentz_clock::WallTime;
use proptest::prelude::*;

const YEAR_0: i64 = -62_167_219_200;
const YEAR_10000: i64 = 253_402_300_800;

fn at(secs: i64, nanos: u32) -> WallTime {
    WallTime { secs, nanos }
}

fn problem(text: &str) -> String {
    text.parse::<WallTime>().expect_err(text).to_string()
}

#[test]
fn known_dates_both_ways() {
    let known = [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("1969-12-31T23:59:59Z", -1, 0),
        ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 0, 1),
        ("2001-09-09T01:46:40Z", 1_000_000_000, 0),
        ("2009-02-13T23:31:30Z", 1_234_567_890, 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000, 0),
        ("2038-01-19T03:14:00Z", 2_147_483_640, 0),
        ("2038-01-19T03:14:07Z", 2_147_483_647, 0),
        ("2106-02-07T06:28:16Z", 4_294_967_296, 0),
        ("2000-02-29T00:00:00Z", 951_782_400, 0),
        ("1900-01-01T00:00:00Z", -2_208_988_800, 0),
        ("1900-03-01T00:00:00Z", -2_203_891_200, 0),
        ("1601-01-01T00:00:00Z", -11_644_473_600, 0),
        ("1582-10-15T00:00:00Z", -12_219_292_800, 0),
        ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ("0000-01-01T00:00:00Z", YEAR_0, 0),
        ("9999-12-31T23:59:59.999999999Z", YEAR_10000 - 1, 999_999_999),
        // The first and the last nanosecond of an i64.
        ("1677-09-21T00:12:43.145224192Z", -9_223_372_037, 145_224_192),
        ("2262-04-11T23:47:16.854775807Z", 9_223_372_036, 854_775_807),
    ];
    for (text, secs, nanos) in known {
        assert_eq!(text.parse(), Ok(at(secs, nanos)), "{text}");
        assert_eq!(at(secs, nanos).to_string(), text);
    }
}

#[test]
fn seconds_since_the_epoch_both_ways() {
    let known = [
        ("@253402300800", YEAR_10000, 0),
        ("@253402300800.25", YEAR_10000, 250_000_000),
        ("@-62167219201", YEAR_0 - 1, 0),
        ("@-62167219200.75", YEAR_0 - 1, 250_000_000),
        ("@9223372036854775807.999999999", i64::MAX, 999_999_999),
        ("@-9223372036854775808", i64::MIN, 0),
        ("@-9223372036854775807.000000001", i64::MIN, 999_999_999),
    ];
    for (text, secs, nanos) in known {
        assert_eq!(text.parse(), Ok(at(secs, nanos)), "{text}");
        assert_eq!(at(secs, nanos).to_string(), text);
    }
}

#[test]
fn reads_what_people_write() {
    let noon_2030 = 1_893_499_200;
    let good = [
        ("2030-01-01", noon_2030 - 43_200, 0),
        ("2030-01-01T12:00:00", noon_2030, 0),
        ("2030-01-01T12:00", noon_2030, 0),
        ("2030-01-01T12:00Z", noon_2030, 0),
        ("2030-01-01t12:00:00z", noon_2030, 0),
        ("2030-01-01 12:00:00Z", noon_2030, 0),
        ("2030-01-01 12:00", noon_2030, 0),
        ("2030-01-01T12:00:00.0Z", noon_2030, 0),
        ("2030-01-01T12:00:00.123456789", noon_2030, 123_456_789),
        ("2030-01-01T12:00:00.1234567890000Z", noon_2030, 123_456_789),
        ("2030-01-01T14:00:00+02:00", noon_2030, 0),
        ("2030-01-01T06:30:00-05:30", noon_2030, 0),
        ("2030-01-01T12:00:00.5-00:00", noon_2030, 500_000_000),
        ("2030-01-02T11:59:00+23:59", noon_2030, 0),
        ("2029-12-31T12:01-23:59", noon_2030, 0),
        ("2024-02-29", 1_709_164_800, 0),
        ("0000-01-01T00:00:00+00:01", YEAR_0 - 60, 0),
        ("9999-12-31T23:59:00-00:01", YEAR_10000, 0),
        ("+10000-01-01", YEAR_10000, 0),
        ("+002030-01-01T12:00:00Z", noon_2030, 0),
        ("+292277026596-12-04T15:30:07Z", i64::MAX, 0),
        ("+292277026596-12-04T15:30:07.999999999Z", i64::MAX, 999_999_999),
        ("@0", 0, 0),
        ("@-0", 0, 0),
        ("@+5", 5, 0),
        ("@-5", -5, 0),
        ("@-0.5", -1, 500_000_000),
        ("@.5", 0, 500_000_000),
        ("@1700000000", 1_700_000_000, 0),
        ("@1700000000.5", 1_700_000_000, 500_000_000),
        ("@1700000000.500000000000", 1_700_000_000, 500_000_000),
    ];
    for (text, secs, nanos) in good {
        assert_eq!(text.parse(), Ok(at(secs, nanos)), "{text}");
    }
}

#[test]
fn refuses_what_is_no_time() {
    let bad = [
        "",
        "now",
        "tomorrow",
        "1700000000",
        "@",
        "@-",
        "@+-5",
        "@--5",
        "@1.",
        "@1e9",
        "@1 ",
        "@ 1",
        "@1s",
        "@0x10",
        " 2030-01-01",
        "2030-01-01 ",
        "2030-1-1",
        "2030-01-1",
        "2030-01",
        "2030",
        "20300101",
        "2030/01/01",
        "01-01-2030",
        "203-01-01",
        "-2030-01-01",
        "+2030-01-01",
        "2030-01-001",
        "2030-001-01",
        "2030-01-01Z",
        "2030-01-01+02:00",
        "2030-01-01T",
        "2030-01-01T12",
        "2030-01-01T12:",
        "2030-01-01T12:00:",
        "2030-01-01T1:00:00",
        "2030-01-01T12:00:0",
        "2030-01-01T12:00:000",
        "2030-01-01T12:00:00.",
        "2030-01-01T12:00:00.Z",
        "2030-01-01T12:00:00,5Z",
        "2030-01-01T12:00.5Z",
        "2030-01-01T12:00:00ZZ",
        "2030-01-01T12:00:00 Z",
        "2030-01-01T12:00:00UTC",
        "2030-01-01T12:00:00+2",
        "2030-01-01T12:00:00+02",
        "2030-01-01T12:00:00+0200",
        "2030-01-01T12:00:00+02:0",
        "2030-01-01T12:00:00+02:00Z",
        "2030-01-01T12:00:00\u{2212}02:00",
        "2030-01-01  12:00:00",
        "2030-01-01X12:00:00",
        "\u{662}030-01-01",
        "2030-01-01T12:00:00\u{e9}",
        "T12:00:00Z",
        "12:00:00",
    ];
    for text in bad {
        assert!(
            problem(text).starts_with("expected a time such as 2038-01-19T03:14:00Z"),
            "{text}: {}",
            problem(text)
        );
    }
}

#[test]
fn says_what_is_wrong() {
    let bad = [
        (
            "no such day; ",
            &[
                "2023-02-30",
                "2023-02-29",
                "1900-02-29",
                "2100-02-29",
                "2030-04-31",
                "2030-00-01",
                "2030-13-01",
                "2030-01-00",
                "2030-01-32",
            ][..],
        ),
        (
            "no such time of day; ",
            &[
                "2030-01-01T24:00:00Z",
                "2030-01-01T25:00",
                "2030-01-01T12:60:00Z",
                "2030-01-01T12:00:61Z",
                "2030-01-01T24:00:60Z",
            ][..],
        ),
        (
            "a leap second has no number ",
            &["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:59:60+01:00"][..],
        ),
        ("no such zone offset; ", &["2030-01-01T12:00:00+24:00", "2030-01-01T12:00:00-02:60"][..]),
        ("finer than a nanosecond; ", &["@0.0000000001", "2030-01-01T12:00:00.1234567891Z"][..]),
        ("a year above 9999 needs a plus sign; ", &["10000-01-01", "20300-01-01T12:00:00Z"][..]),
        (
            "beyond the range of a 64-bit clock; ",
            &[
                "@9223372036854775808",
                "@-9223372036854775808.000000001",
                "@99999999999999999999999999999999999999999999",
                "+292277026596-12-04T15:30:08Z",
                "+999999999999-12-31",
                "+9999999999999-01-01",
            ][..],
        ),
    ];
    for (start, texts) in bad {
        for text in texts {
            assert!(problem(text).starts_with(start), "{text}: {}", problem(text));
        }
    }
}

#[test]
fn prints_with_width() {
    assert_eq!(
        format!("{:>22}|{:<22}|", at(0, 0), at(0, 0)),
        "  1970-01-01T00:00:00Z|1970-01-01T00:00:00Z  |"
    );
}

#[test]
fn prints_whatever_the_fields_hold() {
    assert_eq!(at(0, 1_500_000_000).to_string(), "1970-01-01T00:00:01.5Z");
    for time in [at(i64::MAX, u32::MAX), at(i64::MIN, u32::MAX)] {
        assert!(time.to_string().starts_with('@'));
    }
}

/// Walks day by day from the first of `year` to the first of `until`, with a calendar of its own.
fn walk(year: i64, until: i64, first_day: WallTime) {
    let mut secs = first_day.secs;
    for year in year..until {
        let leap = if year % 100 == 0 { year % 400 == 0 } else { year % 4 == 0 };
        let months = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, days) in (1..).zip(months) {
            for day in 1..=days {
                let date = format!("{year:04}-{month:02}-{day:02}");
                assert_eq!(date.parse(), Ok(at(secs, 0)), "{date}");
                assert_eq!(at(secs + 86_399, 0).to_string(), format!("{date}T23:59:59Z"));
                secs += 86_400;
            }
            assert!(format!("{year:04}-{month:02}-{:02}", days + 1).parse::<WallTime>().is_err());
        }
    }
    let next = if until > 9999 { format!("+{until}-01-01") } else { format!("{until:04}-01-01") };
    assert_eq!(next.parse(), Ok(at(secs, 0)));
}

#[test]
fn every_day_of_many_centuries() {
    walk(1970, 2500, at(0, 0));
    walk(0, 1970, at(YEAR_0, 0));
    walk(9600, 10_000, "9600-01-01".parse().unwrap());
}

/// Points among the printed dates, and points anywhere.
fn any_time() -> impl Strategy<Value = WallTime> {
    let secs = prop_oneof![YEAR_0 - 100..YEAR_10000 + 100, any::<i64>()];
    let nanos =
        (0_u32..1_000_000_000, prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000]));
    (secs, nanos).prop_map(|(secs, (nanos, step))| at(secs, nanos / step * step))
}

/// Texts of the characters that dates are made of, so that many of them are nearly right.
const NEARLY: &str = "(@[-+]?[0-9]{1,21}([.][0-9]{0,11})?)\
    |([+]?[0-9]{4,13}-[01][0-9]-[0-3][0-9]([Tt ][0-2][0-9]:[0-6][0-9](:[0-6][0-9]([.][0-9]{0,10})?)?([Zz]|[-+][0-2][0-9]:[0-6][0-9])?)?)";

fn reads_back(text: &str) -> Result<(), TestCaseError> {
    if let Ok(time) = text.parse::<WallTime>() {
        prop_assert!(time.nanos < 1_000_000_000);
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }
    Ok(())
}

proptest! {
    #[test]
    fn printed_times_read_back(time in any_time()) {
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn a_zone_is_subtracted(secs in YEAR_0 + 86_400..YEAR_10000 - 86_400, minutes in -1439_i64..1440) {
        let text = at(secs, 0).to_string();
        let sign = if minutes < 0 { '-' } else { '+' };
        let zone = format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60);
        prop_assert_eq!(text.replace('Z', &zone).parse(), Ok(at(secs - minutes * 60, 0)));
        prop_assert_eq!(text.replace('Z', "").parse(), Ok(at(secs, 0)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        reads_back(&text)?;
    }

    #[test]
    fn nearly_right_text_is_read_or_refused(text in NEARLY) {
        reads_back(&text)?;
    }
}
