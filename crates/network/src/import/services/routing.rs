//! Routing daemons: FRR, one configuration for all protocols of a node.
//!
//! CORE's names are those of Quagga and of FRR. Debian has FRR alone, which reads the same language but for some
//! lines ([`super::routing_text`]).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_saphyr::Spanned;

use super::frr;
use super::interfaces::Interface;
use super::routing_text::{self, Translated};
use super::script::Script;
use super::wanted::{Host, Routing, Style, Wanted};
use crate::import::draft::{Draft, Position};

/// A routing protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Protocol {
    Ospf,
    Ospf6,
    Bgp,
    Rip,
    Ripng,
    Babel,
    Pim,
}

impl Protocol {
    /// The word behind `router` in a configuration. PIM has none.
    fn keyword(self) -> &'static str {
        match self {
            Protocol::Ospf => "ospf",
            Protocol::Ospf6 => "ospf6",
            Protocol::Bgp => "bgp",
            Protocol::Rip => "rip",
            Protocol::Ripng => "ripng",
            Protocol::Babel => "babel",
            Protocol::Pim => "pim",
        }
    }
}

/// The routing daemons of a node.
pub(super) struct Router<'a> {
    host: &'a Host<'a>,
    style: Style,
    system: u32,
    protocols: BTreeSet<Protocol>,
    /// The services, and where the first of them stands.
    services: Vec<String>,
    at: Option<Position>,
    /// Configurations in the scenario. They replace the generated parts.
    texts: Vec<Spanned<String>>,
}

