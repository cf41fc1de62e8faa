//! Topologies of containerlab.

use lorentz_emulator::impair::Impairments;
use serde_json::{json, Map, Value};

use super::elements::{mac_text, other_kind};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};

/// The image of nodes without one. containerlab has no node without an image.
const IMAGE: &str = "docker.io/library/debian:stable";

pub(super) fn write(plan: &NetworkPlan, left_out: &mut Vec<String>) -> String {
    let mut nodes = Map::new();
    for node in &plan.nodes {
        nodes.insert(node.name.clone(), node_entry(plan, node, left_out).into());
    }
    for (name, kind) in &plan.switches {
        if let Some(other) = other_kind(*kind) {
            left_out.push(format!("node {name}: {other}; it is a bridge"));
        }
        let mut entry = Map::from_iter([("kind".into(), "bridge".into())]);
        if let Some(labels) = labels(plan, name) {
            entry.insert("labels".into(), labels);
        }
        nodes.insert(name.clone(), entry.into());
    }
    let links: Vec<Value> = plan.links.iter().map(|link| link_entry(link, left_out)).collect();
    let mut lab = json!({ "name": plan.name, "topology": { "nodes": nodes } });
    // containerlab's schema has no empty list of links.
    if !links.is_empty() {
        lab["topology"]["links"] = links.into();
    }
    // No map here has a key that YAML could not hold.
    serde_saphyr::to_string(&lab).unwrap_or_default()
}

fn node_entry(
    plan: &NetworkPlan,
    node: &NodePlan,
    left_out: &mut Vec<String>,
) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("kind".into(), "linux".into());
    let image = node.image.as_deref().unwrap_or_else(|| {
        left_out.push(format!("node {}: the host's files; it has the image {IMAGE}", node.name));
        IMAGE
    });
    entry.insert("image".into(), image.into());
    if let Some(words) = &node.command {
        let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        entry.insert("cmd".into(), quoted.collect::<Vec<_>>().join(" ").into());
    }
    if !node.env.is_empty() {
        entry.insert("env".into(), json!(node.env));
    }
    if !node.sysctls.is_empty() {
        entry.insert("sysctls".into(), json!(node.sysctls));
    }
    let exec = exec(plan, &node.name, node.exec.iter().map(|line| line.text.as_str()));
    if !exec.is_empty() {
        entry.insert("exec".into(), exec.into());
    }
    if let Some(labels) = labels(plan, &node.name) {
        entry.insert("labels".into(), labels);
    }
    entry
}

fn link_entry(link: &LinkPlan, left_out: &mut Vec<String>) -> Value {
    let ends = format!("{} - {}", link.ends[0], link.ends[1]);
    for key in named(&link.impairments) {
        left_out.push(format!("link {ends}: {key}; 'containerlab tools netem' sets it"));
    }
    let mut entry = Map::new();
    if link.macs.iter().any(Option::is_some) {
        // Only the extended form of a link has hardware addresses.
        entry.insert("type".into(), "veth".into());
    }
    entry.insert("endpoints".into(), endpoints(link));
    if link.mtu != 1_500 {
        entry.insert("mtu".into(), link.mtu.into());
    }
    Value::Object(entry)
}

fn endpoints(link: &LinkPlan) -> Value {
    if link.macs.iter().all(Option::is_none) {
        return json!(link.ends.each_ref().map(ToString::to_string));
    }
    let ends = link.ends.iter().zip(&link.macs).map(|(end, mac)| {
        let mut entry = json!({ "node": end.node, "interface": end.interface });
        if let Some(mac) = mac {
            entry["mac"] = mac_text(*mac).into();
        }
        entry
    });
    ends.collect()
}

/// Lines that set the addresses of a node, then its own. Each line is for a shell.
fn exec<'a>(plan: &NetworkPlan, node: &str, lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all = Vec::new();
    for link in &plan.links {
        for side in (0..2).filter(|side| link.ends[*side].node == node) {
            for (address, length) in &link.addresses[side] {
                let interface = &link.ends[side].interface;
                all.push(format!("ip address add {address}/{length} dev {interface}"));
            }
        }
    }
    let shell = |line: &str| {
        let is_plain = line.chars().all(|c| c.is_ascii_alphanumeric() || " ./:_-=".contains(c));
        match is_plain {
            true => line.to_string(),
            false => format!("sh -c '{}'", line.replace('\'', "'\\''")),
        }
    };
    all.extend(lines.map(shell));
    all
}

fn labels(plan: &NetworkPlan, name: &str) -> Option<Value> {
    let [x, y] = plan.positions.get(name)?;
    Some(json!({ "graph-posX": x.to_string(), "graph-posY": y.to_string() }))
}

/// Names of the impairments that either direction has.
fn named(both: &[Impairments; 2]) -> Vec<String> {
    let mut names: Vec<String> = both
        .iter()
        .filter_map(|one| serde_json::to_value(one).ok())
        .flat_map(|one| one.as_object().cloned().unwrap_or_default())
        .filter(|(_, value)| !value.is_null())
        .map(|(key, _)| key)
        .collect();
    names.sort();
    names.dedup();
    names
}
