//! Protocol between the study and the measuring program: one line of JSON a message.
//!
//! `lorentz-probe CPU` writes a [`Greeting`]. Then it writes an [`ProbeAnswer`] to each [`ProbeRequest`] until its standard input ends.

use std::collections::BTreeMap;

use nix::sys::statfs::{statfs, OVERLAYFS_SUPER_MAGIC};
use serde::{Deserialize, Serialize};

use crate::Metric;

/// Ticks of the time-stamp counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticks(pub i64);

/// Nanoseconds of real time, or of the clock that was read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

/// Clocks and namespaces of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// CLOCK_REALTIME.
    pub wall: Nanos,
    /// CLOCK_MONOTONIC.
    pub monotonic: Nanos,
    /// CLOCK_BOOTTIME.
    pub boottime: Nanos,
    /// The links in /proc/self/ns, by name. Empty without /proc.
    pub namespaces: BTreeMap<String, String>,
    /// Whether the root file system is an overlay.
    pub on_overlay: bool,
}

/// Request for a record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProbeRequest {
    /// The metric.
    pub metric: Metric,
    /// The amount, in the metric's [`crate::Unit`].
    pub amount: u32,
}

/// One measured stretch of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls together.
    pub elapsed: Ticks,
    /// Requested length of each call, for sleeps. Otherwise 0.
    pub asked: Nanos,
}

/// Answer to a [`ProbeRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeAnswer {
    /// The samples of the record.
    Samples(Vec<Sample>),
    /// A call failed; the error.
    Failed(String),
}

/// Reads a clock of this process.
pub fn read(clock: nix::time::ClockId) -> nix::Result<Nanos> {
    let now = clock.now()?;
    Ok(Nanos(now.tv_sec() * 1_000_000_000 + now.tv_nsec()))
}

impl Greeting {
    /// Reads the clocks and namespaces of this process.
    ///
    /// # Errors
    ///
    /// A clock or the file system cannot be read.
    pub fn own() -> nix::Result<Greeting> {
        use nix::time::ClockId;
        let links = std::fs::read_dir("/proc/self/ns").into_iter().flatten().flatten();
        let namespace = |link: std::fs::DirEntry| {
            let target = std::fs::read_link(link.path()).ok()?;
            Some((link.file_name().into_string().ok()?, target.to_str()?.to_string()))
        };
        Ok(Greeting {
            wall: read(ClockId::CLOCK_REALTIME)?,
            monotonic: read(ClockId::CLOCK_MONOTONIC)?,
            boottime: read(ClockId::CLOCK_BOOTTIME)?,
            namespaces: links.filter_map(namespace).collect(),
            on_overlay: statfs("/")?.filesystem_type() == OVERLAYFS_SUPER_MAGIC,
        })
    }
}
