//! Positions of nodes: they move interfaces in their wlans, and are a part of the status.

use std::collections::BTreeMap;

use lorentz_clock::Span;

use super::EventLoop;
use crate::emulator::{StationId, SwitchKind};
use crate::mobility::{Motion, Point};
use crate::plan::NetworkPlan;
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

impl EventLoop {
    /// Puts all interfaces where their nodes are.
    pub(super) fn place_all(&mut self) {
        let nodes: Vec<String> = self.motion.positions().keys().cloned().collect();
        nodes.iter().for_each(|node| self.place(node));
    }

    /// Makes the changes of positions at `now`, virtual time since the start.
    pub(super) fn move_nodes(&mut self, now: Span) {
        if self.motion.next_due().is_none_or(|due| due > now) {
            return;
        }
        for node in self.motion.advance(now) {
            self.place(&node);
        }
    }

    fn place(&mut self, node: &str) {
        let Some(position) = self.motion.positions().get(node) else { return };
        for (station, port) in self.receivers.ports.iter().enumerate() {
            if port.end.node == node {
                self.emulator.set_position(StationId(station), *position);
            }
        }
    }

    /// The present positions of nodes and switches.
    pub(super) fn positions(&self) -> BTreeMap<String, [f64; 2]> {
        let moving = self.motion.positions().iter();
        let mut positions = self.plan.positions.clone();
        positions.extend(moving.map(|(name, point)| (name.clone(), point.coordinates())));
        positions
    }

    /// State of each wlan.
    pub(super) fn wlans(&self) -> BTreeMap<String, WlanStatus> {
        let wlans = self.plan.switches.iter().filter_map(|(name, kind)| match kind {
            SwitchKind::Wlan { range } => Some((name, *range)),
            _ => None,
        });
        wlans.map(|(name, range)| (name.clone(), self.wlan(name, range))).collect()
    }

    fn wlan(&self, name: &str, range: f64) -> WlanStatus {
        let ports = &self.receivers.ports;
        let is_member = |station: &usize| {
            let of_port = |link: &&crate::plan::LinkPlan| link.ends.contains(&ports[*station].end);
            let link = self.plan.links.iter().find(of_port);
            link.is_some_and(|link| link.ends.iter().any(|end| end.node == name))
        };
        let members: Vec<usize> = (0..ports.len()).filter(is_member).collect();
        let mut hears: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for to in &members {
            let heard = hears.entry(ports[*to].end.node.clone()).or_default();
            for from in &members {
                let sender = &ports[*from].end.node;
                if self.emulator.is_in_range(StationId(*from), StationId(*to))
                    && !heard.contains(sender)
                {
                    heard.push(sender.clone());
                }
            }
            heard.sort();
        }
        WlanStatus { range, hears }
    }
}
