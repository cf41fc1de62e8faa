//! Fuzz targets: messages over TCP, headers of probes, bit rates.

use lorentz_fuzz::{fuzz, fuzz_json};

use crate::wire::{self, Header, ToClient, ToServer};
use crate::BitRate;

#[test]
fn fuzz_message() {
    let seeds = [
        r#"{"stream":{"number":1,"packets":100}}"#,
        r#"{"proof":{"mac":"00ff"}}"#,
        r#"{"end":{"number":1}}"#,
    ];
    let words = ["\"challenge\"", "\"ready\"", "\"arrivals\""];
    fuzz_json("bandwidth-message", &seeds, &words, |bytes| {
        wire::parse::<ToServer>(bytes).is_ok() | wire::parse::<ToClient>(bytes).is_ok()
    });
}

#[test]
fn fuzz_header() {
    fuzz("bandwidth-header", &["LzBwsession.strmnumb"], &["\0"], |bytes| {
        let Some(header) = Header::parse(bytes) else { return false };
        assert_eq!(header.bytes(), bytes[..Header::LEN]);
        true
    });
}

#[test]
fn fuzz_bit_rate() {
    let seeds = ["600mbit", "1.5gbit", "64k", "1000"];
    fuzz("bit-rate", &seeds, &["bit", "kbit", "m", "g", ".", "bps"], |bytes| {
        let Some(Ok(rate)) = std::str::from_utf8(bytes).ok().map(str::parse::<BitRate>) else {
            return false;
        };
        assert!((1_000..=1_000_000_000_000).contains(&rate.0), "{rate}");
        true
    });
}
