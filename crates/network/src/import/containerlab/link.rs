//! Links of containerlab.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::lab::{text, Settings};
use crate::import::draft::{link, Draft, Position, Read};
use crate::topology::Link;

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

    /// Moves it to the node whose network its own node shares.
    fn move_to_network(&mut self, draft: &mut Draft) {
        let of = draft.node(self.node()).and_then(|node| node.network_of.as_ref());
        if let (Some(of), Some((_, interface))) = (of, self.name.split_once(':')) {
            self.name = format!("{}:{interface}", of.value);
        }
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
            let what = format!("link of type {kind}: expected veth or dummy");
            let mut end = of.value.get("endpoint").and_then(|end| End::parse(&end.value));
            end.iter_mut().for_each(|end| end.move_to_network(draft));
            let end = end.filter(|end| is_there.get(end.node()) == Some(&true));
            return leave_out(draft, at, what, end.into_iter().collect());
        }
    }
    let given = of.value.get("endpoints").and_then(|ends| ends.value.as_array());
    let ends: Vec<_> = given.into_iter().flatten().filter_map(End::parse).collect();
    let Ok(mut ends) = <[End; 2]>::try_from(ends) else {
        return draft.error(at, "endpoints: expected two, NODE:INTERFACE each");
    };
    ends.iter_mut().for_each(|end| end.move_to_network(draft));
    let is_out = |end: &End| {
        is_there.get(end.node()) == Some(&false)
            || OF_THE_HOST.iter().any(|start| end.name.starts_with(start))
    };
    if ends.iter().any(is_out) {
        let [one, other] = &ends;
        let what = format!("link {} - {}: an end is not there", one.name, other.name);
        let is_left = |end: &End| is_there.get(end.node()) == Some(&true);
        return leave_out(draft, at, what, ends.into_iter().filter(is_left).collect());
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
    let Some(mut end) = of.value.get("endpoint").and_then(|end| End::parse(&end.value)) else {
        return draft.error(at, "endpoint: expected a node and an interface");
    };
    end.move_to_network(draft);
    if is_there.get(end.node()) == Some(&false) {
        draft.leave_out(at, format!("link {}: an end is not there", end.name));
        return Ok(());
    }
    lead_nowhere(draft, at, end)
}

/// Leaves a link out. The interfaces of its ends that are there lead nowhere, so that commands can name them.
fn leave_out(draft: &mut Draft, at: Position, what: String, ends: Vec<End>) -> Read<()> {
    let mut rest = String::new();
    for end in ends {
        // A bridge needs no port that leads nowhere.
        if !draft.is_switch(end.node()) && !draft.is_linked(&end.name) {
            rest += &format!(", so {} leads nowhere", end.name);
            lead_nowhere(draft, at, end)?;
        }
    }
    draft.leave_out(at, what + &rest);
    Ok(())
}

/// Makes the interface of an end whose link is not there.
fn lead_nowhere(draft: &mut Draft, at: Position, end: End) -> Read<()> {
    let addresses = [end.ipv4, end.ipv6, end.mac].map(|one| one.map(|one| at.of(one)));
    draft.add_dangling(at.of(end.name), addresses)
}
