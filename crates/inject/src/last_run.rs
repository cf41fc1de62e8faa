//! How long a thread has waited: since it last ran, by the scheduler's clock. A thread that is stopped for an attach runs for that, so it
//! is looked at before.

use crate::trace::TracedThread;
use crate::tracee::status_of;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// The last time that a sleeping thread ran.
pub(crate) struct LastRun {
    /// Its end, by the scheduler's clock of the processor.
    ended: Duration,
    processor: usize,
    /// How often the thread has gone to sleep.
    pub waits: u64,
}

impl LastRun {
    /// Returns that of a thread of process `pid`, if the kernel tells it.
    pub fn of(pid: Pid, thread: TracedThread) -> Option<LastRun> {
        let task = format!("/proc/{pid}/task/{}", thread.0);
        // First: a run between these looks counts as one that came after them.
        let waits = status_of(thread, "voluntary_ctxt_switches:")?.parse().ok()?;
        let ended = last_ran(&format!("{task}/sched"))?;
        Some(LastRun { ended, processor: processor_of(&task)?, waits })
    }

    /// Returns the time since its end, rather too short: a wait must not end early. The kernel slews CLOCK_MONOTONIC by 500 ppm at most,
    /// and the scheduler's clock not at all.
    pub fn elapsed(&self) -> Option<Duration> {
        const SLEW: u32 = 2000;
        let elapsed = scheduler_now(self.processor)?.checked_sub(self.ended)?;
        Some(elapsed - elapsed / SLEW)
    }
}

/// Returns when a thread last began or stopped running, by the scheduler's clock.
fn last_ran(path: &str) -> Option<Duration> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    let millis: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    // A thread that was just made has not run yet.
    (millis > 0.0).then(|| Duration::from_nanos((millis * 1e6) as u64))
}

/// Returns the processor on which a thread last ran.
fn processor_of(task: &str) -> Option<usize> {
    const FIELD_AFTER_NAME: usize = 36;
    let stat = fs::read_to_string(format!("{task}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(FIELD_AFTER_NAME)?.parse().ok()
}

/// Returns the scheduler's clock of `processor` now: the time at which this thread, after a short sleep, last began to run
/// there.
///
/// Each processor has its own clock, without the time that the hypervisor took. Over hours these clocks come to differ by
/// seconds.
fn scheduler_now(processor: usize) -> Option<Duration> {
    let this_thread = Pid::from_raw(0);
    let before = sched_getaffinity(this_thread).ok()?;
    let mut there = CpuSet::new();
    there.set(processor).ok()?;
    sched_setaffinity(this_thread, &there).ok()?;
    std::thread::sleep(Duration::from_micros(10));
    let now = last_ran("/proc/thread-self/sched");
    let _ = sched_setaffinity(this_thread, &before);
    now
}
