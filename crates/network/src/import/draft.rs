//! The network that a reader of a scenario builds: nodes and links with their positions in the original, and the elements left out.

use std::net::IpAddr;
use std::path::Path;

use lorentz_clock::Span;
use lorentz_emulator::impair::{Jitter, JitterOption, LossOption, Queue};
use lorentz_emulator::units::{BitRate, Delay, Probability};
use serde::de::value::{Error as PlainError, MapDeserializer};
use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

use crate::topology::{
    self, Isolation, Link, Node, NodeCommand, NodeKind, TopologyError, TopologyFile,
};

pub(super) const LAB_CONF: &str = "lab.conf";

/// An element of a file that is not in the network made from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// The column in it, from 1.
    pub column: u64,
    /// The element, and the reason.
    pub what: String,
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: left out: {}", self.file, self.line, self.column, self.what)
    }
}

/// A line and a column, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    /// The place of a value. An unknown key comes without one.
    pub fn from_location(at: Location) -> Position {
        Position { line: at.line().max(1) as u32, column: at.column().max(1) as u32 }
    }

    pub fn location(self) -> Location {
        let fields = [("line", self.line), ("column", self.column)];
        let map = MapDeserializer::<_, PlainError>::new(fields.into_iter());
        Location::deserialize(map).unwrap_or(Location::UNKNOWN)
    }

    pub fn of<T>(self, value: T) -> Spanned<T> {
        Spanned::new(value, self.location(), self.location())
    }
}

/// A network that is being read.
pub(super) struct Draft {
    pub name: String,
    pub file: TopologyFile,
    pub left_out: Vec<LeftOut>,
}

pub(super) type Read<T> = Result<T, TopologyError>;

/// The words of a command, which quotes may hold together.
pub(super) fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| vec![line.to_string()])
}

/// Puts the arguments of a node behind its entrypoint, if it has one of its own.
pub(super) fn join_arguments(node: &mut Node) {
    if let Some(NodeCommand::Words(entrypoint)) = &mut node.command {
        entrypoint.append(&mut node.args);
    }
}

impl Draft {
    pub fn new(path: &Path) -> Draft {
        let named = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let stem = named.split('.').next().unwrap_or_default();
        let name = plain_name(if named == LAB_CONF { &folder } else { stem });
        let mut file = TopologyFile::new(Position { line: 1, column: 1 }.of(name));
        file.isolation = Isolation::Private;
        Draft { name: path.display().to_string(), file, left_out: Vec::new() }
    }

    pub fn error<T>(&self, at: Position, what: impl AsRef<str>) -> Read<T> {
        Err(topology::error_at(&self.name, at.location(), what.as_ref()))
    }

    pub fn leave_out(&mut self, at: Position, what: impl Into<String>) {
        let (line, column) = (u64::from(at.line), u64::from(at.column));
        self.left_out.push(LeftOut { file: self.name.clone(), line, column, what: what.into() });
    }

    pub fn add_node(&mut self, at: Position, name: &str, node: Node) -> Read<()> {
        match self.file.topology.nodes.insert(name.to_string(), at.of(node)) {
            None => Ok(()),
            Some(_) => {
                self.error(at, format!("node {name}: is there already; expected another name"))
            }
        }
    }

    pub fn node(&mut self, name: &str) -> Option<&mut Node> {
        self.file.topology.nodes.get_mut(name).map(|node| &mut node.value)
    }

    pub fn is_switch(&self, name: &str) -> bool {
        self.file.topology.nodes.get(name).is_some_and(|node| node.value.kind != NodeKind::Process)
    }

    pub fn is_wlan(&self, name: &str) -> bool {
        self.file.topology.nodes.get(name).is_some_and(|node| node.value.kind == NodeKind::Wlan)
    }

    pub fn add_link(&mut self, at: Position, link: Link) {
        self.file.topology.links.push(at.of(link));
    }

    /// Whether a link leads to `end`, which is `NODE:INTERFACE`.
    pub fn is_linked(&self, end: &str) -> bool {
        let mut ends = self.file.topology.links.iter().flat_map(|link| &link.value.endpoints);
        ends.any(|one| one.value == end)
    }

