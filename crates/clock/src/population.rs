//! Task counters: they tell whether a thread is the sole thread on a clock.
//!
//! The shim or the monitor counts every new task before the task can look at the clock: a program that is brought in, and a task
//! that a program begins. A skipper reads the counts, then looks at the tasks. If it finds one thread and no other task, it may
//! mark that thread as the sole thread. The mark holds as long as the counts stay the same. A sole thread may leap over its own
//! sleep without asking anybody.

use crate::failpoint::{failpoint, Failpoint};
use crate::process::ProcessId;
use crate::registry::Registry;
use crate::sync::along::{AtomicU32, AtomicU64};
use crate::sync::Ordering;

/// Value of the counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head(u64);

/// The counters, and the thread that is marked as the sole one.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct Population {
    /// Number of programs brought onto the clock.
    entries: AtomicU32,
    /// Number of tasks that programs on the clock have begun. Counted only if [`crate::Policy::counts_births`] is set.
    births: AtomicU32,
    /// The counters when the look found `alone` to be the sole thread.
    vouched: AtomicU64,
    /// The sole thread, as the key of a wait's owner; 0 for none.
    alone: AtomicU64,
}

impl Population {
    /// Counts a program that is being brought in.
    pub fn enter(&self) {
        self.entries.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a task that is about to begin.
    pub fn bear(&self) {
        self.births.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many programs have been brought in so far.
    pub fn entries(&self) -> u32 {
        self.entries.load(Ordering::Acquire)
    }

    /// Returns the counters' value.
    pub fn head(&self) -> Head {
        let births = self.births.load(Ordering::SeqCst);
        Head((births as u64) << 32 | self.entries.load(Ordering::SeqCst) as u64)
    }

    /// Whether a thread is marked as the sole one for the counters' value `head`.
    pub fn is_vouched_for(&self, head: Head) -> bool {
        self.alone.load(Ordering::SeqCst) != 0 && self.vouched.load(Ordering::SeqCst) == head.0
    }

    /// Whether this thread is marked as the sole one, and no task has come since.
    pub fn is_alone(&self, (process, thread): (ProcessId, u32)) -> bool {
        self.alone.load(Ordering::SeqCst) == process.key(thread)
            && self.vouched.load(Ordering::SeqCst) == self.head().0
    }
}

impl Registry {
    /// Marks a thread as the sole one: after the counters had the value `head`, a look has found that thread and no other. A
    /// caller that dies between the two stores has marked nobody.
    pub fn vouch(&self, (process, thread): (ProcessId, u32), head: Head) {
        let population = &self.population;
        population.alone.store(0, Ordering::SeqCst);
        failpoint(self, Failpoint::VouchHalf);
        population.vouched.store(head.0, Ordering::SeqCst);
        population.alone.store(process.key(thread), Ordering::SeqCst);
    }
}
