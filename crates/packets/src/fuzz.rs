//! Fuzz targets: records of BPF programs, rules and the lines that they read, requests.

use std::str::from_utf8;

use lorentz_fuzz::fuzz;

use crate::control::ControlRequest;
use crate::record::Packet;
use crate::rule::Rule;

#[test]
fn fuzz_record() {
    // A record has a fixed length; all bytes but some may have any value.
    let seed = "\0".repeat(crate::record::RECORD_LEN);
    fuzz("packet-record", &[&seed], &["\u{1}", "\u{6}", "\u{11}", "E"], |bytes| {
        Packet::parse(bytes).is_some_and(|packet| !crate::json_line(&packet, "x", 0).is_empty())
    });
}

#[test]
fn fuzz_rule() {
    let seeds = [
        include_str!("../rules/ping.toml"),
        include_str!("../rules/traceroute-tcp.toml"),
        include_str!("../rules/scamper-json.toml"),
    ];
    let words = [
        "pattern = '",
        "(?<time>",
        "(?<seq>",
        "first = 1",
        "unit = \"ms\"",
        "\n",
        "'",
        "key = ",
        "hop = '",
        "{}",
    ];
    fuzz("rule", &seeds, &words, |bytes| {
        let Some(Ok(rule)) = from_utf8(bytes).ok().map(Rule::parse) else { return false };
        rule.times("64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.045 ms");
        true
    });
}

#[test]
fn fuzz_line() {
    let names = [
        "ping",
        "fping",
        "hping3",
        "mtr",
        "mtr-udp",
        "scamper",
        "scamper-json",
        "scamper-trace",
        "traceroute",
        "traceroute-tcp",
    ];
    let rules: Vec<Rule> =
        names.iter().map(|name| Rule::find(name).expect("it is known")).collect();
    let seeds = [
        "64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.045 ms",
        " 1  192.0.2.1 (192.0.2.1)  0.045 ms  0.031 ms *",
    ];
    fuzz("line", &seeds, &["time=", "ms", "*", " ", "icmp_seq=", "."], |bytes| {
        let line = String::from_utf8_lossy(bytes);
        rules
            .iter()
            .for_each(|rule| assert!(rule.hop(&line).is_none() || line.contains(char::is_numeric)));
        let found: Vec<_> = rules.iter().flat_map(|rule| rule.times(&line)).collect();
        assert!(found
            .iter()
            .all(|found| found.end <= line.len() && line.is_char_boundary(found.end)));
        !found.is_empty()
    });
}

#[test]
fn fuzz_request() {
    let seeds = [r#"{"order":"show","cookie":7}"#];
    fuzz("packets-request", &seeds, &["\"order\":", "{", "}", "null", ","], |bytes| {
        serde_json::from_slice::<ControlRequest>(bytes).is_ok()
    });
}
