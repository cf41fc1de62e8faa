//! A checked topology: the plan by which the network is made.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;

use lorentz_clock::{Rate, Span, WallTime};
use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

use crate::impair::Impairments;
use crate::topology::{Command, File, Kind, Link, Node, State};
use lorentz_container::{is_name, Bind, ClockOptions, CLOCK_OPTIONS};

/// The default MTU.
pub const MTU: u32 = 1_500;
/// Most nodes. One process cannot serve more than so many well.
const MOST_NODES: usize = 1_000;

/// A network to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Virtual seconds per real second.
    pub rate: Rate,
    /// Wall time at the start; `None` for the host's.
    pub at: Option<WallTime>,
    /// Whether nodes have clocks of their own, which go forward together in rounds.
    pub rounds: bool,
    /// Seed of random decisions.
    pub seed: u64,
    /// Nodes: programs in network namespaces.
    pub nodes: Vec<NodePlan>,
    /// Switches and hubs: the name, and whether it learns.
    pub switches: Vec<(String, bool)>,
    /// Places of nodes and switches in a picture.
    pub positions: BTreeMap<String, [f64; 2]>,
    /// Links between nodes, switches and hubs.
    pub links: Vec<LinkPlan>,
    /// Changes, sorted by their instants.
    pub schedule: Vec<ChangePlan>,
}

/// A program in a network namespace of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its virtual seconds per real second while it runs.
    pub rate: Rate,
    /// Wall time at its start, if it is not the network's.
    pub at: Option<WallTime>,
    /// Its command. `None` if only commands that are started later run in it.
    pub command: Option<Vec<String>>,
    /// Lines for the shell.
    pub exec: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Settings of its network namespace.
    pub sysctls: BTreeMap<String, String>,
    /// The file for its output.
    pub output: Option<String>,
    /// The image of its root file system.
    pub image: Option<String>,
    /// The user of its programs, USER or USER:GROUP, from its image.
    pub user: Option<String>,
    /// The working directory of its programs, from its image.
    pub folder: Option<PathBuf>,
    /// Its root file system.
    pub rootfs: Option<PathBuf>,
    /// Directories and files of the host in it.
    pub binds: Vec<Bind>,
}

/// An end of a link.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Endpoint {
    /// The node or switch.
    pub node: String,
    /// The interface or port.
    pub interface: String,
}

/// A link to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkPlan {
    /// Its ends.
    pub ends: [Endpoint; 2],
    /// Impairments of frames from each end.
    pub asked: [Impairments; 2],
    /// Addresses of each end.
    pub addresses: [Vec<(IpAddr, u8)>; 2],
    /// Hardware addresses of each end; `None` for a generated one.
    pub macs: [Option<[u8; 6]>; 2],
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is up at the start.
    pub is_up: bool,
}

/// A change of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct ChangePlan {
    /// Virtual time from the start of the network.
    pub at: Span,
    /// An end of the link.
    pub end: Endpoint,
    /// Whether both directions change.
    pub both: bool,
    /// Impairments that change.
    pub set: Impairments,
    /// Whether the link is up from then on; `None` leaves that as it is.
    pub is_up: Option<bool>,
}

impl From<Endpoint> for String {
    fn from(end: Endpoint) -> String {
        end.to_string()
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;
    fn try_from(text: String) -> Result<Endpoint, String> {
        text.parse()
    }
}

impl std::str::FromStr for Endpoint {
    type Err = String;
    fn from_str(text: &str) -> Result<Endpoint, String> {
        let (node, interface) = text.split_once(':').unwrap_or_default();
        if !is_name(node) || !is_interface(interface) {
            return Err(
                "expected NODE:INTERFACE such as r1:eth1, the interface of at most 15 characters"
                    .into(),
            );
        }
        Ok(Endpoint { node: node.to_string(), interface: interface.to_string() })
    }
}

/// An error at a place in the file.
#[derive(Debug)]
pub struct Fault {
    /// The place.
    pub at: Location,
    /// The error, and the accepted values.
    pub what: String,
}

fn fault<T>(at: Location, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, what: what.into() })
}

