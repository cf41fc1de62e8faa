//! Clearing the remains of a container, or ending it by force.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use lorentz_control::host_time::{sleep, HostMoment};
use lorentz_control::processes::{self, Process};

use crate::state::scan_processes;
use crate::{Container, StateDir, StateError};

/// After its programs were killed: longest wait for monitors to clear up, counted from the last monitor that was done.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(2);
/// After so long without a monitor that is done, monitors that have left these containers count as staying for others.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Most rounds of killing, against a process that starts others faster than they are found.
const MAX_KILL_ROUNDS: u32 = 50;

/// Removes `container`: its directory, its control group, and its programs that still run without a monitor. Returns the number of
/// programs that were killed.
///
/// # Errors
///
/// If a monitor still supervises it, unless `force`; if the file system refuses.
pub fn clear(container: &Container, force: bool) -> Result<usize, StateError> {
    let ended = clear_all(container.state(), &[container], force)?;
    ended.into_iter().next().unwrap_or(Ok(0))
}

/// Removes each of `containers`, which are in `state`, as [`clear`] does, up to the first that is refused. Returns for each one the
/// number of programs that were killed. However many containers there are, one walk over /proc serves all of them.
///
/// # Errors
///
/// As [`clear`]. A refusal is the last entry of the returned list; the containers before it are removed.
pub fn clear_all(
    state: &StateDir,
    containers: &[&Container],
    force: bool,
) -> Result<Vec<Result<usize, StateError>>, StateError> {
    let refusal = |container: &&Container| {
        let monitor = container.record().live_monitor().filter(|_| !force)?;
        let name = container.name().to_string();
        Some(StateError::StillRunning { name, monitor: monitor.pid })
    };
    let refused = containers.iter().enumerate().find_map(|(at, one)| Some((at, refusal(one)?)));
    let (doomed, refused) = match refused {
        Some((at, refusal)) => (&containers[..at], Some(refusal)),
        None => (containers, None),
    };
    let ended = end_programs(state, doomed)?;
    await_monitors(state, doomed);
    let mut results = Vec::new();
    for (container, ended) in doomed.iter().zip(ended) {
        container.remove()?;
        results.push(Ok(ended));
    }
    results.extend(refused.map(Err));
    Ok(results)
}

/// Kills all programs of `containers`. Returns how many each had.
fn end_programs(state: &StateDir, containers: &[&Container]) -> Result<Vec<usize>, StateError> {
    let mut ended = vec![BTreeSet::new(); containers.len()];
    let mut left: Vec<usize> = (0..containers.len()).collect();
    for _ in 0..MAX_KILL_ROUNDS {
        let chased: Vec<&Container> = left.iter().map(|at| containers[*at]).collect();
        let programs = programs(state, &chased)?;
        let running = left.iter().copied().zip(programs);
        let running: Vec<_> = running.filter(|(_, programs)| !programs.is_empty()).collect();
        for (at, programs) in &running {
            if let Some(cgroup) = containers[*at].cgroup() {
                let _ = cgroup.kill();
            }
            for program in programs {
                kill(program.pid, program.start_ticks);
                ended[*at].insert((program.pid, program.start_ticks));
            }
        }
        left = running.into_iter().map(|(at, _)| at).collect();
        if left.is_empty() {
            break;
        }
        sleep(Duration::from_millis(2));
    }
    Ok(ended.iter().map(BTreeSet::len).collect())
}

/// Returns the programs of each of `containers`. A container whose directory its monitor has removed in between has none.
fn programs(state: &StateDir, containers: &[&Container]) -> Result<Vec<Vec<Process>>, StateError> {
    let mut programs = state.processes_of(containers, &scan_processes()?)?;
    for (container, programs) in containers.iter().zip(&mut programs) {
        // A program that the monitor holds before its first instruction has no clock mapped yet.
        let held = container.record().monitors.iter().filter_map(|monitor| {
            let program = Process::read(monitor.program?)?;
            (program.parent == monitor.pid && !program.has_ended()).then_some(program)
        });
        programs.extend(held);
        // The same for a program whose number its monitor has not recorded yet.
        let group = container.cgroup().map(|group| group.pids_below()).unwrap_or_default();
        let grouped = group.into_iter().filter_map(Process::read);
        programs.extend(grouped.filter(|process| !process.has_ended()));
    }
    Ok(programs)
}

/// Waits until the monitors of `containers`, whose programs were killed, have cleared up and left. Kills a monitor that does not
/// leave, unless it supervises other containers too.
fn await_monitors(state: &StateDir, containers: &[&Container]) {
    let mut left = containers.to_vec();
    let mut others = None;
    let mut begun = HostMoment::now();
    while begun.elapsed() < MONITOR_TIMEOUT {
        let look_begins = HostMoment::now();
        let before = left.len();
        left.retain(|container| container.record().live_monitor().is_some());
        if begun.elapsed() > SETTLE_TIME {
            let others = others.get_or_insert_with(|| monitors_of_others(state, containers));
            left.retain(|one| !has_been_left(state, one) || !is_supervised_by(one, others));
        }
        if left.is_empty() {
            return;
        }
        if left.len() < before {
            begun = HostMoment::now();
        }
        // The processors are for the monitors.
        sleep(Duration::from_millis(5).max(2 * look_begins.elapsed()));
    }
    let others = others.unwrap_or_default();
    let monitors = left.iter().flat_map(|container| &container.record().monitors);
    for monitor in monitors.filter(|one| !others.contains(&(one.pid, one.start_ticks))) {
        kill(monitor.pid, monitor.start_ticks);
    }
}

/// Returns the monitors of all containers but `containers`, each by process id and start time.
fn monitors_of_others(state: &StateDir, containers: &[&Container]) -> HashSet<(u32, u64)> {
    let all = state.list().unwrap_or_default();
    let names: HashSet<&str> = containers.iter().map(|container| container.name()).collect();
    let others = all.iter().filter(|container| !names.contains(container.name()));
    let monitors = others.flat_map(|container| &container.record().monitors);
    monitors.map(|monitor| (monitor.pid, monitor.start_ticks)).collect()
}

/// Whether no monitor supervises `container` any more: its directory is gone or is another container's, or its record names no
/// living monitor.
fn has_been_left(state: &StateDir, container: &Container) -> bool {
    state
        .container(container.name())
        .map_or(true, |now| !now.is_same(container) || now.record().live_monitor().is_none())
}

/// Whether one of `monitors` is a living monitor of `container`.
fn is_supervised_by(container: &Container, monitors: &HashSet<(u32, u64)>) -> bool {
    let living = container.record().live_monitor();
    living.is_some_and(|one| monitors.contains(&(one.pid, one.start_ticks)))
}

/// Kills the process `pid` that started at `start_ticks`, and no other process that has the number by now.
fn kill(pid: u32, start_ticks: u64) {
    // SAFETY: plain numbers in, a new descriptor or -1 out.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(raw) = i32::try_from(raw) else { return };
    if raw < 0 {
        return;
    }
    // SAFETY: the descriptor was opened here and belongs to nobody else.
    let process = unsafe { OwnedFd::from_raw_fd(raw) };
    if processes::is_running(pid, start_ticks) {
        let fd = process.as_raw_fd();
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and no siginfo is given. If the process has ended since, the error is no matter.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, nothing, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_the_very_process_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let start = Process::read(child.id()).unwrap().start_ticks;
        kill(child.id(), start + 1);
        assert!(child.try_wait().unwrap().is_none());
        kill(child.id(), start);
        assert!(!child.wait().unwrap().success());
    }
}
