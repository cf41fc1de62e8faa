//! Protocol of a running experiment's socket: requests and answers, one line of JSON each.

use std::collections::BTreeMap;

use lorentz_container::{ClockAnswer, ClockRequest};
use serde::{Deserialize, Serialize};

use crate::compute::ComputeTime;
use crate::cpus::Cpus;
use crate::phase::Phase;

/// A request to a running experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ExperimentRequest {
    /// Adds a container.
    Add {
        /// The container's name.
        container: String,
        /// TDF as a ratio of whole numbers: real seconds per virtual second.
        tdf: (u64, u64),
        /// The timeline the container follows; none if the experiment runs by itself.
        timeline: Option<u32>,
        /// The wall clock keeps its own date when the experiment is synchronized.
        #[serde(default)]
        own_wall: bool,
        /// Number of processors that the container gets at once.
        #[serde(default = "one")]
        parallel: u32,
        /// How the time for which its tasks compute counts; the experiment's choice if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compute: Option<ComputeTime>,
    },
    /// Removes a container, which goes on by itself.
    Remove {
        /// The container's name.
        container: String,
    },
    /// Changes a container's TDF, from the next round on.
    Dilate {
        /// The container's name.
        container: String,
        /// TDF, as in [`ExperimentRequest::Add`].
        tdf: (u64, u64),
    },
    /// Brings all containers to one virtual time, where they stand.
    Synchronize {
        /// CLOCK_MONOTONIC of that time, ns, if no container is further.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<i64>,
    },
    /// Starts the rounds.
    Start,
    /// Pauses: no further round until the next start.
    Pause,
    /// Ends the run: all containers leave the experiment and go on by themselves.
    Stop,
    /// Sets how far a container goes at the next progress of its timeline.
    Interval {
        /// The container's name.
        container: String,
        /// If given, the timeline the container must follow; another one is an error.
        timeline: Option<u32>,
        /// Virtual nanoseconds, above 0.
        nanos: i64,
    },
    /// Moves all containers of a timeline by their intervals. The answer comes when all have arrived.
    Progress {
        /// The timeline's number.
        timeline: u32,
        /// Intervals that are set before, as by [`ExperimentRequest::Interval`]: virtual nanoseconds by the container's name. If
        /// one of them is refused, none is set, and nothing moves.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        intervals: BTreeMap<String, i64>,
    },
    /// Moves each of these containers by a time of its own, whatever its timeline and interval are. The others stay. The answer
    /// comes when all have arrived.
    Step {
        /// Virtual nanoseconds, above 0, by the container's name.
        moves: BTreeMap<String, i64>,
    },
    /// Moves all containers of a timeline to one instant, whatever their intervals are. The answer comes when all have arrived.
    Advance {
        /// The timeline's number.
        timeline: u32,
        /// CLOCK_MONOTONIC of the containers, ns.
        to: i64,
        /// Greatest number of jumps of each clock, for a client that reads the clocks' history. If a clock needs more, it stands
        /// before `to`, and the answer is [`ExperimentAnswer::Behind`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
        /// If no container has anything to do before `to`, they go further. The answer is [`ExperimentAnswer::Advanced`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle: Option<IdleAdvance>,
    },
    /// Asks for the instants of the experiment at which containers' own clocks showed some times. They differ where a clock errs.
    TruthAt {
        /// CLOCK_MONOTONIC, ns, by the container's name.
        own: BTreeMap<String, Vec<i64>>,
    },
    /// Clears the intervals of a timeline.
    Reset {
        /// The timeline's number.
        timeline: u32,
    },
    /// Asks for the status.
    Status,
    /// Ends the experiment and its process.
    End,
    /// A request for the clock of a container, which has all containers stand.
    #[serde(untagged)]
    Clock(ClockRequest),
}

fn one() -> u32 {
    1
}

/// How far containers go of which none has anything to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdleAdvance {
    /// Beyond their first deadline, ns.
    pub beyond_deadline: i64,
    /// At most to here: CLOCK_MONOTONIC, ns.
    pub at_most: i64,
}

