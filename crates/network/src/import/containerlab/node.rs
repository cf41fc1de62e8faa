//! Nodes of containerlab.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::commands::{arguments, shell_line, waiting};
use super::lab::{text, Settings, Topology};
use super::variables::Place;
use crate::import::draft::{join_arguments, Draft, Position, Read};
use crate::import::services::{frr, is_daemon};
use crate::topology::{Node, NodeCommand, NodeKind};

/// Stages of a node that runs, in their order. containerlab has commands for each.
const STAGES: [&str; 4] = ["create", "create-links", "configure", "healthy"];

/// A node's settings by their keys: its own come before those of its group, its kind and all nodes.
type NodeSettings<'a> = BTreeMap<&'a str, Vec<&'a Spanned<Value>>>;

fn settings<'a>(topology: &'a Topology, own: &'a Settings) -> NodeSettings<'a> {
    let text = |key: &str, from: &'a Settings| from.get(key).and_then(|one| one.value.as_str());
    let group = text("group", own).and_then(|group| topology.groups.get(group));
    let all = [Some(own), group, None, Some(&topology.defaults)];
    let kind = all.iter().flatten().find_map(|from| text("kind", from));
    let kind = kind.and_then(|kind| topology.kinds.get(kind));
    let mut found = NodeSettings::new();
    for from in [Some(own), group, kind, Some(&topology.defaults)].into_iter().flatten() {
        for (key, value) in from {
            found.entry(key).or_default().push(value);
        }
    }
    found
}

/// Reads the node of `place`. Returns whether it is of a kind that Lorentz has.
pub(super) fn read(
    draft: &mut Draft,
    topology: &Topology,
    place: Place,
    own: Option<&Spanned<Settings>>,
) -> Read<bool> {
    let at =
        own.map_or(Position { line: 1, column: 1 }, |own| Position::from_location(own.defined));
    let none = Settings::new();
    let settings = settings(topology, own.map_or(&none, |own| &own.value));
    let kind = settings.get("kind").and_then(|all| all.first()?.value.as_str());
    let kind = kind.map(str::to_lowercase);
    let node = match kind.as_deref() {
        Some("linux") => {
            let shell = Some(at.of("bash".to_string()));
            container(draft, &place, &settings, Node { shell, ..Node::default() })?
        }
        Some("frr" | "frrouting") => router(draft, &place, at, &settings)?,
        Some("bridge" | "ovs-bridge") => {
            // Settings for all nodes are settings for containers.
            let is_own = |key: &str| own.is_some_and(|own| own.value.contains_key(key));
            bridge(draft, place.node, at, settings.into_iter().filter(|(key, _)| is_own(key)))
        }
        other => {
            let kind = other.unwrap_or("none");
            let what = format!("node {} of kind {kind}, and its links", place.node);
            draft.leave_out(at, format!("{what}: expected linux, frr, bridge or ovs-bridge"));
            return Ok(false);
        }
    };
    draft.add_node(at, place.node, node)?;
    Ok(true)
}

fn bridge<'a>(
    draft: &mut Draft,
    name: &str,
    at: Position,
    settings: impl Iterator<Item = (&'a str, Vec<&'a Spanned<Value>>)>,
) -> Node {
    let mut node = Node { kind: NodeKind::Switch, ..Node::default() };
    for (key, values) in settings {
        match key {
            "kind" | "group" => {}
            "labels" => labels(draft, name, &mut node, &values),
            _ => draft.leave_out(at, format!("node {name}: {key}: a bridge runs nothing")),
        }
    }
    node
}

/// Reads the settings of a container into `node`.
fn container(
    draft: &mut Draft,
    place: &Place,
    settings: &NodeSettings,
    mut node: Node,
) -> Read<Node> {
    // How a command is read depends on whether there is an image.
    if let Some(image) = first(settings, "image") {
        node.image = Some(Position::from_location(image.defined).of(text(&image.value)));
    }
    for (key, values) in settings {
        read_setting(draft, place, &mut node, key, values)?;
    }
    join_arguments(&mut node);
    if let (None, Some(kind)) = (&node.network_of, first(settings, "kind")) {
        forward(&mut node, Position::from_location(kind.defined));
    }
    Ok(node)
}

/// Has a node forward packets unless it says otherwise: Docker's host does, and containers have its settings.
pub(super) fn forward(node: &mut Node, at: Position) {
    let forwards = || at.of("1".to_string());
    node.sysctls.entry("net.ipv4.ip_forward".into()).or_insert_with(forwards);
}

