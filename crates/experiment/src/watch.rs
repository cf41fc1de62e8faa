//! Whose tasks sleep: asked of the kernel by the programs of `lorentz-container` where it lets us, else of /proc.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use lorentz_container::processes::threads_of;
use lorentz_container::skip::{look_through, Scheduler, Seen};
use lorentz_container::Cgroup;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::time::{TimeSpec, TimeValLike};
use std::os::fd::BorrowedFd;

/// Above so many tasks it is quicker to ask /proc of a few than to have the kernel look through all.
const MANY_TASKS: usize = 400;

/// Watches over the tasks of an experiment, each container a group.
pub struct Watch {
    kernel: Option<Mutex<Scheduler>>,
    events: Option<i32>,
}

impl Watch {
    /// Watches over nobody yet, and has room for so many groups.
    pub fn new(groups: u32) -> Watch {
        let kernel = Scheduler::of_groups(groups).ok();
        let events = kernel.as_ref().map(Scheduler::events_fd);
        Watch { kernel: kernel.map(Mutex::new), events }
    }

    /// Whether the kernel tells; else it is looked through /proc, which takes longer.
    pub fn is_told(&self) -> bool {
        self.kernel.is_some()
    }

    fn scheduler(&self) -> Option<std::sync::MutexGuard<'_, Scheduler>> {
        // What a thread that panicked has left is as good as any: it is asked anew each time.
        self.kernel
            .as_ref()
            .map(|kernel| kernel.lock().unwrap_or_else(|broken| broken.into_inner()))
    }

    /// Has a word come whenever none of a group seems to run any more, or not.
    pub fn be_told(&self, told: bool) {
        if let Some(mut scheduler) = self.scheduler() {
            scheduler.be_told(told);
        }
    }

    /// Watches the processes in `cgroup` from now on, and all that they start. Returns their threads.
    pub fn add(&self, group: u32, cgroup: &Cgroup) -> io::Result<()> {
        let Some(mut scheduler) = self.scheduler() else { return Ok(()) };
        // Until a look finds nobody new: one that is not watched yet may have started another.
        while cgroup.pids()?.iter().filter(|pid| scheduler.add_to(group, **pid)).count() > 0 {}
        Ok(())
    }

    /// All tasks of `cgroups`, each with its group.
    pub fn all<'a>(&self, cgroups: impl Iterator<Item = (u32, &'a Cgroup)>) -> Vec<Seen> {
        if let Some(seen) = self.scheduler().and_then(|mut scheduler| scheduler.seen().ok()) {
            return seen;
        }
        cgroups.flat_map(|(group, cgroup)| by_proc(group, cgroup)).collect()
    }

    /// How often the tasks of a group have run, if all of them sleep, and go on sleeping: two looks agree. `tasks` is how many
    /// the experiment has.
    pub fn idle(&self, group: u32, cgroup: &Cgroup, tasks: usize) -> Option<u64> {
        let look = || self.look(group, cgroup, tasks);
        let first = look();
        let idle = first.iter().all(|task| task.asleep)
            && first == look()
            && !first.iter().any(|task| executes(task.task.pid, task.task.thread));
        let runs = first.iter().fold(0u64, |sum, task| sum.wrapping_add(task.task.runs));
        idle.then_some(runs)
    }

    /// The tasks of a group. `tasks` is how many the experiment has.
    pub fn look(&self, group: u32, cgroup: &Cgroup, tasks: usize) -> Vec<Seen> {
        match self.scheduler().filter(|_| tasks < MANY_TASKS) {
            Some(mut scheduler) => scheduler.seen().map_or_else(
                |_| by_proc(group, cgroup),
                |mut seen| {
                    seen.retain(|task| task.group == group);
                    seen
                },
            ),
            None => by_proc(group, cgroup),
        }
    }

    /// Whether any thread of these processes is about to execute another program: it sleeps then, for the monitor is asked.
    pub fn any_executes(&self, pids: &[u32]) -> bool {
        pids.iter().any(|pid| threads_of(*pid).any(|thread| executes(*pid, thread)))
    }

    /// Waits until none of some group seems to run any more, at most so long.
    pub fn wait(&self, limit: Duration) {
        let Some(events) = self.events else {
            /// /proc is looked through again after this long.
            const OFTEN: Duration = Duration::from_micros(200);
            std::thread::sleep(limit.min(OFTEN));
            return;
        };
        // SAFETY: the scheduler, which has it open, lives as long as `self`.
        let events = unsafe { BorrowedFd::borrow_raw(events) };
        let limit = TimeSpec::nanoseconds(limit.as_nanos() as i64);
        // An interruption is a wake-up like any other.
        let ready = ppoll(&mut [PollFd::new(events, PollFlags::POLLIN)], Some(limit), None);
        if ready.is_ok_and(|ready| ready > 0) {
            if let Some(scheduler) = self.scheduler() {
                scheduler.wait(Duration::ZERO);
            }
        }
    }
}

fn executes(pid: u32, thread: u32) -> bool {
    const CALLS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return false;
    };
    // By now it may have been told already, and run.
    let runs = text.starts_with("running");
    runs || text
        .split(' ')
        .next()
        .and_then(|call| call.parse().ok())
        .is_some_and(|call| CALLS.contains(&call))
}

fn by_proc(group: u32, cgroup: &Cgroup) -> Vec<Seen> {
    look_through(&cgroup.pids().unwrap_or_default(), group)
}
