//! The store that all hosts share: records of clocks, and each host's report.
//!
//! Clocks are changed by comparing versions: of two commands that change one record at once, the second reads it again. A host's
//! report lives as long as the host's lease.

mod etcd;
mod kubernetes;

pub use etcd::Etcd;
pub use kubernetes::Kubernetes;

use std::future::Future;
use std::time::Duration;

use lorentz_clock::Span;
use serde::{Deserialize, Serialize};

use crate::record::{ClockRecord, TaiInstant};

/// A request that takes longer counts as lost.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits for an answer of the store, at most [`REQUEST_TIMEOUT`].
async fn in_time<T, E>(request: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => anyhow::bail!("no answer within {REQUEST_TIMEOUT:?}"),
    }
}

/// A record as the store has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredClock {
    /// The clock's name.
    pub name: String,
    /// The record, or the reason why it cannot be read.
    pub record: Result<ClockRecord, String>,
    /// The version to compare before a change.
    pub version: i64,
}

/// A change that the store tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// A clock is new, or has changed.
    Changed(StoredClock),
    /// A clock is gone.
    Removed(String),
}

/// How a host's clock stands to its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// It is on the line.
    Follows,
    /// It runs up to 500 ppm off until it is on the line: the host's wall clock was set.
    Slews,
    /// It is ahead, and stands until the line has come so far.
    Stands,
    /// Its agent has lost the store, and has stopped it (`--fence`).
    Fenced,
    /// Somebody has frozen it on this host alone, or has it skip idle time.
    HeldHere,
}

impl HostState {
    /// Its word, the same in the store and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            HostState::Follows => "follows",
            HostState::Slews => "slews",
            HostState::Stands => "stands",
            HostState::Fenced => "fenced",
            HostState::HeldHere => "held-here",
        }
    }
}

/// The report of one host on one clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// The newest change that the host's clock has taken over.
    pub change: u64,
    /// How the clock stands to its line.
    pub state: HostState,
    /// How long after its instant that change took effect here, real ns; 0 if at its instant.
    pub late_ns: i64,
    /// Virtual time that the clock is ahead of its line, ns, by the host's own clock.
    pub ahead_ns: i64,
    /// Bound of the virtual clock's error against true time, virtual ns: that of the host's clock, at the clock's rate.
    pub error_bound_ns: i64,
    /// The moment of the report.
    pub seen_at_tai_ns: TaiInstant,
}

/// A store of records.
#[allow(async_fn_in_trait, reason = "one thread runs all of it")]
pub trait Store {
    /// All clocks, and the state of the store from which [`Store::next_events`] goes on.
    async fn clocks(&mut self) -> anyhow::Result<(Vec<StoredClock>, i64)>;
    /// One clock; `None` if there is none of this name.
    async fn clock(&mut self, name: &str) -> anyhow::Result<Option<StoredClock>>;
    /// Stores `record` if the clock's version still is `version`; 0 means that there is no such clock. Returns whether it was stored.
    async fn put(&mut self, name: &str, record: &ClockRecord, version: i64)
        -> anyhow::Result<bool>;
    /// Removes a clock. Returns whether there was one.
    async fn remove(&mut self, name: &str) -> anyhow::Result<bool>;
    /// Begins to watch: [`Store::next_events`] returns changes that came after the state `after`.
    async fn watch(&mut self, after: i64) -> anyhow::Result<()>;
    /// Waits for the next changes.
    ///
    /// # Errors
    ///
    /// If the connection is lost, or the store has forgotten the changes since then: the caller reads all clocks again.
    async fn next_events(&mut self) -> anyhow::Result<Vec<StoreEvent>>;
    /// Takes a lease for `time`, under which reports are stored.
    async fn take_lease(&mut self, time: Span) -> anyhow::Result<()>;
    /// Renews the lease.
    ///
    /// # Errors
    ///
    /// If the lease has expired, or the store does not answer.
    async fn renew_lease(&mut self) -> anyhow::Result<()>;
    /// Stores the report of `host` on the clock `name`.
    async fn report(&mut self, name: &str, host: &str, report: &HostReport) -> anyhow::Result<()>;
    /// The reports on a clock, by host.
    async fn reports(&mut self, name: &str) -> anyhow::Result<Vec<(String, HostReport)>>;
}
