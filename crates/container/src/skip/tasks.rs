//! Whether anything on a clock runs, by what /proc shows of its tasks.

use std::fs;

use crate::processes::{self, threads_of, FileId, Process};

/// A task that sleeps, and how often it has run: a second look tells whether it did in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asleep {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub thread: u32,
    /// How often it was given a processor, or gave one back.
    pub runs: u64,
}

/// Something that keeps time from skipping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// The process.
    pub pid: u32,
    /// What it does, for people.
    pub what: String,
    /// It may be over without any task having run.
    pub passes: bool,
}

/// The processes on the clock in `file`.
pub fn members(file: &FileId) -> Vec<u32> {
    let Ok(all) = processes::all() else { return Vec::new() };
    let on_clock = processes::on_clock(&all, file);
    on_clock.iter().filter(|process| !process.has_ended()).map(|process| process.pid).collect()
}

/// All tasks of `members`, if all of them sleep; else one that does not.
pub fn asleep(members: &[u32]) -> Result<Vec<Asleep>, Cause> {
    let mut tasks = Vec::new();
    for &pid in members {
        for thread in threads_of(pid) {
            match state_of(pid, thread) {
                // It has ended since.
                None | Some('Z' | 'X') => {}
                Some('S') => tasks.push(Asleep { pid, thread, runs: runs_of(pid, thread) }),
                Some(state) => {
                    return Err(Cause { pid, what: words_for(state).to_string(), passes: true })
                }
            }
        }
    }
    Ok(tasks)
}

fn words_for(state: char) -> &'static str {
    match state {
        'R' => "runs",
        'D' => "waits for the disk or the kernel",
        'T' => "is stopped",
        't' => "is traced",
        _ => "does something",
    }
}

fn state_of(pid: u32, thread: u32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_ends + 2).map(|state| char::from(*state))
}

/// How often a task was given a processor; 0 where the kernel does not count it.
fn runs_of(pid: u32, thread: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"));
    let runs = text.ok().and_then(|text| text.split_ascii_whitespace().nth(2)?.parse().ok());
    runs.unwrap_or(0)
}

/// A process's name, for people.
pub fn name_of(pid: u32) -> String {
    Process::read(pid)
        .map_or_else(|| pid.to_string(), |process| format!("{pid} ({})", process.comm))
}
