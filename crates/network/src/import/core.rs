//! CORE's scenarios in XML, as CORE 5 to 9 write them.

use std::collections::BTreeMap;

use roxmltree::{Document, Node as Element};
use serde_saphyr::Spanned;

use super::draft::{default_routes, forward, link, plain_name, Draft, Numbers, Position, Read};
use super::wlan;
use crate::impair::Impairments;
use crate::topology::{Link, Node, NodeKind};

/// CORE's default services for each kind of node.
const DEFAULT_SERVICES: [(&str, &[&str]); 5] = [
    ("router", &["zebra", "OSPFv2", "OSPFv3", "vtysh", "IPForward"]),
    ("mdr", &["zebra", "OSPFv3MDR", "vtysh", "IPForward"]),
    ("prouter", &["zebra", "OSPFv2", "OSPFv3", "vtysh", "IPForward"]),
    ("PC", &["DefaultRoute"]),
    ("host", &["DefaultRoute", "SSH"]),
];

/// Elements of a scenario that only say where and how it was drawn and written.
const DRAWN: [&str; 3] = ["session_origin", "session_metadata", "session_options"];

pub(super) fn read(draft: &mut Draft, text: &str) -> Read<()> {
    let document = Document::parse(text).or_else(|error| {
        let at = Position { line: error.pos().row, column: error.pos().col };
        draft.error(at, format!("not XML: {error}"))
    })?;
    let root = document.root_element();
    if !root.has_tag_name("scenario") {
        let what = format!("<{}>: expected <scenario>, which CORE writes", root.tag_name().name());
        return draft.error(position_of(root), what);
    }
    if let Some(name) = root.attribute("name").filter(|name| !name.contains('/')) {
        draft.file.name = position_of(root).of(plain_name(name.trim_end_matches(".xml")));
    }
    let mut scenario = Scenario { draft, names: BTreeMap::new(), services: Vec::new() };
    for part in elements(root) {
        match part.tag_name().name() {
            "networks" => scenario.each(part, "network", Scenario::network)?,
            "devices" => scenario.each(part, "device", Scenario::device)?,
            _ => {}
        }
    }
    for part in elements(root) {
        match part.tag_name().name() {
            "networks" | "devices" | "default_services" => {}
            "links" => scenario.each(part, "link", Scenario::link)?,
            "service_configurations" | "configservice_configurations" => {
                scenario.each(part, "service", Scenario::configured)?;
            }
            "mobility_configurations" => {
                scenario.each(part, "mobility_configuration", Scenario::mobility)?;
            }
            drawn if DRAWN.contains(&drawn) => {}
            _ => elements(part).for_each(|one| scenario.leave_out(one, "")),
        }
    }
    scenario.serve();
    wlan::settle(draft);
    Ok(())
}

struct Scenario<'d, 'x> {
    draft: &'d mut Draft,
    /// Names of nodes by their ids; `None` for nodes that are left out.
    names: BTreeMap<String, Option<String>>,
    /// Node, service, and the element that names the service.
    services: Vec<(String, String, Element<'x, 'x>)>,
}

fn position_of(element: Element) -> Position {
    let at = element.document().text_pos_at(element.range().start);
    Position { line: at.row, column: at.col }
}

fn elements<'x>(parent: Element<'x, 'x>) -> impl Iterator<Item = Element<'x, 'x>> {
    parent.children().filter(Element::is_element)
}

fn child<'x>(parent: Element<'x, 'x>, names: &[&str]) -> Option<Element<'x, 'x>> {
    elements(parent).find(|one| names.contains(&one.tag_name().name()))
}

