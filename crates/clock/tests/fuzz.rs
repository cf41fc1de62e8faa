//! Fuzz targets: durations, rates and dates as people write them.

#![cfg(not(loom))]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use lorentz_clock::{Rate, Span, WallTime};
use lorentz_fuzz::fuzz;

/// Reads `bytes` as a text, and what the value prints as well: it must be the same value. Returns the value.
fn read_twice<T: FromStr + Display + PartialEq + Debug>(bytes: &[u8]) -> Option<T>
where
    T::Err: Debug + PartialEq,
{
    let value: T = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    assert_eq!(value.to_string().parse().as_ref(), Ok(&value), "printed as {value}");
    Some(value)
}

#[test]
fn fuzz_span() {
    let seeds = ["1.5s", "-2h30m", "10d", "250us", "3ns", "1w2d"];
    let words = ["s", "ms", "us", "ns", "m", "h", "d", "w", "-", "+", ".", "0"];
    fuzz("span", &seeds, &words, |bytes| read_twice::<Span>(bytes).is_some());
}

#[test]
fn fuzz_rate() {
    let seeds = ["2", "0.1", "1/10", "60x", "+200ppm", "-3ppm"];
    let words = ["x", "/", "ppm", "ppb", "-", "+", ".", "0", "e"];
    fuzz("rate", &seeds, &words, |bytes| {
        let rate = read_twice::<Rate>(bytes);
        if let Ok(text) = std::str::from_utf8(bytes) {
            assert_eq!(Rate::parse_tdf(text).ok(), rate.map(Rate::inverse));
        }
        rate.is_some()
    });
}

#[test]
fn fuzz_walltime() {
    let seeds =
        ["2038-01-19T03:14:00Z", "2030-01-01", "@4000000000.5", "1985-10-26 01:21:00+02:00"];
    let words = ["T", "Z", "-", ":", "@", "+", ".", " ", "02-29", "24:00:00", "23:59:60"];
    fuzz("walltime", &seeds, &words, |bytes| {
        let time = read_twice::<WallTime>(bytes);
        assert!(time.is_none_or(|time| time.nanos < 1_000_000_000));
        time.is_some()
    });
}
