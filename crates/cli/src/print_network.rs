//! Networks and links as tables, and what is to come of them.

use lorentz_clock::Span;
use lorentz_network::topology::ScheduledChange;
use lorentz_network::{graph, LinkStatus, NetworkStatus};

/// Changes to come, a line each, as a topology file has them.
pub fn schedule(to_come: &[ScheduledChange]) -> String {
    to_come.iter().map(|change| format!("{change}\n")).collect()
}

/// Networks, with their nodes; those without a status have lost their emulator. `states` tells how the nodes do.
pub fn networks(
    all: &[(String, Option<NetworkStatus>)],
    states: impl Fn(&NetworkStatus) -> Vec<String>,
) -> String {
    let mut page = String::new();
    for (name, status) in all {
        let Some(status) = status else {
            page +=
                &format!("{name}: its emulator has ended; 'lorentz down {name}' clears the rest\n");
            continue;
        };
        let state = if status.frozen { "frozen" } else { "running" };
        page += &format!("{name}: {state}, {} since its start", Span(status.virtual_ns));
        if status.changes_to_come > 0 {
            page += &format!(", {} changes to come", status.changes_to_come);
        }
        page += "\n";
        for (node, state) in status.nodes.iter().zip(states(status)) {
            page += &format!("  {:<24} {:<10} {}\n", node.container, state, node.output);
        }
        for (switch, kind) in &status.switches {
            page += &format!("  {:<24} {kind}\n", format!("{name}.{switch}"));
        }
        page += &wlans(status);
        page += &links(&status.links);
        if let Some(rounds) = &status.rounds {
            let behind = Span(rounds.behind_ns);
            page += &format!("  {} rounds, {behind} behind the network's clock", rounds.count);
            let ended = rounds.ended.as_ref().map(|why| format!("; no more: {why}"));
            page += &format!("{}\n", ended.unwrap_or_default());
        }
        for refused in &status.changes_refused {
            page += &format!("  schedule: {refused}\n");
        }
        if let Some(why) = &status.timers_refused {
            page += &format!("  TCP's timers have the nodes' settings alone: {why}\n");
        }
        let late = &status.lateness;
        page += &format!(
            "  {} frames delivered; late by {} (median), {} (99 %), {} (most), in virtual time\n",
            late.count,
            Span(late.median_ns),
            Span(late.p99_ns),
            Span(late.max_ns)
        );
    }
    page
}

/// Members of wlans, with their positions, and the members that each of them hears.
fn wlans(status: &NetworkStatus) -> String {
    let mut page = String::new();
    for (name, wlan) in &status.wlans {
        for (member, heard) in &wlan.hears {
            let [x, y] = status.positions.get(member).copied().unwrap_or_default();
            let heard = if heard.is_empty() { "nobody".into() } else { heard.join(", ") };
            page += &format!("  {name}: {member} at {x:.1}, {y:.1} hears {heard}\n");
        }
    }
    page
}

/// Links, a line for each direction.
pub fn links(links: &[LinkStatus]) -> String {
    let mut page = String::new();
    for link in links {
        let state = if link.up { "up" } else { "down" };
        for way in &link.directions {
            let counts = way.counts;
            page += &format!(
                "  {:<20} -> {:<20} {state:<5} sent {} delivered {} lost {} dropped {} cut {} in flight {}  {}\n",
                way.from.to_string(),
                way.to.to_string(),
                counts.sent,
                counts.delivered,
                counts.lost,
                counts.dropped,
                counts.cut,
                way.in_flight,
                graph::describe(&way.impairments)
            );
        }
    }
    page
}
