//! Services that scenarios of CORE and IMUNES give to nodes: for each the script that writes its configuration and
//! starts the program that Debian has for it.
//!
//! The configuration is what the original emulator generates from the node's interfaces; files of the scenario
//! replace it. A script is one entry of `exec`. It leaves the service out in a node without the program, and in a
//! node that is not private, because it writes into /etc and /run ([`script::Script`]).

mod bird;
mod custom;
mod dhcp;
mod frr;
mod interfaces;
mod routes;
mod routing;
mod routing_text;
mod script;
mod servers;
#[cfg(test)]
mod tests;
mod translation;
mod wanted;

use super::draft::{default_routes, forward, Draft, Position};
pub(super) use frr::{frr, is_daemon};
use routing::{Protocol, Router};
use script::Script;
pub(super) use translation::{translate, Translation};
use wanted::Host;
pub(super) use wanted::{Files, Routing, Style, Wanted};

/// How a service is made.
#[derive(Clone, Copy)]
enum Kind {
    /// Settings of the node's kernel.
    Forward,
    DefaultRoute,
    /// The routing daemons of FRR. All such services of a node share one configuration.
    Routing(Option<Protocol>),
    /// BIRD. All such services of a node share one configuration.
    Bird(Option<bird::Protocol>),
    /// A script of its own.
    Program(fn(&Host) -> Script),
    /// Nothing, unless the scenario has its files or commands.
    Custom,
}

/// The services by their names in CORE and, for `rip` to `bgp`, `ssh`, `ftp`, `telnet` and `tcpdump`, in IMUNES.
const SERVICES: [(&str, Kind); 50] = [
    ("IPForward", Kind::Forward),
    ("DefaultRoute", Kind::DefaultRoute),
    ("DefaultMulticastRoute", Kind::Program(routes::multicast)),
    ("StaticRoute", Kind::Custom),
    ("zebra", Kind::Routing(None)),
    ("vtysh", Kind::Routing(None)),
    ("OSPFv2", Kind::Routing(Some(Protocol::Ospf))),
    ("OSPFv3", Kind::Routing(Some(Protocol::Ospf6))),
    ("OSPFv3MDR", Kind::Routing(Some(Protocol::Ospf6))),
    ("BGP", Kind::Routing(Some(Protocol::Bgp))),
    ("RIP", Kind::Routing(Some(Protocol::Rip))),
    ("RIPNG", Kind::Routing(Some(Protocol::Ripng))),
    ("Babel", Kind::Routing(Some(Protocol::Babel))),
    ("Xpimd", Kind::Routing(Some(Protocol::Pim))),
    ("FRRzebra", Kind::Routing(None)),
    ("FRROSPFv2", Kind::Routing(Some(Protocol::Ospf))),
    ("FRROSPFv3", Kind::Routing(Some(Protocol::Ospf6))),
    ("FRRBGP", Kind::Routing(Some(Protocol::Bgp))),
    ("FRRRIP", Kind::Routing(Some(Protocol::Rip))),
    ("FRRRIPNG", Kind::Routing(Some(Protocol::Ripng))),
    ("FRRBabel", Kind::Routing(Some(Protocol::Babel))),
    ("FRRpimd", Kind::Routing(Some(Protocol::Pim))),
    ("rip", Kind::Routing(Some(Protocol::Rip))),
    ("ripng", Kind::Routing(Some(Protocol::Ripng))),
    ("ospf", Kind::Routing(Some(Protocol::Ospf))),
    ("ospf6", Kind::Routing(Some(Protocol::Ospf6))),
    ("bgp", Kind::Routing(Some(Protocol::Bgp))),
    ("bird", Kind::Bird(None)),
    ("BIRD_BGP", Kind::Custom),
    ("BIRD_OSPFv2", Kind::Bird(Some(bird::Protocol::Ospf))),
    ("BIRD_RADV", Kind::Bird(Some(bird::Protocol::RouterAdvertisement))),
    ("BIRD_RIP", Kind::Bird(Some(bird::Protocol::Rip))),
    ("BIRD_static", Kind::Custom),
    ("DHCP", Kind::Program(dhcp::server)),
    ("DHCPClient", Kind::Program(dhcp::client)),
    ("SSH", Kind::Program(servers::ssh)),
    ("ssh", Kind::Program(servers::ssh)),
    ("FTP", Kind::Program(servers::ftp)),
    ("ftp", Kind::Program(servers::ftp)),
    ("telnet", Kind::Program(servers::telnet)),
    ("HTTP", Kind::Program(servers::http)),
    ("radvd", Kind::Program(routes::radvd)),
    ("ucarp", Kind::Program(servers::ucarp)),
    ("UCARP", Kind::Program(servers::ucarp)),
    ("pcap", Kind::Program(servers::pcap)),
    ("tcpdump", Kind::Program(servers::pcap)),
    ("atd", Kind::Program(servers::atd)),
    ("NAT", Kind::Program(routes::nat)),
    ("Firewall", Kind::Custom),
    ("UserDefined", Kind::Custom),
];

