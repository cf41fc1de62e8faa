//! The state of everything that runs, as the page shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Nanos;

/// One instant of the server's host, by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Now {
    /// CLOCK_MONOTONIC.
    pub real_ns: Nanos,
    /// CLOCK_REALTIME.
    pub wall_ns: Nanos,
}

/// Everything that runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct State {
    /// Number of changes since the server began.
    pub seq: u64,
    /// The instant of the look.
    pub now: Now,
    /// Networks, by name.
    pub networks: Vec<Network>,
    /// Experiments, by name.
    pub experiments: Vec<Experiment>,
    /// Containers, by name. Nodes of networks are among them.
    pub containers: Vec<Container>,
}

/// A change: whole objects of all that changed; `null` for those that are gone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct StateChange {
    /// Number of the change.
    pub seq: u64,
    /// The instant of the look.
    pub now: Now,
    /// Networks by name.
    pub networks: BTreeMap<String, Option<Network>>,
    /// Experiments by name.
    pub experiments: BTreeMap<String, Option<Experiment>>,
    /// Containers by name.
    pub containers: BTreeMap<String, Option<Container>>,
}

/// A sign of life of the stream, from which the page estimates how far its clock is from the server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Tick {
    /// CLOCK_MONOTONIC at sending.
    pub real_ns: Nanos,
}

/// A virtual clock: `V(R) = v0 + (R - r0) * rate`, at most the limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Clock {
    /// An instant of the host's CLOCK_MONOTONIC.
    pub r0_ns: Nanos,
    /// CLOCK_MONOTONIC of the container at that instant.
    pub v0_ns: Nanos,
    /// Virtual per real time from there: numerator and denominator. While frozen it is the rate after the freeze.
    pub rate: [u64; 2],
    /// The latest time that the clock shows.
    pub limit_ns: Option<Nanos>,
    /// CLOCK_REALTIME inside is CLOCK_MONOTONIC inside plus this.
    pub wall_offset_ns: Nanos,
    /// CLOCK_BOOTTIME inside is CLOCK_MONOTONIC inside plus this.
    pub boot_offset_ns: Nanos,
    /// Whether time stands still.
    pub frozen: bool,
    /// Whether the clock skips idle time.
    pub skips_idle: bool,
    /// Announced changes, the next one first.
    pub pending: Vec<Pending>,
    /// How it errs; `null` where nothing has made it err and no daemon disciplines it.
    pub error: Option<ClockError>,
}

/// How far a clock is from the truth.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ClockError {
    /// By how much the wall clock is ahead of true time.
    pub offset_ns: Nanos,
    /// By how much it is too fast, billionths.
    pub frequency_ppb: i64,
    /// The bound of the error that an NTP daemon has told the kernel; `null` if none has.
    pub told_ns: Option<Nanos>,
}

/// An announced change of a clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Pending {
    /// When it begins, by the host's CLOCK_MONOTONIC.
    pub at_real_ns: Nanos,
    /// Its effect, in words.
    pub what: String,
}

/// Whether a container's programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// They run.
    Runs,
    /// Its clock is frozen, and so are they.
    Frozen,
    /// Its monitor has died, or it has ended and left its directory.
    Crashed,
}

/// Leaps over idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct LeapCount {
    /// Number of leaps.
    pub count: u64,
    /// Virtual time that they have skipped.
    pub by_ns: Nanos,
}

/// A container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its first program, where a monitor knows it.
    pub pid: Option<u32>,
    /// The command that runs in it, as given.
    pub command: Vec<String>,
    /// Whether its programs run.
    pub state: Life,
    /// Its clock; `null` if it cannot be read.
    pub clock: Option<Clock>,
    /// The network whose node it is.
    pub network: Option<String>,
    /// The node's name.
    pub node: Option<String>,
    /// The experiment that moves its clock.
    pub experiment: Option<String>,
    /// Number of its processes.
    pub tasks: u32,
    /// CPU time of its processes; 0 without a control group.
    pub cpu_ns: u64,
    /// Leaps over idle time; `null` if there were none.
    pub leaps: Option<LeapCount>,
}

