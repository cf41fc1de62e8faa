//! The parser accepts or refuses any text. It accepts the same texts as a TDF and as a rate. A printed rate reads back as the
//! same rate.
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
