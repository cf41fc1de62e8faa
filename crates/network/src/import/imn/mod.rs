//! `.imn`: topologies of IMUNES and of CORE before version 5. A file is a Tcl list: words, some of them lists in braces.

mod link;
mod station;

use super::draft::{default_routes, forward, is_whole_processor, switch_of, Draft, Position, Read};
use super::services::{self, Routing, Style, Wanted};
use super::tcl::{pairs, short, value_of, words, Word};
use super::wlan;
use crate::topology::{Node, NodeKind};
use link::read_link;
use station::{add_loopback_addresses, dilate, make_dangling, Station};

/// Options of a file that say what the GUI shows.
const SHOWN: &str = "annotations background_images exec_errors grid hostsAutoAssign iconSize icon_size interface_names \
                     ip_addresses ipsec_configs ipv6_addresses link_labels mac_address_start node_labels show_api zoom";
/// Options of a session that say how it is shown elsewhere.
const SHOWN_ELSEWHERE: [&str; 2] = ["enablesdt=", "sdturl="];

pub(super) fn read(draft: &mut Draft, text: &str) -> Read<()> {
    let whole = Word { text, at: Position { line: 1, column: 1 }, is_braced: false };
    let mut stations = Vec::new();
    let mut links = Vec::new();
    let mut all = words(draft, &whole)?.into_iter();
    while let Some(kind) = all.next() {
        let Some(name) = all.next() else {
            return draft.error(kind.at, format!("{}: expected a name behind it", kind.text));
        };
        if name.is_braced {
            // `comments {...}` has no name.
            if kind.text != "comments" {
                draft.leave_out(kind.at, format!("{}: {}", kind.text, short(name.text)));
            }
            continue;
        }
        let Some(body) = all.next() else {
            let what = format!("{} {}: expected {{ behind it", kind.text, short(name.text));
            return draft.error(name.at, what);
        };
        match kind.text {
            "node" => stations.extend(read_node(draft, &name, &body)?),
            "link" => links.push((name, body)),
            // These say how it is drawn.
            "canvas" | "annotation" => {}
            "option" => read_option(draft, kind.at, &name, &body)?,
            _ if body.text.trim().is_empty() => {}
            other => {
                draft.leave_out(kind.at, format!("{other} {}: {}", name.text, short(body.text)))
            }
        }
    }
    for (name, body) in links {
        read_link(draft, &name, &body, &mut stations)?;
    }
    let number = |station: &Station| {
        Some((station.id.trim_start_matches('n').parse().ok()?, station.name.clone()))
    };
    let numbers = stations.iter().filter_map(number).collect();
    for Station { name, scripts, .. } in &stations {
        for settings in scripts {
            wlan::ns2script(draft, name, settings, &numbers)?;
        }
    }
    for station in &mut stations {
        make_dangling(draft, station)?;
        add_loopback_addresses(draft, station);
        complete_ospf6(station);
    }
    wlan::complete_members(draft);
    dilate(draft, &stations);
    for station in stations {
        if station.is_host {
            default_routes(draft, station.at, &station.name);
        }
        let system = station.id.trim_start_matches('n').parse().unwrap_or(1);
        let routing = Routing { style: Style::Core, system, text: station.routing };
        services::start(draft, &station.name, station.services, routing);
    }
    Ok(())
}

/// Notes as left out the options that say more than what the GUI shows.
fn read_option(draft: &mut Draft, at: Position, name: &Word, body: &Word) -> Read<()> {
    if !["global", "show"].contains(&name.text) {
        let mut lines = body.text.lines().map(str::trim).filter(|line| !line.is_empty());
        if lines.any(|line| !SHOWN_ELSEWHERE.iter().any(|known| line.starts_with(known))) {
            draft.leave_out(at, format!("option {}: {}", name.text, short(body.text)));
        }
        return Ok(());
    }
    for option in words(draft, body)?.chunks(2) {
        let key = &option[0];
        let value = option.get(1).map_or("", |value| value.text);
        if !SHOWN.split(' ').any(|one| one == key.text) && !["", "0", "no"].contains(&value) {
            let what = format!("option {}: {} {}", name.text, key.text, short(value));
            draft.leave_out(key.at, what);
        }
    }
    Ok(())
}

