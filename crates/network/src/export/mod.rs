//! Networks in the formats of other emulators: scenarios of CORE, topologies of containerlab, programs for Mininet.
//!
//! What a format has no place for is returned beside the text ([`Exported::left_out`]): nothing is dropped silently.

mod containerlab;
mod core;
mod mininet;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use lorentz_clock::Rate;

use crate::emulator::SwitchKind;
use crate::impair::{Discipline, Distribution, Impairments, LossOption};
use crate::plan::{LinkPlan, NetworkPlan, NodePlan};

/// A format that networks are written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// A scenario of CORE, in XML.
    Core,
    /// A topology of containerlab, in YAML.
    Containerlab,
    /// A program for Mininet, in Python.
    Mininet,
}

impl FromStr for ExportFormat {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<ExportFormat, &'static str> {
        match text {
            "core" => Ok(ExportFormat::Core),
            "containerlab" => Ok(ExportFormat::Containerlab),
            "mininet" => Ok(ExportFormat::Mininet),
            _ => Err("expected core, containerlab or mininet"),
        }
    }
}

/// A network in another format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// The content of its file.
    pub text: String,
    /// Elements that the format has no place for.
    pub left_out: Vec<String>,
}

/// Writes the network of `plan` in a format.
pub fn export(plan: &NetworkPlan, format: ExportFormat) -> Exported {
    let mut left_out = Vec::new();
    let rate = plan.clock.rate_or_tdf();
    if rate != Rate::ONE {
        left_out.push(format!("tdf {}: a clock of its own", rate.inverse()));
    }
    if plan.clock.at.is_some() {
        left_out.push("at: a date of its own".into());
    }
    if plan.rounds {
        left_out.push("rounds".into());
    }
    for change in &plan.schedule {
        left_out.push(format!("schedule: a change of {} at {}", change.end, change.at));
    }
    for node in &plan.nodes {
        let own = node.clock.or(&plan.clock).rate_or_tdf();
        if own != rate {
            left_out.push(format!("node {}: tdf {}", node.name, own.inverse()));
        }
        if node.clock.at.is_some() {
            left_out.push(format!("node {}: at: a date of its own", node.name));
        }
        if node.rootfs.is_some() {
            left_out.push(format!("node {}: rootfs", node.name));
        }
    }
    let text = match format {
        ExportFormat::Core => core::write(plan, &mut left_out),
        ExportFormat::Containerlab => containerlab::write(plan, &mut left_out),
        ExportFormat::Mininet => mininet::write(plan, &mut left_out),
    };
    Exported { text, left_out }
}

/// Notes the impairments that are not among those of netem, or that netem would do in another way.
fn leave_out_rare(link: &LinkPlan, left_out: &mut Vec<String>) {
    let ends = format!("link {} - {}", link.ends[0], link.ends[1]);
    let mut note = |what: &str| left_out.push(format!("{ends}: {what}"));
    if !link.is_up {
        note("state down");
    }
    for impairments in &link.impairments {
        if impairments.jitter().distribution != Distribution::Uniform {
            note("jitter: its distribution");
        }
        if matches!(impairments.loss, Some(LossOption::Bursts(_))) {
            note("loss in bursts");
        }
        if impairments.corrupt.is_some() {
            note("corrupt");
        }
        if impairments.reorder.is_some() {
            note("reorder");
        }
        let queue = impairments.queue.unwrap_or_default();
        if queue.bytes.is_some() || queue.discipline == Discipline::Codel {
            note("queue: its bytes or discipline");
        }
    }
}

/// Percent of frames that are lost, each by itself.
fn loss_percent(impairments: &Impairments) -> Option<f64> {
    match impairments.loss {
        Some(LossOption::Independent(share)) => Some(share.as_f64() * 100.0),
        _ => None,
    }
}

/// Whether a node forwards packets.
fn is_router(node: &NodePlan) -> bool {
    node.sysctls.get("net.ipv4.ip_forward").is_some_and(|value| value == "1")
}

/// Sysctls other than those that make a router.
fn other_sysctls(node: &NodePlan) -> impl Iterator<Item = (&String, &String)> {
    let of_router = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    node.sysctls.iter().filter(move |(key, _)| !of_router.contains(&key.as_str()))
}

fn is_hub(kind: SwitchKind) -> bool {
    kind == SwitchKind::Hub
}

/// The hardware address as text.
fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