/// Reads a node of kind `frr`: its startup configuration is FRR's, and FRR starts.
fn router(draft: &mut Draft, place: &Place, at: Position, settings: &NodeSettings) -> Read<Node> {
    let config = match first(settings, "startup-config") {
        Some(given) => startup_config(draft, place, given)?,
        None => "frr defaults traditional".to_string(),
    };
    let daemons = daemons(draft, settings)?;
    let is_own = |key: &str| {
        ["startup-config", "enforce-startup-config", "extras", "daemons"].contains(&key)
    };
    let others = settings.iter().filter(|(key, _)| !is_own(key));
    let others = others.map(|(key, values)| (*key, values.clone())).collect();
    let mut node = container(draft, place, &others, Node::default())?;
    if node.image.is_some() && node.command.is_none() && node.args.is_empty() {
        // The image's own command would start FRR without the files that the script writes.
        node.command = Some(NodeCommand::Words(vec!["sleep".into(), "infinity".into()]));
    }
    let script = frr(place.node, &config, daemons.as_deref());
    node.exec.insert(0, at.of(script));
    if Path::new("/proc/sys/net/ipv6").exists() && node.network_of.is_none() {
        node.sysctls.insert("net.ipv6.conf.all.forwarding".into(), at.of("1".to_string()));
    }
    Ok(node)
}

/// The daemons that the node names, if it names some: by `daemons`, or by `extras` as in earlier releases.
fn daemons(draft: &Draft, settings: &NodeSettings) -> Read<Option<Vec<String>>> {
    let (key, given, list) = match (first(settings, "daemons"), first(settings, "extras")) {
        (Some(given), _) => ("daemons", given, Some(&given.value)),
        (None, Some(given)) => ("extras", given, given.value.pointer("/frr/daemons")),
        (None, None) => return Ok(None),
    };
    let list = list.and_then(Value::as_array);
    let daemons = list.map(|list| list.iter().map(text).collect::<Vec<String>>());
    if let Some(other) = daemons.iter().flatten().find(|one| !is_daemon(one)) {
        let at = Position::from_location(given.defined);
        return draft.error(at, format!("{key}: daemon {other}: expected one of FRR's, as ospfd"));
    }
    Ok(daemons)
}

fn first<'a>(settings: &NodeSettings<'a>, key: &str) -> Option<&'a Spanned<Value>> {
    settings.get(key).and_then(|all| all.first().copied())
}

fn read_setting(
    draft: &mut Draft,
    place: &Place,
    node: &mut Node,
    key: &str,
    values: &[&Spanned<Value>],
) -> Read<()> {
    let Some(first) = values.first() else { return Ok(()) };
    let name = place.node;
    let at = Position::from_location(first.defined);
    let has_image = node.image.is_some();
    let shared = text(&first.value).strip_prefix("container:").map(str::to_string);
    match key {
        "kind" | "group" | "image" => {}
        // Its arguments are known when all keys are read.
        "entrypoint" if has_image => {
            node.command = Some(NodeCommand::Words(arguments(&text(&first.value))))
        }
        "user" if has_image => node.user = Some(at.of(text(&first.value))),
        "cmd" if has_image => node.args = arguments(waiting(&text(&first.value))),
        "cmd" => {
            let line = format!("exec {}", waiting(&text(&first.value)));
            node.command = Some(NodeCommand::Line(line));
        }
        "network-mode" if shared.is_some() => node.network_of = shared.map(|other| at.of(other)),
        // No node is in the network of containerlab's management.
        "network-mode" if first.value == "none" => {}
        // The settings for all nodes come before a node's own.
        "exec" => {
            for (at, line) in lists(values) {
                node.exec.push(at.of(shell_line(&place.expand(&text(line)))));
            }
        }
        "binds" => {
            for (at, bind) in lists(values) {
                binds(draft, place, node, at, &text(bind));
            }
        }
        "env" => env(draft, name, node, values),
        "env-files" => {
            let mut variables = BTreeMap::new();
            for (at, file) in lists(values) {
                variables.extend(env_file(draft, place, at, &text(file))?);
            }
            for (key, value) in variables {
                // A variable that a setting names comes before those of files.
                node.env.entry(key).or_insert(value);
            }
        }
        "sysctls" => sysctls(draft, name, node, values),
        "stages" => values.iter().for_each(|level| stages(draft, place, node, level)),
        "labels" => labels(draft, name, node, values),
        other => draft.leave_out(at, format!("node {name}: {other}: {}", first.value)),
    }
    Ok(())
}

/// The elements of lists, those for all nodes first, with the places of the lists.
fn lists<'a>(
    values: &'a [&'a Spanned<Value>],
) -> impl Iterator<Item = (Position, &'a Value)> + use<'a> {
    values.iter().rev().flat_map(|list| {
        let at = Position::from_location(list.defined);
        list.value.as_array().into_iter().flatten().map(move |one| (at, one))
    })
}

/// The entries of maps, those for all nodes first, with the places of the maps.
fn maps<'a>(
    values: &'a [&'a Spanned<Value>],
) -> impl Iterator<Item = (Position, &'a String, &'a Value)> + use<'a> {
    values.iter().rev().flat_map(|map| {
        let at = Position::from_location(map.defined);
        map.value.as_object().into_iter().flatten().map(move |(key, value)| (at, key, value))
    })
}

