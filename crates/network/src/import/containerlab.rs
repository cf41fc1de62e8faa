//! containerlab's topologies: nodes of kind `linux` and `bridge`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::draft::{join_arguments, link, words, Draft, Position, Read};
use crate::topology::{self, Node, NodeCommand, NodeKind};

/// Settings by key. All of them are noted as left out, unless the reader takes them.
type Settings = BTreeMap<String, Spanned<Value>>;

#[derive(Deserialize)]
struct Lab {
    name: Spanned<String>,
    topology: Topology,
    mgmt: Option<Spanned<Value>>,
    prefix: Option<Spanned<Value>>,
    #[serde(flatten)]
    others: Settings,
}

#[derive(Deserialize)]
struct Topology {
    #[serde(default)]
    defaults: Settings,
    #[serde(default)]
    kinds: BTreeMap<String, Settings>,
    #[serde(default)]
    groups: BTreeMap<String, Settings>,
    nodes: BTreeMap<String, Option<Spanned<Settings>>>,
    #[serde(default)]
    links: Vec<Spanned<Settings>>,
    #[serde(flatten)]
    others: Settings,
}

pub(super) fn read(draft: &mut Draft, text: &str) -> Read<()> {
    let lab: Lab = topology::parse(&draft.name, text)?;
    draft.file.name = lab.name;
    let known = [("mgmt", lab.mgmt.as_ref()), ("prefix", lab.prefix.as_ref())];
    let known = known.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let unknown = lab.others.iter().chain(&lab.topology.others);
    for (key, value) in known.chain(unknown.map(|(key, value)| (key.as_str(), value))) {
        draft.leave_out(Position::from_location(value.defined), format!("{key}: {}", value.value));
    }
    let mut is_there = BTreeMap::new();
    for (name, own) in &lab.topology.nodes {
        is_there.insert(name.as_str(), read_node(draft, &lab.topology, name, own.as_ref())?);
    }
    for link in &lab.topology.links {
        read_link(draft, link, &is_there)?;
    }
    Ok(())
}

/// Returns a node's settings. Its own come before those of its group, its kind and all nodes.
fn settings<'a>(
    topology: &'a Topology,
    own: &'a Settings,
) -> BTreeMap<&'a str, Vec<&'a Spanned<Value>>> {
    let text = |key: &str, from: &'a Settings| from.get(key).and_then(|one| one.value.as_str());
    let group = text("group", own).and_then(|group| topology.groups.get(group));
    let all = [Some(own), group, None, Some(&topology.defaults)];
    let kind = all.iter().flatten().find_map(|from| text("kind", from));
    let kind = kind.and_then(|kind| topology.kinds.get(kind));
    let mut found: BTreeMap<&str, Vec<&Spanned<Value>>> = BTreeMap::new();
    for from in [Some(own), group, kind, Some(&topology.defaults)].into_iter().flatten() {
        for (key, value) in from {
            found.entry(key).or_default().push(value);
        }
    }
    found
}

/// Whether the node is of a kind that Lorentz has.
fn read_node(
    draft: &mut Draft,
    topology: &Topology,
    name: &str,
    own: Option<&Spanned<Settings>>,
) -> Read<bool> {
    let none = Settings::new();
    let at =
        own.map_or(Position { line: 1, column: 1 }, |own| Position::from_location(own.defined));
    let settings = settings(topology, own.map_or(&none, |own| &own.value));
    let kind = settings.get("kind").and_then(|all| all.first()?.value.as_str());
    let mut node = Node::default();
    match kind {
        Some("linux") => node.shell = Some(at.of("bash".to_string())),
        Some("bridge") => node.kind = NodeKind::Switch,
        other => {
            let kind = other.unwrap_or("none");
            draft.leave_out(
                at,
                format!("node {name} of kind {kind}, and its links: expected linux or bridge"),
            );
            return Ok(false);
        }
    }
    // Settings for all nodes are settings for containers.
    let is_own = |key: &str| own.is_some_and(|own| own.value.contains_key(key));
    // How a command is read depends on whether there is an image.
    let image = settings.get("image").and_then(|all| all.first());
    if let Some(image) = image.filter(|_| node.kind == NodeKind::Process) {
        node.image = Some(Position::from_location(image.defined).of(text(&image.value)));
    }
    for (key, values) in settings {
        match node.kind {
            NodeKind::Process => read_setting(draft, name, &mut node, key, &values),
            _ if ["kind", "group"].contains(&key) || !is_own(key) => {}
            _ if key == "labels" => read_setting(draft, name, &mut node, key, &values),
            _ => draft.leave_out(at, format!("node {name}: {key}: a bridge runs nothing")),
        }
    }
    join_arguments(&mut node);
    if node.kind == NodeKind::Process && node.network_of.is_none() {
        // Docker's host forwards packets, and containers have its settings.
        let forwards = || at.of("1".to_string());
        node.sysctls.entry("net.ipv4.ip_forward".into()).or_insert_with(forwards);
    }
    draft.add_node(at, name, node)?;
    Ok(true)
}

