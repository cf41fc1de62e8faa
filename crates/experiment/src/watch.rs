//! Task states: which containers' tasks sleep. The BPF programs of `lorentz-container` read them in the kernel; without BPF, this
//! module reads /proc.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use lorentz_control::processes::threads_of;
use lorentz_control::Cgroup;
use lorentz_idle::{look_through, SwitchTrace, TaskState};
use lorentz_syscalls::{Sysno, ASK_MONITOR};
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::time::{TimeSpec, TimeValLike};
use std::os::fd::BorrowedFd;

/// Number of tasks above which reading /proc for one container is faster than letting the kernel iterate over all tasks.
const MAX_TASKS_BY_BPF: usize = 400;

/// Observes the tasks of an experiment. Each container is a group.
pub struct TaskWatch {
    kernel: Option<Mutex<SwitchTrace>>,
    events: Option<i32>,
}

impl TaskWatch {
    /// Makes a watch with room for `groups` groups. It observes no task yet.
    pub fn new(groups: u32) -> TaskWatch {
        let kernel = SwitchTrace::with_groups(groups).ok();
        let events = kernel.as_ref().map(SwitchTrace::events_fd);
        TaskWatch { kernel: kernel.map(Mutex::new), events }
    }

    /// Whether BPF programs report the task states. If not, the watch reads /proc, which takes longer.
    pub fn uses_bpf(&self) -> bool {
        self.kernel.is_some()
    }

    fn scheduler(&self) -> Option<std::sync::MutexGuard<'_, SwitchTrace>> {
        // A thread that panicked leaves nothing that matters: each look asks the kernel anew.
        self.kernel
            .as_ref()
            .map(|kernel| kernel.lock().unwrap_or_else(|broken| broken.into_inner()))
    }

    /// Subscribes to an event for the moment when no task of a group seems to run any more, or unsubscribes.
    pub fn set_switch_events(&self, enabled: bool) {
        if let Some(mut scheduler) = self.scheduler() {
            scheduler.set_switch_events(enabled);
        }
    }

    /// Observes the processes in `cgroup` from now on, and all that they start.
    pub fn add(&self, group: u32, cgroup: &Cgroup) -> io::Result<()> {
        let Some(mut scheduler) = self.scheduler() else { return Ok(()) };
        // Repeats until a pass finds no new process: one that is not observed yet may have started another.
        while cgroup.pids()?.iter().filter(|pid| scheduler.watch_process_in(group, **pid)).count()
            > 0
        {}
        Ok(())
    }

    /// Returns all tasks of `cgroups`, each with its group.
    pub fn look_at_all<'a>(
        &self,
        cgroups: impl Iterator<Item = (u32, &'a Cgroup)>,
    ) -> Vec<TaskState> {
        if let Some(seen) = self.scheduler().and_then(|mut scheduler| scheduler.tasks().ok()) {
            return seen;
        }
        cgroups.flat_map(|(group, cgroup)| tasks_by_proc(group, cgroup)).collect()
    }

    /// Calls `read` while all tasks of a group sleep: with the number of times that they have run. Returns that number and the
    /// result. None if a task runs or waits for the monitor, or has run meanwhile. `tasks` is the number of tasks of the experiment.
    pub fn while_idle<T>(
        &self,
        group: u32,
        cgroup: &Cgroup,
        tasks: usize,
        read: impl FnOnce(u64) -> T,
    ) -> Option<(u64, T)> {
        let look = || self.look(group, cgroup, tasks);
        let first = look();
        let idle = first.iter().all(|task| task.asleep)
            && !first.iter().any(|task| awaits_monitor(task.pid, task.thread));
        if !idle {
            return None;
        }
        let runs = first.iter().fold(0u64, |sum, task| sum.wrapping_add(task.runs));
        let result = read(runs);
        (first == look()).then_some((runs, result))
    }

    /// Whether all tasks of a group sleep, as in [`TaskWatch::while_idle`].
    pub fn idle(&self, group: u32, cgroup: &Cgroup, tasks: usize) -> bool {
        self.while_idle(group, cgroup, tasks, |_| ()).is_some()
    }

    /// Returns the tasks of a group. `tasks` is the number of tasks of the experiment.
    pub fn look(&self, group: u32, cgroup: &Cgroup, tasks: usize) -> Vec<TaskState> {
        match self.scheduler().filter(|_| tasks < MAX_TASKS_BY_BPF) {
            Some(mut scheduler) => scheduler.tasks().map_or_else(
                |_| tasks_by_proc(group, cgroup),
                |mut seen| {
                    seen.retain(|task| task.group == group);
                    seen
                },
            ),
            None => tasks_by_proc(group, cgroup),
        }
    }

    /// Whether a thread of these processes waits for the monitor, as one does that is about to execute another program. Such a
    /// thread sleeps, but it is not idle.
    pub fn any_awaits_monitor(&self, pids: &[u32]) -> bool {
        pids.iter().any(|pid| threads_of(*pid).any(|thread| awaits_monitor(*pid, thread)))
    }

    /// Waits until no task of one of the groups seems to run any more, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        let Some(events) = self.events else {
            /// Interval between two readings of /proc.
            const POLL_INTERVAL: Duration = Duration::from_micros(200);
            std::thread::sleep(limit.min(POLL_INTERVAL));
            return;
        };
        // SAFETY: `self` owns the scheduler, which has the descriptor open.
        let events = unsafe { BorrowedFd::borrow_raw(events) };
        let limit = TimeSpec::nanoseconds(limit.as_nanos() as i64);
        // EINTR is a wake-up like any other.
        let ready = ppoll(&mut [PollFd::new(events, PollFlags::POLLIN)], Some(limit), None);
        if ready.is_ok_and(|ready| ready > 0) {
            if let Some(scheduler) = self.scheduler() {
                scheduler.wait(Duration::ZERO);
            }
        }
    }
}

/// Whether the thread waits for the container's monitor: it executes another program, or asks for something else.
fn awaits_monitor(pid: u32, thread: u32) -> bool {
    let answered_by_monitor = [Sysno::execve, Sysno::execveat, ASK_MONITOR].map(Sysno::number);
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return false;
    };
    // Race: the thread asks the monitor. The monitor answers before this read. Therefore a running thread counts too.
    let runs = text.starts_with("running");
    runs || text
        .split(' ')
        .next()
        .and_then(|call| call.parse().ok())
        .is_some_and(|call| answered_by_monitor.contains(&call))
}

fn tasks_by_proc(group: u32, cgroup: &Cgroup) -> Vec<TaskState> {
    look_through(&cgroup.pids().unwrap_or_default(), group)
}
