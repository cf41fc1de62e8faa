//! CORE's scenarios in XML, as CORE 5 to 9 write them.

use std::collections::BTreeMap;

use lorentz_emulator::impair::Impairments;
use roxmltree::{Attribute, Document, Node as Element};
use serde_saphyr::Spanned;

use super::draft::{link, plain_name, Draft, Numbers, Position, Read};
use super::services::{self, Files, Routing, Style, Wanted};
use super::wlan;
use crate::topology::{Link, Node, NodeKind};

/// Elements of a scenario that only say where and how it was drawn and written.
const DRAWN: [&str; 3] = ["session_origin", "session_metadata", "session_options"];
/// Attributes that only say where and how an element was drawn.
const DRAWN_ATTRIBUTES: [&str; 2] = ["icon", "canvas"];

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
            // CORE writes its defaults into every scenario.
            "emane_global_configuration" if !has_emane(root) => {}
            _ => elements(part).for_each(|one| scenario.leave_out(one, "")),
        }
    }
    scenario.serve();
    wlan::complete_members(draft);
    Ok(())
}

struct Scenario<'d, 'x> {
    draft: &'d mut Draft,
    /// Names of nodes by their ids; `None` for nodes that are left out.
    names: BTreeMap<String, Option<String>>,
    /// The services of each node, by the element of the node.
    services: Vec<(Element<'x, 'x>, Vec<Wanted>)>,
}

fn position_of(element: Element) -> Position {
    let at = element.document().text_pos_at(element.range().start);
    Position { line: at.row, column: at.col }
}

fn elements<'x>(parent: Element<'x, 'x>) -> impl Iterator<Item = Element<'x, 'x>> {
    parent.children().filter(Element::is_element)
}