fn read_setting(
    draft: &mut Draft,
    name: &str,
    node: &mut Node,
    key: &str,
    values: &[&Spanned<Value>],
) {
    let Some(first) = values.first() else { return };
    let at = Position::from_location(first.defined);
    let has_image = node.image.is_some();
    let shared = text(&first.value).strip_prefix("container:").map(str::to_string);
    match key {
        "kind" | "group" | "image" => {}
        // Its arguments are known when all keys are read.
        "entrypoint" if has_image => {
            node.command = Some(NodeCommand::Words(words(&text(&first.value))))
        }
        "user" if has_image => node.user = Some(at.of(text(&first.value))),
        "cmd" if has_image => node.args = words(&text(&first.value)),
        "network-mode" if shared.is_some() => node.network_of = shared.map(|other| at.of(other)),
        "cmd" => node.command = Some(NodeCommand::Line(format!("exec {}", text(&first.value)))),
        "exec" => {
            // The settings for all nodes come before a node's own.
            for list in values.iter().rev() {
                for line in list.value.as_array().into_iter().flatten() {
                    node.exec.push(Position::from_location(list.defined).of(text(line)));
                }
            }
        }
        // A relative path is relative to the directory of the file.
        "binds" => {
            let folder = std::path::absolute(&draft.name).unwrap_or_default();
            let folder = folder.parent().unwrap_or(Path::new("/"));
            for list in values.iter().rev() {
                for bind in list.value.as_array().into_iter().flatten() {
                    let bind = text(bind);
                    // A node's changes to a bind end with the node, although containerlab lets it write to the host.
                    let options = if bind.ends_with(":ro") { ",O" } else { ":O" };
                    let bind =
                        format!("{}{options}", folder.join(bind.trim_end_matches(":rw")).display());
                    node.binds.push(Position::from_location(list.defined).of(bind));
                }
            }
        }
        "env" | "sysctls" => {
            for map in values.iter().rev() {
                for (key_of, value) in map.value.as_object().into_iter().flatten() {
                    if key == "env" {
                        node.env.insert(key_of.clone(), text(value));
                    } else if key_of.starts_with("net.") {
                        node.sysctls.insert(
                            key_of.clone(),
                            Position::from_location(map.defined).of(text(value)),
                        );
                    } else {
                        draft.leave_out(
                            Position::from_location(map.defined),
                            format!("node {name}: sysctl {key_of}"),
                        );
                    }
                }
            }
        }
        "labels" => {
            let labels = |key| first.value.get(key).and_then(|one| text(one).parse().ok());
            node.position = labels("graph-posX").zip(labels("graph-posY")).map(|(x, y)| [x, y]);
            let others = first.value.as_object().into_iter().flatten().map(|(label, _)| label);
            for label in others.filter(|label| !label.starts_with("graph-")) {
                draft.leave_out(at, format!("node {name}: label {label}"));
            }
        }
        other => draft.leave_out(at, format!("node {name}: {other}: {}", first.value)),
    }
}

/// A scalar as it was written.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Parses an end of a link: `NODE:INTERFACE`, or a map with both.
fn end(value: &Value) -> Option<(String, Option<String>)> {
    if let Some(text) = value.as_str() {
        return Some((text.to_string(), None));
    }
    let part = |key: &str| value.get(key).map(text);
    Some((format!("{}:{}", part("node")?, part("interface")?), part("mac")))
}

fn read_link(
    draft: &mut Draft,
    of: &Spanned<Settings>,
    is_there: &BTreeMap<&str, bool>,
) -> Read<()> {
    let at = Position::from_location(of.defined);
    let kind = of.value.get("type").map(|kind| text(&kind.value));
    let given = of.value.get("endpoints").and_then(|ends| ends.value.as_array());
    let ends: Vec<_> = given.into_iter().flatten().filter_map(end).collect();
    if let Some(kind) = kind.filter(|kind| kind != "veth") {
        draft.leave_out(at, format!("link of type {kind}: expected veth"));
        return Ok(());
    }
    let [(one, one_mac), (other, other_mac)] = &ends[..] else {
        return draft.error(at, "endpoints: expected two, NODE:INTERFACE each");
    };
    let is_out =
        |end: &str| is_there.get(end.split(':').next().unwrap_or_default()) == Some(&false);
    // These are interfaces of the host, and not nodes.
    let is_special =
        |end: &str| ["host:", "mgmt-net:", "macvlan:"].iter().any(|start| end.starts_with(start));
    if [one, other].iter().any(|end| is_out(end) || is_special(end)) {
        draft.leave_out(at, format!("link {one} - {other}: an end is not there"));
        return Ok(());
    }
    let mut made = link([at.of(one.clone()), at.of(other.clone())]);
    if one_mac.is_some() || other_mac.is_some() {
        made.mac = [one_mac, other_mac].map(|mac| mac.clone().map(|mac| at.of(mac))).into();
    }
    for (key, value) in &of.value {
        let at = Position::from_location(value.defined);
        let list = || value.value.as_array().into_iter().flatten();
        let addresses = || {
            list()
                .map(|one| one.as_str().filter(|s| !s.is_empty()).map(|s| at.of(s.to_string())))
                .collect()
        };
        match key.as_str() {
            "endpoints" | "type" => {}
            "mtu" => match value.value.as_u64().and_then(|mtu| u32::try_from(mtu).ok()) {
                Some(mtu) => made.mtu = Some(at.of(mtu)),
                None => {
                    return draft.error(at, format!("mtu: {}: expected 68 to 65521", value.value))
                }
            },
            "ipv4" => made.ipv4 = addresses(),
            "ipv6" => made.ipv6 = addresses(),
            other => draft.leave_out(at, format!("link {one}: {other}: {}", value.value)),
        }
    }
    draft.add_link(at, made);
    Ok(())
}
