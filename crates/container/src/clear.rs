//! Clearing what a container left behind, or ending it by force.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::host_time::{sleep, Moment};
use crate::processes::{self, Process};
use crate::{Container, StateError};

/// How long monitors get to clear up after their programs were ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a process that starts others faster than they are found is chased.
const ROUNDS: u32 = 50;

/// Removes `container`: its directory, its control group, and the programs of it that still run without a
/// monitor. Returns how many programs were ended.
///
/// # Errors
///
/// Where a monitor still looks after it, unless `force`; a file system that refuses.
pub fn clear(container: &Container, force: bool) -> Result<usize, StateError> {
    let monitor = container.record().live_monitor();
    if let Some(monitor) = monitor.filter(|_| !force) {
        let name = container.name().to_string();
        return Err(StateError::StillRunning { name, monitor: monitor.pid });
    }
    let ended = end_programs(container)?;
    if container.record().live_monitor().is_some() {
        // They see their programs end and leave; whoever does not is ended too.
        let begun = Moment::now();
        while container.record().live_monitor().is_some() && begun.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
        for monitor in &container.record().monitors {
            kill(monitor.pid, monitor.start_ticks);
        }
    }
    container.remove()?;
    Ok(ended)
}

/// Ends all programs of `container`.
fn end_programs(container: &Container) -> Result<usize, StateError> {
    let mut ended = std::collections::BTreeSet::new();
    for _ in 0..ROUNDS {
        let programs = programs(container)?;
        if programs.is_empty() {
            break;
        }
        if let Some(cgroup) = container.cgroup() {
            let _ = cgroup.kill();
        }
        for program in programs {
            kill(program.pid, program.start_ticks);
            ended.insert((program.pid, program.start_ticks));
        }
        sleep(Duration::from_millis(2));
    }
    Ok(ended.len())
}

fn programs(container: &Container) -> Result<Vec<Process>, StateError> {
    let all = processes::all().map_err(|error| StateError::File { path: "/proc".into(), error })?;
    let mut programs = match container.processes(&all) {
        // Its monitor has seen them end, and has removed it meanwhile.
        Err(_) if !container.dir().exists() => return Ok(Vec::new()),
        programs => programs?,
    };
    // One that is held before its first instruction has no clock yet.
    let held = container.record().monitors.iter().filter_map(|monitor| {
        let program = all.iter().find(|process| Some(process.pid) == monitor.program)?;
        (program.parent == monitor.pid && !program.has_ended()).then(|| program.clone())
    });
    programs.extend(held);
    Ok(programs)
}

/// Ends the process `pid` that started at `start_ticks`, and no other that has the number by now.
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
        // SAFETY: the descriptor is open, and no siginfo is given. One that has ended since is no failure.
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
