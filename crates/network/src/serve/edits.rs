//! Another topology for a network that runs: links come and go between two frames. Nodes, links and connections that stay notice
//! nothing. The programs of nodes are the client's part ([`crate::edit`]).

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Context;
use lorentz_clock::{Span, VirtualInstant};
use lorentz_container::StateDir;
use lorentz_emulator::{Attachment, Emulator, LinkId, StationId, SwitchId};
use nix::sched::{setns, CloneFlags};
use nix::sys::epoll::Epoll;

use super::clients::{Port, Receivers, FIRST_STATION_TOKEN};
use super::rounds::{Rounds, SendTimes};
use crate::check;
use crate::directory::{container_of, NetworkDir};
use crate::kernel_timers::KernelTimers;
use crate::node::{make_interface, network_namespace, node_status};
use crate::plan::{ChangePlan, ClockChangePlan, Endpoint, LinkPlan, NetworkPlan, NodePlan};
use crate::protocol::{NodeStatus, Replacement};
use crate::tap::Tap;

/// The emulator's numbers of the switches of a plan by which it was made.
pub(super) fn numbered(plan: &NetworkPlan) -> BTreeMap<String, SwitchId> {
    let names = plan.switches.iter().enumerate();
    names.map(|(number, (name, _))| (name.clone(), SwitchId(number))).collect()
}

/// A link to be made, and the interfaces of those of its ends that are nodes.
struct NewLink {
    plan: LinkPlan,
    interfaces: [Option<NewInterface>; 2],
}

struct NewInterface {
    tap: Tap,
    /// In rounds.
    times: Option<SendTimes>,
}

/// The parts of a network at work that change with its topology.
pub(super) struct Topology<'a> {
    pub state: &'a StateDir,
    pub directory: &'a NetworkDir,
    pub poll: &'a Epoll,
    pub plan: &'a mut NetworkPlan,
    pub nodes: &'a mut Vec<NodeStatus>,
    pub switches: &'a mut BTreeMap<String, SwitchId>,
    pub emulator: &'a mut Emulator,
    pub timers: &'a mut KernelTimers,
    pub receivers: &'a mut Receivers,
    pub schedule: &'a mut VecDeque<ChangePlan>,
    pub clock_schedule: &'a mut VecDeque<ClockChangePlan>,
    pub started: VirtualInstant,
    pub rounds: Option<&'a mut Rounds>,
}

