//! Any text is a duration or is refused; what is printed reads back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lorentz_clock::Span;

fuzz_target!(|text: &str| {
    if let Ok(span) = text.parse::<Span>() {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
});
