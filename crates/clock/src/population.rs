//! Who may be on a clock: whether a thread can be sure that it is alone there.
//!
//! Everybody who comes is counted before it can look at the clock: a program that is brought in, and a task that is born of
//! one. Whoever finds one thread and nobody else, and knows the counts from before the look, may vouch for that; it holds as
//! long as they stay. A thread that is alone needs nobody to leap over its own sleep.

use crate::failpoint::{failpoint, Failpoint};
use crate::process::ProcessId;
use crate::registry::Registry;
use crate::sync::along::{AtomicU32, AtomicU64};
use crate::sync::Ordering;

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head(u64);

/// The counts, and whom somebody has vouched for.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct Population {
    /// Programs brought onto the clock.
    entries: AtomicU32,
    /// Tasks that programs on it have begun; counted only where the clock's policy says so.
    births: AtomicU32,
    /// The counts as they were when `alone` was found alone.
    vouched: AtomicU64,
    /// A thread, as the owner of a wait; 0 where there is none.
    alone: AtomicU64,
}

impl Population {
    /// Notes that a program is being brought in.
    pub fn enter(&self) {
        self.entries.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a task is about to be born.
    pub fn bear(&self) {
        self.births.fetch_add(1, Ordering::SeqCst);
    }

    /// How many programs have been brought in so far.
    pub fn entries(&self) -> u32 {
        self.entries.load(Ordering::Acquire)
    }

    /// The counts now.
    pub fn head(&self) -> Head {
        let births = self.births.load(Ordering::SeqCst);
        Head((births as u64) << 32 | self.entries.load(Ordering::SeqCst) as u64)
    }

    /// Whether somebody has vouched for a thread that was alone when the counts were `head`.
    pub fn is_vouched_for(&self, head: Head) -> bool {
        self.alone.load(Ordering::SeqCst) != 0 && self.vouched.load(Ordering::SeqCst) == head.0
    }

    /// Whether somebody has vouched for a thread, and nobody has come since.
    pub fn is_alone(&self, (process, thread): (ProcessId, u32)) -> bool {
        self.alone.load(Ordering::SeqCst) == process.key(thread)
            && self.vouched.load(Ordering::SeqCst) == self.head().0
    }
}

impl Registry {
    /// Vouches for a thread: after the counts were `head`, a look has found it and nobody else. Whoever dies in between has vouched for
    /// nobody.
    pub fn vouch(&self, (process, thread): (ProcessId, u32), head: Head) {
        let population = &self.population;
        population.alone.store(0, Ordering::SeqCst);
        failpoint(self, Failpoint::VouchHalf);
        population.vouched.store(head.0, Ordering::SeqCst);
        population.alone.store(process.key(thread), Ordering::SeqCst);
    }
}
