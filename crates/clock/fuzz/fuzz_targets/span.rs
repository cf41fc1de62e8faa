//! The parser accepts or refuses any text. A printed duration reads back as the same duration.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lorentz_clock::Span;

fuzz_target!(|text: &str| {
    if let Ok(span) = text.parse::<Span>() {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
});