/// Whether the machine keeps up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub enum Word {
    /// Yes.
    #[serde(rename = "keeps up")]
    KeepsUp,
    /// Frames come late.
    #[serde(rename = "late")]
    Late,
    /// Nodes fall behind.
    #[serde(rename = "overloaded")]
    Overloaded,
    /// Time stands still.
    #[serde(rename = "frozen")]
    Frozen,
    /// Nothing carries frames or rounds any more.
    #[serde(rename = "ended")]
    Ended,
    /// The process has not answered.
    #[serde(rename = "no answer")]
    NoAnswer,
}

/// One sentence on whether the machine keeps up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Verdict {
    /// The word.
    pub word: Word,
    /// The sentence.
    pub text: String,
    /// A remedy, if there is one.
    pub advice: Option<String>,
}

/// CPU time of one second, as shares of a processor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct CpuShare {
    /// Time in which it had something to do.
    pub wanted: f64,
    /// CPU time that it used.
    pub got: f64,
}

/// Rounds of a network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Rounds {
    /// Number of rounds so far.
    pub count: u64,
    /// Virtual time by which the nodes are behind the network's clock.
    pub behind_ns: i64,
    /// The reason why there are no more rounds.
    pub ended: Option<String>,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct NetworkNode {
    /// Its name.
    pub name: String,
    /// Its container.
    pub container: String,
    /// Length of the file with its output.
    pub output_bytes: u64,
    /// Its place: to the right, and down.
    pub position: Option<[f64; 2]>,
    /// Its clock; `null` if its container has ended.
    pub clock: Option<Clock>,
    /// Its own TDF, in rounds.
    pub tdf: Option<f64>,
    /// Virtual time by which its clock is behind the network's, in rounds.
    pub lag_ns: Option<i64>,
    /// Its share of a processor over the last second, in rounds.
    pub cpu_share: Option<CpuShare>,
}

/// A switch, hub or wlan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct NetworkSwitch {
    /// Its name.
    pub name: String,
    /// `switch`, `hub` or `wlan`.
    pub kind: String,
    /// Its place.
    pub position: Option<[f64; 2]>,
}

/// Impairments of frames in one direction, each as people write it; `null` where there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LinkImpairments {
    /// Rate of the wire: `10mbit`.
    pub rate: Option<String>,
    /// Propagation delay: `5ms`.
    pub delay: Option<String>,
    /// Variation of the delay: `1ms`.
    pub jitter: Option<String>,
    /// Share of frames lost: `0.1%`.
    pub loss: Option<String>,
    /// Share of frames that arrive twice.
    pub duplicate: Option<String>,
    /// Share of frames that skip the delay.
    pub reorder: Option<String>,
    /// Share of frames in which one bit flips.
    pub corrupt: Option<String>,
    /// Queue limit in frames.
    pub queue_packets: Option<String>,
    /// Queue limit in bytes: `64kb`.
    pub queue_bytes: Option<String>,
}

/// Counters of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct DirectionCounts {
    /// Frames handed to it.
    pub sent: u64,
    /// Frames that have arrived.
    pub delivered: u64,
    /// Frames lost on the wire.
    pub lost: u64,
    /// Frames dropped by the queue, or because the link is down.
    pub dropped: u64,
    /// Bytes of the frames that have arrived.
    pub bytes: u64,
}

/// One direction of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct LinkDirection {
    /// The sending end, `NODE:INTERFACE`.
    pub from: String,
    /// The receiving end.
    pub to: String,
    /// Its impairments.
    pub impairments: LinkImpairments,
    /// Its counters.
    pub counts: DirectionCounts,
    /// Part of its rate in use over the last second or so of virtual time, from 0 to 1; `null` without a rate.
    pub utilisation: Option<f64>,
    /// Bits per virtual second that arrived over the same time.
    pub bits_per_second: Option<f64>,
    /// Frames that wait for the wire.
    pub queued: u64,
    /// Frames that wait, are on the wire or on their way.
    pub in_flight: u64,
}

