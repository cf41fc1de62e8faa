//! A task at one look, and the cause that keeps time from leaping.

use std::time::Duration;

/// A sleeping task, and how often it has run. A second look that finds the same number shows that the task has not run in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SleepingTask {
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub thread: u32,
    /// Number of times that the task was given a processor (/proc), or left one (BPF programs).
    pub runs: u64,
}

/// The cause that keeps time from leaping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocker {
    /// The process id; 0 if the cause is no process.
    pub pid: u32,
    /// The state of the process, in words for people.
    pub what: String,
    /// Whether the cause may be over although no task has run.
    pub is_transient: bool,
}

/// One task at one look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskState {
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub thread: u32,
    /// Number of times that the task was given a processor (/proc), or left one (BPF programs).
    pub runs: u64,
    /// Whether the task sleeps.
    pub asleep: bool,
    /// The group to which the task or its parent was added.
    pub group: u32,
    /// Time that the task has run, up to its last switch.
    pub ran: Duration,
    /// Time that the task has waited for a processor, up to its last switch.
    pub waited: Duration,
    /// How often the task has gone to sleep. `None` in a look through /proc, which does not say.
    pub slept: Option<u64>,
}
