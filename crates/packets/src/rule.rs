//! Rules: where the output of a measuring tool has a time, and which packet the time belongs to.

use regex_lite::{Captures, Regex};
use serde::Deserialize;

use crate::error::PacketsError;

/// The built-in rules.
const BUILT_IN_RULES: [(&str, &str); 11] = [
    ("ping", include_str!("../rules/ping.toml")),
    ("fping", include_str!("../rules/fping.toml")),
    ("traceroute", include_str!("../rules/traceroute.toml")),
    ("traceroute-icmp", include_str!("../rules/traceroute-icmp.toml")),
    ("traceroute-tcp", include_str!("../rules/traceroute-tcp.toml")),
    ("mtr", include_str!("../rules/mtr.toml")),
    ("mtr-udp", include_str!("../rules/mtr-udp.toml")),
    ("scamper", include_str!("../rules/scamper.toml")),
    ("scamper-trace", include_str!("../rules/scamper-trace.toml")),
    ("scamper-json", include_str!("../rules/scamper-json.toml")),
    ("hping3", include_str!("../rules/hping3.toml")),
];

/// The packet field that a time's number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKey {
    /// The sequence number of ICMP echo.
    Seq,
    /// The destination port of a datagram or segment.
    DestinationPort,
    /// The first four bytes of a datagram's payload, big-endian.
    Payload,
    /// The time to live, and the place among the tool's packets with it. The sender's port finds the answer: UDP, TCP.
    Ttl,
}

/// End point of the tool's own measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The tool's receive call (user to user).
    Call,
    /// The container's device, by SO_TIMESTAMP.
    Device,
}

/// The part of an exchange that the tool's time has in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// A packet and its answer.
    #[default]
    RoundTrip,
    /// One way: a packet that the tool has sent.
    Sent,
    /// One way: a packet that the tool has received.
    Received,
}

/// The unit of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "us")]
    Micros,
}

/// A rule as its TOML file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    pattern: String,
    unit: Unit,
    key: MatchKey,
    until: Until,
    #[serde(default)]
    measured: Measured,
    /// Number of the first time, if the tool prints none.
    first: Option<u32>,
    /// Whether the tool writes its sequence number in the processor's byte order, not in network order.
    #[serde(default)]
    swapped: bool,
    /// Arguments that make the tool measure from call to call.
    #[serde(default)]
    call_arguments: Vec<String>,
    /// The text to insert after a time, with `{}` for the corrected time in ms or `null`.
    insert: Option<String>,
    /// With the key `ttl`: finds the number of a line's hop.
    hop: Option<String>,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    pattern: Regex,
    unit: Unit,
    /// The packet field that the numbers stand for.
    pub key: MatchKey,
    /// The part of an exchange that a time has in it.
    pub measured: Measured,
    until: Until,
    first: Option<u32>,
    swapped: bool,
    call_arguments: Vec<String>,
    insert: Option<String>,
    hop: Option<Regex>,
}

/// A time found in a line of output.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The packet's number, printed with the time; none if the times are counted instead.
    pub number: Option<u32>,
    /// The time in ns; none if the tool reports that there is none.
    pub nanos: Option<f64>,
    /// Byte offset in the line at which the corrected time can be inserted.
    pub end: usize,
}

impl Rule {
    /// Finds the rule called `name`: a built-in rule, or a file.
    ///
    /// # Errors
    ///
    /// [`PacketsError::Rule`] if there is no such rule, or its file has an error.
    pub fn find(name: &str) -> Result<Rule, PacketsError> {
        let error_of = |why: String| PacketsError::Rule { rule: name.into(), why };
        if let Some((_, text)) = BUILT_IN_RULES.iter().find(|(known, _)| *known == name) {
            return Rule::parse(text).map_err(error_of);
        }
        let text = std::fs::read_to_string(name).map_err(|error| {
            let known: Vec<&str> = BUILT_IN_RULES.iter().map(|(known, _)| *known).collect();
            error_of(format!("{error}; expected {} or a file", known.join(", ")))
        })?;
        Rule::parse(&text).map_err(error_of)
    }