/// A link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct NetworkLink {
    /// Its ends: `a:eth0 - b:eth0`.
    pub id: String,
    /// Whether it is up.
    pub up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// Both directions.
    pub directions: [LinkDirection; 2],
}

/// How late frames were delivered since the network came up, in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Lateness {
    /// Frames delivered.
    pub count: u64,
    /// Half of the frames were at most so late.
    pub median_ns: i64,
    /// 99 of 100 frames were at most so late.
    pub p99_ns: i64,
    /// The latest frame.
    pub max_ns: i64,
}

/// The process that carries a network's frames.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct EmulatorLoad {
    /// Its process id.
    pub pid: u32,
    /// Its share of a processor over the last second; `null` at the first look.
    pub cpu_share: Option<f64>,
}

/// A change of the schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ScheduledChange {
    /// Virtual time from the start of the network.
    pub at_ns: Nanos,
    /// The change, in words.
    pub what: String,
    /// The change, as `lorentz schedule` takes it.
    pub change: String,
}

/// A network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its clock; `null` if it has ended.
    pub clock: Option<Clock>,
    /// Its rounds, if it has them.
    pub rounds: Option<Rounds>,
    /// CLOCK_MONOTONIC of its clock when it started; `null` if it has ended.
    pub started_ns: Option<Nanos>,
    /// Virtual time since it started, at the look.
    pub virtual_ns: Nanos,
    /// Its nodes.
    pub nodes: Vec<NetworkNode>,
    /// Its switches.
    pub switches: Vec<NetworkSwitch>,
    /// Its links.
    pub links: Vec<NetworkLink>,
    /// How late frames were.
    pub lateness: Lateness,
    /// The emulator; `null` if it has ended.
    pub emulator: Option<EmulatorLoad>,
    /// Whether the machine keeps up.
    pub verdict: Verdict,
    /// Number of scheduled changes to come.
    pub changes_to_come: u64,
    /// Scheduled changes of links to come, the next one first.
    pub schedule: Vec<ScheduledChange>,
}

/// A container of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ExperimentMember {
    /// Its name.
    pub name: String,
    /// Its TDF.
    pub tdf: f64,
    /// The timeline it follows, if a simulator moves it.
    pub timeline: Option<u32>,
    /// Its CLOCK_MONOTONIC.
    pub virtual_ns: Nanos,
    /// Its tasks are stopped until its next slice.
    pub stopped: bool,
    /// Time in which it had something to do, so far.
    pub cpu_wanted_ns: u64,
    /// CPU time that it used, so far.
    pub cpu_got_ns: u64,
    /// Its share of a processor over the last second.
    pub cpu_share: Option<CpuShare>,
    /// Time from the end of a slice until its tasks had stopped, median.
    pub overrun_median_ns: Option<i64>,
    /// The same, 99th percentile.
    pub overrun_p99_ns: Option<i64>,
    /// Greatest virtual time seen beyond the end of a slice.
    pub perceived_overshoot_ns: i64,
}

/// An experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Its phase: `new`, `synchronized`, `running` and so on; `ended` if its process has ended.
    pub phase: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Virtual length of a round.
    pub timeslice_ns: i64,
    /// Number of rounds so far.
    pub rounds: u64,
    /// Virtual time since it was synchronized.
    pub virtual_ns: Nanos,
    /// Real seconds per virtual second so far.
    pub slowdown: Option<f64>,
    /// Its processors, as `--cpus` takes them.
    pub cpus: String,
    /// Its containers.
    pub containers: Vec<ExperimentMember>,
    /// Whether the machine keeps up.
    pub verdict: Verdict,
}
