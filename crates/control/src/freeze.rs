//! Freezing the tasks on a clock, and letting them go.
//!
//! The clock comes first in both directions. A task that runs on for a moment sees a clock that stands still, and can measure no
//! stop. A task that is let go finds a clock that runs.

use std::collections::HashSet;

use lorentz_clock::signal::{call_of, NO_CALL};
use lorentz_syscalls::Restart;

use crate::processes::threads_of;
use crate::signal::{kick, seen_in_call};
use crate::{Cgroup, Clock};

/// Stops the tasks of `groups`, which are on `clock`. The clock stands still already.
pub fn stop_tasks(clock: &Clock, groups: &[Cgroup]) {
    let waiting = clock.waiting();
    for group in groups {
        let broken_off = BrokenOff::look(&group.pids().unwrap_or_default(), &waiting);
        // A container that has just ended has no group to freeze. A task in the kernel stops as soon as it returns from there;
        // its time stands still already.
        let _ = group.freeze();
        broken_off.tell();
    }
}

/// Lets the tasks of `groups` go on. Their clock runs already.
pub fn let_tasks_go(groups: &[Cgroup]) {
    groups.iter().for_each(Cgroup::thaw);
}

/// Threads that are blocked in calls which a freeze of their tasks would break off with EINTR although no signal comes.
/// [`BrokenOff::tell`] makes them repeat these calls when they run. A freeze looks at the threads before it stops them, a round
/// after it has stopped them.
pub struct BrokenOff(Vec<(u32, u32, u32)>);

impl BrokenOff {
    /// Looks at all threads of `pids` but those in `waiting`, which the unfreeze signals.
    pub fn look(pids: &[u32], waiting: &HashSet<(u32, u32)>) -> BrokenOff {
        let is_never_repeated = |call: u32| {
            lorentz_syscalls::row(call).is_some_and(|row| row.restart == Restart::Never)
        };
        let threads = pids
            .iter()
            .flat_map(|pid| threads_of(*pid).map(move |thread| (*pid, thread)))
            .filter(|thread| !waiting.contains(thread));
        let seen = threads.filter_map(|(pid, thread)| {
            let seen = seen_in_call(pid, thread);
            (seen != NO_CALL && is_never_repeated(call_of(seen))).then_some((pid, thread, seen))
        });
        BrokenOff(seen.collect())
    }

    /// Signals the threads, so that they make their calls again when they run.
    pub fn tell(&self) {
        for (pid, thread, seen) in &self.0 {
            // An error is no matter: a thread that has ended needs no signal.
            let _ = kick(*pid, *thread, *seen);
        }
    }
}