/// Gives OSPFv3 its interfaces, where a configuration has none: IMUNES adds all of them.
fn complete_ospf6(station: &mut Station) {
    let Some(routing) = &mut station.routing else { return };
    let is_on = routing.value.lines().any(|line| line == "router ospf6");
    let has_area = |line: &str| line.starts_with("interface ") && line.contains(" area ");
    if !is_on || routing.value.lines().any(|line| has_area(line.trim())) {
        return;
    }
    for (interface, _) in &station.peers {
        routing.value += &format!("!\ninterface {interface}\n ipv6 ospf6 area 0.0.0.0\n");
    }
}

fn read_node<'a>(draft: &mut Draft, id: &Word<'a>, body: &Word<'a>) -> Read<Option<Station<'a>>> {
    let settings = pairs(draft, body)?;
    let model = value_of(&settings, "model").map(|model| model.text).unwrap_or_default();
    let Some((mut node, is_host)) = node_of_type(draft, id, model, &settings)? else {
        return Ok(None);
    };
    let mut station = Station {
        name: id.text.to_string(),
        id: id.text,
        at: id.at,
        peers: Vec::new(),
        interfaces: Vec::new(),
        is_host,
        taken: Vec::new(),
        services: Vec::new(),
        routing: None,
        dilation: None,
        radio: Vec::new(),
        scripts: Vec::new(),
    };
    let mut services = Services::default();
    let is_wlan = node.kind == NodeKind::Wlan;
    for (key, value) in &settings {
        if !is_wlan || !read_wlan_setting(draft, key, value, &mut station)? {
            read_setting(draft, key, value, &mut node, &mut station, &mut services)?;
        }
    }
    // The models of CORE 4 have services by themselves, those of IMUNES have none.
    let of_model = || {
        let names = services::defaults_of_core(model);
        names.iter().map(|name| Wanted::plain(id.at, name)).collect()
    };
    station.services = services.named.unwrap_or_else(of_model);
    // These follow from the type.
    let done = if is_host { "DefaultRoute" } else { "IPForward" };
    station.services.retain(|one| one.name != done);
    configure_services(draft, &mut station, &services.configs);
    draft.add_node(id.at, &station.name, node)?;
    wlan::basic_range(draft, &station.name, &station.radio)?;
    Ok(Some(station))
}

/// The services of a node, as far as its settings tell them.
#[derive(Default)]
struct Services<'a> {
    named: Option<Vec<Wanted>>,
    /// Contents of files of a service, with the service's id.
    configs: Vec<(Word<'a>, Word<'a>)>,
}

/// The node that its type and its model ask for, and whether it is a host, not a router. `None` for one that is left out.
fn node_of_type(
    draft: &mut Draft,
    id: &Word,
    model: &str,
    settings: &[(Word, Word)],
) -> Read<Option<(Node, bool)>> {
    let Some(kind) = value_of(settings, "type") else {
        return draft.error(id.at, format!("node {}: expected a type", id.text));
    };
    if let Some(switch) = switch_of(kind.text) {
        return Ok(Some((switch, false)));
    }
    let mut node = Node::default();
    let mut is_host = false;
    match kind.text {
        "router" if matches!(model, "PC" | "host") => is_host = true,
        "router" => forward(id.at, &mut node),
        "pc" | "host" => is_host = true,
        "wlan" => {
            let lines = value_of(settings, "network-config").map(|config| config.text.lines());
            if let Some(model) = lines.into_iter().flatten().find(|line| is_emane(line)) {
                let what = format!("node {}: {}, and its links", id.text, model.trim());
                draft.leave_out(kind.at, what);
                return Ok(None);
            }
            node.kind = NodeKind::Wlan;
            node.radio = Some(id.at.of(wlan::default_radio()));
        }
        other => {
            draft.leave_out(kind.at, format!("node {}: type {other}, and its links", id.text));
            return Ok(None);
        }
    }
    Ok(Some((node, is_host)))
}

