//! What is said to a running experiment, and what it answers: a line of JSON each, at its socket.

use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;
use crate::phase::Phase;

/// What is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Takes a container in.
    Add {
        /// Its name.
        container: String,
        /// Its TDF, as a ratio of whole numbers: real seconds per virtual second.
        tdf: (u64, u64),
        /// The timeline it follows; none where the experiment runs by itself.
        timeline: Option<u32>,
        /// Its wall clock keeps its own date when all are brought to one virtual time.
        #[serde(default)]
        own_wall: bool,
    },
    /// Lets a container go on by itself.
    Remove {
        /// Its name.
        container: String,
    },
    /// Changes a container's TDF, from the next round on.
    Dilate {
        /// Its name.
        container: String,
        /// As in [`Request::Add`].
        tdf: (u64, u64),
    },
    /// All to one virtual time, standing still.
    Synchronize,
    /// Rounds from here on.
    Start,
    /// No more rounds until the next start.
    Pause,
    /// All go on by themselves and are no longer part of it.
    Stop,
    /// How far a container is to go at the next progress of its timeline.
    Interval {
        /// Its name.
        container: String,
        /// The timeline that it follows, to make sure.
        timeline: Option<u32>,
        /// Virtual nanoseconds, above 0.
        nanos: i64,
    },
    /// Moves all containers of a timeline by their intervals; answered when all have arrived.
    Progress {
        /// Which.
        timeline: u32,
    },
    /// Moves all containers of a timeline to one instant, whatever their intervals; answered when all have arrived.
    Advance {
        /// Which.
        timeline: u32,
        /// Nanoseconds of CLOCK_MONOTONIC inside.
        to: i64,
    },
    /// Forgets the intervals of a timeline.
    Reset {
        /// Which.
        timeline: u32,
    },
    /// How it stands.
    Status,
    /// Ends the experiment and its process.
    End,
}

/// What comes back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It has been done.
    Done,
    /// How it stands.
    Status(Box<Status>),
    /// It was not to be done; nothing has changed.
    Refused {
        /// Why, in one line.
        why: String,
        /// The asker's mistake, not the machine's.
        wrong_input: bool,
    },
}

/// How an experiment stands. Times in nanoseconds, shares as fractions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub phase: Phase,
    /// The process that moves it.
    pub pid: u32,
    /// Virtual length of a round.
    pub timeslice_ns: i64,
    /// Idle time is leapt over.
    pub as_fast_as_possible: bool,
    /// So many containers at once, at most.
    pub most: u32,
    /// The processors that its containers run on.
    pub cpus: Cpus,
    /// Whether the kernel tells whose tasks sleep.
    pub told_by_kernel: bool,
    /// Rounds so far.
    pub rounds: u64,
    /// Virtual time since it was synchronized.
    pub virtual_ns: i64,
    /// Real time that its rounds have taken.
    pub real_ns: i64,
    /// ... of which the time in which some container ran.
    pub working_ns: i64,
    /// Real seconds per virtual second; none before the first round.
    pub slowdown: Option<f64>,
    /// Time that containers ran over time spent on synchronizing them (the documentation's overhead ratio, section 5.3.3).
    pub overhead_ratio: Option<f64>,
    /// The container with the greatest TDF, which takes longest for a round.
    pub leader: Option<String>,
    /// Each container, in the order in which they were added.
    pub containers: Vec<MemberStatus>,
}

/// How one container of it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Real seconds per virtual second, in its slices.
    pub tdf: f64,
    /// The timeline it follows.
    pub timeline: Option<u32>,
    /// Its CLOCK_MONOTONIC.
    pub virtual_ns: i64,
    /// The processor it is kept to.
    pub cpus: Cpus,
    /// It ran when its last slice was over, and is stopped until the next.
    pub stopped: bool,
    /// Slices it was given.
    pub slices: u64,
    /// ... at whose end it was still running.
    pub at_limit: u64,
    /// Real time in its slices in which it had something to do.
    pub cpu_wanted_ns: i64,
    /// CPU time its tasks used.
    pub cpu_got_ns: i64,
    /// The latest virtual time seen beyond the end of a slice.
    pub perceived_overshoot_ns: i64,
    /// Real time from the end of a slice until its tasks had stopped, median; none where they never had to be stopped.
    pub overrun_median_ns: Option<i64>,
    /// ... and what 99 of 100 do not exceed.
    pub overrun_p99_ns: Option<i64>,
}
