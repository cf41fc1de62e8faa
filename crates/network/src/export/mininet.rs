//! Programs for Mininet: a `Topo`, and what starts it.

use std::collections::BTreeMap;
use std::fmt::Write;

use lorentz_clock::Span;
use lorentz_emulator::impair::{Discipline, Impairments};
use lorentz_emulator::SwitchKind;

use super::elements::{is_router, leave_out_rare, loss_percent, mac_text, other_kind};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};

/// Length of the longest name of a network interface.
const MAX_INTERFACE_NAME: usize = 15;
/// Mininet's greatest rate.
const MAX_MBIT: f64 = 1_000.0;

pub(super) fn write(plan: &NetworkPlan, left_out: &mut Vec<String>) -> String {
    let mut text = format!(
        "#!/usr/bin/env python3\n\"\"\"The network {}, for Mininet. Run it as root.\"\"\"\n\n\
         from mininet.cli import CLI\nfrom mininet.link import TCLink\nfrom mininet.net import Mininet\n\
         from mininet.node import Node, OVSBridge\nfrom mininet.topo import Topo\n\n\n\
         class Router(Node):\n    \"\"\"A host that forwards packets.\"\"\"\n\n\
         \x20   def config(self, **params):\n        super().config(**params)\n\
         \x20       self.cmd(\"sysctl net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\")\n\n\n\
         class Network(Topo):\n    \"\"\"Its nodes and links.\"\"\"\n\n    def build(self):\n",
        plan.name
    );
    for node in &plan.nodes {
        if node.image.is_some() {
            left_out.push(format!("node {}: image", node.name));
        }
        if !node.binds.is_empty() {
            left_out.push(format!("node {}: binds", node.name));
        }
        let class = if is_router(node) { ", cls=Router" } else { "" };
        let ip = first_address(plan, node).map_or("None".into(), |ip| literal(&ip));
        let _ = writeln!(text, "        self.addHost({}, ip={ip}{class})", literal(&node.name));
    }
    let names = names(plan, left_out);
    for (number, (name, kind)) in plan.switches.iter().enumerate() {
        if let Some(other) = other_kind(*kind) {
            left_out.push(format!("node {name}: {other}; it is a switch"));
        }
        let stp = if *kind == SwitchKind::SpanningTree { ", stp=True" } else { "" };
        // Mininet would take the number in its name, which need not have one.
        let _ = writeln!(
            text,
            "        self.addSwitch({}, cls=OVSBridge, dpid=\"{:016x}\"{stp})",
            literal(&names[name.as_str()]),
            number + 1
        );
    }
    for link in &plan.links {
        leave_out_rare(link, &[Discipline::DropTail, Discipline::Red], left_out);
        if link.mtu != 1_500 {
            left_out.push(format!("link {} - {}: mtu {}", link.ends[0], link.ends[1], link.mtu));
        }
        let _ = writeln!(
            text,
            "        self.addLink(\n{}        )",
            link_arguments(link, &names, left_out)
        );
    }
    text += "\n\ntopos = {\"network\": Network}\n\n\ndef start():\n    \"\"\"Starts the network and its commands.\"\"\"\n    \
             net = Mininet(topo=Network(), link=TCLink, controller=None)\n    net.start()\n";
    for node in &plan.nodes {
        write_commands(&mut text, plan, node);
    }
    text + "    return net\n\n\nif __name__ == \"__main__\":\n    network = start()\n    CLI(network)\n    network.stop()\n"
}

/// Writes the commands that Mininet's classes have no words for.
fn write_commands(text: &mut String, plan: &NetworkPlan, node: &NodePlan) {
    let own = literal(&node.name);
    for (side, link) in addresses_beyond_the_first(plan, node) {
        for (address, length) in &link.addresses[side] {
            let line =
                format!("ip address replace {address}/{length} dev {}", link.ends[side].interface);
            let _ = writeln!(text, "    net[{own}].cmd({})", literal(&line));
        }
    }
    for (key, value) in super::elements::other_sysctls(node) {
        let line = literal(&format!("sysctl -w {key}={value}"));
        let _ = writeln!(text, "    net[{own}].cmd({line})");
    }
    for (key, value) in &node.env {
        let line = format!("export {key}='{}'", value.replace('\'', "'\\''"));
        let _ = writeln!(text, "    net[{own}].cmd({})", literal(&line));
    }
    for line in &node.exec {
        let _ = writeln!(text, "    net[{own}].cmd({})", literal(&line.text));
    }
    if let Some(words) = &node.command {
        let words: Vec<String> = words.iter().map(|word| literal(word)).collect();
        let _ = writeln!(text, "    net[{own}].popen([{}])", words.join(", "));
    }
}