fn read_setting<'a>(
    draft: &mut Draft,
    key: &Word<'a>,
    value: &Word<'a>,
    node: &mut Node,
    station: &mut Station<'a>,
    services: &mut Services<'a>,
) -> Read<()> {
    match key.text {
        "type" | "model" | "canvas" | "labelcoords" | "hidden" | "custom-image" => {}
        "cpu" if is_whole_processor(value.text) => {}
        // FreeBSD's file system of all nodes.
        "snapshot" if value.text == "vroot/vroot@clean" => {}
        "auto_default_routes" => station.is_host &= value.text != "disabled",
        "iconcoords" => {
            let numbers = words(draft, value)?;
            let numbers: Vec<f64> = numbers.iter().filter_map(|w| w.text.parse().ok()).collect();
            node.position = numbers.try_into().ok();
        }
        "interface-peer" => {
            let pair = words(draft, value)?;
            let [own, peer] = &pair[..] else {
                return draft.error(value.at, "interface-peer: expected {INTERFACE NODE}");
            };
            station.peers.push((own.text, peer.text));
        }
        "network-config" => read_config(value, station),
        "docker-image" if node.kind == NodeKind::Process => {
            if let [image] = &words(draft, value)?[..] {
                node.image = Some(image.at.of(image.text.to_string()));
            }
        }
        "services" => {
            let all = words(draft, value)?;
            services.named = Some(all.iter().map(|one| Wanted::plain(one.at, one.text)).collect());
        }
        "custom-config" => {
            let parts = pairs(draft, value)?;
            if let (Some(id), Some(config)) =
                (value_of(&parts, "custom-config-id"), value_of(&parts, "config"))
            {
                services.configs.push((id.clone(), config.clone()));
            }
        }
        other => {
            let what = format!("node {}: {other} {}", station.id, short(value.text));
            draft.leave_out(key.at, what);
        }
    }
    Ok(())
}