/// Checks the content of a file.
///
/// # Errors
///
/// The first error.
pub fn check(file: &File) -> Result<Plan, Fault> {
    let name = &file.name;
    // The node's name follows it in a container's name, which has at most 128 characters.
    if !is_name(&name.value) || name.value.len() > 60 {
        return fault(
            name.defined,
            format!("name: {:?}: expected up to 60 letters, digits, '.', '_' and '-', the first a letter or digit", name.value),
        );
    }
    let mut plan = Plan {
        name: name.value.clone(),
        rate: rate(&file.tdf, &file.rate)?.unwrap_or(Rate::ONE),
        rounds: file.rounds,
        at: start(&file.at)?,
        seed: file.seed,
        nodes: Vec::new(),
        switches: Vec::new(),
        positions: BTreeMap::new(),
        links: Vec::new(),
        schedule: Vec::new(),
    };
    if file.topology.nodes.is_empty() {
        return fault(name.defined, "topology: nodes: expected at least one");
    }
    for (name, node) in &file.topology.nodes {
        check_node(name, node, &mut plan)?;
    }
    if plan.nodes.len() > MOST_NODES {
        return fault(
            name.defined,
            format!("topology: nodes: {}: expected at most {MOST_NODES}", plan.nodes.len()),
        );
    }
    let mut taken = HashMap::new();
    for link in &file.topology.links {
        let checked = check_link(link, file, &mut taken)?;
        if plan.rounds {
            check_for_rounds(&checked.asked).or_else(|what| fault(link.defined, what))?;
        }
        plan.links.push(checked);
    }
    check_loops(&plan, &file.topology.links)?;
    check_schedule(file, &taken, &mut plan)?;
    Ok(plan)
}

fn check_for_rounds(asked: &[Impairments; 2]) -> Result<(), String> {
    asked.iter().try_for_each(Impairments::check_for_rounds)
}

fn rate(
    tdf: &Option<Spanned<String>>,
    rate: &Option<Spanned<String>>,
) -> Result<Option<Rate>, Fault> {
    if let (Some(tdf), Some(_)) = (tdf, rate) {
        return fault(tdf.defined, "tdf: excludes rate: give one of them");
    }
    Ok(clock_option("tdf", tdf)?.tdf.or(clock_option("rate", rate)?.rate))
}

fn start(at: &Option<Spanned<String>>) -> Result<Option<WallTime>, Fault> {
    Ok(clock_option("at", at)?.at)
}

/// Reads one key of a clock as the clock option of that name.
fn clock_option(key: &str, text: &Option<Spanned<String>>) -> Result<ClockOptions, Fault> {
    let mut options = ClockOptions::default();
    if let Some(text) = text {
        let option = CLOCK_OPTIONS.iter().find(|option| option.name == key);
        option
            .ok_or_else(|| "no such clock option".to_string())
            .and_then(|option| option.read(&mut options, &text.value))
            .or_else(|error| fault(text.defined, format!("{key}: {}: {error}", text.value)))?;
    }
    Ok(options)
}

