//! Durations as people write them.

use lorentz_clock::Span;
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

fn problem(text: &str) -> String {
    text.parse::<Span>().expect_err(text).to_string()
}

#[test]
fn reads_what_people_write() {
    let good = [
        ("0", 0),
        ("90", 90 * SECOND),
        ("0.5", SECOND / 2),
        ("+2", 2 * SECOND),
        ("-2", -2 * SECOND),
        ("1ns", 1),
        ("1us", 1_000),
        ("1\u{b5}s", 1_000),
        ("1\u{3bc}s", 1_000),
        ("10ms", 10_000_000),
        ("1s", SECOND),
        ("1sec", SECOND),
        ("1m", 60 * SECOND),
        ("1min", 60 * SECOND),
        ("1h", 3600 * SECOND),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1y", 365 * DAY),
        ("1h30m", 5400 * SECOND),
        ("-1h30m", -5400 * SECOND),
        ("+3d", 3 * DAY),
        ("1.5s", 1_500_000_000),
        ("1.500s", 1_500_000_000),
        ("1.000000001s", 1_000_000_001),
        ("1.0ns", 1),
        (".5s", SECOND / 2),
        ("0.1d", DAY / 10),
        ("1.5h30m", 7200 * SECOND),
        ("30m1h", 5400 * SECOND),
        ("1y2w3d4h5m6s7ms8us9ns", 382 * DAY + 14_706_007_008_009),
        ("007s", 7 * SECOND),
        ("00000000000000000000000000000001ns", 1),
        ("0y", 0),
        ("-0s", 0),
        ("9223372036854775807ns", i64::MAX),
        ("-9223372036854775808ns", i64::MIN),
        ("9223372036.854775807", i64::MAX),
        ("292y", 292 * 365 * DAY),
    ];
    for (text, nanos) in good {
        assert_eq!(text.parse(), Ok(Span(nanos)), "{text}");
    }
}

#[test]
fn refuses_what_is_no_duration() {
    let bad = [
        "",
        "+",
        "-",
        "s",
        "ms",
        "++1s",
        "--1s",
        "+-1s",
        "1s+",
        "1h-30m",
        "1h+30m",
        "1.s",
        "1.",
        ".",
        ".s",
        "1..5s",
        "1.5.5s",
        "1,5s",
        "1e3",
        "1e3s",
        "0x10",
        "1_000s",
        "1S",
        "1M",
        "1H",
        "1hour",
        "1mo",
        "1ss",
        "1h30",
        "30m5",
        "10%",
        "inf",
        "NaN",
        "now",
        "\u{661}s",
        "1\u{661}s",
        "1\u{b5}",
        "1s\0",
        "@1",
        "1:30",
    ];
    for text in bad {
        assert!(problem(text).contains("expected a duration such as 10ms"), "{text}");
    }
}

#[test]
fn refuses_spaces() {
    for text in [" 1s", "1s ", "1 s", "1h 30m", "\t1s", "1s\n", " ", "- 1s", "1\u{a0}s"] {
        assert!(problem(text).starts_with("no spaces allowed; "), "{text:?}");
    }
}

#[test]
fn says_what_is_wrong() {
    let long = [
        "9223372036854775808ns",
        "-9223372036854775809ns",
        "293y",
        "99999999999999999999s",
        "9223372036854775807ns1ns",
        "18446744073709551615y18446744073709551615y",
    ];
    for text in long {
        assert!(problem(text).starts_with("longer than 292 years; "), "{text}");
    }
    for text in [
        "0.1ns",
        "0.0000000001s",
        "1.0000000005",
        "0.0001us",
        "0.0000000000000001y",
        "0.00000000000000000000000000001y",
    ] {
        assert!(problem(text).starts_with("finer than a nanosecond; "), "{text}");
    }
    assert!(problem("1h30").starts_with("number without a unit; "));
    assert!(problem("1parsec").starts_with("unknown unit; "));
    assert_eq!(
        problem("abc"),
        "expected a duration such as 10ms, 1h30m, +3d, -1h30m (units ns us ms s m h d w y)",
    );
}