impl ExperimentRequest {
    /// Whether it moves containers. Its answer comes when they have arrived.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self, Self::Progress { .. } | Self::Step { .. } | Self::Advance { .. })
    }

    /// Whether it is one of those that a simulator makes at each of its steps.
    pub(crate) fn is_of_a_step(&self) -> bool {
        let is_quick = matches!(
            self,
            Self::Interval { .. } | Self::Reset { .. } | Self::Status | Self::TruthAt { .. }
        );
        self.is_move() || is_quick
    }
}

/// Answer to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentAnswer {
    /// The request has been carried out.
    Done,
    /// The containers of an advance have stopped, some of them before the instant: their clocks have made all steps that they may.
    Behind,
    /// The containers of an advance with [`IdleAdvance`] have stopped.
    Advanced {
        /// The instant to which they were to go, ns.
        to: i64,
        /// Whether some of them stand before it, as with [`ExperimentAnswer::Behind`].
        behind: bool,
    },
    /// The instants, for [`ExperimentRequest::TruthAt`], ns. A container that is not in the experiment is left out.
    Truth(BTreeMap<String, Vec<i64>>),
    /// The status, for [`ExperimentRequest::Status`].
    Status(Box<ExperimentStatus>),
    /// The experiment refused the request. Nothing has changed.
    Refused {
        /// The reason, in one line.
        why: String,
        /// The client's mistake if true, the machine's if false.
        wrong_input: bool,
    },
    /// The answer to [`ExperimentRequest::Clock`].
    #[serde(untagged)]
    Clock(ClockAnswer),
}

/// Status of an experiment. Times in nanoseconds, shares as fractions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExperimentStatus {
    /// The experiment's name.
    pub name: String,
    /// The phase.
    pub phase: Phase,
    /// The experiment's process.
    pub pid: u32,
    /// Virtual length of a round.
    pub timeslice_ns: i64,
    /// Whether the experiment skips idle time.
    pub as_fast_as_possible: bool,
    /// Greatest number of containers at once.
    pub most: u32,
    /// The processors that the containers run on.
    pub cpus: Cpus,
    /// Whether BPF programs report which tasks sleep; else the experiment reads /proc.
    pub told_by_kernel: bool,
    /// Number of rounds so far.
    pub rounds: u64,
    /// Virtual time since the experiment was synchronized, ns.
    pub virtual_ns: i64,
    /// Real time that the rounds have taken, ns.
    pub real_ns: i64,
    /// The part of `real_ns` in which some container ran.
    pub working_ns: i64,
    /// Real seconds per virtual second; none before the first round.
    pub slowdown: Option<f64>,
    /// Time that containers ran, divided by the time spent on synchronizing them (overhead ratio of TimeKeeper's documentation,
    /// section 5.3.3); none if the latter is zero.
    pub overhead_ratio: Option<f64>,
    /// The container with the greatest TDF, whose slices take longest; none if there are no containers.
    pub leader: Option<String>,
    /// The containers, in the order in which they joined; a container may take the place of one that has left.
    pub containers: Vec<ContainerStatus>,
}

/// Status of one container of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// TDF: real seconds per virtual second, in the container's slices.
    pub tdf: f64,
    /// The timeline the container follows, if any.
    pub timeline: Option<u32>,
    /// How the time for which its tasks compute counts on its clock.
    pub compute: ComputeTime,
    /// The container's CLOCK_MONOTONIC, ns.
    pub virtual_ns: i64,
    /// The processors of its tasks: all of them are its own in its slices.
    pub cpus: Cpus,
    /// Its tasks ran when its last slice was over. They are stopped until the next.
    pub stopped: bool,
    /// Number of slices.
    pub slices: u64,
    /// Number of slices at whose end its tasks still ran.
    pub at_limit: u64,
    /// Real length of its slices times the number of its processors, summed, ns: in each slice it had something to do.
    pub cpu_wanted_ns: i64,
    /// CPU time of its tasks, ns.
    pub cpu_got_ns: i64,
    /// Greatest virtual time seen beyond the end of a slice, ns; 0 unless there is a defect.
    pub perceived_overshoot_ns: i64,
    /// Real time from the end of a slice until its tasks had stopped, median, ns; none if no slice ended so.
    pub overrun_median_ns: Option<i64>,
    /// The same, 99th percentile, ns.
    pub overrun_p99_ns: Option<i64>,
}
