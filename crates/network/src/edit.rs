//! Changes of a running network's nodes, links and schedule.
//!
//! A network keeps its topology file. Each change here makes another file of it, which is checked as a whole, as `up` checks one. Then
//! the emulator goes over to it (`serve/edits.rs`). The file is also the answer to what runs: [`topology_of`].

use std::collections::{BTreeMap, BTreeSet};

use lorentz_clock::{Pace, Span};
use lorentz_container::StateDir;

use crate::create::{self, check_command, check_new_nodes};
use crate::destroy::end_node;
use crate::directory::NetworkDir;
use crate::exec::FailedLine;
use crate::file_systems::NodeEntry;
use crate::plan::{Endpoint, NetworkPlan};
use crate::protocol::NetworkStatus;
use crate::steps::ExecPolicy;
use crate::topology::{
    self, Isolation, Link, Node, NodeKind, Spanned, State, Topology, TopologyFile,
};
use crate::{image, lines, Network, NetworkRefusal};

mod editing;
mod schedule;

use editing::{here, Editing};
pub use schedule::{
    parse_change, read_schedule, schedule, schedule_of, ClockSchedule, NewSchedule,
};

/// A node to be added, with its links.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// Its kind, program and settings.
    pub node: Node,
    /// Its links, to nodes and switches that are there.
    pub links: Vec<Link>,
}

/// Returns the topology file of the network `name` as it runs: with nodes and links that have come, and with the impairments in force.
///
/// # Errors
///
/// If there is no such network, or its emulator has ended.
pub fn topology_of(state: &StateDir, name: &str) -> anyhow::Result<TopologyFile> {
    let mut network = Network::open(state, name)?;
    let status = network.status()?;
    let mut file = topology::read_file(&NetworkDir::of(state, name)?.topology())?;
    for link in &mut file.topology.links {
        bring_up_to_date(&mut link.value, &status);
    }
    Ok(file)
}

/// Adds a link to the network `network`. Its interfaces are there when this returns.
///
/// # Errors
///
/// The error in the link, in one line; then nothing has changed.
pub fn add_link(state: &StateDir, network: &str, link: Link) -> anyhow::Result<()> {
    let mut editing = Editing::of(state, network)?;
    editing.file.topology.links.push(here(link));
    editing.check()?;
    editing.replace(BTreeMap::new())
}

/// Removes the link at `end`, with its interfaces, its frames on their way, and the changes of it to come. Returns its ends.
///
/// # Errors
///
/// If no link ends there.
pub fn remove_link(state: &StateDir, network: &str, end: &Endpoint) -> anyhow::Result<Vec<String>> {
    let mut editing = Editing::of(state, network)?;
    let name = end.to_string();
    let found = editing.file.topology.links.iter().position(|link| ends_at(&link.value, &name));
    let Some(found) = found else {
        let what =
            format!("{end}: no link ends there; expected an end of one of 'lorentz link show'");
        return Err(NetworkRefusal::Setting(what).into());
    };
    let removed = editing.file.topology.links.remove(found);
    editing.forget_changes_of(&removed.value);
    editing.check()?;
    editing.replace(BTreeMap::new())?;
    Ok(removed.value.endpoints.into_iter().map(|end| end.value).collect())
}

/// Adds a node to the network `network`, and runs its lines of `exec`. Its interfaces are there before its program begins. The caller must
/// have one thread only.
///
/// # Errors
///
/// The error in the node, in one line; then nothing has changed.
pub fn add_node(
    state: &StateDir,
    network: &str,
    new: NewNode,
    policy: ExecPolicy,
) -> anyhow::Result<Vec<FailedLine>> {
    let mut editing = Editing::of(state, network)?;
    let refused = |what: String| anyhow::Error::from(NetworkRefusal::Setting(what));
    let NewNode { name, node, links } = new;
    if editing.file.topology.nodes.contains_key(&name) {
        return Err(refused(format!("node {name}: is there already; expected another name")));
    }
    let is_program = node.kind == NodeKind::Process;
    if is_program && (editing.file.rounds || node.network_of.is_some()) {
        let what = if editing.file.rounds { "a network in rounds" } else { "network-of" };
        return Err(refused(format!(
            "node {name}: {what}: such a node is made by 'lorentz up' alone"
        )));
    }
    let before = editing.file.clone();
    editing.file.topology.nodes.insert(name.clone(), here(node));
    editing.file.topology.links.extend(links.into_iter().map(here));
    let mut plan = editing.check()?;
    if !is_program {
        editing.replace(BTreeMap::new())?;
        return Ok(Vec::new());
    }
    plan.nodes.retain(|one| one.name == name);
    check_new_nodes(state, &plan)?;
    let plan = editing.with_present_rate(image::mount_all(&editing.directory, &plan)?)?;
    plan.nodes.iter().try_for_each(check_command)?;
    let made = editing.make_node(&plan, policy);
    if made.is_err() {
        // The first error is the one to tell.
        editing.file = before;
        let _ = editing.replace(BTreeMap::new());
        let _ = end_node(state, &editing.directory, network, &name);
    }
    made
}

