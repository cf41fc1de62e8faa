//! containerlab's topologies: nodes of kind `linux`, `frr`, `bridge` and `ovs-bridge`.

mod commands;
mod lab;
mod link;
mod node;
mod template;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::draft::{Draft, Position, Read};
use crate::topology;
use lab::Lab;
use variables::Place;

pub(super) fn read(draft: &mut Draft, text: &str) -> Read<()> {
    let text = if is_template(text) { fill(draft, text)? } else { text.to_string() };
    let text = variables::expand(&text, &|name| std::env::var(name).ok());
    let lab: Lab = topology::parse(&draft.name, &text)?;
    let file = std::path::absolute(&draft.name).unwrap_or_default();
    let folder = file.parent().unwrap_or(Path::new("/"));
    let known = [("mgmt", lab.mgmt.as_ref()), ("prefix", lab.prefix.as_ref())];
    let known = known.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let unknown = lab.others.iter().chain(&lab.topology.others);
    for (key, value) in known.chain(unknown.map(|(key, value)| (key.as_str(), value))) {
        draft.leave_out(Position::from_location(value.defined), format!("{key}: {}", value.value));
    }
    let mut is_there = BTreeMap::new();
    for (name, own) in &lab.topology.nodes {
        let place = Place { folder, lab: &lab.name.value, node: name };
        is_there.insert(name.as_str(), node::read(draft, &lab.topology, place, own.as_ref())?);
    }
    leave_networks_outside(draft);
    for link in &lab.topology.links {
        link::read(draft, link, &is_there)?;
    }
    draft.file.name = lab.name;
    Ok(())
}

/// Gives a network of its own to each node that shares one with a container that is not a node of the lab.
fn leave_networks_outside(draft: &mut Draft) {
    let names: BTreeSet<String> = draft.file.topology.nodes.keys().cloned().collect();
    let mut outside = Vec::new();
    for (name, node) in &mut draft.file.topology.nodes {
        let is_outside = |of: &mut Spanned<String>| !names.contains(&of.value);
        if let Some(of) = node.value.network_of.take_if(is_outside) {
            let what = format!("node {name}: network-mode: container:{}: not a node", of.value);
            let at = Position::from_location(of.defined);
            node::forward(&mut node.value, at);
            outside.push((at, what));
        }
    }
    for (at, what) in outside {
        draft.leave_out(at, format!("{what}, so its network is its own"));
    }
}

/// Returns whether Go's templates have something to do outside of comments.
fn is_template(text: &str) -> bool {
    text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("{{"))
}

/// Fills a template in, with the variables of the file beside it.
fn fill(draft: &Draft, text: &str) -> Read<String> {
    let data = match template::variables_beside(Path::new(&draft.name)) {
        Some((path, variables)) => topology::parse(&path, &variables)?,
        None => Value::Null,
    };
    template::fill(text, data)
        .or_else(|error| draft.error(error.at, format!("a template: {}", error.what)))
}
