//! Rates and TDFs as people write them.

use lorentz_clock::Rate;
use proptest::prelude::*;

fn rate(num: u64, den: u64) -> Rate {
    Rate::new(num, den).expect("a valid rate")
}

fn problem(text: &str) -> String {
    text.parse::<Rate>().expect_err(text).to_string()
}

#[test]
fn reads_what_people_write() {
    let good = [
        ("1", 1, 1),
        ("2", 2, 1),
        ("002", 2, 1),
        ("0.1", 1, 10),
        (".1", 1, 10),
        ("0.10", 1, 10),
        ("1.0", 1, 1),
        ("1/10", 1, 10),
        ("2/20", 1, 10),
        ("3/7", 3, 7),
        ("60x", 60, 1),
        ("x60", 60, 1),
        ("0.5x", 1, 2),
        ("x1/3", 1, 3),
        ("+200ppm", 1_000_200, 1_000_000),
        ("-50ppm", 999_950, 1_000_000),
        ("+0ppm", 1, 1),
        ("-0.5ppm", 1_999_999, 2_000_000),
        ("-999999ppm", 1, 1_000_000),
        ("1000000", 1_000_000, 1),
        ("0.000001", 1, 1_000_000),
        ("1/1000000", 1, 1_000_000),
        ("999999.999999", 999_999_999_999, 1_000_000),
        ("0.333333333333333", 333_333_333_333_333, 1_000_000_000_000_000),
        ("0.0000019073486328125", 1, 1 << 19),
        ("18446744073709551615/18446744073709551615", 1, 1),
    ];
    for (text, num, den) in good {
        assert_eq!(text.parse(), Ok(rate(num, den)), "{text}");
        assert_eq!(Rate::parse_tdf(text), Ok(rate(den, num)), "{text}");
    }
}

#[test]
fn refuses_what_is_no_rate() {
    let bad = [
        "", "x", "/", "1/", "/2", "1/2/3", "1/x", "1/-2", "-", "+", "+2", "--2", "-x", "abc",
        "1e3", "50%", "1,5", "1.", ".", "1..2", "1/2.5", "0.5/2", "xx2", "x2x", "2xx", "2X", "2 x",
        " 2", "2 ", "1 / 2", "ppm", "+ppm", "-ppm", "+-2ppm", "++2ppm", "+2ppmx", "x+2ppm",
        "+2 ppm", "+2PPM", "inf", "NaN", "0x10", "1_000", "\u{662}", "1h",
    ];
    for text in bad {
        assert!(problem(text).starts_with("expected a rate"), "{text}: {}", problem(text));
        let tdf = Rate::parse_tdf(text).expect_err(text).to_string();
        assert!(tdf.starts_with("expected a TDF"), "{text}: {tdf}");
    }
}

#[test]
fn says_what_is_wrong() {
    let bad = [
        (
            "must be above 0; ",
            &[
                "0",
                "0.0",
                "0x",
                "0/5",
                "-0",
                "-1",
                "-1/2",
                "-2x",
                "-2000000",
                "-1000000ppm",
                "-2000000ppm",
            ][..],
        ),
        (
            "must be at most 1000000; ",
            &["1000001", "1000000.1", "1/0", "1000001/1", "+1000000000000ppm"][..],
        ),
        ("must be at least 1/1000000; ", &["0.0000009", "1/1000001", "-999999.5ppm"][..]),
        (
            "has more digits than can be kept exactly; ",
            &["0.3333333333333333", "1.00000000000000000001", "+0.0000000001ppm"][..],
        ),
        ("ppm needs a sign; ", &["200ppm", "0.5ppm"][..]),
    ];
    for (start, texts) in bad {
        for text in texts {
            assert!(problem(text).starts_with(start), "{text}: {}", problem(text));
        }
    }
    assert_eq!(
        problem("fast"),
        "expected a rate from 1/1000000 to 1000000 such as 2, 0.1, 1/10, 60x, +200ppm"
    );
    assert_eq!(
        Rate::parse_tdf("0").unwrap_err().to_string(),
        "must be above 0; expected a TDF (the inverse of a rate) from 1/1000000 to 1000000 such as 10, 0.5, 1/3",
    );
}

#[test]
fn prints_numbers_or_ratios() {
    let forms = [
        (1, 1, "1"),
        (60, 1, "60"),
        (1_000_000, 1, "1000000"),
        (1, 10, "0.1"),
        (5, 2, "2.5"),
        (1, 1_000_000, "0.000001"),
        (1_000_200, 1_000_000, "1.0002"),
        (63_999_999, 64, "999999.984375"),
        (1, 128, "1/128"),
        (1, 3, "1/3"),
        (22, 7, "22/7"),
    ];
    for (num, den, text) in forms {
        assert_eq!(rate(num, den).to_string(), text);
        assert_eq!(text.parse(), Ok(rate(num, den)));
    }
    assert_eq!(format!("{:>5}|{:<5}|", rate(1, 3), rate(2, 1)), "  1/3|2    |");
}

/// Rates with short terms and with long ones.
fn any_rate() -> impl Strategy<Value = Rate> {
    let term = || (1_u64..1 << 50, 0_u32..50).prop_map(|(term, shift)| term >> shift);
    (term(), term()).prop_filter_map("out of range", |(num, den)| Rate::new(num, den))
}

/// Texts of the characters that rates are made of, so that many of them are nearly right.
const NEARLY: &str = "[-+]?x?[0-9]{0,7}[./]?[0-9]{0,21}(x|ppm|e|%)?";

fn reads_back(text: &str) -> Result<(), TestCaseError> {
    let read = text.parse::<Rate>();
    if let Ok(rate) = read {
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
    }
    prop_assert_eq!(Rate::parse_tdf(text).ok(), read.ok().map(Rate::inverse));
    Ok(())
}

proptest! {
    #[test]
    fn printed_rates_read_back(rate in any_rate()) {
        let text = rate.to_string();
        prop_assert_eq!(text.parse(), Ok(rate));
        prop_assert_eq!(Rate::parse_tdf(&text), Ok(rate.inverse()));
        prop_assert_eq!(format!("{}/{}", rate.num(), rate.den()).parse(), Ok(rate));
    }

    #[test]
    fn decimals_are_exact(millionths in 1_u64..1_000_000_000_000) {
        let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        prop_assert_eq!(text.parse(), Ok(rate(millionths, 1_000_000)));
    }

    #[test]
    fn ppm_is_a_deviation_from_one(ppm in -999_999_i64..1_000_000) {
        let num = u64::try_from(1_000_000 + ppm).unwrap();
        prop_assert_eq!(format!("{ppm:+}ppm").parse(), Ok(rate(num, 1_000_000)));
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