fn has_emane(root: Element) -> bool {
    root.descendants()
        .any(|one| one.has_tag_name("network") && one.attribute("type") == Some("EMANE"))
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
        let is_shown =
            |one: &Attribute| !one.value().is_empty() && !DRAWN_ATTRIBUTES.contains(&one.name());
        let attributes = element.attributes().filter(is_shown);
        let attributes = attributes.map(|one| format!(" {}={:?}", one.name(), one.value()));
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
            "WIRELESS_LAN" | "WIRELESS" => NodeKind::Wlan,
            _ => {
                self.leave_out(
                    element,
                    ", and its links: expected SWITCH, HUB, WIRELESS_LAN or WIRELESS",
                );
                self.names.insert(self.required(element, &["id"])?.into(), None);
                return Ok(());
            }
        };
        let drawn = ["id", "name", "type", "icon", "canvas"];
        let known = [&drawn[..], if kind == NodeKind::Wlan { &["model", "mobility"] } else { &[] }];
        self.leave_out_others(element, "network", &known.concat());
        let radio =
            (kind == NodeKind::Wlan).then(|| position_of(element).of(wlan::default_radio()));
        self.add(element, Node { kind, radio, position: position(element), ..Node::default() })?;
        match child(element, &["wireless"]) {
            Some(model) => {
                wlan::wireless(self.draft, self.required(element, &["name"])?, &settings_of(model))
            }
            None => Ok(()),
        }
    }

    /// Reads the model of a wlan, or the script by which its members move.
    fn mobility(&mut self, element: Element<'x, 'x>) -> Read<()> {
        let id = self.required(element, &["node"])?;
        let Some(Some(name)) = self.names.get(id).cloned() else {
            self.leave_out(element, ": its network is not there");
            return Ok(());
        };
        let settings = settings_of(element);
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
        let mut known = vec!["id", "name", "type", "icon", "canvas"];
        let mut node = Node { position: position(element), ..Node::default() };
        // Whether docker or podman runs it makes no difference here: images are podman's.
        let is_container = matches!(element.attribute("class"), Some("docker" | "podman"));
        let image = element.attribute("image").filter(|image| is_container && !image.is_empty());
        if let Some(image) = image {
            known.extend(["class", "image"]);
            node.image = Some(position_of(element).of(image.to_string()));
        }
        self.leave_out_others(element, &format!("device {name}"), &known);
        let kind = element.attribute("type").unwrap_or_default();
        let lists = ["services", "configservices"].map(|list| child(element, &[list]));
        let mut wanted = Vec::new();
        for one in lists.iter().flatten().flat_map(|list| elements(*list)) {
            wanted.push(Wanted::plain(position_of(one), self.required(one, &["name"])?));
        }
        if lists.iter().all(Option::is_none) {
            let names = default_services(element.document().root_element(), kind);
            let at = position_of(element);
            wanted.extend(names.iter().map(|name| Wanted::plain(at, name)));
        }
        self.services.push((element, wanted));
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
                    return self.dangling(element, ids);
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

    /// Makes the interface of the end of a link that is there, although the other end is not.
    fn dangling(&mut self, element: Element<'x, 'x>, ids: [&str; 2]) -> Read<()> {
        for (id, iface) in ids.into_iter().zip(ifaces(element)) {
            let name = self.names.get(id).cloned().flatten();
            let Some((name, iface)) = name.zip(iface) else { continue };
            let Some(interface) = iface.attribute("name").filter(|name| !name.is_empty()) else {
                continue;
            };
            let end = position_of(iface).of(format!("{name}:{interface}"));
            self.draft.add_dangling(end, addresses_of(iface))?;
        }
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
        // `per` was the name of `loss` until CORE 6. `type` tells a wired link, which follows from its ends, from others.
        const KNOWN: [&str; 9] = [
            "bandwidth",
            "delay",
            "jitter",
            "loss",
            "per",
            "dup",
            "buffer",
            "unidirectional",
            "type",
        ];
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
            let given = addresses_of(iface);
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

    /// Reads the configuration of a service in a node: its commands at the start, and its files. The programs end
    /// with the network, so commands that stop a service or look at it have nothing to do.
    fn configured(&mut self, element: Element<'x, 'x>) -> Read<()> {
        const NOTHING_TO_DO: [&str; 3] = ["directories", "validates", "shutdowns"];
        let (node, service) =
            (self.required(element, &["node"])?, self.required(element, &["name"])?);
        if !self.names.contains_key(node) {
            return self.draft.error(
                position_of(element),
                format!("service {service}: no node has the id {node:?}"),
            );
        }
        let (mut files, mut startups) = (Files::new(), None);
        for part in elements(element) {
            match part.tag_name().name() {
                "files" | "templates" => {
                    for (name, file) in
                        elements(part).filter_map(|file| Some((file.attribute("name")?, file)))
                    {
                        let text = plain(file.text().unwrap_or_default());
                        files.insert(name.into(), position_of(file).of(text));
                    }
                }
                "startups" => {
                    let lines =
                        elements(part).map(|one| (one, one.text().unwrap_or_default().trim()));
                    let lines = lines.filter(|(_, line)| !line.is_empty());
                    let lines: Vec<_> =
                        lines.map(|(one, line)| position_of(one).of(line.to_string())).collect();
                    startups = (!lines.is_empty()).then_some(lines);
                }
                known if NOTHING_TO_DO.contains(&known) => {}
                _ => elements(part).for_each(|one| self.leave_out(one, &format!(" of {service}"))),
            }
        }
        let configured = Wanted { at: position_of(element), name: service.into(), files, startups };
        let of_node =
            self.services.iter_mut().find(|(device, _)| device.attribute("id") == Some(node));
        if let Some((_, wanted)) = of_node {
            match wanted.iter_mut().find(|one| one.name == service) {
                Some(one) => *one = configured,
                None => wanted.push(configured),
            }
        }
        Ok(())
    }

    /// Starts the services of all nodes.
    fn serve(self) {
        for (device, wanted) in self.services {
            let (id, name) = (device.attribute("id"), device.attribute("name"));
            let system = id.and_then(|id| id.parse().ok()).unwrap_or(1);
            let routing = Routing { style: Style::Core, system, text: None };
            services::start(self.draft, name.unwrap_or_default(), wanted, routing);
        }
    }
}

fn ifaces<'x>(link: Element<'x, 'x>) -> [Option<Element<'x, 'x>>; 2] {
    [["iface1", "interface_one"], ["iface2", "interface_two"]].map(|names| child(link, &names))
}

/// Returns the addresses of an interface: IPv4's, IPv6's and the hardware's.
fn addresses_of(iface: Element) -> [Option<Spanned<String>>; 3] {
    let value = |name: &str| iface.attribute(name).filter(|text| !text.is_empty());
    let with = |address: &str, mask: &str| {
        let (address, mask) = (value(address)?, value(mask)?);
        Some(position_of(iface).of(format!("{address}/{mask}")))
    };
    let mac = value("mac").map(|mac| position_of(iface).of(mac.to_string()));
    [with("ip4", "ip4_mask"), with("ip6", "ip6_mask"), mac]
}

/// Returns the settings of a model.
fn settings_of<'x>(model: Element<'x, 'x>) -> Vec<wlan::Setting<'x>> {
    let setting = |one: Element<'x, 'x>| {
        Some((one.attribute("name")?, one.attribute("value")?, position_of(one)))
    };
    elements(model).filter_map(setting).collect()
}

/// The text of a file without Mako's tag `text`, which has Mako copy what is in it.
fn plain(text: &str) -> String {
    text.replace("<%text>", "").replace("</%text>", "")
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
    let configured = elements(root)
        .filter(|one| one.has_tag_name("default_services"))
        .flat_map(elements)
        .find(|one| one.attribute("type") == Some(kind));
    if let Some(configured) = configured {
        return elements(configured)
            .filter_map(|one| Some(one.attribute("name")?.into()))
            .collect();
    }
    services::defaults_of_core(kind).iter().map(|name| name.to_string()).collect()
}
