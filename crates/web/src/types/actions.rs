//! Actions of people, and what came of them.

use serde::{Deserialize, Serialize};

use super::{LinkImpairments, NewLink, NewNode};

/// An action. The command line does the same: [`ActionResult::command`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ActionRequest {
    /// The action.
    #[serde(flatten)]
    pub action: Action,
    /// Only return the command line; do nothing.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub dry: bool,
}

/// A fault of a clock, or the end of all.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ClockFault {
    /// The wall clock is moved.
    Bump,
    /// All clocks run too fast or too slow.
    Drift,
    /// The wall clock is moved forth and back, again and again.
    Strobe,
    /// As after a suspend of the machine.
    Suspend,
    /// A 61st second at the end of the UTC day.
    InsertLeapSecond,
    /// The UTC day ends a second early.
    DeleteLeapSecond,
    /// All errors end.
    Reset,
}

/// The actions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Changes the rate of a container's or network's clock; one of both is given.
    Dilate {
        /// The container or network.
        name: String,
        /// Virtual seconds per real second: `0.1`, `1/10`.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        rate: Option<String>,
        /// The inverse.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        tdf: Option<String>,
    },
    /// Stops a clock and its programs.
    Freeze {
        /// The container or network.
        name: String,
    },
    /// Goes on after a freeze.
    Unfreeze {
        /// The container or network.
        name: String,
    },
    /// Moves all clocks forward; one of `by` and `to` is given.
    Leap {
        /// The container or network.
        name: String,
        /// A duration: `1h`.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        by: Option<String>,
        /// A date: `2038-01-19T03:14:00Z`.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        to: Option<String>,
    },
    /// Moves the wall clock alone; one of `by` and `to` is given.
    Step {
        /// The container or network.
        name: String,
        /// A duration, forward or back.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        by: Option<String>,
        /// A date.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        to: Option<String>,
    },
    /// Makes a container's clock err, as `lorentz clock` does.
    Clock {
        /// The container.
        name: String,
        /// The fault.
        fault: ClockFault,
        /// How far a bump or a strobe moves it; how much too fast a drift lets it run: `+90s`, `+200ppm`.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        by: Option<String>,
        /// Virtual time that a drift or a strobe lasts, or for which the machine is suspended.
        #[serde(default, rename = "for")]
        #[cfg_attr(test, ts(optional, rename = "for"))]
        length: Option<String>,
        /// Virtual time in which a bump slews it; else it moves at once.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        slew: Option<String>,
    },
    /// Turns skipping of idle time on or off.
    Skip {
        /// The container.
        name: String,
        /// On or off.
        on: bool,
    },
    /// Changes a link.
    Link {
        /// The network.
        network: String,
        /// The end that sends the frames, `NODE:INTERFACE`.
        end: String,
        /// Whether both directions change.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        both: bool,
        /// Impairments that change; the others stay.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        set: LinkImpairments,
        /// Whether the link is up from now on.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        up: Option<bool>,
    },
    /// Adds a link to a running network.
    LinkAdd(NewLink),
    /// Removes a link from a running network.
    LinkRm {
        /// The network.
        network: String,
        /// An end of the link, `NODE:INTERFACE`.
        end: String,
    },
    /// Adds a node to a running network.
    NodeAdd(Box<NewNode>),
    /// Removes a node from a running network, with its links.
    NodeRm {
        /// The network.
        network: String,
        /// The node.
        name: String,
    },
    /// Has a change of a link or of clocks come.
    ScheduleAdd {
        /// The network.
        network: String,
        /// The change, as in the `schedule` of a topology file.
        change: String,
    },
    /// Has a change come at another instant.
    ScheduleMove {
        /// The network.
        network: String,
        /// The change that is to come.
        change: String,
        /// Virtual time from the start of the network.
        at: String,
    },
    /// Has a change not come.
    ScheduleRm {
        /// The network.
        network: String,
        /// The change that is to come.
        change: String,
    },
    /// Ends a network.
    Down {
        /// The network.
        network: String,
    },
    /// Makes the network of a file.
    Up {
        /// The file, below the server's directory.
        file: String,
        /// Run the nodes in rounds.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        rounds: bool,
        /// The network's TDF.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        tdf: Option<String>,
    },
    /// Removes what a crashed container left, and ends its programs.
    Rm {
        /// The container.
        name: String,
    },
    /// Moves an experiment from one phase to another.
    Experiment {
        /// The experiment.
        name: String,
        /// The move.
        action: ExperimentMove,
    },
    /// Moves all containers of a timeline by their intervals.
    ExperimentProgress {
        /// The experiment.
        name: String,
        /// The timeline.
        timeline: u32,
        /// How far each container goes: `5ms`. Without it, each one's own interval.
        #[serde(default)]
        #[cfg_attr(test, ts(optional))]
        interval: Option<String>,
    },
    /// Changes the TDF of a container of an experiment.
    ExperimentDilate {
        /// The experiment.
        name: String,
        /// The container.
        container: String,
        /// The TDF.
        tdf: String,
    },
}

/// Moves of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentMove {
    /// Brings all containers to one virtual time.
    Synchronize,
    /// Starts the rounds.
    Start,
    /// Pauses after the round under way.
    Pause,
    /// All containers leave it.
    Stop,
    /// Ends it.
    End,
}

/// The outcome of an action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ActionResult {
    /// The command line that does the same.
    pub command: String,
    /// Its exit status; `null` if it was not carried out.
    pub status: Option<i32>,
    /// Its output.
    pub output: String,
    /// Its errors.
    pub error: String,
}
