//! Whether any task on a clock runs, by /proc.

use std::fs;
use std::time::Duration;

use lorentz_control::host_time;
use lorentz_control::processes::{self, threads_of, FileId, Process};

use crate::task::{Blocker, SleepingTask, TaskState};

/// Returns the processes on the clock in `file` that have not ended, with those that execute a program on it.
pub fn members(file: &FileId) -> Vec<u32> {
    let on_clock = processes::on_clock_or_entering(file).unwrap_or_default();
    on_clock.iter().filter(|process| !process.has_ended()).map(|process| process.pid).collect()
}

/// Returns all tasks of `members` if all of them sleep.
///
/// # Errors
///
/// A task that does not sleep.
pub fn all_asleep(members: &[u32]) -> Result<Vec<SleepingTask>, Blocker> {
    let mut tasks = Vec::new();
    for &pid in members {
        for thread in threads_of(pid) {
            match state_of(pid, thread) {
                // The task has ended since.
                None | Some('Z' | 'X') => {}
                Some('S') => {
                    tasks.push(SleepingTask { pid, thread, runs: schedule_of(pid, thread).2 })
                }
                Some(state) => {
                    return Err(Blocker {
                        pid,
                        what: words_for(state).to_string(),
                        is_transient: true,
                    })
                }
            }
        }
    }
    Ok(tasks)
}

/// Returns all tasks of `members`, sleeping or not, as members of group `group`.
pub fn look_through(members: &[u32], group: u32) -> Vec<TaskState> {
    let threads = members.iter().flat_map(|pid| threads_of(*pid).map(move |thread| (*pid, thread)));
    let seen = threads.filter_map(|(pid, thread)| match state_of(pid, thread) {
        None | Some('Z' | 'X') => None,
        Some(state) => {
            let (ran, waited, runs) = schedule_of(pid, thread);
            let (ran, waited) = (Duration::from_nanos(ran), Duration::from_nanos(waited));
            let asleep = state == 'S';
            Some(TaskState { pid, thread, runs, asleep, group, ran, waited, slept: None })
        }
    });
    seen.collect()
}

pub(crate) fn words_for(state: char) -> &'static str {
    match state {
        'R' => "runs",
        'D' => "waits for the disk or the kernel",
        'T' => "is stopped",
        't' => "is traced",
        _ => "does something",
    }
}

pub(crate) fn state_of(pid: u32, thread: u32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_ends + 2).map(|state| char::from(*state))
}

/// Returns for how many nanoseconds a task has run, for how many it has waited for a processor, and how often it was given one.
/// Each is 0 if the kernel does not count it.
fn schedule_of(pid: u32, thread: u32) -> (u64, u64, u64) {
    let text = host_time::read_file(&format!("/proc/{pid}/task/{thread}/schedstat"));
    let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The process id and the command name of a process, for people.
pub fn name_of(pid: u32) -> String {
    Process::read(pid)
        .map_or_else(|| pid.to_string(), |process| format!("{pid} ({})", process.comm))
}
