//! A checked topology: the plan by which the network is made.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use lorentz_clock::Span;
use lorentz_container::{is_name, Bind};
use lorentz_control::discipline::ClockErrorChange;
use lorentz_control::ClockOptions;
use lorentz_emulator::impair::Impairments;
use lorentz_emulator::SwitchKind;
use lorentz_experiment::ComputeTime;
use serde::{Deserialize, Serialize};

use crate::mobility::MobilityPlan;
use crate::topology::Isolation;

/// Default of [`NetworkPlan::layer_size`].
pub const DEFAULT_LAYER_SIZE: u64 = 64 << 20;

/// A network to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkPlan {
    /// Its name.
    pub name: String,
    /// Options of its clock.
    pub clock: ClockOptions,
    /// Whether nodes have clocks of their own, which go forward together in rounds.
    pub rounds: bool,
    /// Size of a private node's layer, bytes.
    pub layer_size: u64,
    /// Seed of random decisions.
    pub seed: u64,
    /// Nodes: programs in network namespaces.
    pub nodes: Vec<NodePlan>,
    /// Switches, hubs and wlans by their names.
    pub switches: Vec<(String, SwitchKind)>,
    /// Places of nodes and switches at the start: in a picture, and members of a wlan in it.
    pub positions: BTreeMap<String, [f64; 2]>,
    /// Links between nodes, switches, hubs and wlans.
    pub links: Vec<LinkPlan>,
    /// Changes of links, sorted by their instants.
    pub schedule: Vec<ChangePlan>,
    /// Changes of nodes' clocks, sorted by their instants.
    pub clock_schedule: Vec<ClockChangePlan>,
    /// Movements of nodes.
    pub mobility: MobilityPlan,
}

/// A program in a network namespace of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Options of its own clock, in rounds; the network's count for the rest.
    pub clock: ClockOptions,
    /// Whether computing takes it time, in rounds.
    pub compute: ComputeTime,
    /// Number of processors that it runs on at once, in rounds.
    pub parallel: u32,
    /// How it is separated from the host.
    pub isolation: Isolation,
    /// Its command. `None` if only commands that are started later run in it.
    pub command: Option<Vec<String>>,
    /// The shell for `exec`.
    pub shell: String,
    /// Arguments of its image's entrypoint, in place of the image's command.
    pub args: Vec<String>,
    /// The node whose network it shares.
    pub network_of: Option<String>,
    /// Lines for the shell.
    pub exec: Vec<ExecLine>,
    /// The same, when the network goes down.
    pub shutdown: Vec<ExecLine>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Settings of its network namespace.
    pub sysctls: BTreeMap<String, String>,
    /// The file for its output.
    pub output: Option<String>,
    /// The image of its root file system.
    pub image: Option<String>,
    /// The user of its programs, USER or USER:GROUP; its image's where the topology gives none.
    pub user: Option<String>,
    /// The working directory of its programs, from its image.
    pub folder: Option<PathBuf>,
    /// Its root file system.
    pub rootfs: Option<PathBuf>,
    /// Directories and files of the host in it.
    pub binds: Vec<NodeBind>,
    /// The directory whose files are copied into its root file system.
    pub files: Option<PathBuf>,
}

/// A directory or file of the host in a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeBind {
    /// Where it is, and where the node sees it.
    pub bind: Bind,
    /// Whether the node's writes go into its layer.
    pub layered: bool,
}

impl NetworkPlan {
    /// Whether `node` is a wlan.
    pub fn is_wlan(&self, node: &str) -> bool {
        let of = |(name, kind): &(String, SwitchKind)| {
            name == node && matches!(kind, SwitchKind::Wlan { .. })
        };
        self.switches.iter().any(of)
    }

    /// Checks that frames take long enough for rounds: in the direction of link `link` from its end `side`, with `impairments`.
    ///
    /// # Errors
    ///
    /// If they do not; the error says what is accepted.
    pub fn check_for_rounds(
        &self,
        link: &LinkPlan,
        side: usize,
        impairments: &Impairments,
    ) -> Result<(), String> {
        match self.is_wlan(&link.ends[1 - side].node) {
            // The delay is that of the way from the wlan to each receiver.
            true => Ok(()),
            false => impairments.check_for_rounds(),
        }
    }

