//! Positions of nodes: they move interfaces in their wlans, and are a part of the status.

use std::collections::BTreeMap;

use lorentz_clock::Span;
use lorentz_emulator::position::Point;
use lorentz_emulator::{Emulator, StationId, SwitchKind};

use super::clients::Port;
use crate::mobility::Motion;
use crate::plan::{LinkPlan, NetworkPlan};
use crate::protocol::WlanStatus;

/// Returns the positions of nodes as they change.
pub(super) fn motion_of(plan: &NetworkPlan) -> Motion {
    let is_node = |name: &str| plan.nodes.iter().any(|node| node.name == name);
    let positions = plan
        .positions
        .iter()
        .filter(|(name, _)| is_node(name))
        .filter_map(|(name, position)| Some((name.clone(), Point::new(*position)?)));
    Motion::new(plan.mobility.clone(), positions.collect())
}

/// Puts all interfaces where their nodes are.
pub(super) fn place_all(motion: &Motion, ports: &[Port], emulator: &mut Emulator) {
    motion.positions().keys().for_each(|node| place(node, motion, ports, emulator));
}

/// Makes the changes of positions at `now`, virtual time since the start.
pub(super) fn move_nodes(motion: &mut Motion, now: Span, ports: &[Port], emulator: &mut Emulator) {
    if motion.next_due().is_none_or(|due| due > now) {
        return;
    }
    for node in motion.advance(now) {
        place(&node, motion, ports, emulator);
    }
}

fn place(node: &str, motion: &Motion, ports: &[Port], emulator: &mut Emulator) {
    let Some(position) = motion.positions().get(node) else { return };
    for (station, port) in ports.iter().enumerate() {
        if port.end.node == node {
            emulator.set_position(StationId(station), *position);
        }
    }
}

/// The present positions of nodes and switches.
pub(super) fn positions(plan: &NetworkPlan, motion: &Motion) -> BTreeMap<String, [f64; 2]> {
    let moving = motion.positions().iter();
    let mut positions = plan.positions.clone();
    positions.extend(moving.map(|(name, point)| (name.clone(), point.coordinates())));
    positions
}

/// State of each wlan.
pub(super) fn wlans(
    plan: &NetworkPlan,
    ports: &[Port],
    emulator: &Emulator,
) -> BTreeMap<String, WlanStatus> {
    let wlans = plan.switches.iter().filter_map(|(name, kind)| match kind {
        SwitchKind::Wlan { range } => Some((name, *range)),
        _ => None,
    });
    let hears = |name: &str| who_hears_whom(name, plan, ports, emulator);
    wlans.map(|(name, range)| (name.clone(), WlanStatus { range, hears: hears(name) })).collect()
}

/// For each member of the wlan `name` the members that it hears.
fn who_hears_whom(
    name: &str,
    plan: &NetworkPlan,
    ports: &[Port],
    emulator: &Emulator,
) -> BTreeMap<String, Vec<String>> {
    let is_member = |station: &usize| {
        let of_port = |link: &&LinkPlan| link.ends.contains(&ports[*station].end);
        let link = plan.links.iter().find(of_port);
        link.is_some_and(|link| link.ends.iter().any(|end| end.node == name))
    };
    let members: Vec<usize> = (0..ports.len()).filter(is_member).collect();
    let mut hears: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for to in &members {
        let heard = hears.entry(ports[*to].end.node.clone()).or_default();
        for from in &members {
            let sender = &ports[*from].end.node;
            if emulator.is_in_range(StationId(*from), StationId(*to)) && !heard.contains(sender) {
                heard.push(sender.clone());
            }
        }
        heard.sort();
    }
    hears
}
