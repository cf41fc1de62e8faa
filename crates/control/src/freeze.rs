//! Freezing the tasks on a clock, and letting them go.
//!
//! The clock comes first in both directions. A task that runs on for a moment sees a clock that stands still, and can measure no
//! stop. A task that is let go finds a clock that runs.

use std::collections::HashSet;

use lorentz_clock::signal::{call_of, NO_CALL};
use lorentz_syscalls::Restart;

use crate::processes::{threads_of, Thread};
use crate::signal::{fingerprint_of, send};
use crate::{Cgroup, Clock};

/// Stops the tasks of `groups`, which are on `clock`. The clock stands still already.
pub fn stop_tasks(clock: &Clock, groups: &[Cgroup]) {
    for group in groups {
        // A container that has just ended has no group to freeze. A task in the kernel stops as soon as it returns from there;
        // its time stands still already.
        let _ = group.freeze();
    }
    // Afterwards: a thread that ran before may have entered a call meanwhile which the freezer breaks off.
    let pids: Vec<u32> = groups.iter().flat_map(|group| group.pids().unwrap_or_default()).collect();
    InterruptedCalls::look(&pids, &clock.waiting_threads()).repeat();
}

/// Lets the tasks of `groups` go on. Their clock runs already.
pub fn let_tasks_go(groups: &[Cgroup]) {
    groups.iter().for_each(Cgroup::thaw);
}

/// Threads that are blocked in calls which a freeze of their tasks would break off with EINTR although no signal comes.
/// [`InterruptedCalls::repeat`] makes them repeat these calls when they run. A stopped thread shows in which call it was.
pub struct InterruptedCalls(Vec<BlockedThread>);

/// A thread in a system call.
struct BlockedThread {
    thread: Thread,
    /// The blocked-syscall fingerprint.
    fingerprint: u32,
}

impl InterruptedCalls {
    /// Looks at all threads of `pids` but those in `waiting`, which the unfreeze signals.
    pub fn look(pids: &[u32], waiting: &HashSet<Thread>) -> InterruptedCalls {
        let is_never_repeated = |call: u32| {
            lorentz_syscalls::row(call).is_some_and(|row| row.restart == Restart::Never)
        };
        let threads = pids
            .iter()
            .flat_map(|&pid| threads_of(pid).map(move |tid| Thread { pid, tid }))
            .filter(|thread| !waiting.contains(thread));
        let blocked = threads.filter_map(|thread| {
            let fingerprint = fingerprint_of(thread.pid, thread.tid);
            (fingerprint != NO_CALL && is_never_repeated(call_of(fingerprint)))
                .then_some(BlockedThread { thread, fingerprint })
        });
        InterruptedCalls(blocked.collect())
    }

    /// Signals the threads, so that they make their calls again when they run.
    pub fn repeat(&self) {
        for BlockedThread { thread, fingerprint } in &self.0 {
            // An error is no matter: a thread that has ended needs no signal.
            let _ = send(thread.pid, thread.tid, *fingerprint);
        }
    }
}