/// Binds a file or directory of the host. One of a node comes before one of all nodes with the same target.
fn binds(draft: &mut Draft, place: &Place, node: &mut Node, at: Position, bind: &str) {
    let name = place.node;
    let mut parts = bind.splitn(3, ':');
    let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
        let what = format!("node {name}: bind {bind}: a volume without a source");
        return draft.leave_out(at, format!("{what}, the node's own layer takes its files"));
    };
    let source = place.path(source);
    if !source.exists() {
        let what = format!("node {name}: bind {bind}: {}: not there", source.display());
        return draft.leave_out(at, what);
    }
    // A node's changes to a bind end with the node, although containerlab lets it write to the host.
    let is_read_only = parts.next().is_some_and(|all| all.split(',').any(|one| one == "ro"));
    let options = if is_read_only { ":ro,O" } else { ":O" };
    let made = at.of(format!("{}:{target}{options}", source.display()));
    let has_target = |one: &Spanned<String>| one.value.split(':').nth(1) == Some(target);
    node.binds.retain(|one| !has_target(one));
    node.binds.push(made);
}

fn env(draft: &mut Draft, name: &str, node: &mut Node, values: &[&Spanned<Value>]) {
    for (at, key, value) in maps(values) {
        if key == "__IMPORT_ENVS" {
            draft.leave_out(
                at,
                format!("node {name}: env {key}: the host's variables stay outside"),
            );
        } else {
            node.env.insert(key.clone(), text(value));
        }
    }
}

/// Reads a file of variables: KEY=VALUE lines, perhaps with quotes or `export`.
fn env_file(
    draft: &Draft,
    place: &Place,
    at: Position,
    file: &str,
) -> Read<BTreeMap<String, String>> {
    let path = place.path(file);
    let lines = match std::fs::read_to_string(&path) {
        Ok(lines) => lines,
        Err(error) => return draft.error(at, format!("env-files: {}: {error}", path.display())),
    };
    let variable = |line: &str| {
        let (key, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        let value = value.trim();
        let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = within('"').or_else(|| within('\'')).unwrap_or(value);
        Some((key.trim().to_string(), value.to_string()))
    };
    let lines = lines.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(variable).collect())
}

fn sysctls(draft: &mut Draft, name: &str, node: &mut Node, values: &[&Spanned<Value>]) {
    for (at, key, value) in maps(values) {
        match key.starts_with("net.") {
            true => drop(node.sysctls.insert(key.clone(), at.of(text(value)))),
            false => draft.leave_out(at, format!("node {name}: sysctl {key}")),
        }
    }
}

/// Reads the commands of stages. Nodes wait for nothing: all are made before any command runs.
fn stages(draft: &mut Draft, place: &Place, node: &mut Node, stages: &Spanned<Value>) {
    let at = Position::from_location(stages.defined);
    let name = place.node;
    let order = |stage: &String| STAGES.iter().position(|one| one == stage);
    let mut lines = Vec::new();
    let mut all: Vec<_> = stages.value.as_object().into_iter().flatten().collect();
    all.sort_by_key(|(stage, _)| order(stage));
    for (stage, parts) in all {
        for (key, value) in parts.as_object().into_iter().flatten() {
            let commands = value.as_array().filter(|_| key == "exec" && order(stage).is_some());
            let Some(commands) = commands else {
                draft.leave_out(at, format!("node {name}: stage {stage}: {key}: {value}"));
                continue;
            };
            for command in commands {
                let part = |key: &str| command.get(key).map(text).unwrap_or_default();
                match part("target").as_str() {
                    "" | "container" => {
                        lines.push(at.of(shell_line(&place.expand(&part("command")))));
                    }
                    _ => draft.leave_out(
                        at,
                        format!(
                            "node {name}: stage {stage}: exec on the host: {}",
                            part("command")
                        ),
                    ),
                }
            }
        }
    }
    // A node's own exec comes behind its stages.
    node.exec.splice(0..0, lines);
}

fn labels(draft: &mut Draft, name: &str, node: &mut Node, values: &[&Spanned<Value>]) {
    let Some(first) = values.first() else { return };
    let number = |key| first.value.get(key).and_then(|one| text(one).parse().ok());
    node.position = number("graph-posX").zip(number("graph-posY")).map(|(x, y)| [x, y]);
    for label in first.value.as_object().into_iter().flatten().map(|(label, _)| label) {
        if !label.starts_with("graph-") {
            let at = Position::from_location(first.defined);
            draft.leave_out(at, format!("node {name}: label {label}"));
        }
    }
}

/// Returns the text of a startup configuration, which the topology has or names a file of.
fn startup_config(draft: &Draft, place: &Place, given: &Spanned<Value>) -> Read<String> {
    let value = text(&given.value);
    if value.contains('\n') {
        return Ok(value);
    }
    let at = Position::from_location(given.defined);
    if value.starts_with("http://") || value.starts_with("https://") {
        return draft.error(at, format!("startup-config: {value}: expected a file"));
    }
    let path = place.path(&value);
    std::fs::read_to_string(&path)
        .or_else(|error| draft.error(at, format!("startup-config: {}: {error}", path.display())))
}
