//! Whether a running process may be brought into virtual time, checked before anything touches it.

use std::fs;

use lorentz_control::processes::{self, Process};

use crate::state::effective_user;
use crate::{AttachRefused, StateDir};

/// Checks that process `pid` exists, belongs to the caller, is a program, and is not in virtual time yet.
///
/// # Errors
///
/// The reason why the process may not be attached to.
pub fn check_attachable(state: &StateDir, pid: u32) -> Result<Process, AttachRefused> {
    let Some(process) = pid_and_process(pid) else { return Err(AttachRefused::Gone(pid)) };
    if pid == std::process::id() {
        return Err(AttachRefused::Ourselves(pid));
    }
    if process.has_ended() {
        return Err(AttachRefused::Zombie(pid));
    }
    if process.first_thread_has_ended() {
        return Err(AttachRefused::FirstThreadEnded(pid));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    match status_number(&status, "Tgid:") {
        Some(process) if process != pid => {
            return Err(AttachRefused::Thread { thread: pid, process })
        }
        _ => (),
    }
    if is_kernel_thread(pid) {
        return Err(AttachRefused::KernelThread(pid));
    }
    let user = status_number(&status, "Uid:");
    if let Some(owner) = user.filter(|&owner| owner != effective_user() && effective_user() != 0) {
        return Err(AttachRefused::NotYours { pid, owner: user_name(owner) });
    }
    if processes::clock_of(pid).is_some() {
        let container = match state.of_process(pid) {
            Ok(container) => container.name().to_string(),
            Err(_) => "a container that is not yours".to_string(),
        };
        return Err(AttachRefused::AlreadyInside { pid, container });
    }
    if let Some(tracer) = status_number(&status, "TracerPid:").filter(|&tracer| tracer != 0) {
        let reason = format!("is traced by process {tracer}; expected one without a debugger");
        return Err(AttachRefused::NotAllowed { pid, reason });
    }
    Ok(process)
}

fn pid_and_process(pid: u32) -> Option<Process> {
    // Process 0 does not exist, and a number that is no pid_t cannot be a process.
    i32::try_from(pid).ok().filter(|&pid| pid > 0)?;
    Process::read(pid)
}

/// Whether a process is a kernel thread, which has no program.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & PF_KTHREAD != 0)
}

/// Parses the first number of a field in /proc/PID/status.
fn status_number(status: &str, field: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn user_name(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn state() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path()).unwrap();
        (dir, state)
    }

    #[test]
    fn a_process_of_ones_own_may_be_attached_to() {
        let (_dir, state) = state();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(check_attachable(&state, child.id()).map(|process| process.pid), Ok(child.id()));
        child.kill().unwrap();
        // Nobody waits for the child, so it is a zombie when it has noticed its end.
        while !Process::read(child.id()).unwrap().has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(check_attachable(&state, child.id()), Err(AttachRefused::Zombie(child.id())));
        child.wait().unwrap();
        assert_eq!(check_attachable(&state, child.id()), Err(AttachRefused::Gone(child.id())));
    }

    #[test]
    fn a_number_of_no_process_is_refused() {
        let (_dir, state) = state();
        let me = std::process::id();
        assert_eq!(check_attachable(&state, me), Err(AttachRefused::Ourselves(me)));
        assert_eq!(check_attachable(&state, 0), Err(AttachRefused::Gone(0)));
        assert_eq!(check_attachable(&state, u32::MAX), Err(AttachRefused::Gone(u32::MAX)));
        // SAFETY: no arguments, no effects.
        let thread = std::thread::spawn(move || unsafe { libc::gettid() } as u32).join().unwrap();
        assert!(check_attachable(&state, thread).is_err());
    }

    #[test]
    fn kernel_threads_are_told_from_programs() {
        assert!(!is_kernel_thread(std::process::id()));
        let name = fs::read_to_string("/proc/2/comm").unwrap_or_default();
        if name.trim() == "kthreadd" {
            assert!(is_kernel_thread(2));
        }
    }
}
