//! Steps of making a network, for those who wait for it, and what becomes of the network if one fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::exec::FailedLine;
use crate::plan::NetworkPlan;

/// The fate of a network if a line of `exec` fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecPolicy {
    /// The network is not made.
    Strict,
    /// The other lines run, and the network stays.
    KeepGoing,
}

/// A step of making a network, for those who wait for it.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// This many nodes are made.
    Nodes(usize),
    /// This many links are made: the interfaces at both ends are there.
    Links(usize),
    /// All nodes are made, and time runs.
    Started,
    /// This many lines of `exec` have run.
    ExecLines(usize),
    /// A line of `exec` has failed, and the others go on.
    Failed(&'a FailedLine),
    /// A script still runs, and nothing waits for it any more: its file, line and node.
    GoesOn(&'a str),
}

/// Counts links while nodes are made one after the other.
pub(crate) struct LinkCount<'a> {
    /// For each node, the links that end at it, by their numbers; twice where both ends do.
    links: BTreeMap<&'a str, Vec<usize>>,
    /// For each link, how many of its ends are at nodes that are not made yet.
    missing: Vec<usize>,
}

impl<'a> LinkCount<'a> {
    /// No node of `plan` is made. Switches are: they are in the emulator alone.
    pub(crate) fn new(plan: &'a NetworkPlan) -> LinkCount<'a> {
        let nodes: BTreeSet<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut links: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut missing = vec![0; plan.links.len()];
        for (number, link) in plan.links.iter().enumerate() {
            for end in link.ends.iter().filter(|end| nodes.contains(end.node.as_str())) {
                links.entry(&end.node).or_default().push(number);
                missing[number] += 1;
            }
        }
        LinkCount { links, missing }
    }

    /// Notes that a node is made with its interfaces. Returns how many links are made now.
    pub(crate) fn add_node(&mut self, node: &str) -> usize {
        for number in self.links.remove(node).into_iter().flatten() {
            self.missing[number] -= 1;
        }
        self.missing.iter().filter(|missing| **missing == 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::plan_from_text;

    #[test]
    fn a_link_is_made_with_the_last_node_at_its_ends() {
        let text = "\
name: lab
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}, t: {kind: switch}}
  links:
    - {endpoints: ['a:1', 'b:1']}
    - {endpoints: ['b:2', 's:1']}
    - {endpoints: ['s:2', 't:1']}
    - {endpoints: ['a:2', 't:2']}
";
        let plan = plan_from_text("lab", text).unwrap();
        let mut count = LinkCount::new(&plan);
        assert_eq!(["b", "a"].map(|node| count.add_node(node)), [2, 4]);
    }
}
