//! Networks in the formats of other emulators: scenarios of CORE, topologies of containerlab, programs for Mininet.
//!
//! [`Exported::left_out`] lists the elements that a format cannot represent: nothing is dropped silently.

mod containerlab;
mod core;
mod elements;
mod mininet;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use lorentz_clock::Rate;

use crate::plan::NetworkPlan;

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
    for (number, script) in plan.mobility.scripts.iter().enumerate() {
        // The first one is that of the schedule.
        match number {
            0 => left_out.extend(script.waypoints.iter().map(|waypoint| {
                format!("schedule: a movement of {} at {}", waypoint.node, waypoint.at)
            })),
            _ => left_out.push(format!("mobility: script {number}")),
        }
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