/// Reads a setting that a wlan has in a form of its own. Returns false if `key` is none.
fn read_wlan_setting<'a>(
    draft: &Draft,
    key: &Word<'a>,
    value: &Word<'a>,
    station: &mut Station<'a>,
) -> Read<bool> {
    match key.text {
        // Its addresses are a suggestion for members.
        "network-config" => station.name = hostname(value.text, station.id),
        "range" | "bandwidth" | "jitter" | "delay" | "error" => {
            station.radio.push((key.text, value.text, value.at));
        }
        "tbandwidth" => station.radio.push(("bandwidth", value.text, value.at)),
        "custom-config" => {
            let parts = pairs(draft, value)?;
            let part = |key: &str| parts.iter().find(|(one, _)| one.text == key);
            let (Some((_, model)), Some((_, config))) = (part("custom-config-id"), part("config"))
            else {
                return Ok(false);
            };
            match model.text {
                "basic_range" => station.radio.extend(model_settings(config)),
                "ns2script" => station.scripts.push(model_settings(config)),
                _ => return Ok(false),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether a line of a wlan's configuration names a model of EMANE.
fn is_emane(line: &str) -> bool {
    line.trim().starts_with("emane_")
}

/// The name in the configuration of a node, or else its id.
fn hostname(config: &str, id: &str) -> String {
    let mut names = config.lines().filter_map(|line| line.trim().strip_prefix("hostname "));
    names.next().unwrap_or(id).trim().to_string()
}

/// Reads the settings of a model, a line `KEY=VALUE` each; in the oldest files the values of the basic range model alone.
fn model_settings<'a>(config: &Word<'a>) -> Vec<wlan::Setting<'a>> {
    let lines = config.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let setting = |(at, (number, line)): (usize, (usize, &'a str))| {
        let indent = line.len() - line.trim_start().len();
        let first = if number == 0 { config.at.column } else { 1 };
        let at_line = config.at.line + number as u32;
        let column = |before: usize| Position { line: at_line, column: first + before as u32 };
        match line.split_once('=') {
            Some((key, value)) => Some((key.trim(), value.trim(), column(key.len() + 1))),
            None => Some((*wlan::BASIC_RANGE.get(at)?, line.trim(), column(indent))),
        }
    };
    lines.enumerate().filter_map(setting).collect()
}

/// Reads the services of CORE 4 that the user has configured: each has an entry `service:NAME` with its commands,
/// and an entry `service:NAME:FILE` for each of its files.
fn configure_services(draft: &mut Draft, station: &mut Station, configs: &[(Word, Word)]) {
    // Each line of a file is indented by a tab.
    let text = |config: &Word| {
        let lines = config.text.lines().skip_while(|line| line.trim().is_empty());
        let lines = lines.map(|line| line.strip_prefix('\t').unwrap_or(line));
        config.at.of(lines.collect::<Vec<_>>().join("\n"))
    };
    for (service, config) in configs {
        let mut parts = service.text.splitn(3, ':');
        let (kind, name, file) = (parts.next(), parts.next(), parts.next());
        let Some(name) = name.filter(|_| kind == Some("service")) else {
            let what = format!("node {}: custom-config {}", station.id, service.text);
            draft.leave_out(service.at, what);
            continue;
        };
        if !station.services.iter().any(|one| one.name == name) {
            station.services.push(Wanted::plain(service.at, name));
        }
        let Some(wanted) = station.services.iter_mut().find(|one| one.name == name) else {
            continue;
        };
        match file {
            Some(file) => {
                wanted.files.insert(file.into(), text(config));
            }
            None => {
                let commands = startup_commands(config.text);
                let commands: Vec<_> =
                    commands.iter().map(|one| service.at.of(one.to_string())).collect();
                wanted.startups = (!commands.is_empty()).then_some(commands);
            }
        }
    }
}

/// Returns the commands in a line `cmdup=('COMMAND', ...)`. In older files there are values alone, a line each: directories, files, the
/// place in the order of services, commands.
fn startup_commands(config: &str) -> Vec<&str> {
    let lines = || config.lines().map(str::trim);
    let named = lines().filter_map(|line| line.strip_prefix("cmdup=("));
    let unnamed = lines().skip_while(|line| line.parse::<u32>().is_err()).nth(1);
    named.chain(unnamed).flat_map(|list| list.split('\'').skip(1).step_by(2)).collect()
}

/// Reads the lines of a router's configuration: `hostname`, and addresses below `interface`. The others are for
/// routing daemons.
fn read_config<'a>(text: &Word<'a>, station: &mut Station<'a>) {
    let mut in_interface = false;
    // The interface whose lines the daemons' configuration has last.
    let mut current = "";
    for (number, line) in text.text.lines().enumerate() {
        let is_inside =
            line.starts_with([' ', '\t']) && line.trim_start_matches('\t').starts_with(' ');
        let line = line.trim();
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match first {
            "" => {}
            "!" => in_interface = false,
            // In CORE 4 this is the name that people know. Links use the id.
            "hostname" => station.name = rest.trim().to_string(),
            "dilation" => {
                let at = Position { line: text.at.line + number as u32, column: 1 };
                station.dilation = Some(at.of(rest.trim().to_string()));
            }
            // Below `router ospf6` such a line is OSPFv3's.
            "interface" if !rest.contains(" area ") => {
                in_interface = true;
                station.interfaces.push((rest.trim(), Vec::new()));
            }
            // The kind of the loopback interface.
            "type" if in_interface => {}
            _ => {
                in_interface &= first != "router";
                let interface = station.interfaces.last_mut().filter(|_| in_interface);
                let name = interface.as_ref().map(|(name, _)| *name);
                if let Some((_, lines)) = interface.filter(|_| is_address(line)) {
                    lines.push(line);
                    continue;
                }
                let at = Position { line: text.at.line + number as u32, column: 1 };
                let routing =
                    &mut station.routing.get_or_insert_with(|| at.of(String::new())).value;
                if let Some(name) = name.filter(|name| *name != current) {
                    *routing += &format!("!\ninterface {name}\n");
                }
                current = name.unwrap_or("");
                let indent = if is_inside || in_interface { " " } else { "" };
                *routing += &format!("{indent}{line}\n");
            }
        }
    }
}

fn is_address(line: &str) -> bool {
    ["ip address ", "ipv6 address ", "mac address "].iter().any(|start| line.starts_with(start))
}
