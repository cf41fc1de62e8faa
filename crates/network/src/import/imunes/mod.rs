//! IMUNES' topologies in JSON, the `.imn` files of its version 2024 and later.

mod station;
mod values;

use std::collections::BTreeMap;

use lorentz_emulator::impair::Impairments;
use lorentz_emulator::units::BitRate;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::draft::{
    forward, is_whole_processor, link, plain_name, switch_of, Draft, Numbers, Position, Read,
};
use super::json_text::{dedent, escape_line_breaks};
use super::services::{self, Routing, Style, Translation, Wanted};
use super::wlan;
use crate::topology::{self, Node, NodeKind, Radio};
use station::{default_routes, exec, make_dangling, read_interfaces, Station};
use values::{is_on, list, text, Settings};

#[derive(Deserialize)]
struct Topology {
    nodes: BTreeMap<String, Spanned<Settings>>,
    #[serde(default)]
    links: BTreeMap<String, Spanned<Settings>>,
    #[serde(default)]
    gui: Gui,
    #[serde(flatten)]
    others: Settings,
}

/// Where nodes are drawn, since version 2 of the format. Before that it is a part of the node.
#[derive(Deserialize, Default)]
struct Gui {
    #[serde(default)]
    nodes: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Keys of a node or a link that only say how it is drawn.
const DRAWN: [&str; 8] =
    ["canvas", "labelcoords", "icon", "color", "width", "label", "customIcon", "direct"];

/// Keys of a node that are read with others, and the timers of a spanning tree.
const KNOWN: [&str; 8] = [
    "type",
    "name",
    "ifaces",
    "iconcoords",
    "auto_default_routes",
    "custom_enabled",
    "custom_selected",
    "bridge",
];

pub(super) fn read(draft: &mut Draft, text: &str) -> Read<()> {
    let whole: Topology = topology::parse(&draft.name, &escape_line_breaks(text))?;
    let mut stations = BTreeMap::new();
    for (id, settings) in &whole.nodes {
        let drawn = whole.gui.nodes.get(id).and_then(|node| node.get("iconcoords"));
        if let Some(station) = read_node(draft, id, settings, drawn)? {
            stations.insert(id.as_str(), station);
        }
    }
    for (id, settings) in &whole.links {
        read_link(draft, id, settings, &whole, &stations)?;
    }
    for (id, station) in &stations {
        make_dangling(draft, Position::from_location(whole.nodes[*id].defined), station)?;
    }
    wlan::complete_members(draft);
    for (id, station) in stations.iter().filter(|(_, station)| station.wants_routes) {
        let at = Position::from_location(whole.nodes[*id].defined);
        default_routes(draft, at, station, &stations);
    }
    for (id, station) in stations {
        let system = id.trim_start_matches('n').parse().unwrap_or(0);
        let routing = Routing { style: Style::Imunes, system, text: station.routing };
        services::start(draft, &station.name, station.services, routing);
    }
    for (key, value) in &whole.others {
        let is_empty = [Value::Null, Value::String(String::new())].contains(&value.value);
        if !["options", "canvases", "annotations", "images"].contains(&key.as_str()) && !is_empty {
            draft.leave_out(
                Position::from_location(value.defined),
                format!("{key}: {}", value.value),
            );
        }
    }
    Ok(())
}

/// Returns nothing for a type of node that Lorentz does not have.
fn read_node(
    draft: &mut Draft,
    id: &str,
    settings: &Spanned<Settings>,
    drawn: Option<&Value>,
) -> Read<Option<Station>> {
    let at = Position::from_location(settings.defined);
    let settings = &settings.value;
    let Some(kind) = settings.get("type") else {
        return draft.error(at, format!("node {id}: expected a type"));
    };
    let mut node = Node::default();
    let mut station = Station {
        name: settings
            .get("name")
            .map_or_else(|| id.to_string(), |name| plain_name(&text(&name.value))),
        ..Station::default()
    };
    match text(&kind.value).as_str() {
        "router" | "nat64" => {
            forward(at, &mut node);
            station.is_router = true;
        }
        "pc" | "host" => {}
        "wlan" => {
            node.kind = NodeKind::Wlan;
            node.radio = Some(at.of(imunes_radio()));
        }
        "ext" => draft.leave_out(
            Position::from_location(kind.defined),
            format!("node {}: type ext: its way to the host", station.name),
        ),
        "filter" if passes_all(settings) => node.kind = NodeKind::Hub,
        // Half of a link that is drawn on two canvases.
        "pseudo" => return Ok(None),
        other => {
            let Some(switch) = switch_of(other) else {
                let at = Position::from_location(kind.defined);
                draft.leave_out(at, format!("node {}: type {other}, and its links", station.name));
                return Ok(None);
            };
            node = switch;
        }
    }
    if draft.node(&station.name).is_some() {
        station.name = format!("{}-{id}", station.name);
    }
    node.position = position(settings.get("iconcoords").map(|one| &one.value).or(drawn));
    draft.add_node(at, &station.name, node)?;
    station.wants_routes = is_on(settings.get("auto_default_routes")) && !station.is_router;
    // Routes need the interfaces.
    settings.get("ifaces").into_iter().for_each(|all| read_interfaces(draft, all, &mut station));
    for (key, value) in settings {
        read_setting(draft, &mut station, key, value, settings);
    }
    Ok(Some(station))
}

/// Returns the place at which a node is drawn.
fn position(coordinates: Option<&Value>) -> Option<[f64; 2]> {
    let words = coordinates.map(list).into_iter().flatten();
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

/// Whether a filter passes all frames between its two interfaces.
fn passes_all(settings: &Settings) -> bool {
    let ifaces = settings.get("ifaces").and_then(|ifaces| ifaces.value.as_object());
    let ports: Vec<(String, Vec<String>)> = (ifaces.into_iter().flat_map(|all| all.values()))
        .map(|port| {
            let name = port.get("name").map(text).unwrap_or_default();
            let rules = port.get("filter_rules").map(text).unwrap_or_default();
            let words = rules.split(['{', '}', ' ']).filter(|word| !word.is_empty());
            (name, words.map(str::to_string).collect())
        })
        .collect();
    let [(one, of_one), (other, of_other)] = &ports[..] else { return false };
    let sends_to = |rules: &[String], to: &String| match rules {
        [_, rest @ ..] => rest == ["action", "match_hook", "action_data", to.as_str()],
        [] => false,
    };
    sends_to(of_one, other) && sends_to(of_other, one)
}

/// IMUNES' wireless network: 54 Mbit/s, and bit errors of (d/500)^30 at the distance d. A frame of 1500 bytes has none with a probability
/// of a half at d = 360.
fn imunes_radio() -> Radio {
    Radio { rate: BitRate::new(54_000_000), ..Radio::new(360.0) }
}

fn read_setting(
    draft: &mut Draft,
    station: &mut Station,
    key: &str,
    value: &Spanned<Value>,
    all: &Settings,
) {
    let at = Position::from_location(value.defined);
    let name = &station.name.clone();
    match key {
        known if KNOWN.contains(&known) || DRAWN.contains(&known) => {}
        _ if draft.is_switch(name) => {
            if !["", "0"].contains(&text(&value.value).as_str()) {
                draft.leave_out(at, format!("node {name}: {key} {}", value.value));
            }
        }
        "docker_image" => {
            let image = text(&value.value);
            if let Some(node) = draft.node(name).filter(|_| !image.is_empty()) {
                node.image = Some(at.of(image));
            }
        }
        "model" => {
            let model = text(&value.value);
            if station.is_router && !["static", "frr", "quagga"].contains(&model.as_str()) {
                draft.leave_out(at, format!("node {name}: routing daemon {model}"));
            }
        }
        // A router of the model `static` keeps the protocols that it had before.
        "router_config" if is_on(all.get("custom_enabled")) || has_model(all, "static") => {}
        "cpu" if is_whole_processor(&text(&value.value)) => {}
        // FreeBSD's file system of all nodes.
        "snapshot" if text(&value.value) == "vroot/vroot@clean" => {}
        "router_config" => {
            let protocols = protocols(&value.value);
            station.services.extend(protocols.iter().map(|one| Wanted::plain(at, one)));
        }
        "services" => {
            let named = list(&value.value);
            station.services.extend(named.iter().map(|one| Wanted::plain(at, one)));
        }
        "nat64" if value.value.is_object() => {
            let line = services::translate(name, &translation(&value.value));
            exec(draft, at, name, line);
        }
        "croutes4" | "croutes6" => {
            for route in routes(&value.value) {
                exec(draft, at, name, format!("ip route replace {route}"));
            }
        }
        "custom_configs" if is_on(all.get("custom_enabled")) => {
            read_custom(draft, station, value, all.get("custom_selected"));
        }
        "custom_configs" => {}
        other => draft.leave_out(at, format!("node {name}: {other} {}", value.value)),
    }
}

/// Returns the translation of a NAT64.
fn translation(settings: &Value) -> Translation {
    let get = |key: &str| settings.get(key);
    let mappings = get("tayga_mappings").and_then(Value::as_array);
    Translation {
        pool: get("tayga_ipv4_pool").map_or_else(|| "192.168.64.0/24".into(), text),
        prefix: get("tayga_ipv6_prefix").map_or_else(|| "2001::/96".into(), text),
        mappings: mappings.into_iter().flatten().map(text).collect(),
    }
}

fn has_model(settings: &Settings, model: &str) -> bool {
    settings.get("model").is_some_and(|one| text(&one.value) == model)
}

/// Reads the chosen configurations of a node: for a shell, or for routing daemons.
fn read_custom(
    draft: &mut Draft,
    station: &mut Station,
    all: &Spanned<Value>,
    selected: Option<&Spanned<Value>>,
) {
    let at = Position::from_location(all.defined);
    for (kind, chosen) in custom(all, selected) {
        let command = text(chosen.get("custom_command").unwrap_or(&Value::Null));
        let is_routing = ["frrboot.sh", "quaggaboot.sh"].iter().any(|one| command.ends_with(one));
        match script(&chosen) {
            Some(line) => exec(draft, at, &station.name, line),
            None if is_routing => station.routing = Some(at.of(config_text(&chosen))),
            None => {
                draft.leave_out(at, format!("node {}: {kind} for {command}", station.name));
            }
        }
    }
}

/// Routes as `ip route` takes them, of entries "NETWORK GATEWAY", perhaps with a metric.
fn routes(value: &Value) -> Vec<String> {
    let entries = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let route = |entry: &Value| {
        let words = list(entry);
        match &words[..] {
            [network, gateway] => Some(format!("{network} via {gateway}")),
            [network, gateway, metric] => Some(format!("{network} via {gateway} metric {metric}")),
            _ => None,
        }
    };
    entries.iter().filter_map(route).collect()
}

/// Returns the chosen configurations of a node by their kind: NODE_CONFIG, IFACES_CONFIG.
fn custom(all: &Spanned<Value>, selected: Option<&Spanned<Value>>) -> Vec<(String, Value)> {
    // "NODE_CONFIG name", as a map or as words.
    let chosen: BTreeMap<String, String> = match selected.map(|one| &one.value) {
        Some(Value::Object(map)) => {
            map.iter().map(|(kind, name)| (kind.clone(), text(name))).collect()
        }
        Some(words) => {
            let words = list(words);
            words
                .chunks(2)
                .filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone())))
                .collect()
        }
        None => BTreeMap::new(),
    };
    let found = chosen.into_iter().filter_map(|(kind, name)| {
        let config = all.value.get(&kind)?.get(&name)?.clone();
        Some((kind, config))
    });
    found.collect()
}