#[test]
fn prints_the_short_form() {
    let forms = [
        (0, "0s"),
        (1, "1ns"),
        (-1, "-1ns"),
        (999, "999ns"),
        (1_000, "1us"),
        (1_500, "1.5us"),
        (10_000_000, "10ms"),
        (999_999_999, "999.999999ms"),
        (SECOND, "1s"),
        (SECOND + 1, "1.000000001s"),
        (1_500_000_000, "1.5s"),
        (59 * SECOND, "59s"),
        (60 * SECOND, "1m"),
        (60 * SECOND + 1, "1m1ns"),
        (60_500_000_000, "1m500ms"),
        (61_500_000_000, "1m1.5s"),
        (5400 * SECOND, "1h30m"),
        (-3 * DAY, "-3d"),
        (DAY + SECOND, "1d1s"),
        (7 * DAY, "7d"),
        (365 * DAY, "365d"),
        (i64::MAX, "106751d23h47m16.854775807s"),
        (i64::MIN, "-106751d23h47m16.854775808s"),
    ];
    for (nanos, text) in forms {
        assert_eq!(Span(nanos).to_string(), text);
        assert_eq!(text.parse(), Ok(Span(nanos)));
    }
}

#[test]
fn prints_with_width_and_sign() {
    assert_eq!(
        format!("{:>8}|{:<8}|{:*^9}", Span(SECOND), Span(SECOND), Span(-SECOND)),
        "      1s|1s      |***-1s***"
    );
    assert_eq!(format!("{:+} {:+} {:+}", Span(SECOND), Span(-SECOND), Span(0)), "+1s -1s +0s");
}

/// Spans of every magnitude, not only the huge ones that a uniform `i64` gives.
fn any_span() -> impl Strategy<Value = Span> {
    (any::<i64>(), 0_u32..64).prop_map(|(nanos, shift)| Span(nanos >> shift))
}

/// Texts of the characters that durations are made of, so that many of them are nearly right.
const NEARLY: &str =
    "[-+]?([0-9]{0,6}[.]?[0-9]{1,4}(ns|us|\u{b5}s|ms|s|sec|m|min|h|d|w|y|e| )?){0,4}";

fn reads_back(text: &str) -> Result<(), TestCaseError> {
    if let Ok(span) = text.parse::<Span>() {
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        let opposite: String = match text.strip_prefix('-') {
            Some(rest) => rest.into(),
            None => format!("-{}", text.trim_start_matches('+')),
        };
        if span != Span(i64::MIN) {
            prop_assert_eq!(opposite.parse(), Ok(Span(-span.0)));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn printed_spans_read_back(span in any_span()) {
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        prop_assert_eq!(format!("{span:+}").parse(), Ok(span));
        prop_assert_eq!(format!("{}ns", span.0).parse(), Ok(span));
    }

    #[test]
    fn parts_are_added(h in 0_i64..10_000, m in 0_i64..10_000, s in 0_i64..10_000, ms in 0_i64..10_000) {
        let nanos = (h * 3600 + m * 60 + s) * SECOND + ms * 1_000_000;
        prop_assert_eq!(format!("{h}h{m}m{s}s{ms}ms").parse(), Ok(Span(nanos)));
        prop_assert_eq!(format!("-{ms}ms{s}s{m}m{h}h").parse(), Ok(Span(-nanos)));
    }

    #[test]
    fn decimals_are_exact(whole in 0_i64..1_000_000, nanos in 0_i64..SECOND) {
        prop_assert_eq!(format!("{whole}.{nanos:09}s").parse(), Ok(Span(whole * SECOND + nanos)));
        prop_assert_eq!(format!("{whole}.{nanos:09}000").parse(), Ok(Span(whole * SECOND + nanos)));
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
