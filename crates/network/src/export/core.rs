//! Scenarios of CORE.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::elements::{is_router, leave_out_rare, loss_percent, mac_text, other_sysctls};
use crate::emulator::SwitchKind;
use crate::impair::{Discipline, Impairments};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};

pub(super) fn write(plan: &NetworkPlan, left_out: &mut Vec<String>) -> String {
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    for name in names.chain(plan.switches.iter().map(|(name, _)| name.as_str())) {
        ids.insert(name, ids.len() + 1);
    }
    let mut xml = format!(
        "<?xml version='1.0' encoding='UTF-8'?>\n<scenario name={}>\n  <networks>\n",
        quoted(&plan.name)
    );
    for (name, kind) in &plan.switches {
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
    for link in &plan.links {
        leave_out_rare(link, &[Discipline::DropTail], left_out);
        match link.ends.iter().any(|end| plan.is_wlan(&end.node)) {
            // Its impairments are those of the wlan's radio.
            true => {
                write_way(&mut xml, link, &ids, [0, 1], &Impairments::default(), false, left_out)
            }
            false => write_link(&mut xml, link, &ids, left_out),
        }
    }
    xml += "  </links>\n  <mobility_configurations>\n";
    for (name, kind) in &plan.switches {
        if let SwitchKind::Wlan { range } = kind {
            write_basic_range(&mut xml, plan, name, *range, ids[name.as_str()], left_out);
        }
    }
    xml += "  </mobility_configurations>\n  <service_configurations>\n";
    for node in plan.nodes.iter().filter(|node| has_commands(node)) {
        let _ = writeln!(
            xml,
            "    <service name=\"UserDefined\" node=\"{}\">\n      <startups>",
            ids[node.name.as_str()]
        );
        let settings = other_sysctls(node).map(|(key, value)| format!("sysctl -w {key}={value}"));
        let lines = settings.chain(node.exec.iter().map(|line| line.text.clone()));
        for line in lines.chain(node.command.iter().map(|words| background(words))) {
            let _ = writeln!(xml, "        <startup>{}</startup>", escaped(&line));
        }
        xml += "      </startups>\n    </service>\n";
    }
    xml + "  </service_configurations>\n</scenario>\n"
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
        services += "<service name=\"UserDefined\"/>";
    }
    let _ = writeln!(
        xml,
        "    <device id=\"{id}\" name={} type=\"{kind}\"{image}>{}<services>{services}</services></device>",
        quoted(&node.name),
        position(plan, &node.name)
    );
}

fn position(plan: &NetworkPlan, name: &str) -> String {
    let of = |[x, y]: &[f64; 2]| format!("<position x=\"{x}\" y=\"{y}\"/>");
    plan.positions.get(name).map_or(String::new(), of)
}

fn write_link(
    xml: &mut String,
    link: &LinkPlan,
    ids: &BTreeMap<&str, usize>,
    left_out: &mut Vec<String>,
) {
    if link.mtu != 1_500 {
        left_out.push(format!("link {} - {}: mtu {}", link.ends[0], link.ends[1], link.mtu));
    }
    let [there, back] = &link.impairments;
    if there == back {
        write_way(xml, link, ids, [0, 1], there, false, left_out);
    } else {
        // One element for the frames of each end.
        write_way(xml, link, ids, [0, 1], there, true, left_out);
        write_way(xml, link, ids, [1, 0], back, true, left_out);
    }
}

fn write_way(
    xml: &mut String,
    link: &LinkPlan,
    ids: &BTreeMap<&str, usize>,
    order: [usize; 2],
    impairments: &Impairments,
    one_way: bool,
    left_out: &mut Vec<String>,
) {
    let nodes = order.map(|side| ids[link.ends[side].node.as_str()]);
    let _ = write!(xml, "    <link node1=\"{}\" node2=\"{}\">", nodes[0], nodes[1]);
    for (number, side) in order.into_iter().enumerate() {
        let _ = write!(xml, "<iface{} name={}", number + 1, quoted(&link.ends[side].interface));
        if let Some(mac) = link.macs[side] {
            let _ = write!(xml, " mac=\"{}\"", mac_text(mac));
        }
        for (address, length) in &link.addresses[side] {
            let family = if address.is_ipv4() { 4 } else { 6 };
            let _ = write!(xml, " ip{family}=\"{address}\" ip{family}_mask=\"{length}\"");
        }
        *xml += "/>";
    }
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
        set("dup", format!("{}", share.as_f64() * 100.0));
    }
    if let Some(packets) = impairments.queue.and_then(|queue| queue.packets) {
        set("buffer", packets.to_string());
    }
    if one_way {
        set("unidirectional", "1".into());
    }
    let _ = writeln!(xml, "<options{options}/></link>");
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