fn check_node(name: &str, node: &Spanned<Node>, plan: &mut Plan) -> Result<(), Fault> {
    let at = node.defined;
    if !is_name(name) || name.len() > 60 {
        return fault(at, format!("node {name:?}: expected up to 60 letters, digits, '.', '_' and '-', the first a letter or digit"));
    }
    let node = &node.value;
    if let Some(position) = node.position {
        plan.positions.insert(name.to_string(), position);
    }
    if node.kind != Kind::Process {
        let is_bare = node.command.is_none()
            && node.exec.is_empty()
            && node.env.is_empty()
            && node.sysctls.is_empty()
            && node.output.is_none()
            && node.image.is_none()
            && node.rootfs.is_none()
            && node.binds.is_empty()
            && node.tdf.is_none()
            && node.rate.is_none()
            && node.at.is_none();
        if !is_bare {
            return fault(
                at,
                format!(
                    "node {name}: a switch or hub runs nothing; expected kind, and position, alone"
                ),
            );
        }
        plan.switches.push((name.to_string(), node.kind == Kind::Switch));
        return Ok(());
    }
    let command = match &node.command {
        None => None,
        Some(Command::Line(line)) => Some(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
        Some(Command::Words(words)) if words.is_empty() => {
            return fault(at, format!("node {name}: command: expected at least one word"))
        }
        Some(Command::Words(words)) => Some(words.clone()),
    };
    let own_rate = rate(&node.tdf, &node.rate)?;
    for (key, own) in [("tdf", &node.tdf), ("rate", &node.rate), ("at", &node.at)] {
        if let Some(own) = own.as_ref().filter(|_| !plan.rounds) {
            return fault(
                own.defined,
                format!("node {name}: {key} of its own: expected 'rounds: true', without which all nodes are on one clock"),
            );
        }
    }
    if let Some(image) = node.image.as_ref().filter(|_| node.rootfs.is_some()) {
        return fault(
            image.defined,
            format!("node {name}: image: excludes rootfs: give one of them"),
        );
    }
    // As an argument of a command the name must not look like an option. No name contains white space.
    let is_image = |text: &str| {
        !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
    };
    if let Some(image) = node.image.as_ref().filter(|image| !is_image(&image.value)) {
        return fault(
            image.defined,
            format!(
                "node {name}: image: {:?}: expected an image such as docker.io/library/alpine:3.20",
                image.value
            ),
        );
    }
    let mut binds = Vec::new();
    for bind in &node.binds {
        let read = bind.value.parse::<Bind>();
        binds.push(read.or_else(|what| {
            fault(bind.defined, format!("node {name}: binds: {:?}: {what}", bind.value))
        })?);
    }
    for (key, value) in &node.sysctls {
        let good = key.starts_with("net.") && !key.contains('/') && !key.contains("..");
        if !good {
            return fault(
                value.defined,
                format!("node {name}: sysctls: {key}: expected one of the network's, net.*"),
            );
        }
    }
    plan.nodes.push(NodePlan {
        name: name.to_string(),
        rate: own_rate.unwrap_or(plan.rate),
        at: start(&node.at)?,
        command,
        exec: node.exec.iter().map(|line| line.value.clone()).collect(),
        env: node.env.clone(),
        sysctls: node
            .sysctls
            .iter()
            .map(|(key, value)| (key.clone(), value.value.clone()))
            .collect(),
        output: node.output.clone(),
        image: node.image.as_ref().map(|image| image.value.clone()),
        user: None,
        folder: None,
        rootfs: node.rootfs.as_ref().map(PathBuf::from),
        binds,
    });
    Ok(())
}

fn check_link(
    link: &Spanned<Link>,
    file: &File,
    taken: &mut HashMap<Endpoint, u64>,
) -> Result<LinkPlan, Fault> {
    let at = link.defined;
    let link = &link.value;
    let [first, second] = &link.endpoints[..] else {
        return fault(at, format!("endpoints: {} given; expected two", link.endpoints.len()));
    };
    let ends = [check_end(first, file, taken)?, check_end(second, file, taken)?];
    let both = link.impairments();
    both.check().or_else(|what| fault(at, what))?;
    let mut asked = [both.clone(), both];
    for (key, own) in &link.from {
        let Some(side) = ends.iter().position(|end| end.to_string() == *key) else {
            return fault(own.defined, format!("from: {key}: expected {} or {}", ends[0], ends[1]));
        };
        asked[side] = asked[side].with(&own.value);
        asked[side].check().or_else(|what| fault(own.defined, format!("from: {key}: {what}")))?;
    }
    let mtu = match &link.mtu {
        Some(mtu) if !(68..=65_521).contains(&mtu.value) => {
            return fault(mtu.defined, format!("mtu: {}: expected 68 to 65521", mtu.value))
        }
        Some(mtu) => mtu.value,
        None => MTU,
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
    Ok(LinkPlan { ends, asked, addresses, macs, mtu, is_up: link.state == State::Up })
}

/// Checks the values that `key` gives to the two ends. Only ends at nodes can have one.
fn for_ends<'a>(
    key: &str,
    given: &'a [Option<Spanned<String>>],
    at: Location,
    ends: &[Endpoint; 2],
    file: &File,
) -> Result<Vec<(usize, &'a Spanned<String>)>, Fault> {
    if !given.is_empty() && given.len() != 2 {
        return fault(
            at,
            format!("{key}: {} given; expected one for each end, or null", given.len()),
        );
    }
    let given = given.iter().enumerate().filter_map(|(side, text)| Some((side, text.as_ref()?)));
    let given: Vec<_> = given.collect();
    for (side, text) in &given {
        let node = &ends[*side].node;
        if file.topology.nodes.get(node).is_some_and(|one| one.value.kind != Kind::Process) {
            return fault(text.defined, format!("{key}: {node} is a switch or hub; expected null"));
        }
    }
    Ok(given)
}

fn mac(text: &Spanned<String>) -> Result<[u8; 6], Fault> {
    let pair = |pair: &str| (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = text.value.split(':').map(pair).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    // The lowest bit of the first byte marks a group address.
    bytes.filter(|bytes| bytes[0] & 1 == 0 && *bytes != [0; 6]).ok_or_else(|| Fault {
        at: text.defined,
        what: format!(
            "mac: {:?}: expected the address of one interface such as 02:00:00:00:00:01",
            text.value
        ),
    })
}

fn check_end(
    text: &Spanned<String>,
    file: &File,
    taken: &mut HashMap<Endpoint, u64>,
) -> Result<Endpoint, Fault> {
    let end: Endpoint = text.value.parse().or_else(|what: String| {
        fault(text.defined, format!("endpoints: {:?}: {what}", text.value))
    })?;
    let Some(node) = file.topology.nodes.get(&end.node) else {
        let names: Vec<&str> = file.topology.nodes.keys().map(String::as_str).collect();
        return fault(
            text.defined,
            format!(
                "endpoints: {end}: no node {:?}; expected one of {}",
                end.node,
                some_of(&names)
            ),
        );
    };
    if node.value.kind == Kind::Process && end.interface == "lo" {
        return fault(
            text.defined,
            format!("endpoints: {end}: lo is the loopback interface; expected another name"),
        );
    }
    if let Some(line) = taken.insert(end.clone(), text.defined.line()) {
        return fault(
            text.defined,
            format!("endpoints: {end}: has a link already, in line {line}; expected an interface of its own"),
        );
    }
    Ok(end)
}

fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

fn address(key: &str, text: &Spanned<String>, is_v4: bool) -> Result<(IpAddr, u8), Fault> {
    let parsed = text.value.split_once('/').and_then(|(address, length)| {
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (address.is_ipv4() == is_v4 && length <= longest).then_some((address, length))
    });
    let example = if is_v4 { "10.0.0.1/24" } else { "fd00::1/64" };
    parsed.ok_or_else(|| Fault {
        at: text.defined,
        what: format!(
            "{key}: {:?}: expected an address and its prefix length such as {example}",
            text.value
        ),
    })
}

/// Checks that no switches form a loop: a broadcast would go round in it for ever, because there is no spanning tree.
fn check_loops(plan: &Plan, links: &[Spanned<Link>]) -> Result<(), Fault> {
    let index: HashMap<&str, usize> =
        plan.switches.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
    let mut group: Vec<usize> = (0..plan.switches.len()).collect();
    for (link, place) in plan.links.iter().zip(links) {
        let switch = |side: usize| index.get(link.ends[side].node.as_str()).map(|&at| group[at]);
        let (Some(one), Some(other)) = (switch(0), switch(1)) else { continue };
        if one == other {
            return fault(
                place.defined,
                format!("link {} - {}: closes a loop of switches, which have no spanning tree; expected a tree", link.ends[0], link.ends[1]),
            );
        }
        group.iter_mut().filter(|at| **at == other).for_each(|at| *at = one);
    }
    Ok(())
}

fn check_schedule(
    file: &File,
    taken: &HashMap<Endpoint, u64>,
    plan: &mut Plan,
) -> Result<(), Fault> {
    let mut all = Vec::new();
    for change in &file.schedule {
        let (at, change) = (change.defined, &change.value);
        let end = change.link.value.parse::<Endpoint>().ok().filter(|end| taken.contains_key(end));
        let Some(end) = end else {
            return fault(
                change.link.defined,
                format!(
                    "schedule: link: {}: no link ends there; expected one of the endpoints",
                    change.link.value
                ),
            );
        };
        if change.set.is_empty() && change.state.is_none() {
            return fault(at, "schedule: changes nothing; expected set or state");
        }
        let is_up = change.state.map(|state| state == State::Up);
        all.push((
            at,
            ChangePlan {
                at: change.at.span(),
                end,
                both: change.both,
                set: change.set.clone(),
                is_up,
            },
        ));
    }
    all.sort_by_key(|(_, change)| change.at);
    // Each change must make sense with the impairments in force at that time.
    let mut asked: Vec<[Impairments; 2]> =
        plan.links.iter().map(|link| link.asked.clone()).collect();
    for (at, change) in &all {
        for (link, side) in sides(&plan.links, &change.end, change.both) {
            asked[link][side] = asked[link][side].with(&change.set);
            let wrong = |what| fault(*at, format!("schedule: {what}"));
            asked[link][side].check().or_else(wrong)?;
            if plan.rounds {
                asked[link][side].check_for_rounds().or_else(wrong)?;
            }
        }
    }
    plan.schedule = all.into_iter().map(|(_, change)| change).collect();
    Ok(())
}

/// Returns the directions that `end` names among `links`: frames that it sends, or both directions.
pub fn sides(links: &[LinkPlan], end: &Endpoint, both: bool) -> Vec<(usize, usize)> {
    let found = links
        .iter()
        .enumerate()
        .find_map(|(at, link)| link.ends.iter().position(|one| one == end).map(|side| (at, side)));
    match found {
        Some((at, side)) if both => vec![(at, side), (at, 1 - side)],
        Some(one) => vec![one],
        None => Vec::new(),
    }
}

/// Whether the kernel accepts the name of an interface.
fn is_interface(text: &str) -> bool {
    let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    !text.is_empty() && text.len() <= 15 && text != "." && text != ".." && text.chars().all(good)
}