/// Returns the names of switches in Mininet, by their own.
///
/// A switch is a bridge of the host, and its interface number 10 is called `NAME-eth10`: a name for which that is too long is replaced.
fn names<'a>(plan: &'a NetworkPlan, left_out: &mut Vec<String>) -> BTreeMap<&'a str, String> {
    let ends = || plan.links.iter().flat_map(|link| &link.ends);
    let is_taken = |name: &str| {
        let nodes = plan.nodes.iter().map(|node| &node.name);
        nodes.chain(plan.switches.iter().map(|(name, _)| name)).any(|one| one == name)
    };
    let mut fresh = (1..).map(|number| format!("s{number}")).filter(|name| !is_taken(name));
    let name = |(name, _): &'a (String, SwitchKind)| {
        let last = ends().filter(|end| end.node == *name).count();
        if format!("{name}-eth{last}").len() <= MAX_INTERFACE_NAME {
            return (name.as_str(), name.clone());
        }
        let short = fresh.next().unwrap_or_default();
        left_out.push(format!("node {name}: its name is too long for a switch; it is {short}"));
        (name.as_str(), short)
    };
    plan.switches.iter().map(name).collect()
}

/// The links of a node, each with the node's side, that have addresses.
fn links_of<'a>(
    plan: &'a NetworkPlan,
    node: &'a NodePlan,
) -> impl Iterator<Item = (usize, &'a LinkPlan)> {
    let sides = |link: &'a LinkPlan| (0..2).map(move |side| (side, link));
    let all = plan.links.iter().flat_map(sides);
    all.filter(|(side, link)| {
        link.ends[*side].node == node.name && !link.addresses[*side].is_empty()
    })
}

fn first_address(plan: &NetworkPlan, node: &NodePlan) -> Option<String> {
    let (side, link) = links_of(plan, node).next()?;
    let first = link.addresses[side].iter().find(|(address, _)| address.is_ipv4())?;
    Some(format!("{}/{}", first.0, first.1))
}

/// IPv6 addresses, and those of further interfaces, which `ip=` and `params` of Mininet do not set.
fn addresses_beyond_the_first<'a>(
    plan: &'a NetworkPlan,
    node: &'a NodePlan,
) -> impl Iterator<Item = (usize, &'a LinkPlan)> {
    links_of(plan, node)
        .enumerate()
        .filter(|(at, (side, link))| {
            *at > 0 || link.addresses[*side].iter().any(|(address, _)| address.is_ipv6())
        })
        .map(|(_, one)| one)
}

fn link_arguments(
    link: &LinkPlan,
    switches: &BTreeMap<&str, String>,
    left_out: &mut Vec<String>,
) -> String {
    let mut lines = String::new();
    let [one, other] = link
        .ends
        .each_ref()
        .map(|end| literal(switches.get(end.node.as_str()).unwrap_or(&end.node)));
    let _ = writeln!(lines, "            {one}, {other},");
    for (side, end) in link.ends.iter().enumerate() {
        let number = side + 1;
        // Mininet's switches are in the host's network, where it deletes an interface of this name first: there it chooses the name.
        if !switches.contains_key(end.node.as_str()) {
            let _ = writeln!(lines, "            intfName{number}={},", literal(&end.interface));
        }
        if let Some(mac) = link.macs[side] {
            let _ = writeln!(lines, "            addr{number}={},", literal(&mac_text(mac)));
        }
        let mut params = Vec::new();
        if let Some((address, length)) = link.addresses[side].iter().find(|(ip, _)| ip.is_ipv4()) {
            params.push(format!("\"ip\": {}", literal(&format!("{address}/{length}"))));
        }
        params.extend(
            options(&link.impairments[side], link, left_out)
                .into_iter()
                .map(|(key, value)| format!("\"{key}\": {value}")),
        );
        if !params.is_empty() {
            let _ = writeln!(lines, "            params{number}={{{}}},", params.join(", "));
        }
    }
    lines
}

/// Options of a direction as Mininet calls them, with their values in Python.
fn options(
    impairments: &Impairments,
    link: &LinkPlan,
    left_out: &mut Vec<String>,
) -> Vec<(&'static str, String)> {
    let micros = |span: Span| literal(&format!("{}us", span.0 as f64 / 1_000.0));
    let mut all = Vec::new();
    if let Some(bits) = impairments.rate.and_then(|rate| rate.limit()) {
        let mbit = bits as f64 / 1e6;
        if mbit > MAX_MBIT {
            left_out.push(format!("link {}: rate: above Mininet's 1 Gbit/s", link.ends[0]));
        } else {
            all.push(("bw", format!("{mbit}")));
        }
    }
    if let Some(delay) = impairments.delay {
        all.push(("delay", micros(delay.span())));
    }
    if impairments.jitter.is_some() {
        all.push(("jitter", micros(impairments.jitter().spread.span())));
    }
    if let Some(loss) = loss_percent(impairments) {
        all.push(("loss", format!("{loss}")));
    }
    if impairments.duplicate.is_some() {
        left_out.push(format!("link {}: duplicate", link.ends[0]));
    }
    let queue = impairments.queue.unwrap_or_default();
    if let Some(packets) = queue.packets {
        all.push(("max_queue_size", packets.to_string()));
    }
    if queue.discipline == Discipline::Red {
        let key = if queue.ecn { "enable_ecn" } else { "enable_red" };
        all.push((key, "True".into()));
    }
    all
}

/// A text in Python. JSON's escapes are Python's too.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
