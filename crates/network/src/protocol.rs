//! What is said to a running network, and what it answers: a line of JSON each, at its socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::emulator::Counts;
use crate::impair::Impairments;
use crate::plan::Endpoint;

/// What is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// How it stands.
    Status,
    /// Changes a link, all at once, at this instant.
    Set(Box<Setting>),
    /// From here on the line carries pcapng: what the interface sends and gets.
    Capture {
        /// Which.
        end: Endpoint,
    },
}

/// A change of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// An end of the link.
    pub end: Endpoint,
    /// Both directions, not only what that end sends.
    pub both: bool,
    /// What changes; the rest stays.
    pub set: Impairments,
    /// Up or down, both ways.
    pub is_up: Option<bool>,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Done.
    Done,
    /// How it stands.
    Status(Box<Status>),
    /// Not done, and why, in one line.
    Refused(String),
}

/// How a network stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The emulator's process.
    pub pid: u32,
    /// Virtual nanoseconds since the network started.
    pub virtual_ns: i64,
    /// Time stands still.
    pub frozen: bool,
    /// In rounds: how these stand.
    pub rounds: Option<RoundsStatus>,
    /// Its nodes and what runs in them.
    pub nodes: Vec<NodeStatus>,
    /// Switches and hubs, and which it is.
    pub switches: BTreeMap<String, String>,
    /// Where they stand in a picture, as far as that was said: to the right, and down.
    pub positions: BTreeMap<String, [f64; 2]>,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// Changes that are to come.
    pub changes_to_come: usize,
    /// Scheduled changes that could not be made, and why.
    pub changes_refused: Vec<String>,
    /// Why TCP's timers do not follow the network's clock as far as they could; none where they do.
    pub timers_refused: Option<String>,
    /// How late frames were handed to their nodes.
    pub lateness: Lateness,
}

/// How the rounds of a network stand. The rest is told by the experiment of the network's name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundsStatus {
    /// Rounds so far.
    pub count: u64,
    /// Virtual nanoseconds by which the nodes are behind the network's clock: the machine is overloaded where it grows.
    pub behind_ns: i64,
    /// Why there are no more rounds; none while there are.
    pub ended: Option<String>,
}

/// How a node stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its container.
    pub container: String,
    /// Where its output goes.
    pub output: String,
}

/// How a link stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Up or down.
    pub up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// What each end sends: the end, what is done to it, what was.
    pub directions: [DirectionStatus; 2],
}

/// How a direction of a link stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// Who sends ...
    pub from: Endpoint,
    /// ... to whom.
    pub to: Endpoint,
    /// What is done to frames.
    pub impairments: Impairments,
    /// What was done so far.
    pub counts: Counts,
    /// Frames that wait for the wire.
    pub queued: usize,
    /// Frames that wait, are on the wire or on their way.
    pub in_flight: u64,
    /// Frames that the receiving node would not take.
    pub refused: u64,
}

/// How late frames were handed to nodes, in virtual nanoseconds. Never early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Frames handed over.
    pub count: u64,
    /// Half of them were at most this late, to within an eighth.
    pub median_ns: i64,
    /// 99 of 100 were.
    pub p99_ns: i64,
    /// All were.
    pub max_ns: i64,
}