    /// How its nodes see the host's files, in a few words; for messages.
    pub fn files_note(&self) -> String {
        let count =
            |isolation| self.nodes.iter().filter(|node| node.isolation == isolation).count();
        let (on_host, private) = (count(Isolation::Host), count(Isolation::Private));
        let size = self.layer_size >> 20;
        let layered = format!("private layers of {size} MiB, which go with the network");
        match (on_host, private) {
            (_, 0) => "nodes see the host's files, and what they write stays".to_string(),
            (0, _) => format!("nodes write into {layered}"),
            _ => format!("{private} nodes write into {layered}; {on_host} see the host's files"),
        }
    }
}

/// A line for a node's shell, or a script of several lines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExecLine {
    /// Command line for the shell.
    pub text: String,
    /// The file that has it.
    pub file: String,
    /// The line of its begin in the file, from 1.
    pub line: u64,
    /// Whether it is a script of another emulator, from a file of its own.
    #[serde(default)]
    pub is_script: bool,
}

impl ExecLine {
    /// Returns line number `number` of the script, from 1, or its first line.
    pub fn at(&self, number: u64) -> &str {
        let lines = || self.text.lines();
        lines().nth(number.saturating_sub(1) as usize).or(lines().next()).unwrap_or_default().trim()
    }
}

/// An end of a link.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Endpoint {
    /// The node or switch.
    pub node: String,
    /// The interface or port.
    pub interface: String,
}

/// A link to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkPlan {
    /// Its ends.
    pub ends: [Endpoint; 2],
    /// Impairments of frames from each end.
    pub impairments: [Impairments; 2],
    /// Addresses of each end.
    pub addresses: [Vec<(IpAddr, u8)>; 2],
    /// Hardware addresses of each end; `None` for a generated one.
    pub macs: [Option<[u8; 6]>; 2],
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is up at the start.
    pub is_up: bool,
}

impl LinkPlan {
    /// Takes the names of its ends from a link that was removed, so that nothing finds it. The emulator numbers links, and uses no number
    /// again.
    pub(crate) fn forget_ends(&mut self) {
        self.ends = Default::default();
    }

    /// Whether it was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.ends[0] == Endpoint::default()
    }

    /// Whether it joins the same interfaces.
    pub(crate) fn is_same(&self, other: &LinkPlan) -> bool {
        self.ends.iter().all(|end| other.ends.contains(end))
    }
}

/// A change of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct ChangePlan {
    /// Virtual time from the start of the network.
    pub at: Span,
    /// An end of the link.
    pub end: Endpoint,
    /// Whether both directions change.
    pub both: bool,
    /// Impairments that change.
    pub set: Impairments,
    /// Whether the link is up from then on; `None` leaves that as it is.
    pub is_up: Option<bool>,
}

/// A change of a node's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockChangePlan {
    /// Virtual time from the start of the network.
    pub at: Span,
    /// The node.
    pub node: String,
    /// The change of its error.
    pub change: ClockErrorChange,
}

impl From<Endpoint> for String {
    fn from(end: Endpoint) -> String {
        end.to_string()
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;
    fn try_from(text: String) -> Result<Endpoint, String> {
        text.parse()
    }
}

impl std::str::FromStr for Endpoint {
    type Err = String;
    fn from_str(text: &str) -> Result<Endpoint, String> {
        let (node, interface) = text.split_once(':').unwrap_or_default();
        if !is_name(node) || !is_interface(interface) {
            return Err(
                "expected NODE:INTERFACE such as r1:eth1, the interface of at most 15 characters"
                    .into(),
            );
        }
        Ok(Endpoint { node: node.to_string(), interface: interface.to_string() })
    }
}

/// Returns the directions that `end` names among `links`: frames that it sends, or both directions.
pub fn directions_at(links: &[LinkPlan], end: &Endpoint, both: bool) -> Vec<(usize, usize)> {
    let found = links
        .iter()
        .enumerate()
        .find_map(|(at, link)| link.ends.iter().position(|one| one == end).map(|side| (at, side)));
    match found {
        Some((at, side)) if both => vec![(at, side), (at, 1 - side)],
        Some(one) => vec![one],
        None => Vec::new(),
    }
}

/// Whether the kernel accepts the name of an interface.
fn is_interface(text: &str) -> bool {
    let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    !text.is_empty() && text.len() <= 15 && text != "." && text != ".." && text.chars().all(good)
}
