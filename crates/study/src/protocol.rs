//! What the study and the program that measures say to each other: JSON, a line each way.
//!
//! `lorentz-probe CPU` greets, then answers what it is asked until its standard input ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Metric;

/// A count of the time-stamp counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticks(pub i64);

/// Nanoseconds of real time, or of the clock they were read from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

/// What a process sees of its clocks, and in which namespaces it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// CLOCK_REALTIME.
    pub wall: Nanos,
    /// CLOCK_MONOTONIC.
    pub monotonic: Nanos,
    /// CLOCK_BOOTTIME.
    pub boottime: Nanos,
    /// The namespaces in /proc/self/ns, by their names; empty where there is no /proc.
    pub namespaces: BTreeMap<String, String>,
}

/// A record that is wanted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Of what.
    pub metric: Metric,
    /// How much of it, in the metric's [`crate::Unit`].
    pub amount: u32,
}

/// One stretch that was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Calls in it.
    pub calls: u64,
    /// How long all of them took.
    pub elapsed: Ticks,
    /// How long each was to last, where it was to: sleeps.
    pub asked: Nanos,
}

/// What comes of an [`Ask`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was measured.
    Samples(Vec<Sample>),
    /// A call went wrong: what, and how.
    Failed(String),
}

/// A clock of this process.
pub fn read(clock: nix::time::ClockId) -> nix::Result<Nanos> {
    let now = clock.now()?;
    Ok(Nanos(now.tv_sec() * 1_000_000_000 + now.tv_nsec()))
}

impl Greeting {
    /// What this process sees.
    ///
    /// # Errors
    ///
    /// A clock cannot be read.
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
        })
    }
}