/// Returns a custom configuration as a line for the shell, if its command is a shell.
fn script(config: &Value) -> Option<String> {
    let command = text(config.get("custom_command")?);
    let shell = ["sh", "bash", "/bin/sh", "/bin/bash"].iter().find(|shell| **shell == command)?;
    let lines = config_text(config);
    Some(format!("{shell} -s <<'END-OF-FILE'\n{}\nEND-OF-FILE", lines.trim_matches('\n')))
}

/// Returns the text of a custom configuration. Its author may have indented all of it as JSON.
fn config_text(config: &Value) -> String {
    match config.get("custom_config") {
        Some(Value::Array(lines)) => lines.iter().map(text).collect::<Vec<_>>().join("\n"),
        Some(one) => dedent(&text(one)),
        None => String::new(),
    }
}

/// Returns the routing protocols that are on in "rip 1 ospf 0", or in a map of the same.
fn protocols(config: &Value) -> Vec<String> {
    let pairs: Vec<(String, String)> = match config.as_object() {
        Some(map) => map.iter().map(|(name, state)| (name.clone(), text(state))).collect(),
        None => {
            let words = list(config);
            let pairs = words
                .chunks(2)
                .filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone())));
            pairs.collect()
        }
    };
    let on = pairs.into_iter().filter(|(_, state)| ["1", "true"].contains(&state.as_str()));
    on.map(|(name, _)| name).collect()
}

