//! Elements of a network, as several formats write them.

use lorentz_emulator::impair::{Discipline, Distribution, Impairments, LossOption};
use lorentz_emulator::SwitchKind;

use crate::plan::{LinkPlan, NodePlan};

/// Notes the impairments that are not among those of netem, or that netem would do in another way, and queues whose discipline is
/// none of `disciplines`.
pub(super) fn leave_out_rare(
    link: &LinkPlan,
    disciplines: &[Discipline],
    left_out: &mut Vec<String>,
) {
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
        if queue.bytes.is_some() || !disciplines.contains(&queue.discipline) {
            note("queue: its bytes or discipline");
        }
    }
}

/// Percent of frames that are lost, each by itself.
pub(super) fn loss_percent(impairments: &Impairments) -> Option<f64> {
    match impairments.loss {
        Some(LossOption::Independent(share)) => Some(share.as_f64() * 100.0),
        _ => None,
    }
}

/// Whether a node forwards packets.
pub(super) fn is_router(node: &NodePlan) -> bool {
    node.sysctls.get("net.ipv4.ip_forward").is_some_and(|value| value == "1")
}

/// Sysctls other than those that make a router.
pub(super) fn other_sysctls(node: &NodePlan) -> impl Iterator<Item = (&String, &String)> {
    let of_router = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    node.sysctls.iter().filter(move |(key, _)| !of_router.contains(&key.as_str()))
}

/// The kind of what learns no addresses, for messages; `None` of a switch.
pub(super) fn other_kind(kind: SwitchKind) -> Option<&'static str> {
    match kind {
        SwitchKind::Hub => Some("a hub"),
        SwitchKind::Wlan { .. } => Some("a wlan"),
        SwitchKind::Learning | SwitchKind::SpanningTree => None,
    }
}

/// The hardware address as text.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
