//! The kinds of study.

use crate::named::named;

/// A kind of study.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Study {
    /// The 15 metrics of Merino & Otero 2022, and the harness.
    Clocks,
    /// Clock reads in a row, with hot caches.
    Hot,
    /// Clock reads after a flush of all caches.
    Cold,
    /// Timer cost and sleep miss time, under loads.
    Timers,
}

named!(Study, "study", { Clocks = "clocks", Hot = "hot", Cold = "cold", Timers = "timers" });
