//! Links of containerlab.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::lab::{text, Settings};
use crate::import::draft::{link, Draft, Position, Read};
use crate::topology::{Link, Node, NodeKind};

/// Beginnings of ends that are interfaces of the host, and not nodes.
const OF_THE_HOST: [&str; 3] = ["host:", "mgmt-net:", "macvlan:"];

/// An end of a link.
struct End {
    /// NODE:INTERFACE.
    name: String,
    mac: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
    /// Keys that have no place in a link.
    others: Vec<String>,
}

impl End {
    /// Parses `NODE:INTERFACE`, or a map with both.
    fn parse(value: &Value) -> Option<End> {
        let part = |key: &str| value.get(key).map(text);
        let name = match value.as_str() {
            Some(text) => text.to_string(),
            None => format!("{}:{}", part("node")?, part("interface")?),
        };
        let is_known = |key: &str| ["node", "interface", "mac", "ipv4", "ipv6"].contains(&key);
        let others = value.as_object().into_iter().flatten();
        let others = others.filter(|(key, _)| !is_known(key));
        Some(End {
            name,
            mac: part("mac"),
            ipv4: part("ipv4"),
            ipv6: part("ipv6"),
            others: others.map(|(key, value)| format!("{key}: {value}")).collect(),
        })
    }

    /// Its node.
    fn node(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }
}

/// Reads a link. `is_there` tells for each node whether Lorentz has its kind.
pub(super) fn read(
    draft: &mut Draft,
    of: &Spanned<Settings>,
    is_there: &BTreeMap<&str, bool>,
) -> Read<()> {
    let at = Position::from_location(of.defined);
    match of.value.get("type").map(|kind| text(&kind.value)).as_deref() {
        None | Some("veth") => {}
        Some("dummy") => return dummy(draft, at, of, is_there),
        Some(kind) => {
            draft.leave_out(at, format!("link of type {kind}: expected veth or dummy"));
            return Ok(());
        }
    }
    let given = of.value.get("endpoints").and_then(|ends| ends.value.as_array());
    let ends: Vec<_> = given.into_iter().flatten().filter_map(End::parse).collect();
    let Ok(ends) = <[End; 2]>::try_from(ends) else {
        return draft.error(at, "endpoints: expected two, NODE:INTERFACE each");
    };
    let is_out = |end: &End| {
        is_there.get(end.node()) == Some(&false)
            || OF_THE_HOST.iter().any(|start| end.name.starts_with(start))
    };
    if ends.iter().any(is_out) {
        let [one, other] = ends.map(|end| end.name);
        draft.leave_out(at, format!("link {one} - {other}: an end is not there"));
        return Ok(());
    }
    for end in &ends {
        for other in &end.others {
            draft.leave_out(at, format!("link {}: {other}", end.name));
        }
    }
    let mut made = between(at, &ends);
    for (key, value) in &of.value {
        set(draft, &mut made, &ends[0].name, key, value)?;
    }
    draft.add_link(at, made);
    Ok(())
}

/// Makes a link with what its ends say.
fn between(at: Position, ends: &[End; 2]) -> Link {
    let mut made = link(ends.each_ref().map(|end| at.of(end.name.clone())));
    let of = |part: fn(&End) -> &Option<String>| {
        let parts = ends.each_ref().map(|end| part(end).clone().map(|part| at.of(part)));
        if parts.iter().any(Option::is_some) {
            parts.into()
        } else {
            Vec::new()
        }
    };
    made.mac = of(|end| &end.mac);
    made.ipv4 = of(|end| &end.ipv4);
    made.ipv6 = of(|end| &end.ipv6);
    made
}

/// Applies a setting of the link that begins at `end`.
fn set(
    draft: &mut Draft,
    made: &mut Link,
    end: &str,
    key: &str,
    value: &Spanned<Value>,
) -> Read<()> {
    let at = Position::from_location(value.defined);
    let addresses = || {
        let list = value.value.as_array().into_iter().flatten();
        list.map(|one| one.as_str().filter(|text| !text.is_empty()).map(|text| at.of(text.into())))
            .collect()
    };
    match key {
        "endpoints" | "type" => {}
        "mtu" => match value.value.as_u64().and_then(|mtu| u32::try_from(mtu).ok()) {
            Some(mtu) => made.mtu = Some(at.of(mtu)),
            None => return draft.error(at, format!("mtu: {}: expected 68 to 65521", value.value)),
        },
        "ipv4" => made.ipv4 = addresses(),
        "ipv6" => made.ipv6 = addresses(),
        other => draft.leave_out(at, format!("link {end}: {other}: {}", value.value)),
    }
    Ok(())
}

/// Gives a node an interface that leads nowhere: its link ends at a switch without other links.
fn dummy(
    draft: &mut Draft,
    at: Position,
    of: &Spanned<Settings>,
    is_there: &BTreeMap<&str, bool>,
) -> Read<()> {
    let Some(end) = of.value.get("endpoint").and_then(|end| End::parse(&end.value)) else {
        return draft.error(at, "endpoint: expected a node and an interface");
    };
    if is_there.get(end.node()) == Some(&false) {
        draft.leave_out(at, format!("link {}: an end is not there", end.name));
        return Ok(());
    }
    let nowhere = format!("{}-nowhere", end.name.replace(':', "-"));
    draft.add_node(at, &nowhere, Node { kind: NodeKind::Switch, ..Node::default() })?;
    let other = End::parse(&Value::String(format!("{nowhere}:p0")));
    let Some(ends) = other.map(|other| [end, other]) else { return Ok(()) };
    let made = between(at, &ends);
    draft.add_link(at, made);
    Ok(())
}
