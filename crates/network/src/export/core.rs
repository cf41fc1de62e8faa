//! Scenarios of CORE.

use std::collections::BTreeMap;
use std::fmt::Write;

use lorentz_emulator::impair::{Discipline, Impairments};
use lorentz_emulator::SwitchKind;

use super::elements::{is_router, leave_out_rare, loss_percent, mac_text, other_sysctls};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};

/// A service of CORE from its version 6.1 on that runs a script, and the name of the script. The scenario has the script's text.
const SCRIPT_SERVICE: &str = "StaticRoute";
const SCRIPT: &str = "staticroute.sh";

pub(super) fn write(plan: &NetworkPlan, left_out: &mut Vec<String>) -> String {
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    for name in names.chain(plan.switches.iter().map(|(name, _)| name.as_str())) {
        ids.insert(name, ids.len() + 1);
    }
    let interfaces = interface_ids(plan);
    let mut xml = format!(
        "<?xml version='1.0' encoding='UTF-8'?>\n<scenario name={}>\n  <networks>\n",
        quoted(&plan.name)
    );
    for (name, kind) in &plan.switches {
        if *kind == SwitchKind::SpanningTree {
            left_out.push(format!("node {name}: stp"));
        }
        let kind = match kind {
            SwitchKind::Hub => "HUB\"",
            SwitchKind::Wlan { .. } => "WIRELESS_LAN\" model=\"basic_range\"",
            SwitchKind::Learning | SwitchKind::SpanningTree => "SWITCH\"",
        };
        let _ = writeln!(
            xml,
            "    <network id=\"{}\" name={} type=\"{kind}>{}</network>",
            ids[name.as_str()],
            quoted(name),
            position(plan, name)
        );
    }
    xml += "  </networks>\n  <devices>\n";
    for node in &plan.nodes {
        write_device(&mut xml, plan, node, ids[node.name.as_str()], left_out);
    }
    xml += "  </devices>\n  <links>\n";
    for (link, interfaces) in plan.links.iter().zip(interfaces) {
        leave_out_rare(link, &[Discipline::DropTail], left_out);
        let way =
            Way { link, nodes: link.ends.each_ref().map(|end| ids[end.node.as_str()]), interfaces };
        match link.ends.iter().any(|end| plan.is_wlan(&end.node)) {
            // Its impairments are those of the wlan's radio.
            true => way.write(&mut xml, [0, 1], &Impairments::default(), false, left_out),
            false => write_link(&mut xml, &way, left_out),
        }
    }
    xml += "  </links>\n  <mobility_configurations>\n";
    for (name, kind) in &plan.switches {
        if let SwitchKind::Wlan { range } = kind {
            write_basic_range(&mut xml, plan, name, *range, ids[name.as_str()], left_out);
        }
    }
    xml += "  </mobility_configurations>\n  <configservice_configurations>\n";
    for node in plan.nodes.iter().filter(|node| has_commands(node)) {
        write_commands(&mut xml, node, ids[node.name.as_str()]);
    }
    xml + "  </configservice_configurations>\n</scenario>\n"
}

/// Returns for each link the numbers of the interfaces at its ends. CORE counts those of a node from 0.
fn interface_ids(plan: &NetworkPlan) -> Vec<[usize; 2]> {
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    let mut number = |node| {
        let next = next.entry(node).or_default();
        *next += 1;
        *next - 1
    };
    plan.links.iter().map(|link| link.ends.each_ref().map(|end| number(&end.node))).collect()
}

/// Writes the commands of a node as the script of the service [`SCRIPT_SERVICE`].
///
/// The script is a template of Mako: the tag `text` has Mako copy what is in it. Each line is in a shell of its own, which it may leave.
fn write_commands(xml: &mut String, node: &NodePlan, id: usize) {
    let settings = other_sysctls(node).map(|(key, value)| format!("sysctl -w {key}={value}"));
    let lines = settings.chain(node.exec.iter().map(|line| line.text.clone()));
    let lines = lines.chain(node.command.iter().map(|words| background(words)));
    let script: String = lines.map(|line| format!("(\n{line}\n)\n")).collect();
    let _ = write!(
        xml,
        "    <service name=\"{SCRIPT_SERVICE}\" node=\"{id}\">\n      <templates><template name=\"{SCRIPT}\">\
         &lt;%text&gt;\n{}&lt;/%text&gt;</template></templates>\n    </service>\n",
        escaped(&script)
    );
}

/// Writes the radio of the wlan `name`. It is that of the frames that the wlan sends over any of its links.
fn write_basic_range(
    xml: &mut String,
    plan: &NetworkPlan,
    name: &str,
    range: f64,
    id: usize,
    left_out: &mut Vec<String>,
) {
    let radio = plan.links.iter().find_map(|link| {
        let side = link.ends.iter().position(|end| end.node == name)?;
        Some(link.impairments[side].clone())
    });
    let radio = radio.unwrap_or_default();
    if radio.duplicate.is_some() {
        left_out.push(format!("node {name}: radio: duplicate"));
    }
    let micros = |span: lorentz_clock::Span| span.0 / 1_000;
    let rate = radio.rate.and_then(|rate| rate.limit()).unwrap_or(0);
    let settings = [
        ("range", range.to_string()),
        ("bandwidth", rate.to_string()),
        ("delay", micros(radio.delay.unwrap_or_default().span()).to_string()),
        ("jitter", micros(radio.jitter().spread.span()).to_string()),
        ("error", loss_percent(&radio).unwrap_or(0.0).to_string()),
    ];
    let _ = write!(xml, "    <mobility_configuration node=\"{id}\" model=\"basic_range\">");
    for (key, value) in settings {
        let _ = write!(xml, "<configuration name=\"{key}\" value=\"{value}\"/>");
    }
    *xml += "</mobility_configuration>\n";
}