impl Topology<'_> {
    /// Goes over to the topology that lies in the network's directory, at `now`. Changes nothing if that fails.
    ///
    /// # Errors
    ///
    /// The reason, in one line.
    pub fn replace(
        &mut self,
        replacement: &Replacement,
        now: VirtualInstant,
    ) -> Result<(), String> {
        let wanted = self.wanted().map_err(|error| format!("{error:#}"))?;
        let since_start = now.since(self.started);
        self.check_schedule(&wanted, since_start)?;
        let made = self.make_devices(&wanted, replacement).map_err(|error| format!("{error:#}"))?;
        for (name, kind) in &wanted.switches {
            if !self.switches.contains_key(name) {
                let switch = self.emulator.add_switch(*kind);
                self.emulator.start_switch(switch, now);
                self.switches.insert(name.clone(), switch);
            }
        }
        for link in 0..self.plan.links.len() {
            let is_there = !self.plan.links[link].is_gone();
            if is_there && !wanted.links.iter().any(|one| one.is_same(&self.plan.links[link])) {
                self.remove_link(link, now);
            }
        }
        for link in made {
            self.add_link(link, now);
        }
        self.switches.retain(|name, _| wanted.switches.iter().any(|(one, _)| one == name));
        self.take_over(wanted, since_start);
        // The file that a later change begins with.
        let renamed = fs::rename(self.directory.next_topology(), self.directory.topology());
        renamed.map_err(|error| format!("topology.yaml: {error}"))
    }

    /// Reads the topology, and checks that this network can go over to it.
    fn wanted(&self) -> anyhow::Result<NetworkPlan> {
        let text = fs::read_to_string(self.directory.next_topology()).context("topology.yaml")?;
        let wanted = check::plan_from_text("topology.yaml", &text)?;
        anyhow::ensure!(
            wanted.name == self.plan.name && wanted.rounds == self.plan.rounds,
            "a network keeps its name, and whether it runs in rounds"
        );
        Ok(wanted)
    }

    /// Checks that no change which is new was to come before now: those that are not new have come at their instants.
    fn check_schedule(&self, wanted: &NetworkPlan, now: Span) -> Result<(), String> {
        let links = wanted.schedule.iter().filter(|one| !self.plan.schedule.contains(one));
        let known = &self.plan.clock_schedule;
        let clocks = wanted.clock_schedule.iter().filter(|one| !known.contains(one));
        let mut all = links.map(|one| one.at).chain(clocks.map(|one| one.at));
        match all.find(|at| *at <= now) {
            None => Ok(()),
            Some(at) => Err(format!(
                "schedule: at {at}: is past, {now} after the start; expected a later time"
            )),
        }
    }

    /// Makes the devices of the links that are new.
    fn make_devices(
        &self,
        wanted: &NetworkPlan,
        replacement: &Replacement,
    ) -> anyhow::Result<Vec<NewLink>> {
        let mut number = self.receivers.ports.len();
        let mut made: Vec<NewLink> = Vec::new();
        for plan in &wanted.links {
            if self.plan.links.iter().any(|one| one.is_same(plan)) {
                continue;
            }
            let mut link = NewLink { plan: plan.clone(), interfaces: [None, None] };
            let result = self.make_ends(&mut link, wanted, replacement, &mut number);
            made.push(link);
            if let Err(error) = result {
                // None of them is to stay.
                let interfaces = made.into_iter().flat_map(|link| link.interfaces).flatten();
                interfaces.for_each(|one| drop(one.tap.remove()));
                return Err(error);
            }
        }
        Ok(made)
    }

    /// Makes the devices of a link. `number` is the number of the next station.
    fn make_ends(
        &self,
        link: &mut NewLink,
        wanted: &NetworkPlan,
        replacement: &Replacement,
        number: &mut usize,
    ) -> anyhow::Result<()> {
        for side in 0..2 {
            let node = &link.plan.ends[side].node;
            anyhow::ensure!(!wanted.is_wlan(node), "{node}: a wlan takes no members while it runs");
            if wanted.switches.iter().any(|(name, _)| name == node) {
                continue;
            }
            let namespace = self.namespace_of(node, replacement)?;
            let tap = in_namespace(&namespace, || {
                let made = make_interface(&link.plan, side, *number);
                let node = wanted.nodes.iter().find(|one| one.name == *node);
                node.into_iter().for_each(|node| self.timers.set_in_namespace_of(node));
                made
            })??;
            let end = &link.plan.ends[side];
            let times = self.rounds.is_some();
            let times = times.then(|| SendTimes::of(self.state, &self.plan.name, end, &tap));
            let (times, failed) = match times.transpose() {
                Ok(times) => (times, Ok(())),
                Err(error) => (None, Err(error)),
            };
            link.interfaces[side] = Some(NewInterface { tap, times });
            failed?;
            *number += 1;
        }
        Ok(())
    }

    fn namespace_of(&self, node: &str, replacement: &Replacement) -> anyhow::Result<PathBuf> {
        if let Some(given) = replacement.namespaces.get(node) {
            return Ok(given.clone());
        }
        network_namespace(&self.state.container(&container_of(&self.plan.name, node))?)
    }

    fn add_link(&mut self, link: NewLink, now: VirtualInstant) {
        let NewLink { plan, interfaces } = link;
        let mut attachments = [Attachment::Switch(SwitchId(0)); 2];
        for (side, interface) in interfaces.into_iter().enumerate() {
            let end = &plan.ends[side];
            attachments[side] = match (interface, self.switches.get(&end.node)) {
                (Some(interface), _) => Attachment::Station(self.add_port(interface, end)),
                (None, Some(switch)) => Attachment::Switch(*switch),
                // The plan was checked: an end is a node or a switch.
                (None, None) => return,
            };
        }
        let impairments = plan.impairments.each_ref();
        let LinkId(number) = self.emulator.connect_at(attachments, impairments, now);
        let is_up = plan.is_up;
        self.plan.links.push(plan);
        debug_assert_eq!(number + 1, self.plan.links.len(), "links have the emulator's numbers");
        set_up(self.plan, self.emulator, self.receivers, number, is_up, now);
    }

    fn add_port(&mut self, interface: NewInterface, end: &Endpoint) -> StationId {
        let NewInterface { tap, times } = interface;
        let station = self.emulator.add_station();
        let port = Port::new(tap, end.clone());
        // An error means that the device is gone again: nothing comes from it.
        let _ = port.listen(self.poll, FIRST_STATION_TOKEN + station.0 as u64);
        if let (Some(rounds), Some(times)) = (self.rounds.as_mut(), times) {
            rounds.add(times);
        }
        self.receivers.ports.push(port);
        station
    }

    fn remove_link(&mut self, link: usize, now: VirtualInstant) {
        self.emulator.disconnect(LinkId(link), now);
        let ends = &self.plan.links[link].ends;
        self.receivers
            .ports
            .iter_mut()
            .filter(|port| ends.contains(&port.end))
            .for_each(Port::remove);
        self.plan.links[link].forget_ends();
    }

    /// Takes the nodes, switches, positions and changes to come of `wanted` for its own.
    fn take_over(&mut self, wanted: NetworkPlan, since_start: Span) {
        for gone in &self.plan.nodes {
            if !wanted.nodes.iter().any(|node| node.name == gone.name) {
                self.timers.forget(&gone.name);
            }
        }
        let status = |node: &NodePlan| node_status(self.plan, self.directory, node);
        *self.nodes = wanted.nodes.iter().map(status).collect();
        for node in &wanted.nodes {
            // One that does not run yet comes with the next replacement.
            let is_there = self.state.container(&container_of(&self.plan.name, &node.name)).is_ok();
            if is_there && !self.timers.has(&node.name) {
                self.timers.add_node(self.state, &self.plan.name, node);
            }
        }
        let links = wanted.schedule.iter().filter(|change| change.at > since_start);
        *self.schedule = links.cloned().collect();
        let clocks = wanted.clock_schedule.iter().filter(|change| change.at > since_start);
        *self.clock_schedule = clocks.cloned().collect();
        let NetworkPlan { nodes, switches, positions, schedule, clock_schedule, .. } = wanted;
        (self.plan.nodes, self.plan.switches) = (nodes, switches);
        self.plan.positions = positions;
        (self.plan.schedule, self.plan.clock_schedule) = (schedule, clock_schedule);
    }
}

/// Cuts a link or restores it, in both directions, with the carrier of its interfaces.
pub(super) fn set_up(
    plan: &NetworkPlan,
    emulator: &mut Emulator,
    receivers: &Receivers,
    link: usize,
    is_up: bool,
    now: VirtualInstant,
) {
    emulator.set_up(LinkId(link), is_up, now);
    for port in receivers.ports.iter().filter(|port| plan.links[link].ends.contains(&port.end)) {
        // An error means that the device is gone, which has no carrier.
        let _ = port.tap().and_then(|tap| tap.set_carrier(is_up));
    }
}

/// Does `work` in the network namespace at `path`. The emulator has one thread.
fn in_namespace<T>(path: &PathBuf, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let own = File::open("/proc/self/ns/net")?;
    let other = File::open(path).with_context(|| path.display().to_string())?;
    setns(&other, CloneFlags::CLONE_NEWNET)?;
    let done = work();
    // The thread was in this namespace a moment ago.
    setns(&own, CloneFlags::CLONE_NEWNET).expect("the emulator's own network namespace");
    Ok(done)
}