fn read_link(
    draft: &mut Draft,
    id: &str,
    settings: &Spanned<Settings>,
    whole: &Topology,
    stations: &BTreeMap<&str, Station>,
) -> Read<()> {
    let at = Position::from_location(settings.defined);
    let mut ends = ends_of(draft, id, settings)?;
    if let Some(mirror) = settings.value.get("mirror").map(|one| text(&one.value)) {
        // Drawn on two canvases, it is two links to pseudo nodes. The second one brings the other end.
        let Some(other) = whole.links.get(&mirror).filter(|_| id < mirror.as_str()) else {
            return Ok(());
        };
        ends.extend(ends_of(draft, &mirror, other)?);
        let is_pseudo = |node: &String| {
            let kind = whole.nodes.get(node).and_then(|node| node.value.get("type"));
            kind.is_some_and(|kind| kind.value == "pseudo")
        };
        ends.retain(|(node, _)| !is_pseudo(node));
    }
    let [one, other] = &ends[..] else {
        return draft.error(at, format!("link {id}: peers: expected two"));
    };
    let mut found = Vec::new();
    for (node, interface) in [one, other] {
        match (stations.get(node.as_str()), whole.nodes.contains_key(node)) {
            (Some(station), _) => found.push((station, station.interfaces.get(interface))),
            (None, true) => {
                draft.leave_out(at, format!("link {id}: an end is not there: {node}"));
                return Ok(());
            }
            (None, false) => return draft.error(at, format!("link {id}: peers: no node {node:?}")),
        }
    }
    let names = [0, 1].map(|side| {
        let (station, interface) = found[side];
        let stem = if draft.is_switch(&station.name) { "e" } else { "eth" };
        let made = || draft.unused_interface(&station.name, stem);
        let name = interface.map_or_else(made, |interface| interface.name.clone());
        at.of(format!("{}:{name}", station.name))
    });
    let mut made = link(names);
    made.set_impairments(&impairments(draft, id, &settings.value)?);
    for (side, (station, interface)) in found.into_iter().enumerate() {
        let Some(interface) = interface.filter(|_| !draft.is_switch(&station.name)) else {
            continue;
        };
        let given = [interface.ipv4.first(), interface.ipv6.first(), interface.mac.as_ref()];
        for (to, one) in [&mut made.ipv4, &mut made.ipv6, &mut made.mac].into_iter().zip(given) {
            let Some(one) = one else { continue };
            to.resize(2, None);
            to[side] = Some(one.clone());
        }
    }
    draft.add_link(at, made);
    Ok(())
}

