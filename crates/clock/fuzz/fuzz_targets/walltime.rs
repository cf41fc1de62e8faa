//! The parser accepts or refuses any text. A printed time reads back as the same time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lorentz_clock::WallTime;

fuzz_target!(|text: &str| {
    if let Ok(time) = text.parse::<WallTime>() {
        assert!(time.nanos < 1_000_000_000);
        assert_eq!(time.to_string().parse(), Ok(time));
    }
});