    /// Gives a node the interface `end` without its link, so that commands for it work: it leads to a switch that has no other link.
    /// `addresses` are IPv4's, IPv6's and the hardware's. A switch gets none, and so does a node that has the interface.
    pub fn add_dangling(
        &mut self,
        end: Spanned<String>,
        addresses: [Option<Spanned<String>>; 3],
    ) -> Read<()> {
        let node = end.value.split(':').next().unwrap_or_default();
        if self.is_switch(node) || self.is_linked(&end.value) {
            return Ok(());
        }
        let at = Position::from_location(end.defined);
        let nowhere = plain_name(&format!("{}-nowhere", end.value.replace(':', "-")));
        self.add_node(at, &nowhere, Node { kind: NodeKind::Switch, ..Node::default() })?;
        let mut made = link([end, at.of(format!("{nowhere}:p0"))]);
        for (to, address) in
            [&mut made.ipv4, &mut made.ipv6, &mut made.mac].into_iter().zip(addresses)
        {
            if address.is_some() {
                *to = vec![address, None];
            }
        }
        self.add_link(at, made);
        Ok(())
    }

    /// Returns the first interface of `node`, called `stem` and a number, that no link has yet.
    pub fn unused_interface(&self, node: &str, stem: &str) -> String {
        let mut names = (0_u32..).map(|number| format!("{stem}{number}"));
        names.find(|name| !self.is_linked(&format!("{node}:{name}"))).unwrap_or_default()
    }
}

/// Returns the node that is a switch or a hub, by the names of CORE 4 and IMUNES.
pub(super) fn switch_of(kind: &str) -> Option<Node> {
    let (kind, stp) = match kind {
        "lanswitch" => (NodeKind::Switch, false),
        "stpswitch" => (NodeKind::Switch, true),
        "hub" => (NodeKind::Hub, false),
        _ => return None,
    };
    Some(Node { kind, stp, ..Node::default() })
}

/// Addresses that a loopback interface has anyway.
pub(super) const OF_LOOPBACK: [&str; 3] = ["127.0.0.1/8", "127.0.0.1/24", "::1/128"];

/// Makes a link without impairments.
pub(super) fn link(endpoints: [Spanned<String>; 2]) -> Link {
    Link { endpoints: endpoints.into(), ..Link::default() }
}

/// Replaces the characters that a network's name cannot have.
pub(super) fn plain_name(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = text.chars().map(keep).collect();
    let name = name.trim_start_matches(['.', '_', '-']);
    if name.is_empty() {
        "network".into()
    } else {
        name.chars().take(60).collect()
    }
}

/// Parses the numbers that CORE and IMUNES give a link: bit/s, microseconds, percent. 0 means none.
pub(super) struct Numbers<'a> {
    pub draft: &'a Draft,
    pub at: Position,
}