    pub(crate) fn parse(text: &str) -> Result<Rule, String> {
        let file: RuleFile = toml::from_str(text).map_err(|error| error.message().to_string())?;
        let pattern = Regex::new(&file.pattern)
            .map_err(|_| "pattern: expected a regular expression".to_string())?;
        let has = |group: &str| pattern.capture_names().flatten().any(|name| name == group);
        if !has("time") {
            return Err("pattern: expected a group (?<time>...)".into());
        }
        let hop = file.hop.as_deref().map(Regex::new).transpose();
        let hop = hop.map_err(|_| "hop: expected a regular expression".to_string())?;
        if hop.as_ref().is_some_and(|hop| hop.captures_len() != 2) {
            return Err("hop: expected one group in it".into());
        }
        if hop.is_some() != (file.key == MatchKey::Ttl) {
            return Err("expected hop with the key ttl, and with no other".into());
        }
        let numbers = [has("seq"), file.first.is_some(), hop.is_some()];
        if numbers.iter().filter(|there| **there).count() != 1 {
            return Err("expected either a group (?<seq>...) in pattern, or first, or hop".into());
        }
        if file.insert.as_ref().is_some_and(|text| text.matches("{}").count() != 1) {
            return Err("insert: expected one {} in it".into());
        }
        Ok(Rule {
            pattern,
            unit: file.unit,
            key: file.key,
            measured: file.measured,
            until: file.until,
            first: file.first,
            swapped: file.swapped,
            call_arguments: file.call_arguments,
            insert: file.insert,
            hop,
        })
    }

    /// Returns the end point of the tool's measurement when started with `arguments`.
    pub fn until(&self, arguments: &[String]) -> Until {
        let short = |argument: &str| argument.starts_with('-') && !argument.starts_with("--");
        let asks = |argument: &String| {
            self.call_arguments.iter().any(|wanted| {
                let letters = wanted.trim_start_matches('-');
                argument == wanted
                    || (short(argument) && letters.len() == 1 && argument.contains(letters))
            })
        };
        if arguments.iter().any(asks) {
            Until::Call
        } else {
            self.until
        }
    }

    /// Returns the number of the first time, if the times are counted.
    pub fn first(&self) -> Option<u32> {
        self.first
    }

    /// Returns the hop of a line, if the rule numbers the times by hops.
    pub fn hop(&self, line: &str) -> Option<u8> {
        self.hop.as_ref()?.captures(line)?.get(1)?.as_str().parse().ok()
    }

    /// Returns the text to insert after a time whose corrected value is `millis`, or is not known.
    pub fn inserted(&self, millis: Option<f64>) -> String {
        let number = millis.map(|millis| format!("{millis:.3}"));
        match (&self.insert, number) {
            (Some(text), number) => text.replace("{}", number.as_deref().unwrap_or("null")),
            (None, Some(number)) => format!(" corrected={number} ms"),
            (None, None) => " corrected=-".into(),
        }
    }

    fn number(&self, printed: &str) -> Option<u32> {
        let number: u32 = printed.parse().ok()?;
        Some(if self.swapped { u32::from((number as u16).swap_bytes()) } else { number })
    }

    /// Returns the times in `line`, in order.
    pub fn times(&self, line: &str) -> Vec<Found> {
        let of = |captures: Captures<'_>| {
            let nanos = captures.name("time").and_then(|time| time.as_str().parse::<f64>().ok());
            Some(Found {
                number: captures.name("seq").and_then(|seq| self.number(seq.as_str())),
                nanos: nanos.map(|time| time * self.unit.nanos()),
                end: captures.get(0)?.end(),
            })
        };
        self.pattern.captures_iter(line).filter_map(of).collect()
    }
}