/// Removes the node `node` of the network `network`, with its links; runs its lines of `shutdown` before. Returns the number of programs that
/// were killed, and the lines that failed.
///
/// # Errors
///
/// If there is no such node, or another shares its network.
pub fn remove_node(
    state: &StateDir,
    network: &str,
    node: &str,
) -> anyhow::Result<(usize, Vec<FailedLine>)> {
    let mut editing = Editing::of(state, network)?;
    let Some(removed) = editing.file.topology.nodes.remove(node) else {
        let what =
            format!("node {node}: no such node; expected one of 'lorentz inspect {network}'");
        return Err(NetworkRefusal::Setting(what).into());
    };
    let is_of = |end: &Spanned<String>| end.value.split(':').next() == Some(node);
    let all = std::mem::take(&mut editing.file.topology.links);
    let (gone, kept): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|link| link.value.endpoints.iter().any(is_of));
    editing.file.topology.links = kept;
    gone.iter().for_each(|link| editing.forget_changes_of(&link.value));
    editing
        .file
        .schedule
        .retain(|change| change.value.node.as_ref().is_none_or(|moved| moved.value != node));
    editing.file.schedule.retain_mut(|change| change.value.keeps_clocks_without(node));
    editing.check()?;
    let mut failed = Vec::new();
    if removed.value.kind == NodeKind::Process {
        let record = editing.directory.record().unwrap_or_default();
        failed = lines::shut_down_node(state, network, &record, node)?;
    }
    editing.replace(BTreeMap::new())?;
    let ended = match removed.value.kind {
        NodeKind::Process => end_node(state, &editing.directory, network, node)?,
        _ => 0,
    };
    Ok((ended, failed))
}

/// Has the network of the file `wanted` go over to it: nodes, links and changes to come do. Links that stay keep the settings in force.
/// Each step is whole. Returns the lines of `exec` and `shutdown` that failed. The caller must have one thread only.
///
/// # Errors
///
/// The error in the file, in one line, before anything changes; or a step that failed, after those before it.
pub fn update(
    state: &StateDir,
    wanted: &TopologyFile,
    policy: ExecPolicy,
) -> anyhow::Result<Vec<FailedLine>> {
    let name = &wanted.name.value;
    let now = Span(Network::open(state, name)?.status()?.virtual_ns);
    let present = topology_of(state, name)?;
    check_rest(&present, wanted)?;
    let changes = schedule::changed(&present, wanted, now)?;
    let present = present.topology;
    check_update(&present, &wanted.topology)?;
    let has =
        |all: &[Spanned<Link>], link: &Link| all.iter().any(|one| joins_the_same(&one.value, link));
    let mut failed = Vec::new();
    for link in present.links.iter().filter(|link| !has(&wanted.topology.links, &link.value)) {
        remove_link(state, name, &end_of(&link.value)?)?;
    }
    for gone in present.nodes.keys().filter(|node| !wanted.topology.nodes.contains_key(*node)) {
        failed.extend(remove_node(state, name, gone)?.1);
    }
    let is_new = |(node, _): &(&String, &Spanned<Node>)| !present.nodes.contains_key(*node);
    let (programs, switches): (Vec<_>, Vec<_>) = wanted
        .topology
        .nodes
        .iter()
        .filter(is_new)
        .partition(|(_, node)| node.value.kind == NodeKind::Process);
    let mut left: Vec<Link> = wanted.topology.links.iter().map(|link| link.value.clone()).collect();
    left.retain(|link| !has(&present.links, link));
    let mut there: BTreeSet<&str> = present.nodes.keys().map(String::as_str).collect();
    for (node, content) in switches.into_iter().chain(programs) {
        there.insert(node);
        // A node gets the links to those that are there; the others get theirs to it.
        let is_ready = |link: &Link| link.endpoints.iter().all(|end| there.contains(node_of(end)));
        let (links, rest) = left.into_iter().partition(is_ready);
        left = rest;
        let new = NewNode { name: node.clone(), node: content.value.clone(), links };
        failed.extend(add_node(state, name, new, policy)?);
    }
    for link in left {
        add_link(state, name, link)?;
    }
    if let Some(changes) = changes {
        let new = NewSchedule { added: changes, replaces: true, ..Default::default() };
        schedule(state, name, new)?;
    }
    Ok(failed)
}

