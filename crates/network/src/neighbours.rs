//! Whether the kernel's neighbour table has room for the nodes of a network.
//!
//! The kernel has one table of neighbours for all network namespaces of a machine: the hardware addresses that ARP and IPv6's
//! neighbour discovery have found. When the table is full, the kernel drops further packets at the sender. This looks like a lossy
//! link.

use std::collections::HashMap;
use std::fs;

use crate::plan::NetworkPlan;

/// The most neighbours that the kernel keeps. Only the host's own network namespace has this setting.
const GC_THRESHOLD: &str = "/proc/sys/net/ipv4/neigh/default/gc_thresh3";

/// Returns a warning if the nodes may need more neighbours than the kernel keeps. The worst case counts: each node talks to all
/// nodes that it reaches without a router.
pub fn advice(plan: &NetworkPlan) -> Option<String> {
    let room = fs::read_to_string(GC_THRESHOLD).ok()?.trim().parse().ok()?;
    advice_for(most_neighbours(plan), room)
}

fn advice_for(most: usize, room: usize) -> Option<String> {
    let enough = most.next_power_of_two() * 2;
    (most > room).then(|| {
        format!(
            "its nodes can have {most} neighbours, and this kernel has room for {room} in all network namespaces together: beyond it \
             drops packets. 'sysctl -w net.ipv4.neigh.default.gc_thresh3={enough}' makes room (net.ipv6... for IPv6)"
        )
    })
}

/// Returns how many neighbours the nodes have if each knows all others of its segments. A segment is what links, switches and hubs
/// join.
fn most_neighbours(plan: &NetworkPlan) -> usize {
    let switches = plan.switches.iter().enumerate();
    let switches: HashMap<&str, usize> = switches.map(|(at, (name, _))| (&**name, at)).collect();
    let mut segment: Vec<usize> = (0..switches.len()).collect();
    let of =
        |link: usize, side: usize| switches.get(plan.links[link].ends[side].node.as_str()).copied();
    for link in 0..plan.links.len() {
        if let (Some(one), Some(other)) = (of(link, 0), of(link, 1)) {
            let (from, to) = (segment[other], segment[one]);
            segment.iter_mut().filter(|at| **at == from).for_each(|at| *at = to);
        }
    }
    let mut interfaces = vec![0_usize; segment.len()];
    let mut neighbours = 0;
    for link in 0..plan.links.len() {
        match (of(link, 0), of(link, 1)) {
            (None, None) => neighbours += 2,
            (Some(switch), None) | (None, Some(switch)) => interfaces[segment[switch]] += 1,
            (Some(_), Some(_)) => {}
        }
    }
    neighbours + interfaces.iter().map(|count| count * count.saturating_sub(1)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    fn of(nodes: &str, links: &[&str]) -> usize {
        let links: String =
            links.iter().map(|link| format!("    - {{endpoints: [{link}]}}\n")).collect();
        let text = format!("name: lab\ntopology:\n  nodes: {{{nodes}}}\n  links:\n{links}");
        most_neighbours(&check::plan_from_text("lab.yaml", &text).unwrap())
    }

    #[test]
    fn a_link_has_two() {
        assert_eq!(of("a: {}, b: {}, c: {}", &["'a:0', 'b:0'", "'b:1', 'c:0'"]), 4);
    }

    #[test]
    fn a_switch_has_each_with_all_others_and_two_that_are_joined_are_one() {
        let nodes = "a: {}, b: {}, c: {}, d: {}, s: {kind: switch}, t: {kind: hub}";
        let two = ["'a:0', 's:0'", "'b:0', 's:1'", "'c:0', 't:0'", "'d:0', 't:1'"];
        assert_eq!(of(nodes, &two), 4);
        let joined = [&two[..], &["'s:9', 't:9'"]].concat();
        assert_eq!(of(nodes, &joined), 12);
    }

    #[test]
    fn there_is_a_word_only_where_room_lacks() {
        assert_eq!(advice_for(1_024, 1_024), None);
        let word = advice_for(2_450, 1_024).unwrap();
        assert!(word.contains("2450") && word.contains("gc_thresh3=8192"), "{word}");
    }
}