impl<'x> Scenario<'_, 'x> {
    fn each(
        &mut self,
        parent: Element<'x, 'x>,
        name: &str,
        act: fn(&mut Self, Element<'x, 'x>) -> Read<()>,
    ) -> Read<()> {
        for one in elements(parent) {
            match one.has_tag_name(name) {
                true => act(self, one)?,
                false => self.leave_out(one, ""),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, element: Element, why: &str) {
        let attributes =
            element.attributes().map(|one| format!(" {}={:?}", one.name(), one.value()));
        let shown =
            format!("<{}{}>{why}", element.tag_name().name(), attributes.collect::<String>());
        self.draft.leave_out(position_of(element), shown);
    }

    /// Notes as left out the attributes of an element that are not in `known`. An attribute that is empty or 0 says nothing.
    fn leave_out_others(&mut self, element: Element, of: &str, known: &[&str]) {
        for one in element.attributes() {
            let is_nothing = ["", "0", "0.0", "None"].contains(&one.value());
            if !is_nothing && !known.contains(&one.name()) {
                let what = format!("{of}: {}={:?}", one.name(), one.value());
                self.draft.leave_out(position_of(element), what);
            }
        }
    }

    fn required<'a>(&self, element: Element<'a, 'a>, names: &[&str]) -> Read<&'a str> {
        match names.iter().find_map(|name| element.attribute(*name)) {
            Some(value) => Ok(value),
            None => {
                let what = format!("<{}>: expected {}", element.tag_name().name(), names[0]);
                self.draft.error(position_of(element), what)
            }
        }
    }

    fn add(&mut self, element: Element, node: Node) -> Read<()> {
        let (id, name) = (self.required(element, &["id"])?, self.required(element, &["name"])?);
        self.names.insert(id.into(), Some(name.into()));
        self.draft.add_node(position_of(element), name, node)
    }

    fn network(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let kind = match self.required(element, &["type"])? {
            "SWITCH" => NodeKind::Switch,
            "HUB" => NodeKind::Hub,
            "WIRELESS_LAN" => NodeKind::Wlan,
            _ => {
                self.leave_out(element, " and its links: expected SWITCH, HUB or WIRELESS_LAN");
                self.names.insert(self.required(element, &["id"])?.into(), None);
                return Ok(());
            }
        };
        let drawn = ["id", "name", "type", "icon", "canvas"];
        let known = [&drawn[..], if kind == NodeKind::Wlan { &["model", "mobility"] } else { &[] }];
        self.leave_out_others(element, "network", &known.concat());
        let radio =
            (kind == NodeKind::Wlan).then(|| position_of(element).of(wlan::default_radio()));
        self.add(element, Node { kind, radio, position: position(element), ..Node::default() })
    }

    /// Reads the model of a wlan, or the script by which its members move.
    fn mobility(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let id = self.required(element, &["node"])?;
        let Some(Some(name)) = self.names.get(id).cloned() else {
            self.leave_out(element, ": its network is not there");
            return Ok(());
        };
        let settings: Vec<wlan::Setting> = elements(element)
            .filter_map(|one| {
                Some((one.attribute("name")?, one.attribute("value")?, position_of(one)))
            })
            .collect();
        let number =
            |(id, name): (&String, &Option<String>)| Some((id.parse().ok()?, name.clone()?));
        match self.required(element, &["model"])? {
            "basic_range" => wlan::basic_range(self.draft, &name, &settings),
            "ns2script" => {
                let nodes = self.names.iter().filter_map(number).collect();
                wlan::ns2script(self.draft, &name, &settings, &nodes)
            }
            _ => {
                self.leave_out(element, "");
                Ok(())
            }
        }
    }

    fn device(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let name = self.required(element, &["name"])?;
        let known = ["id", "name", "type", "icon", "canvas"];
        self.leave_out_others(element, &format!("device {name}"), &known);
        let node = Node { position: position(element), ..Node::default() };
        let kind = element.attribute("type").unwrap_or_default();
        let lists = ["services", "configservices"].map(|list| child(element, &[list]));
        for one in lists.iter().flatten().flat_map(|list| elements(*list)) {
            let service = self.required(one, &["name"])?;
            self.services.push((name.into(), service.into(), one));
        }
        if lists.iter().all(Option::is_none) {
            let root = element.document().root_element();
            for service in default_services(root, kind) {
                self.services.push((name.into(), service, element));
            }
        }
        for one in elements(element) {
            if !["position", "services", "configservices"].contains(&one.tag_name().name()) {
                self.leave_out(one, "");
            }
        }
        self.add(element, node)
    }

    fn link(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let ids = [
            self.required(element, &["node1", "node_one"])?,
            self.required(element, &["node2", "node_two"])?,
        ];
        let mut names = Vec::new();
        for id in ids {
            match self.names.get(id) {
                None => {
                    return self
                        .draft
                        .error(position_of(element), format!("link: no node has the id {id:?}"))
                }
                Some(None) => {
                    self.leave_out(element, ": an end is not there");
                    return Ok(());
                }
                Some(Some(name)) => names.push(name.clone()),
            }
        }
        let ifaces = ifaces(element);
        let options = child(element, &["options"]);
        let impairments =
            options.map(|options| self.options(options)).transpose()?.unwrap_or_default();
        let one_way = options.and_then(|one| one.attribute("unidirectional"));
        let ends = [0, 1].map(|side| {
            let name = &names[side];
            let given = ifaces[side].and_then(|iface| iface.attribute("name"));
            let stem = if self.draft.is_switch(name) { "p" } else { "eth" };
            let made = || self.draft.unused_interface(name, stem);
            position_of(element).of(format!("{name}:{}", given.map_or_else(made, str::to_string)))
        });
        if !matches!(one_way, None | Some("" | "0" | "False" | "None")) {
            return self.one_way(element, ends, impairments);
        }
        let mut made = link(ends);
        made.set_impairments(&impairments);
        self.address(&mut made, &names, ifaces);
        self.draft.add_link(position_of(element), made);
        Ok(())
    }

    /// Handles a link that is written twice, once for the frames of each end. The first one makes the link.
    fn one_way(
        &mut self,
        element: Element<'x, 'x>,
        ends: [Spanned<String>; 2],
        impairments: Impairments,
    ) -> Read<()> {
        let key = ends[0].value.clone();
        let nodes = |ends: &[Spanned<String>]| -> Vec<String> {
            let mut nodes: Vec<String> =
                ends.iter().map(|end| node_of(&end.value).into()).collect();
            nodes.sort();
            nodes
        };
        let links = &mut self.draft.file.topology.links;
        let there = links.iter_mut().find(|link| {
            let link = &link.value;
            !link.from.contains_key(&key)
                && !link.from.is_empty()
                && nodes(&link.endpoints) == nodes(&ends)
                && link.endpoints.iter().any(|end| end.value == key)
        });
        if let Some(there) = there {
            there.value.from.insert(key, position_of(element).of(impairments));
            return Ok(());
        }
        let names = ends.each_ref().map(|end| node_of(&end.value).to_string());
        let ifaces = ifaces(element);
        let mut made = link(ends);
        made.from.insert(key, position_of(element).of(impairments));
        self.address(&mut made, &names, ifaces);
        self.draft.add_link(position_of(element), made);
        Ok(())
    }

    fn options(&mut self, element: Element<'x, 'x>) -> Read<Impairments> {
        const KNOWN: [&str; 7] =
            ["bandwidth", "delay", "jitter", "loss", "dup", "buffer", "unidirectional"];
        self.leave_out_others(element, "link option", &KNOWN);
        let numbers = Numbers { draft: self.draft, at: position_of(element) };
        let mut impairments = Impairments::default();
        for one in element.attributes().filter(|one| !["", "None"].contains(&one.value())) {
            let (key, value) = (one.name(), one.value());
            match key {
                "bandwidth" => impairments.rate = numbers.rate(key, value)?,
                "delay" => impairments.delay = numbers.delay(key, value)?,
                "jitter" => impairments.jitter = numbers.jitter(key, value)?,
                "loss" | "per" => impairments.loss = numbers.loss(key, value)?,
                "dup" => impairments.duplicate = numbers.percent(key, value)?,
                "buffer" => impairments.queue = numbers.queue(key, value)?,
                _ => {}
            }
        }
        Ok(impairments)
    }

    /// Reads the addresses of the ends. Those of a switch are noted as left out.
    fn address(&mut self, link: &mut Link, names: &[String], ifaces: [Option<Element<'x, 'x>>; 2]) {
        for (side, iface) in ifaces.into_iter().enumerate() {
            let Some(iface) = iface else { continue };
            let known = ["id", "name", "ip4", "ip4_mask", "ip6", "ip6_mask", "mac"];
            self.leave_out_others(iface, &format!("interface of {}", names[side]), &known);
            let value = |name: &str| iface.attribute(name).filter(|text| !text.is_empty());
            let with = |address: &str, mask: &str| {
                let (address, mask) = (value(address)?, value(mask)?);
                Some(position_of(iface).of(format!("{address}/{mask}")))
            };
            let mac = value("mac").map(|mac| position_of(iface).of(mac.to_string()));
            let given = [with("ip4", "ip4_mask"), with("ip6", "ip6_mask"), mac];
            if self.draft.is_switch(&names[side]) {
                if given.iter().any(Option::is_some) {
                    self.leave_out(iface, ": a switch or hub has no addresses");
                }
                continue;
            }
            for (to, one) in [&mut link.ipv4, &mut link.ipv6, &mut link.mac].into_iter().zip(given)
            {
                let Some(one) = one else { continue };
                to.resize(2, None);
                to[side] = Some(one);
            }
        }
    }

    /// Reads the configuration of a service in a node: its commands at the start, with the files that they run.
    fn configured(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let (node, service) =
            (self.required(element, &["node"])?, self.required(element, &["name"])?);
        let Some(Some(node)) = self.names.get(node).cloned() else {
            return self.draft.error(
                position_of(element),
                format!("service {service}: no node has the id {node:?}"),
            );
        };
        let files: BTreeMap<&str, &str> = elements(element)
            .filter(|part| ["files", "templates"].contains(&part.tag_name().name()))
            .flat_map(elements)
            .filter_map(|file| Some((file.attribute("name")?, file.text().unwrap_or_default())))
            .collect();
        let mut used = Vec::new();
        for part in elements(element) {
            match part.tag_name().name() {
                "files" | "templates" => {}
                "startups" => {
                    for one in elements(part) {
                        let line = one.text().unwrap_or_default().trim();
                        let run = with_file(line, &files, &mut used);
                        if let Some(node) = self.draft.node(&node).filter(|_| !line.is_empty()) {
                            node.exec.push(position_of(one).of(run));
                        }
                    }
                }
                _ => elements(part).for_each(|one| self.leave_out(one, &format!(" of {service}"))),
            }
        }
        for name in files.keys().filter(|name| !used.contains(*name)) {
            let what = format!("service {service} of {node}: file {name}: no command runs it");
            self.draft.leave_out(position_of(element), what);
        }
        // This configuration stands for the service. There is no default of that name to look for.
        self.services.retain(|(one, name, _)| *one != node || name != service);
        Ok(())
    }

    /// Handles the two services that are commands.
    fn serve(self) {
        for (node, service, element) in &self.services {
            let at = position_of(*element);
            match service.as_str() {
                "IPForward" => {
                    if let Some(node) = self.draft.node(node) {
                        forward(at, node);
                    }
                }
                "DefaultRoute" => default_routes(self.draft, at, node),
                other => self.draft.leave_out(at, format!("node {node}: service {other}")),
            }
        }
    }
}

fn ifaces<'x>(link: Element<'x, 'x>) -> [Option<Element<'x, 'x>>; 2] {
    [["iface1", "interface_one"], ["iface2", "interface_two"]].map(|names| child(link, &names))
}

