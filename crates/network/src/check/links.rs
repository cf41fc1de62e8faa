//! Links: their ends, addresses and impairments, and loops of switches.

use std::collections::HashMap;
use std::net::IpAddr;

use lorentz_emulator::SwitchKind;
use serde_saphyr::{Location, Spanned};

use super::error::{refuse, shown, PlanError};
use crate::plan::{Endpoint, LinkPlan, NetworkPlan};
use crate::topology::{Link, NodeKind, State, TopologyFile};

/// The default MTU.
const DEFAULT_MTU: u32 = 1_500;

/// Checks a link, and notes in `taken` which interfaces it takes, each with its line.
pub(super) fn link(
    link: &Spanned<Link>,
    file: &TopologyFile,
    taken: &mut HashMap<Endpoint, u64>,
) -> Result<LinkPlan, PlanError> {
    let at = link.defined;
    let link = &link.value;
    let [first, second] = &link.endpoints[..] else {
        return refuse(at, format!("endpoints: {} given; expected two", link.endpoints.len()));
    };
    let ends = [check_end(first, file, taken)?, check_end(second, file, taken)?];
    let both = link.impairments();
    both.check().or_else(|what| refuse(at, what))?;
    let mut impairments = [both.clone(), both];
    for (key, own) in &link.from {
        let Some(side) = ends.iter().position(|end| end.to_string() == *key) else {
            return refuse(
                own.defined,
                format!("from: {key}: expected {} or {}", ends[0], ends[1]),
            );
        };
        impairments[side] = impairments[side].with(&own.value);
        impairments[side]
            .check()
            .or_else(|what| refuse(own.defined, format!("from: {key}: {what}")))?;
    }
    let mtu = match &link.mtu {
        Some(mtu) if !(68..=65_521).contains(&mtu.value) => {
            return refuse(mtu.defined, format!("mtu: {}: expected 68 to 65521", mtu.value))
        }
        Some(mtu) => mtu.value,
        None => DEFAULT_MTU,
    };
    let mut addresses = [Vec::new(), Vec::new()];
    for (key, given, is_v4) in [("ipv4", &link.ipv4, true), ("ipv6", &link.ipv6, false)] {
        for (side, text) in for_ends(key, given, at, &ends, file)? {
            addresses[side].push(address(key, text, is_v4)?);
        }
    }
    let mut macs = [None; 2];
    for (side, text) in for_ends("mac", &link.mac, at, &ends, file)? {
        macs[side] = Some(mac(text)?);
    }
    Ok(LinkPlan { ends, impairments, addresses, macs, mtu, is_up: link.state == State::Up })
}

/// Checks the values that `key` gives to the two ends. Only ends at nodes can have one.
fn for_ends<'a>(
    key: &str,
    given: &'a [Option<Spanned<String>>],
    at: Location,
    ends: &[Endpoint; 2],
    file: &TopologyFile,
) -> Result<Vec<(usize, &'a Spanned<String>)>, PlanError> {
    if !given.is_empty() && given.len() != 2 {
        return refuse(
            at,
            format!("{key}: {} given; expected one for each end, or null", given.len()),
        );
    }
    let given = given.iter().enumerate().filter_map(|(side, text)| Some((side, text.as_ref()?)));
    let given: Vec<_> = given.collect();
    for (side, text) in &given {
        let node = &ends[*side].node;
        if file.topology.nodes.get(node).is_some_and(|one| one.value.kind != NodeKind::Process) {
            return refuse(
                text.defined,
                format!("{key}: {node} is a switch, hub or wlan; expected null"),
            );
        }
    }
    Ok(given)
}

fn mac(text: &Spanned<String>) -> Result<[u8; 6], PlanError> {
    let pair = |pair: &str| (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = text.value.split(':').map(pair).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    // The lowest bit of the first byte marks a group address.
    bytes.filter(|bytes| bytes[0] & 1 == 0 && *bytes != [0; 6]).ok_or_else(|| PlanError::Here {
        at: text.defined,
        what: format!(
            "mac: {:?}: expected the address of one interface such as 02:00:00:00:00:01",
            text.value
        ),
    })
}

fn check_end(
    text: &Spanned<String>,
    file: &TopologyFile,
    taken: &mut HashMap<Endpoint, u64>,
) -> Result<Endpoint, PlanError> {
    let end: Endpoint = text.value.parse().or_else(|what: String| {
        refuse(text.defined, format!("endpoints: {:?}: {what}", text.value))
    })?;
    let Some(node) = file.topology.nodes.get(&end.node) else {
        let names: Vec<&str> = file.topology.nodes.keys().map(String::as_str).collect();
        return refuse(
            text.defined,
            format!("endpoints: {end}: no node {:?}; expected one of {}", end.node, shown(&names)),
        );
    };
    if node.value.kind == NodeKind::Process && end.interface == "lo" {
        return refuse(
            text.defined,
            format!("endpoints: {end}: lo is the loopback interface; expected another name"),
        );
    }
    if let Some(line) = taken.insert(end.clone(), text.defined.line()) {
        return refuse(
            text.defined,
            format!("endpoints: {end}: has a link already, in line {line}; expected an interface of its own"),
        );
    }
    Ok(end)
}

fn address(key: &str, text: &Spanned<String>, is_v4: bool) -> Result<(IpAddr, u8), PlanError> {
    let parsed = text.value.split_once('/').and_then(|(address, length)| {
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (address.is_ipv4() == is_v4 && length <= longest).then_some((address, length))
    });
    let example = if is_v4 { "10.0.0.1/24" } else { "fd00::1/64" };
    parsed.ok_or_else(|| PlanError::Here {
        at: text.defined,
        what: format!(
            "{key}: {:?}: expected an address and its prefix length such as {example}",
            text.value
        ),
    })
}

/// Checks that each loop of switches has one with a spanning tree: in others a broadcast would go round for ever.
pub(super) fn loops(plan: &NetworkPlan, links: &[Spanned<Link>]) -> Result<(), PlanError> {
    let without = plan.switches.iter().filter(|(_, kind)| *kind != SwitchKind::SpanningTree);
    let names: Vec<&str> = without.map(|(name, _)| name.as_str()).collect();
    let ends = plan.links.iter().map(|link| link.ends.each_ref().map(|end| end.node.as_str()));
    let Some(at) = link_of_loop(&names, ends) else { return Ok(()) };
    let [one, other] = &plan.links[at].ends;
    refuse(
        links[at].defined,
        format!("link {one} - {other}: closes a loop of switches without a spanning tree; expected 'stp: true' at one of them"),
    )
}

/// Returns the first of the links, given by the nodes at their ends, that closes a loop among `nodes`.
pub(crate) fn link_of_loop<'a>(
    nodes: &[&'a str],
    links: impl Iterator<Item = [&'a str; 2]>,
) -> Option<usize> {
    let index: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let mut group: Vec<usize> = (0..nodes.len()).collect();
    for (number, ends) in links.enumerate() {
        let [Some(&one), Some(&other)] = ends.map(|end| index.get(end)) else { continue };
        let (one, other) = (group[one], group[other]);
        if one == other {
            return Some(number);
        }
        group.iter_mut().filter(|at| **at == other).for_each(|at| *at = one);
    }
    None
}