impl Numbers<'_> {
    pub fn rate(&self, key: &str, text: &str) -> Read<Option<BitRate>> {
        let bits = self.whole(key, text)?;
        let known = bits.map(BitRate::new);
        match known {
            Some(None) => self.expected(key, text, "0 for no limit, or 8 to 10^12 bit/s"),
            other => Ok(other.flatten()),
        }
    }

    pub fn delay(&self, key: &str, text: &str) -> Read<Option<Delay>> {
        let micros = self.whole(key, text)?;
        let span =
            micros.map(|micros| micros.checked_mul(1_000).and_then(|n| i64::try_from(n).ok()));
        match span.map(|nanos| nanos.map(Span).and_then(Delay::new)) {
            Some(None) => self.expected(key, text, "microseconds up to a day"),
            other => Ok(other.flatten()),
        }
    }

    pub fn percent(&self, key: &str, text: &str) -> Read<Option<Probability>> {
        match format!("{text}%").parse::<Probability>() {
            Ok(Probability::NEVER) => Ok(None),
            Ok(some) => Ok(Some(some)),
            Err(_) => self.expected(key, text, "percent from 0 to 100"),
        }
    }

    pub fn queue(&self, key: &str, text: &str) -> Read<Option<Queue>> {
        let packets = self.whole(key, text)?.map(u32::try_from);
        match packets {
            Some(Err(_)) => self.expected(key, text, "a number of packets"),
            Some(Ok(packets)) => Ok(Some(Queue { packets: Some(packets), ..Queue::default() })),
            None => Ok(None),
        }
    }

    /// Both vary the delay uniformly, with a correlation of a quarter from frame to frame.
    pub fn jitter(&self, key: &str, text: &str) -> Read<Option<JitterOption>> {
        let correlation = Probability::from_billionths(250_000_000).unwrap_or_default();
        let spread = self.delay(key, text)?;
        Ok(spread
            .map(|spread| JitterOption::Full(Jitter { spread, correlation, ..Jitter::default() })))
    }

    pub fn loss(&self, key: &str, text: &str) -> Read<Option<LossOption>> {
        Ok(self.percent(key, text)?.map(LossOption::Independent))
    }

    /// Parses a whole number above 0; `None` for 0. CORE writes some as 5000.0.
    pub fn whole(&self, key: &str, text: &str) -> Read<Option<u64>> {
        let digits = text.split_once('.').map_or(text, |(whole, rest)| {
            if rest.bytes().all(|c| c == b'0') {
                whole
            } else {
                text
            }
        });
        match digits.parse::<u64>() {
            Ok(0) => Ok(None),
            Ok(number) => Ok(Some(number)),
            Err(_) => self.expected(key, text, "a whole number"),
        }
    }

    pub fn expected<T>(&self, key: &str, text: &str, what: &str) -> Read<T> {
        self.draft.error(self.at, format!("{key}: {text:?}: expected {what}"))
    }
}

/// Whether IMUNES' share of the processors, `{min 0} {max 100} {weight 1}`, is the one that all nodes have.
pub(super) fn is_whole_processor(share: &str) -> bool {
    let words: Vec<&str> = share.split(['{', '}', ' ']).filter(|word| !word.is_empty()).collect();
    let is_default =
        |pair: &[&str]| matches!(pair, ["min", "0"] | ["max", "100"] | ["weight", "1"]);
    words.chunks(2).all(is_default)
}

/// Sets a router's settings.
pub(super) fn forward(at: Position, node: &mut Node) {
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        node.sysctls.insert(key.into(), at.of("1".into()));
    }
}

/// Returns the first address of the network of `address`, for example of 10.0.0.9/24. There the hosts of CORE and IMUNES expect a
/// router.
pub(super) fn first_of_network(address: &str) -> Option<IpAddr> {
    let (address, length) = address.split_once('/')?;
    let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
    let first = match address {
        IpAddr::V4(v4) if length < 31 => {
            IpAddr::V4((u32::from(v4) & !(u32::MAX >> length) | 1).into())
        }
        IpAddr::V6(v6) if length < 127 => {
            IpAddr::V6((u128::from(v6) & !(u128::MAX >> length) | 1).into())
        }
        _ => return None,
    };
    (first != address).then_some(first)
}

/// Gives `node` the default routes over the networks of its first interface that has addresses.
pub(super) fn default_routes(draft: &mut Draft, at: Position, node: &str) {
    let prefix = format!("{node}:");
    let mut gateways = Vec::new();
    for link in &draft.file.topology.links {
        let link = &link.value;
        let side = link.endpoints.iter().position(|end| end.value.starts_with(&prefix));
        let Some(side) = side else { continue };
        let of = |given: &[Option<Spanned<String>>]| given.get(side).cloned().flatten();
        let own = [of(&link.ipv4), of(&link.ipv6)].into_iter().flatten();
        gateways = own.filter_map(|address| first_of_network(&address.value)).collect();
        if !gateways.is_empty() {
            break;
        }
    }
    let Some(node) = draft.node(node) else { return };
    for gateway in gateways {
        let family = if gateway.is_ipv4() { "-4" } else { "-6" };
        node.exec.push(at.of(format!("ip {family} route replace default via {gateway}")));
    }
}
