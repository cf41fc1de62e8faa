//! Configurations of routing daemons that a scenario has as text.

use serde_saphyr::Spanned;

use crate::import::draft::Position;

/// FRR's daemons by the protocol that they speak.
const DAEMONS: [(&str, &str); 8] = [
    ("ospf", "ospfd"),
    ("ospf6", "ospf6d"),
    ("bgp", "bgpd"),
    ("rip", "ripd"),
    ("ripng", "ripngd"),
    ("babel", "babeld"),
    ("isis", "isisd"),
    ("eigrp", "eigrpd"),
];

/// Beginnings of lines that Quagga's extension for MANETs and XORP know, and FRR does not.
const UNKNOWN_TO_FRR: [&str; 8] = [
    "instance-id ",
    "ip mfea",
    "ipv6 ospf6 instance-id ",
    "ipv6 ospf6 network manet-designated-router",
    "ipv6 ospf6 twohoprefresh ",
    "ipv6 ospf6 adjacencyconnectivity ",
    "ipv6 ospf6 lsafullness ",
    "ipv6 ospf6 diffhellos",
];
/// Parts, and the protocol of the other family whose routes they have in CORE's Quagga alone.
const OTHER_FAMILY: [(&str, &str); 2] = [("router ospf", "ospf6"), ("router ospf6", "ospf")];
/// Protocols of XORP's PIM, whose parts FRR does not have. There PIM is set at interfaces.
const PARTS_OF_XORP: [&str; 3] = ["router mfea", "router igmp", "router pim"];
/// Addresses of the loopback interface that each node has.
const OWN_LOOPBACK: [&str; 3] =
    ["ip address 127.0.0.1/8", "ip address 127.0.0.1/24", "ipv6 address ::1/128"];

/// A configuration for FRR, made from one for Quagga or for FRR.
#[derive(Default)]
pub(super) struct Translated {
    pub text: String,
    /// Lines that are not in it, with the places of their texts.
    pub left_out: Vec<(Position, String)>,
}

impl Translated {
    /// Adds the configuration `given`.
    ///
    /// Quagga exchanges routes with another autonomous system without a policy, and FRR does not; so does what is
    /// added to BGP's part. IMUNES calls the loopback interface lo0.
    pub fn add(&mut self, given: &Spanned<String>) {
        let at = Position::from_location(given.defined);
        let decides = given.value.contains("ebgp-requires-policy");
        let mut part = "";
        for line in given.value.lines() {
            let is_inside = line.starts_with(char::is_whitespace);
            let words = line.trim();
            // Nothing in a part begins so. Some indent the parts themselves.
            let is_part = words.starts_with("router ");
            if is_part || (!is_inside && !words.is_empty() && !words.starts_with('!')) {
                self.leave_part(part, words);
                part = words;
            }
            let is_comment = words.is_empty() || words.starts_with('!') || words.starts_with('#');
            // IMUNES writes BGP's first line once more without the system, which Quagga skips.
            let is_without_system = words == "router bgp" && given.value.contains("router bgp ");
            let is_own = OWN_LOOPBACK.contains(&words) || is_without_system;
            if is_own || (is_comment && words != "!") {
                continue;
            }
            if is_unknown(part, words) && !is_comment {
                self.left_out.push((at, words.to_string()));
                continue;
            }
            let words = match (part, words.split_once(' ')) {
                (_, Some(("interface", "lo0"))) => "interface lo".to_string(),
                ("router ospf6", Some(("router-id", id))) => format!("ospf6 router-id {id}"),
                ("router ospf", Some(("router-id", id))) => format!("ospf router-id {id}"),
                _ => words.to_string(),
            };
            let indent = if is_inside { " " } else { "" };
            self.text += &format!("{indent}{words}\n");
            if words.starts_with("router bgp ") && !decides {
                self.text += " no bgp ebgp-requires-policy\n";
            }
        }
        self.leave_part(part, "");
    }

    /// Ends `part` before the line `next`. FRR takes an interface behind OSPFv3's part for one of its lines.
    fn leave_part(&mut self, part: &str, next: &str) {
        if part == "router ospf6" && !["exit", "router ospf6"].contains(&next) {
            self.text += "exit\n";
        }
    }
}

/// Whether FRR does not have a line, `words`, of a part.
fn is_unknown(part: &str, words: &str) -> bool {
    let routes_of = words.strip_prefix("redistribute ").and_then(|rest| rest.split(' ').next());
    UNKNOWN_TO_FRR.iter().any(|known| words.starts_with(known))
        || PARTS_OF_XORP.contains(&part)
        || OTHER_FAMILY.iter().any(|(of, other)| *of == part && routes_of == Some(*other))
}

/// Whether the configuration has a part of the protocol.
pub(super) fn has_protocol(config: &str, keyword: &str) -> bool {
    match keyword {
        "pim" => config.lines().any(|line| ["ip pim", "ip igmp"].contains(&line.trim())),
        _ => config.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("router") && words.next() == Some(keyword)
        }),
    }
}

/// Returns the daemons that a configuration needs, in the order in which they start.
pub(super) fn daemons(config: &str) -> Vec<&'static str> {
    let mut daemons = vec!["zebra"];
    let has_route =
        |line: &str| ["ip route ", "ipv6 route "].iter().any(|one| line.starts_with(one));
    if config.lines().any(has_route) {
        daemons.push("staticd");
    }
    let speaking = DAEMONS.iter().filter(|(keyword, _)| has_protocol(config, keyword));
    daemons.extend(speaking.map(|(_, daemon)| *daemon));
    if has_protocol(config, "pim") {
        daemons.push("pimd");
    }
    daemons
}