impl<'a> Router<'a> {
    pub fn new(host: &'a Host<'a>, routing: Routing) -> Router<'a> {
        let at = routing.text.as_ref().map(|text| Position::from_location(text.defined));
        Router {
            host,
            style: routing.style,
            system: routing.system,
            protocols: BTreeSet::new(),
            services: Vec::new(),
            at,
            texts: routing.text.into_iter().collect(),
        }
    }

    /// Adds a service. Of its files only the configuration counts: the daemons are started here, and not by the
    /// emulator's script.
    pub fn add(&mut self, draft: &mut Draft, wanted: Wanted, protocol: Option<Protocol>) {
        if wanted.name == "OSPFv3MDR" {
            let node = self.host.name;
            let what =
                format!("node {node}: service OSPFv3MDR: designated routers of a MANET, which FRR does not have; it runs OSPFv3");
            draft.leave_out(wanted.at, what);
        }
        self.at.get_or_insert(wanted.at);
        self.services.push(wanted.name);
        self.protocols.extend(protocol);
        let is_config = |path: &str| path.ends_with("Quagga.conf") || path.ends_with("frr.conf");
        let configs = wanted.files.into_iter().filter(|(path, _)| is_config(path));
        self.texts.extend(configs.map(|(_, text)| text));
    }

    /// Returns the script that starts the daemons, if the node has any.
    pub fn script(self, draft: &mut Draft) -> Option<(Position, Script)> {
        let at = self.at?;
        if self.services.iter().all(|name| name == "vtysh") && self.texts.is_empty() {
            return None;
        }
        let mut given = Translated::default();
        for text in &self.texts {
            given.add(text);
        }
        for (at, line) in given.left_out.drain(..) {
            draft.leave_out(at, format!("node {}: routing: {line}", self.host.name));
        }
        let config = self.config(&given.text);
        let daemons = routing_text::daemons(&config);
        let names = match self.services.is_empty() {
            true => "routing".to_string(),
            false => self.services.join(", "),
        };
        let mut script = Script::new(self.host, &names, &[&["vtysh"][..], &daemons].concat());
        frr::configure(&mut script, &config);
        frr::start(&mut script, &daemons);
        Some((at, script))
    }

    /// Returns the configuration: the scenario's, and the generated parts of protocols that are not in there.
    fn config(&self, given: &str) -> String {
        let missing: Vec<Protocol> = self
            .protocols
            .iter()
            .copied()
            .filter(|protocol| !routing_text::has_protocol(given, protocol.keyword()))
            .collect();
        let mut text = format!("hostname {}\n", self.host.name);
        for interface in self.host.interfaces {
            let lines: Vec<String> =
                missing.iter().flat_map(|one| self.interface_lines(*one, interface)).collect();
            if !lines.is_empty() {
                text += &section(&format!("interface {}", interface.name), &lines);
            }
        }
        for protocol in missing {
            if let Some((head, lines)) = self.protocol_lines(protocol) {
                text += &section(&head, &lines);
            }
        }
        text + given
    }

    /// The first IPv4 address of the node, as in CORE.
    fn id(&self) -> Ipv4Addr {
        let first = self.host.interfaces.iter().find_map(|one| one.ipv4);
        match self.style {
            Style::Core => first.map_or(Ipv4Addr::UNSPECIFIED, |(address, _)| address),
            Style::Imunes => Ipv4Addr::from(self.system.saturating_add(1)),
        }
    }

    fn interface_lines(&self, protocol: Protocol, interface: &Interface) -> Vec<String> {
        let of = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect();
        match (protocol, self.style) {
            (Protocol::Ospf, Style::Core) => {
                let kind = interface.is_point_to_point.then_some("ip ospf network point-to-point");
                let mut lines: Vec<String> = kind.map(str::to_string).into_iter().collect();
                lines.extend(
                    ["ip ospf hello-interval 2", "ip ospf dead-interval 6"].map(String::from),
                );
                lines.push("ip ospf retransmit-interval 5".into());
                lines
            }
            (Protocol::Ospf, Style::Imunes) => of(&["ip ospf area 0.0.0.0"]),
            (Protocol::Ospf6, _) => of(&["ipv6 ospf6 area 0.0.0.0"]),
            (Protocol::Babel, _) => of(&["babel wired", "babel split-horizon"]),
            (Protocol::Pim, _) => of(&["ip igmp", "ip pim"]),
            (Protocol::Bgp | Protocol::Rip | Protocol::Ripng, _) => Vec::new(),
        }
    }

    /// Returns the part of a protocol: its first line, and those below.
    fn protocol_lines(&self, protocol: Protocol) -> Option<(String, Vec<String>)> {
        let id = self.id();
        let others = |all: &[&str]| all.iter().map(|one| format!("redistribute {one}")).collect();
        let is_imunes = self.style == Style::Imunes;
        let mut head = format!("router {}", protocol.keyword());
        let lines = match protocol {
            Protocol::Pim => return None,
            Protocol::Ospf => {
                let mut lines = vec![format!("ospf router-id {id}")];
                if is_imunes {
                    lines.extend::<Vec<_>>(others(&["static", "connected", "rip"]));
                } else {
                    let own = self.host.interfaces.iter().filter_map(Interface::ipv4_text);
                    lines.extend(own.map(|own| format!("network {own} area 0")));
                }
                lines
            }
            Protocol::Ospf6 => {
                let mut lines = vec![format!("ospf6 router-id {id}")];
                if is_imunes {
                    lines.extend::<Vec<_>>(others(&["static", "connected", "ripng"]));
                }
                lines
            }
            Protocol::Bgp => {
                let system = if is_imunes { 1000 } else { self.system };
                head += &format!(" {system}");
                let mut lines = vec![format!("bgp router-id {id}")];
                lines.push("no bgp ebgp-requires-policy".into());
                lines.extend::<Vec<_>>(others(&["connected"]));
                lines
            }
            Protocol::Rip => {
                let mut lines: Vec<String> = others(&["static", "connected", "ospf"]);
                lines.push("network 0.0.0.0/0".into());
                lines
            }
            Protocol::Ripng => {
                let mut lines: Vec<String> = others(&["static", "connected", "ospf6"]);
                lines.push("network ::/0".into());
                lines
            }
            Protocol::Babel => {
                let all = self.host.interfaces.iter();
                let mut lines: Vec<String> =
                    all.map(|interface| format!("network {}", interface.name)).collect();
                lines.extend::<Vec<_>>(others(&["ipv4 connected", "ipv6 connected"]));
                lines
            }
        };
        Some((head, lines))
    }
}

/// Formats a part of a configuration.
fn section(head: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!(" {line}\n")).collect();
    format!("{head}\n{lines}!\n")
}
