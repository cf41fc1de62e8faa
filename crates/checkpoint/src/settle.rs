//! Waiting until all threads of a frozen container can be saved. CRIU can save neither a thread that the monitor traces at its exec,
//! nor a child of vfork, which shares its parent's memory, nor a thread with a forced signal on its way, which ends CRIU's calls in it.
//! A process that the monitor has let go and that has not run the boot code has none of the shim's memory: it could be saved, but not
//! be brought back.

use std::fs;
use std::time::Duration;

use lorentz_control::host_time::sleep;
use lorentz_control::processes::{clock_of, Process};
use lorentz_control::{stop_tasks, Cgroup, Clock};
use lorentz_inject::{has_forced_signal, HeldProcesses};

/// How often the tasks are let go for a moment. An exec takes some tenths of a millisecond.
const MAX_TRIES: u32 = 200;
const RUN_INTERVAL: Duration = Duration::from_millis(2);

/// Lets the tasks of the frozen group go, for moments, until all can be saved. The clock stands still meanwhile. Returns whether they
/// can.
pub fn settle(clock: &Clock, group: &Cgroup) -> bool {
    for _ in 0..MAX_TRIES {
        let pids = group.pids().unwrap_or_default();
        if !group.is_frozen().unwrap_or(false) || pids.iter().any(|pid| is_on_its_way(*pid)) {
            group.thaw();
            sleep(RUN_INTERVAL);
        } else if pids.iter().any(|pid| has_forced_signal(*pid)) {
            take_forced_signals(group, &pids);
        } else {
            return true;
        }
        stop_tasks(clock, std::slice::from_ref(group));
    }
    false
}

/// Lets the tasks take the signals that are forced on them, and do nothing else.
fn take_forced_signals(group: &Cgroup, pids: &[u32]) {
    let held = HeldProcesses::hold(pids);
    group.thaw();
    // The next try looks at the signals again.
    let _ = held.take_forced_signals();
    let _ = group.freeze();
}

/// Whether a process of a container is being executed, or made by vfork.
fn is_on_its_way(pid: u32) -> bool {
    shares_its_parents_memory(pid) || has_tracer(pid) || has_no_clock(pid)
}

/// Whether a process is on no clock, although one that runs and is in a container has mapped its clock, unless it is at the
/// beginning of a program.
fn has_no_clock(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| !process.has_ended()) && clock_of(pid).is_none()
}

fn shares_its_parents_memory(pid: u32) -> bool {
    let parent = field(&format!("/proc/{pid}/status"), "PPid:");
    parent.and_then(|parent| parent.parse().ok()).is_some_and(|parent| share(pid, parent))
}

fn has_tracer(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let statuses = tasks.map(|task| task.path().join("status"));
    statuses.filter_map(|path| field(path.to_str()?, "TracerPid:")).any(|tracer| tracer != "0")
}

fn field(path: &str, name: &str) -> Option<String> {
    let status = fs::read_to_string(path).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_string())
}

/// Whether two processes have the same memory.
fn share(one: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shares_its_own_memory_alone() {
        let me = std::process::id();
        assert!(share(me, me));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!share(me, child.id()));
        assert!(!shares_its_parents_memory(child.id()) && !has_tracer(child.id()));
        // It is in no container.
        assert!(is_on_its_way(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
