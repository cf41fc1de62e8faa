//! Nodes of IMUNES and their interfaces.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::values::{list, text};
use crate::import::draft::{Draft, Position, Read, OF_LOOPBACK};
use crate::import::services::Wanted;

/// A node in the draft, with what links and routes need.
#[derive(Default)]
pub(super) struct Station {
    pub name: String,
    pub is_router: bool,
    /// Whether IMUNES gives it default routes.
    pub wants_routes: bool,
    /// Interfaces by their ids.
    pub interfaces: BTreeMap<String, Interface>,
    pub services: Vec<Wanted>,
    /// A configuration of the routing daemons by hand.
    pub routing: Option<Spanned<String>>,
}

#[derive(Default, Clone)]
pub(super) struct Interface {
    pub name: String,
    /// Whether it is there without a link.
    pub is_physical: bool,
    pub mac: Option<Spanned<String>>,
    pub ipv4: Vec<Spanned<String>>,
    pub ipv6: Vec<Spanned<String>>,
}

/// Adds a line to the node `node`.
pub(super) fn exec(draft: &mut Draft, at: Position, node: &str, line: String) {
    if let Some(node) = draft.node(node) {
        node.exec.push(at.of(line));
    }
}

pub(super) fn read_interfaces(draft: &mut Draft, all: &Spanned<Value>, station: &mut Station) {
    let at = Position::from_location(all.defined);
    for (id, value) in all.value.as_object().into_iter().flatten() {
        let get = |key: &str| value.get(key).map(text).filter(|text| !text.is_empty());
        let addresses = |key: &str| {
            let given = value.get(key).map(list).unwrap_or_default();
            given.into_iter().map(|one| at.of(one)).collect::<Vec<_>>()
        };
        let mut interface = Interface {
            name: get("name").unwrap_or_else(|| id.clone()),
            is_physical: get("type").is_none_or(|kind| kind == "phys"),
            mac: get("mac").map(|mac| at.of(mac)),
            ipv4: addresses("ipv4_addrs"),
            ipv6: addresses("ipv6_addrs"),
        };
        if !draft.is_switch(&station.name) {
            read_logical(draft, at, &station.name, value, &mut interface);
        }
        station.interfaces.insert(id.clone(), interface);
    }
}

/// Makes `exec` lines for what a link of a topology file does not say of an interface.
fn read_logical(
    draft: &mut Draft,
    at: Position,
    node: &str,
    value: &Value,
    interface: &mut Interface,
) {
    let get = |key: &str| value.get(key).map(text).filter(|text| !text.is_empty());
    let name = interface.name.clone();
    let kind = get("type").unwrap_or_else(|| "phys".into());
    let mut addresses = Vec::new();
    let device = match kind.as_str() {
        "phys" | "stolen" => {
            // A link has one address of each family for an end.
            for all in [&mut interface.ipv4, &mut interface.ipv6] {
                addresses.extend(all.split_off(all.len().min(1)));
            }
            name.clone()
        }
        "lo" => {
            addresses.append(&mut interface.ipv4);
            addresses.append(&mut interface.ipv6);
            addresses.retain(|one| !OF_LOOPBACK.contains(&one.value.as_str()));
            "lo".to_string()
        }
        "vlan" => {
            let (Some(parent), Some(tag)) = (get("vlan_dev"), get("vlan_tag")) else {
                draft.leave_out(
                    at,
                    format!("node {node}: interface {name}: a vlan without device and tag"),
                );
                return;
            };
            exec(
                draft,
                at,
                node,
                format!("ip link add link {parent} name {name} type vlan id {tag}"),
            );
            exec(draft, at, node, format!("ip link set {name} up"));
            addresses.append(&mut interface.ipv4);
            addresses.append(&mut interface.ipv6);
            name.clone()
        }
        other => {
            draft.leave_out(at, format!("node {node}: interface {name} of type {other}"));
            return;
        }
    };
    for address in addresses {
        exec(draft, at, node, format!("ip address replace {} dev {device}", address.value));
    }
    if get("nat_state").is_some_and(|state| state == "on") {
        exec(draft, at, node, format!("iptables -t nat -A POSTROUTING -o {device} -j MASQUERADE"));
    }
    if get("oper_state").is_some_and(|state| state == "down") {
        exec(draft, at, node, format!("ip link set {device} down"));
    }
    if let Some(mtu) = get("mtu").filter(|mtu| mtu != "1500" && kind == "phys") {
        exec(draft, at, node, format!("ip link set {device} mtu {mtu}"));
    }
}

/// Makes the interfaces of a node whose link is left out, and those without a link.
pub(super) fn make_dangling(draft: &mut Draft, at: Position, station: &Station) -> Read<()> {
    for interface in station.interfaces.values().filter(|interface| interface.is_physical) {
        let first = |all: &[Spanned<String>]| all.first().cloned();
        let addresses = [first(&interface.ipv4), first(&interface.ipv6), interface.mac.clone()];
        let end = at.of(format!("{}:{}", station.name, interface.name));
        draft.add_dangling(end, addresses)?;
    }
    Ok(())
}

/// Gives a node default routes over the routers in the networks of its interfaces, as IMUNES does.
pub(super) fn default_routes(
    draft: &mut Draft,
    at: Position,
    station: &Station,
    stations: &BTreeMap<&str, Station>,
) {
    let routers =
        || stations.values().filter(|one| one.is_router).flat_map(|one| one.interfaces.values());
    for (family, of) in [("-4", ipv4 as fn(&Interface) -> &[Spanned<String>]), ("-6", ipv6)] {
        let own = station.interfaces.values().flat_map(of);
        let gateway = own.filter_map(|own| {
            let mut theirs = routers().flat_map(of);
            theirs.find(|theirs| {
                network(&own.value).is_some() && network(&own.value) == network(&theirs.value)
            })
        });
        let gateway = gateway.into_iter().next().and_then(|one| one.value.split('/').next());
        if let Some(gateway) = gateway {
            exec(
                draft,
                at,
                &station.name,
                format!("ip {family} route replace default via {gateway}"),
            );
        }
    }
}

fn ipv4(interface: &Interface) -> &[Spanned<String>] {
    &interface.ipv4
}

fn ipv6(interface: &Interface) -> &[Spanned<String>] {
    &interface.ipv6
}

/// Returns the network of an address with its prefix length.
fn network(address: &str) -> Option<(u128, u32)> {
    let (address, length) = address.split_once('/')?;
    let length: u32 = length.parse().ok()?;
    let (bits, width): (u128, u32) = match address.parse().ok()? {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let rest = width.checked_sub(length)?;
    Some((bits.checked_shr(rest).unwrap_or(0), length))
}
