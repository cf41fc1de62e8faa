//! Task counters: they tell whether a thread is the sole thread on a clock.
//!
//! The shim or the monitor counts every new task before the task can look at the clock: a program that is brought in, and a task
//! that a program begins. A skipper reads the counts, then looks at the tasks. If it finds one thread and no other task, it may
//! mark that thread as the sole thread. The mark holds as long as the counts stay the same. A sole thread may leap over its own
//! sleep without asking anybody.

use crate::failpoint::{failpoint, Failpoint, Failpoints};
use crate::process::ProcessId;
use crate::sync::unmodelled::{AtomicU32, AtomicU64};
use crate::sync::Ordering;

/// Value of the counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskCount(u64);

/// The counters, and the thread that is marked as the sole one.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct TaskCounters {
    /// Number of programs brought onto the clock.
    programs: AtomicU32,
    /// Number of tasks that programs on the clock have begun. Counted only if [`crate::Policy::counts_tasks`] is set.
    tasks: AtomicU32,
    /// The counters when the look found `sole_thread` and no other.
    count_at_mark: AtomicU64,
    /// The sole thread, as the key of a wait's owner; 0 for none.
    sole_thread: AtomicU64,
}

impl TaskCounters {
    /// Counts a program that is being brought in.
    pub fn count_program(&self) {
        self.programs.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a task that is about to begin.
    pub fn count_task(&self) {
        self.tasks.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many programs have been brought in so far.
    pub fn programs(&self) -> u32 {
        self.programs.load(Ordering::Acquire)
    }

    /// Returns the counters' value.
    pub fn count(&self) -> TaskCount {
        let tasks = self.tasks.load(Ordering::SeqCst);
        TaskCount((tasks as u64) << 32 | self.programs.load(Ordering::SeqCst) as u64)
    }

    /// Whether a thread is marked as the sole one for the counters' value `count`.
    pub fn has_mark(&self, count: TaskCount) -> bool {
        self.sole_thread.load(Ordering::SeqCst) != 0
            && self.count_at_mark.load(Ordering::SeqCst) == count.0
    }

    /// Whether this thread is marked as the sole one, and no task has come since.
    pub fn is_sole_thread(&self, (process, thread): (ProcessId, u32)) -> bool {
        self.sole_thread.load(Ordering::SeqCst) == process.key(thread)
            && self.count_at_mark.load(Ordering::SeqCst) == self.count().0
    }

    /// Marks a thread as the sole one: after the counters had the value `count`, a look has found that thread and no other. A
    /// caller that dies between the stores has marked no thread.
    pub(crate) fn mark_sole_thread(
        &self,
        failpoints: &Failpoints,
        (process, thread): (ProcessId, u32),
        count: TaskCount,
    ) {
        self.sole_thread.store(0, Ordering::SeqCst);
        failpoint(failpoints, Failpoint::MarkHalf);
        self.count_at_mark.store(count.0, Ordering::SeqCst);
        self.sole_thread.store(process.key(thread), Ordering::SeqCst);
    }
}
