//! Fuzz targets: topology files, scenarios of other emulators, values with units, requests to the emulator.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::{from_utf8, FromStr};

use lorentz_emulator::units::{BitRate, Bytes, Delay, Probability};
use lorentz_fuzz::{fuzz, fuzz_json};

use crate::check;
use crate::import::{self, Format};
use crate::ns2;
use crate::plan::Endpoint;
use crate::protocol::NetworkRequest;

const TOPOLOGY: &str = "\
name: lab
tdf: 4
seed: 7
topology:
  nodes:
    a: {command: sleep 1000, env: {WHO: world}}
    b: {position: [3, 4]}
    s: {kind: switch}
    w: {kind: wlan, radio: {range: 250, rate: 54mbit, delay: 5ms}}
  links:
    - endpoints: [\"a:eth0\", \"b:eth0\"]
      delay: 10ms
      rate: 5mbit
      loss: 0.1%
    - {endpoints: [\"a:eth1\", \"s:0\"]}
    - {endpoints: [\"b:eth1\", \"w:0\"]}
mobility: {refresh: 50ms}
schedule:
  - {at: 1s, node: b, position: [10, 20], speed: 5}
  - {at: 2s, link: \"a:eth0\", set: {delay: 1ms}}
";
const YAML: [&str; 14] = [
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!!binary ",
    "|\n",
    "\n  ",
    "jitter: 1ms",
    "queue: 10",
    "\"",
];

/// Reads `bytes` as the file `path`; what was imported must be a topology, or be refused in one line.
fn scenario(path: &str, format: Format, bytes: &[u8]) -> bool {
    let Ok(text) = from_utf8(bytes) else { return false };
    let Ok(imported) = import::read_text(Path::new(path), format, text) else { return false };
    match check::plan_from(&imported.name, &imported.topology) {
        Ok(_) => true,
        Err(wrong) => {
            assert!(!wrong.what.contains('\n'));
            false
        }
    }
}

#[test]
fn fuzz_topology() {
    fuzz("topology", &[TOPOLOGY], &YAML, |bytes| {
        from_utf8(bytes).is_ok_and(|text| check::plan_from_text("lab.yaml", text).is_ok())
    });
}

#[test]
fn fuzz_ns2() {
    let seed = "# nodes: 2\n$node_(0) set X_ 144.0\n$node_(0) set Y_ 240\n$ns_ at 1.5 \"$node_(0) setdest 130.0 280.0 15.0\"\n";
    let words = [
        "$ns_ at ",
        "$node_(1) ",
        "setdest ",
        "set X_ ",
        "\"",
        "\n",
        "1e308",
        "nan",
        "-0",
        "\u{e9}",
    ];
    fuzz("ns2", &[seed], &words, |bytes| {
        let Ok(text) = from_utf8(bytes) else { return false };
        match ns2::parse("walk.ns2", text) {
            Ok(lines) => {
                assert!(lines.is_sorted_by_key(|line| line.at));
                true
            }
            Err(wrong) => {
                assert!(wrong.line > 0 && wrong.column > 0 && !wrong.what.contains('\n'));
                false
            }
        }
    });
}

#[test]
fn fuzz_containerlab() {
    let seed = include_str!("../../../tests/networks/scenarios/edge.clab.yml");
    fuzz("containerlab", &[seed], &YAML, |bytes| {
        scenario("/nowhere/x.clab.yml", Format::Containerlab, bytes)
    });
}

#[test]
fn fuzz_core() {
    let seed = include_str!("../../../tests/networks/scenarios/campus.xml");
    let words = [
        "<",
        "/>",
        "</",
        "<device id=\"1\">",
        "<![CDATA[",
        "&lt;",
        "<!DOCTYPE a>",
        "=\"\"",
        "<link>",
    ];
    fuzz("core", &[seed], &words, |bytes| scenario("/nowhere/x.xml", Format::Core, bytes));
}

#[test]
fn fuzz_imn() {
    let seed = include_str!("../../../tests/networks/scenarios/triangle.imn");
    let words =
        ["{", "}", "node n1 {", "link l1 {", "\"", "\\", "\n", "delay ", "nodes {n1 n2}", "[", "$"];
    fuzz("imn", &[seed], &words, |bytes| scenario("/nowhere/x.imn", Format::Imn, bytes));
}

#[test]
fn fuzz_kathara() {
    let seed = include_str!("../../../tests/networks/scenarios/kathara/lab.conf");
    let words = ["[", "]", "=", "\"", "#", "a[0]=\"A\"\n", "/", "image"];
    fuzz("kathara", &[seed], &words, |bytes| scenario("/nowhere/lab.conf", Format::Kathara, bytes));
}

/// Reads `text`, and what the value prints as well: it must be the same value.
fn read_twice<T: FromStr + Display + PartialEq + Debug>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return false };
    assert!(value.to_string().parse::<T>().is_ok_and(|again| again == value), "{text:?}: {value}");
    true
}

#[test]
fn fuzz_units() {
    let seeds = ["5mbit", "10ms", "0.1%", "1500", "64kb", "a:eth0"];
    let words = ["bit", "kbit", "gbit", "bps", "ms", "us", "s", "%", "kb", "k", ".", ":", "-"];
    fuzz("units", &seeds, &words, |bytes| {
        let Ok(text) = from_utf8(bytes) else { return false };
        let read = [
            read_twice::<BitRate>(text),
            read_twice::<Delay>(text),
            read_twice::<Probability>(text),
            read_twice::<Bytes>(text),
            read_twice::<Endpoint>(text),
        ];
        read.contains(&true)
    });
}

#[test]
fn fuzz_request() {
    let seeds = [
        r#"{"do":"status"}"#,
        r#"{"do":"set","end":"a:eth0","both":true,"set":{"delay":"1ms"},"is_up":null}"#,
    ];
    let words = ["\"do\":", "\"set\"", "\\u0000", "\"loss\":\"1%\""];
    fuzz_json("network-request", &seeds, &words, |bytes| {
        let Ok(request) = serde_json::from_slice::<NetworkRequest>(bytes) else { return false };
        let text = serde_json::to_vec(&request).expect("it was read");
        assert_eq!(
            serde_json::from_slice::<NetworkRequest>(&text).expect("JSON that was written"),
            request
        );
        true
    });
}