/// CORE's default services for each kind of node.
const DEFAULTS_OF_CORE: [(&str, &[&str]); 6] = [
    ("router", &["zebra", "OSPFv2", "OSPFv3", "vtysh", "IPForward"]),
    ("mdr", &["zebra", "OSPFv3MDR", "vtysh", "IPForward"]),
    ("prouter", &["zebra", "OSPFv2", "OSPFv3", "vtysh", "IPForward"]),
    ("PC", &["DefaultRoute"]),
    ("host", &["DefaultRoute", "SSH"]),
    ("OVS", &["DefaultRoute", "SSH", "OvsService"]),
];

/// Returns the services that CORE gives to a node of `kind` that names none.
pub(super) fn defaults_of_core(kind: &str) -> &'static [&'static str] {
    DEFAULTS_OF_CORE.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, services)| services)
}

fn kind_of(name: &str) -> Option<Kind> {
    SERVICES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Gives `node` the scripts of its services. All of its links must be there.
pub(super) fn start(draft: &mut Draft, node: &str, wanted: Vec<Wanted>, mut routing: Routing) {
    if draft.is_switch(node) {
        let text =
            routing.text.map(|text| (Position::from_location(text.defined), "routing".into()));
        for (at, name) in wanted.into_iter().map(|one| (one.at, one.name)).chain(text) {
            draft.leave_out(at, format!("node {node}: {name}: a switch or hub runs nothing"));
        }
        return;
    }
    let has_daemons = wanted.iter().any(|one| matches!(kind_of(&one.name), Some(Kind::Routing(_))));
    if let Some(lines) =
        routing.text.as_ref().and_then(routes::only_routes).filter(|_| !has_daemons)
    {
        routing.text = None;
        if let Some(node) = draft.node(node) {
            node.exec.extend(lines);
        }
    }
    let interfaces = interfaces::of(draft, node);
    let host = Host { name: node, interfaces: &interfaces, files: Files::new() };
    let mut router = Router::new(&host, routing);
    let mut bird = bird::Bird::new(&host);
    let mut scripts: Vec<(Position, Script)> = Vec::new();
    for one in wanted {
        let at = one.at;
        match kind_of(&one.name) {
            Some(Kind::Routing(protocol)) => router.add(draft, one, protocol),
            Some(Kind::Bird(protocol)) => bird.add(one, protocol),
            kind if custom::has_own_commands(&one, matches!(kind, Some(Kind::Program(_)))) => {
                custom::run(draft, node, &host, one)
            }
            Some(Kind::Forward) => {
                if let Some(node) = draft.node(node) {
                    forward(at, node);
                }
            }
            Some(Kind::DefaultRoute) => default_routes(draft, at, node),
            Some(Kind::Program(make)) => {
                let script = make(&Host { files: one.files, ..host });
                for path in script.unused() {
                    let what = format!("node {node}: service {}: file {path}", one.name);
                    draft.leave_out(at, what);
                }
                scripts.push((at, script));
            }
            kind => leave_out(draft, node, &one, kind.is_some()),
        }
    }
    let shared = [router.script(draft), bird.script()];
    for (at, script) in shared.into_iter().flatten().chain(scripts) {
        if let Some(node) = draft.node(node) {
            node.exec.push(at.of(script.text()));
        }
    }
}

/// Notes a service as left out that has no command.
fn leave_out(draft: &mut Draft, node: &str, wanted: &Wanted, is_known: bool) {
    let mut what = format!("node {node}: service {}", wanted.name);
    match wanted.startups.iter().flatten().next() {
        Some(line) => what += &format!(": {}, whose file CORE would make", line.value),
        None if is_known => what += ", which has nothing to do by itself",
        None => {}
    }
    draft.leave_out(wanted.at, what);
}
