//! Any text is a rate or is refused, and a TDF just where it is a rate; what is printed reads back
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lorentz_clock::Rate;

fuzz_target!(|text: &str| {
    let read = text.parse::<Rate>();
    if let Ok(rate) = read {
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }
    assert_eq!(Rate::parse_tdf(text).ok(), read.ok().map(Rate::inverse));
});