/// Returns the node and the interface of each end, by their ids.
fn ends_of(draft: &Draft, id: &str, settings: &Spanned<Settings>) -> Read<Vec<(String, String)>> {
    let words = |key: &str| settings.value.get(key).map(|one| list(&one.value)).unwrap_or_default();
    let (nodes, mut interfaces) = (words("peers"), words("peers_ifaces"));
    if nodes.len() != 2 {
        let at = settings.value.get("peers").map_or(settings.defined, |peers| peers.defined);
        return draft
            .error(Position::from_location(at), format!("link {id}: peers: expected two nodes"));
    }
    interfaces.resize(2, String::new());
    Ok(nodes.into_iter().zip(interfaces).collect())
}

fn impairments(draft: &mut Draft, id: &str, settings: &Settings) -> Read<Impairments> {
    let mut impairments = Impairments::default();
    for (key, value) in settings {
        let at = Position::from_location(value.defined);
        let given = text(&value.value);
        let numbers = Numbers { draft, at };
        match key.as_str() {
            "peers" | "peers_ifaces" | "mirror" => {}
            _ if given.is_empty() || given == "0" => {}
            "bandwidth" => impairments.rate = numbers.rate(key, &given)?,
            "delay" => impairments.delay = numbers.delay(key, &given)?,
            "loss" => impairments.loss = numbers.loss(key, &given)?,
            "dup" | "duplicate" => impairments.duplicate = numbers.percent(key, &given)?,
            drawn if DRAWN.contains(&drawn) => {}
            other => draft.leave_out(at, format!("link {id}: {other} {given}")),
        }
    }
    Ok(impairments)
}
