//! Requests to a running network, and its answers: a line of JSON each, at its socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lorentz_clock::Span;
use lorentz_emulator::impair::Impairments;
use lorentz_emulator::units::Delay;
use lorentz_emulator::Counts;
use serde::{Deserialize, Serialize};

use crate::plan::Endpoint;
use crate::topology::{self, Location, Spanned, State};

/// A request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum NetworkRequest {
    /// Asks for the state of the network.
    Status,
    /// Changes a link, all settings at once, at the present instant.
    Set(Box<LinkChange>),
    /// Goes over to another topology, which lies in the network's directory: makes the links that are new, and removes those that are
    /// gone.
    Replace(Box<Replacement>),
    /// Starts a capture. From here on the connection carries pcapng: the frames that the interface sends and receives.
    Capture {
        /// The interface.
        end: Endpoint,
    },
}

/// The way from one topology to another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Replacement {
    /// Network namespaces of nodes that do not run yet, as paths.
    pub namespaces: BTreeMap<String, PathBuf>,
}

/// A change of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkChange {
    /// An end of the link.
    pub end: Endpoint,
    /// Whether the change is for both directions, or only for frames that this end sends.
    pub both: bool,
    /// Impairments that change; the rest stays.
    pub set: Impairments,
    /// Whether both directions are up; `None` leaves that as it is.
    pub is_up: Option<bool>,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkAnswer {
    /// The request was carried out.
    Done,
    /// The state of the network.
    Status(Box<NetworkStatus>),
    /// The request was refused, and why, in one line.
    Refused(String),
}

/// State of a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Its name.
    pub name: String,
    /// The emulator's process id.
    pub pid: u32,
    /// Virtual nanoseconds since the network started.
    pub virtual_ns: i64,
    /// Whether time stands still.
    pub frozen: bool,
    /// In rounds: their state.
    pub rounds: Option<RoundsStatus>,
    /// Its nodes, with their containers.
    pub nodes: Vec<NodeStatus>,
    /// The kind of each switch, hub or wlan, by name.
    pub switches: BTreeMap<String, String>,
    /// The present positions of nodes and switches, as far as the file gives them: to the right, and down.
    pub positions: BTreeMap<String, [f64; 2]>,
    /// State of each wlan, by name.
    pub wlans: BTreeMap<String, WlanStatus>,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// Seed of random decisions.
    #[serde(default)]
    pub seed: u64,
    /// The network's CLOCK_MONOTONIC when it started, ns.
    #[serde(default)]
    pub started_ns: i64,
    /// The next scheduled changes of links, at most [`NetworkStatus::SCHEDULE`].
    #[serde(default)]
    pub schedule: Vec<ScheduledChange>,
    /// Number of scheduled changes to come, and of waypoints of mobility scripts that do not repeat.
    pub changes_to_come: usize,
    /// Scheduled changes that could not be made, and why.
    pub changes_refused: Vec<String>,
    /// The reason why TCP's timers do not follow the network's clock as far as possible; `None` if they do.
    pub timers_refused: Option<String>,
    /// How late frames were delivered to their nodes.
    pub lateness: FrameLateness,
}

impl NetworkStatus {
    /// Greatest length of [`NetworkStatus::schedule`].
    pub const SCHEDULE: usize = 100;
}

/// A scheduled change of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduledChange {
    /// Virtual nanoseconds from the start of the network.
    pub at_ns: i64,
    /// An end of the link.
    pub end: Endpoint,
    /// Whether both directions change.
    pub both: bool,
    /// Impairments that change.
    pub set: Impairments,
    /// Whether the link is up from then on; `None` leaves that as it is.
    pub up: Option<bool>,
}

impl ScheduledChange {
    /// Returns the change as a topology file has it.
    pub fn as_in_a_file(&self) -> topology::ScheduledChange {
        let here = |value| Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN);
        let at = Delay::new(Span(self.at_ns)).unwrap_or_default();
        let mut change = topology::ScheduledChange::at(at);
        change.link = Some(here(self.end.to_string()));
        change.both = self.both;
        change.set = self.set.clone();
        change.state = self.up.map(|up| if up { State::Up } else { State::Down });
        change
    }
}

/// State of a wlan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WlanStatus {
    /// Greatest distance between two members that hear each other.
    pub range: f64,
    /// For each member, the members that it hears.
    pub hears: BTreeMap<String, Vec<String>>,
}

/// State of the rounds of a network. The experiment of the same name reports the rest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundsStatus {
    /// Number of rounds so far.
    pub count: u64,
    /// Virtual nanoseconds by which the nodes are behind the network's clock. If the number grows, the machine is overloaded.
    pub behind_ns: i64,
    /// The reason why there are no more rounds; `None` while there are.
    pub ended: Option<String>,
}

/// State of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its container.
    pub container: String,
    /// The file of its output.
    pub output: String,
}

/// State of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Whether the link is up.
    pub up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// State of each direction.
    pub directions: [DirectionStatus; 2],
}

/// State of a direction of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// The sending end.
    pub from: Endpoint,
    /// The receiving end.
    pub to: Endpoint,
    /// The impairments in force.
    pub impairments: Impairments,
    /// Counters so far.
    pub counts: Counts,
    /// Frames that wait for the wire.
    pub queued: usize,
    /// Frames that wait, are on the wire or on their way.
    pub in_flight: u64,
    /// Frames that the receiving node did not take.
    pub refused: u64,
}

/// How late frames were delivered to nodes, in virtual nanoseconds. Never early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FrameLateness {
    /// Number of frames delivered.
    pub count: u64,
    /// Half of the frames were at most so late, to within an eighth.
    pub median_ns: i64,
    /// 99 of 100 frames were at most so late, to within an eighth.
    pub p99_ns: i64,
    /// The latest frame.
    pub max_ns: i64,
}