fn has_commands(node: &NodePlan) -> bool {
    !node.exec.is_empty() || node.command.is_some() || other_sysctls(node).next().is_some()
}

/// A node's command as a line that does not wait for it.
fn background(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    format!("{} &", quoted.collect::<Vec<_>>().join(" "))
}

fn write_device(
    xml: &mut String,
    plan: &NetworkPlan,
    node: &NodePlan,
    id: usize,
    left_out: &mut Vec<String>,
) {
    if !node.env.is_empty() {
        left_out.push(format!("node {}: env", node.name));
    }
    let image = node
        .image
        .as_ref()
        .map_or(String::new(), |image| format!(" class=\"docker\" image={}", quoted(image)));
    let kind = if is_router(node) { "router" } else { "PC" };
    let mut services = String::new();
    if is_router(node) {
        services += "<service name=\"IPForward\"/>";
    }
    if has_commands(node) {
        let _ = write!(services, "<service name=\"{SCRIPT_SERVICE}\"/>");
    }
    let _ = writeln!(
        xml,
        "    <device id=\"{id}\" name={} type=\"{kind}\"{image}>{}<configservices>{services}</configservices></device>",
        quoted(&node.name),
        position(plan, &node.name)
    );
}

fn position(plan: &NetworkPlan, name: &str) -> String {
    let of = |[x, y]: &[f64; 2]| format!("<position x=\"{x}\" y=\"{y}\"/>");
    plan.positions.get(name).map_or(String::new(), of)
}

fn write_link(xml: &mut String, way: &Way, left_out: &mut Vec<String>) {
    let link = way.link;
    if link.mtu != 1_500 {
        left_out.push(format!("link {} - {}: mtu {}", link.ends[0], link.ends[1], link.mtu));
    }
    let [there, back] = &link.impairments;
    if there == back {
        way.write(xml, [0, 1], there, false, left_out);
    } else {
        // One element for the frames of each end.
        way.write(xml, [0, 1], there, true, left_out);
        way.write(xml, [1, 0], back, true, left_out);
    }
}

/// A link with CORE's numbers of its nodes and of their interfaces.
struct Way<'a> {
    link: &'a LinkPlan,
    nodes: [usize; 2],
    interfaces: [usize; 2],
}

impl Way<'_> {
    /// Writes an element whose first end is `order[0]`.
    fn write(
        &self,
        xml: &mut String,
        order: [usize; 2],
        impairments: &Impairments,
        one_way: bool,
        left_out: &mut Vec<String>,
    ) {
        let link = self.link;
        let nodes = order.map(|side| self.nodes[side]);
        let _ = write!(xml, "    <link node1=\"{}\" node2=\"{}\">", nodes[0], nodes[1]);
        for (number, side) in order.into_iter().enumerate() {
            let (id, name) = (self.interfaces[side], quoted(&link.ends[side].interface));
            let _ = write!(xml, "<iface{} id=\"{id}\" name={name}", number + 1);
            if let Some(mac) = link.macs[side] {
                let _ = write!(xml, " mac=\"{}\"", mac_text(mac));
            }
            for (address, length) in &link.addresses[side] {
                let family = if address.is_ipv4() { 4 } else { 6 };
                let _ = write!(xml, " ip{family}=\"{address}\" ip{family}_mask=\"{length}\"");
            }
            *xml += "/>";
        }
        let mut options = options(link, impairments, left_out);
        if one_way {
            options += " unidirectional=\"1\"";
        }
        let _ = writeln!(xml, "<options{options}/></link>");
    }
}

/// Returns the attributes of a link's options. CORE takes whole numbers in all of them but `loss`.
fn options(link: &LinkPlan, impairments: &Impairments, left_out: &mut Vec<String>) -> String {
    let mut options = String::new();
    let mut set = |key: &str, value: String| {
        let _ = write!(options, " {key}=\"{value}\"");
    };
    let ends = format!("link {} - {}", link.ends[0], link.ends[1]);
    let mut micros = |nanos: i64, key: &str| {
        if nanos % 1_000 != 0 {
            left_out.push(format!("{ends}: {key}: its part below a microsecond"));
        }
        (nanos / 1_000).to_string()
    };
    if let Some(bits) = impairments.rate.and_then(|rate| rate.limit()) {
        set("bandwidth", bits.to_string());
    }
    if let Some(delay) = impairments.delay {
        set("delay", micros(delay.span().0, "delay"));
    }
    if impairments.jitter.is_some() {
        set("jitter", micros(impairments.jitter().spread.span().0, "jitter"));
    }
    if let Some(loss) = loss_percent(impairments) {
        set("loss", format!("{loss}"));
    }
    if let Some(share) = impairments.duplicate {
        let percent = share.as_f64() * 100.0;
        if (percent - percent.round()).abs() > 1e-9 {
            left_out.push(format!("{ends}: duplicate: its part of a percent"));
        }
        set("dup", format!("{}", percent.round()));
    }
    if let Some(packets) = impairments.queue.and_then(|queue| queue.packets) {
        set("buffer", packets.to_string());
    }
    options
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