/// Checks that two files differ in their nodes, links and scheduled changes of links and clocks at most.
fn check_rest(present: &TopologyFile, wanted: &TopologyFile) -> anyhow::Result<()> {
    let rest = |file: &TopologyFile| {
        let mut file = file.clone();
        file.schedule.retain(|change| change.value.node.is_some());
        file.topology = Topology::default();
        serde_json::to_value(file)
    };
    let (now, then) = (rest(present)?, rest(wanted)?);
    let keys = [&now, &then].into_iter().flat_map(|file| file.as_object()).flatten();
    let differs = keys.map(|(key, _)| key).find(|key| now.get(key) != then.get(key));
    match differs {
        None => Ok(()),
        Some(key) => {
            let what =
                format!("{key}: differs from that of the network that runs; expected the same");
            Err(NetworkRefusal::Setting(what).into())
        }
    }
}

/// Checks that a network can go from one topology to the other: nodes that stay stay as they are.
fn check_update(present: &Topology, wanted: &Topology) -> anyhow::Result<()> {
    for (name, node) in &wanted.nodes {
        let Some(now) = present.nodes.get(name) else { continue };
        let text = |node: &Node| serde_json::to_value(node);
        if text(&now.value)? != text(&node.value)? {
            let what = format!(
                "node {name}: differs from the one that runs; expected the same, or another name"
            );
            return Err(NetworkRefusal::Setting(what).into());
        }
    }
    Ok(())
}

fn end_of(link: &Link) -> anyhow::Result<Endpoint> {
    link.endpoints.first().map_or_else(|| parsed(""), |end| parsed(&end.value))
}

fn parsed(end: &str) -> anyhow::Result<Endpoint> {
    end.parse().map_err(|what: String| NetworkRefusal::Setting(format!("{end}: {what}")).into())
}

fn ends_at(link: &Link, name: &str) -> bool {
    link.endpoints.iter().any(|end| end.value == name)
}

fn node_of(end: &Spanned<String>) -> &str {
    end.value.split(':').next().unwrap_or_default()
}

fn joins_the_same(one: &Link, other: &Link) -> bool {
    one.endpoints.iter().all(|end| ends_at(other, &end.value))
}

impl Editing<'_> {
    /// Removes the changes to come of a link that goes.
    fn forget_changes_of(&mut self, gone: &Link) {
        let is_of_it = |link: &Spanned<String>| ends_at(gone, &link.value);
        self.file.schedule.retain(|change| !change.value.link.as_ref().is_some_and(is_of_it));
    }

    /// The plan, whose clock has the network's present rate.
    fn with_present_rate(&self, mut plan: NetworkPlan) -> anyhow::Result<NetworkPlan> {
        if let Pace::Running(rate) = self.state.container(&plan.name)?.clock()?.look().segment.pace
        {
            (plan.clock.rate, plan.clock.tdf) = (Some(rate), None);
        }
        Ok(plan)
    }

    /// Makes the node of `plan`, which has it alone, and its links.
    fn make_node(
        &mut self,
        plan: &NetworkPlan,
        policy: ExecPolicy,
    ) -> anyhow::Result<Vec<FailedLine>> {
        let (state, directory) = (self.state, self.directory.clone());
        // `down` finds it from here on, whoever is killed.
        let mut record = directory.record().unwrap_or_default();
        for node in &plan.nodes {
            record.nodes.push(node.name.clone());
            if node.isolation == Isolation::Host {
                let entry = NodeEntry::of(node, &directory.root(&node.name));
                record.entries.insert(node.name.clone(), entry);
            }
        }
        record.shutdown.extend(lines::of_shutdown(plan, &directory));
        directory.store(&record)?;
        create::add_node(state, plan, &directory, &mut |namespace| {
            let of_node = plan.nodes.iter().map(|node| (node.name.clone(), namespace.clone()));
            self.replace(of_node.collect())
        })?;
        // Once more: the emulator sees the node's container now, and sets its timers.
        self.replace(BTreeMap::new())?;
        lines::run_exec(state, plan, &directory, policy, &|_| {})
    }
}

/// Writes the settings in force into a link.
fn bring_up_to_date(link: &mut Link, status: &NetworkStatus) {
    let is_it = |one: &&crate::LinkStatus| {
        let name = one.directions[0].from.to_string();
        ends_at(link, &name)
    };
    let Some(found) = status.links.iter().find(is_it) else { return };
    link.state = if found.up { State::Up } else { State::Down };
    let [one, other] = &found.directions;
    let (both, own) = one.impairments.divide(&other.impairments);
    link.set_impairments(&both);
    let ends = [one, other].map(|direction| direction.from.to_string());
    let own = ends.into_iter().zip(own).filter(|(_, own)| !own.is_empty());
    link.from = own.map(|(end, own)| (end, here(own))).collect();
}