fn node_of(end: &str) -> &str {
    end.split(':').next().unwrap_or_default()
}

fn position(element: Element) -> Option<[f64; 2]> {
    let position = elements(element).find(|one| one.has_tag_name("position"))?;
    let number = |name| position.attribute(name)?.parse().ok();
    Some([number("x")?, number("y")?])
}

/// Returns the default services of a kind of device: those in the file, or CORE's.
fn default_services(root: Element, kind: &str) -> Vec<String> {
    let said = elements(root)
        .filter(|one| one.has_tag_name("default_services"))
        .flat_map(elements)
        .find(|one| one.attribute("type") == Some(kind));
    if let Some(said) = said {
        return elements(said).filter_map(|one| Some(one.attribute("name")?.into())).collect();
    }
    let found = DEFAULT_SERVICES.iter().find(|(name, _)| *name == kind);
    found.map_or(Vec::new(), |(_, services)| services.iter().map(|s| s.to_string()).collect())
}

/// Returns a command that runs a file, `sh NAME` or `bash NAME`, with the content of the file in it.
pub(super) fn with_file<'a>(
    line: &str,
    files: &BTreeMap<&'a str, &str>,
    used: &mut Vec<&'a str>,
) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [shell @ ("sh" | "bash" | "/bin/sh" | "/bin/bash"), file] = words[..] else {
        return line.to_string();
    };
    let Some((name, text)) = files.get_key_value(file) else { return line.to_string() };
    used.push(name);
    format!("{shell} -s <<'END-OF-FILE'\n{}\nEND-OF-FILE", text.trim_matches('\n'))
}