impl Unit {
    fn nanos(self) -> f64 {
        match self {
            Unit::Seconds => 1e9,
            Unit::Millis => 1e6,
            Unit::Micros => 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_command_is_right() {
        for (name, _) in BUILT_IN_RULES {
            Rule::find(name).unwrap();
        }
    }

    #[test]
    fn ping_prints_a_number_and_a_time() {
        let rule = Rule::find("ping").unwrap();
        let line = "64 bytes from 10.9.0.2: icmp_seq=7 ttl=63 time=0.076 ms";
        let [found] = &rule.times(line)[..] else { panic!() };
        assert_eq!((found.number, found.nanos, found.end), (Some(7), Some(76_000.0), line.len()));
        assert!(rule.times("From 10.9.0.1 icmp_seq=1 Destination Host Unreachable").is_empty());
        assert!(rule.times("rtt min/avg/max/mdev = 0.076/0.317/0.558/0.241 ms").is_empty());
    }

    #[test]
    fn pings_two_ways_to_measure() {
        let rule = Rule::find("ping").unwrap();
        let until =
            |words: &str| rule.until(&words.split(' ').map(String::from).collect::<Vec<_>>());
        assert_eq!(until("-c3 10.9.0.2"), Until::Device);
        assert_eq!(until("-U -c3 10.9.0.2"), Until::Call);
        assert_eq!(until("-nU 10.9.0.2"), Until::Call);
    }

    #[test]
    fn traceroute_prints_several_on_a_line() {
        let rule = Rule::find("traceroute").unwrap();
        let found = rule.times(" 1  10.9.0.1 (10.9.0.1)  0.061 ms *  1.5 ms");
        let nanos: Vec<_> = found.iter().map(|one| one.nanos).collect();
        assert_eq!(nanos, [Some(61_000.0), None, Some(1_500_000.0)]);
    }

    #[test]
    fn traceroute_by_tcp_has_a_hop_a_line() {
        let rule = Rule::find("traceroute-tcp").unwrap();
        let line = "12  10.9.0.1 (10.9.0.1)  0.061 ms *  1.5 ms";
        assert_eq!((rule.hop(line), rule.times(line).len()), (Some(12), 3));
        assert_eq!(rule.hop("traceroute to 10.8.0.2 (10.8.0.2), 30 hops max"), None);
        assert_eq!(Rule::find("ping").unwrap().hop(line), None);
    }

    #[test]
    fn scampers_traces_count_their_hops() {
        let rule = Rule::find("scamper-trace").unwrap();
        let time = |line: &str| rule.times(line).first().map(|found| found.nanos);
        assert_eq!(time(" 1  172.30.0.1  0.074 ms"), Some(Some(74_000.0)));
        assert_eq!(time(" 2  *"), Some(None));
        assert_eq!(time("traceroute from 172.30.0.2 to 10.8.0.2"), None);
        assert_eq!(rule.first(), Some(0));
    }

    #[test]
    fn json_stays_json() {
        let rule = Rule::find("scamper-json").unwrap();
        let line = r#"{"responses":[{"from":"h", "seq":7, "reply_size":84, "tx":{"sec":1}, "rtt":0.097}]}"#;
        let [found] = &rule.times(line)[..] else { panic!() };
        assert_eq!((found.number, found.nanos), (Some(7), Some(97_000.0)));
        let with = |millis| {
            format!("{}{}{}", &line[..found.end], rule.inserted(millis), &line[found.end..])
        };
        let corrected = |millis| {
            serde_json::from_str::<serde_json::Value>(&with(millis)).unwrap()["responses"][0]
                ["corrected"]
                .clone()
        };
        assert_eq!(corrected(Some(0.0341)), 0.034);
        assert!(corrected(None).is_null());
    }

    #[test]
    fn other_tools_print_as_their_rules_have_it() {
        for (name, line, number, nanos) in [
            ("mtr", "p 1 121 33002", 33002, 121_000.0),
            ("mtr-udp", "p 10 1255 33007", 33007, 1_255_000.0),
            ("scamper", "84 bytes from 10.8.0.2, seq=1 ttl=62 time=0.112 ms", 1, 112_000.0),
            ("hping3", "len=28 ip=10.8.0.2 ttl=62 id=9 icmp_seq=1 rtt=0.5 ms", 256, 500_000.0),
        ] {
            let rule = Rule::find(name).unwrap();
            let [found] = &rule.times(line)[..] else { panic!("{name}") };
            assert_eq!((found.number, found.nanos), (Some(number), Some(nanos)), "{name}");
        }
        assert!(Rule::find("mtr").unwrap().times("x 1 33002").is_empty());
        let closing = "round-trip min/avg/max = 0.4/0.6/0.8 ms";
        assert!(Rule::find("hping3").unwrap().times(closing).is_empty());
    }

    #[test]
    fn wrong_rules_say_what_is_wrong() {
        let refusal = |text: &str| Rule::parse(text).unwrap_err();
        let rest = "unit = 'ms'\nkey = 'seq'\nuntil = 'call'\n";
        assert!(refusal(&format!("pattern = '('\n{rest}")).contains("regular expression"));
        assert!(refusal(&format!("pattern = 'x'\n{rest}")).contains("(?<time>...)"));
        assert!(refusal(&format!("pattern = '(?<time>x)'\n{rest}")).contains("(?<seq>...)"));
        assert!(refusal("pattern = '(?<time>x)'\nunit = 'h'").contains("unknown variant `h`"));
        let twice = "pattern = '(?<time>x)'\nfirst = 1\ninsert = '{} {}'\n";
        assert_eq!(refusal(&format!("{twice}{rest}")), "insert: expected one {} in it");
        let hop = |hop: &str| refusal(&format!("pattern = '(?<time>x)'\nhop = '{hop}'\n{rest}"));
        assert_eq!(hop("^ "), "hop: expected one group in it");
        assert_eq!(hop("^ (x)"), "expected hop with the key ttl, and with no other");
    }
}
