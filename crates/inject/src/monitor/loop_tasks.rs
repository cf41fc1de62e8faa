//! Other tasks of a monitor's process, which its loop serves.

use super::ExecMonitor;
use crate::events::has_happened;
use crate::trace::TracedThread;
use crate::Error;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Another task of a monitor's process, which the monitor's loop serves.
pub trait LoopTask {
    /// Returns the descriptors whose events the task waits for.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the time after which the loop calls the task even without an event; `None` for no limit.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Runs the task. The loop calls it when a descriptor has an event, or the time is over. Returns the processes that the monitor
    /// is to bring in.
    fn run(&mut self) -> Vec<Pid>;

    /// Takes note that process `pid`, which `run` returned, could not be brought in.
    fn refused(&mut self, _pid: Pid, _why: &Error) {}

    /// Takes note of the first program of the monitor, which is about to begin or has been brought in.
    fn program_begins(&mut self, _pid: Pid) {}
}

/// Interrupts a thread. If that fails, so does the attach that follows.
fn hold(thread: TracedThread) {
    if thread.seize().is_ok() {
        let _ = thread.interrupt();
    }
}

impl ExecMonitor {
    /// Makes this monitor's loop serve `tasks`, in place of those before.
    pub fn set_loop_tasks(&mut self, tasks: Vec<Box<dyn LoopTask>>) {
        self.loop_tasks = tasks;
        self.has_program = false;
    }

    /// Tells the loop tasks the first program of this monitor. Without this call they learn of it at the first exec.
    pub fn program_begins(&mut self, pid: Pid) {
        if !std::mem::replace(&mut self.has_program, true) {
            self.loop_tasks.iter_mut().for_each(|task| task.program_begins(pid));
        }
    }

    /// Adds the loop tasks' descriptors. Returns where those of each task end.
    pub(super) fn push_task_fds<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) -> Vec<usize> {
        let mut ends = Vec::new();
        for task in &self.loop_tasks {
            fds.extend(task.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            ends.push(fds.len());
        }
        ends
    }

    /// Returns the numbers of the tasks that are to run. Their descriptors begin at `start` in `fds` and end at `ends`.
    pub(super) fn due_tasks(&self, fds: &[PollFd], start: usize, ends: &[usize]) -> Vec<usize> {
        let is_due = |number: &usize| {
            let begin = if *number == 0 { start } else { ends[*number - 1] };
            let woken = fds[begin..ends[*number]].iter().any(has_happened);
            woken || self.loop_tasks[*number].timeout() == Some(Duration::ZERO)
        };
        (0..ends.len()).filter(is_due).collect()
    }

    /// Runs tasks, and brings in the processes that they return.
    pub(super) fn run_loop_tasks(&mut self, due: &[usize]) {
        for &number in due {
            let found = self.loop_tasks[number].run();
            // The kernel holds each of them on a processor until it is interrupted.
            found.iter().for_each(|pid| hold(TracedThread(pid.as_raw())));
            for pid in found {
                if let Err(error) = self.attach(pid) {
                    self.loop_tasks[number].refused(pid, &error);
                }
            }
        }
    }
}
