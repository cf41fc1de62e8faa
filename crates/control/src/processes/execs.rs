//! Processes in the midst of an exec on a clock: for a moment the clock is in neither their old memory nor their new one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{clock_of, numbers, open_files, FileId, Process};
use crate::host_time;

/// Whether process `pid` may be in the midst of an exec on a clock. Until the new program is on the clock, a monitor traces it, or it has
/// the monitor's seccomp filter alone.
pub fn may_enter(pid: u32) -> bool {
    Supervision::of(pid).may_enter()
}

/// The supervision of a process, as the kernel reports it.
struct Supervision {
    /// The process id of its tracer.
    tracer: Option<u32>,
    has_filter: bool,
}

impl Supervision {
    fn of(pid: u32) -> Supervision {
        let status = host_time::read_file(&format!("/proc/{pid}/status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let tracer = field("TracerPid:").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0);
        Supervision { tracer, has_filter: field("Seccomp:") == Some("2") }
    }

    /// Whether it may be in the midst of an exec on a clock.
    fn may_enter(&self) -> bool {
        self.has_filter || self.tracer.is_some()
    }
}

/// Whether the kernel tells the caller of the supervision of process `pid`.
fn is_ours(pid: u32) -> bool {
    let user = nix::unistd::geteuid();
    let is_own =
        || fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == user.as_raw());
    user.is_root() || is_own()
}

/// Whether a process is on the clock in `file`, or executes a program on it. `clock` looks for its clock; if it has none and `may_enter`,
/// the `steps` look for what an exec goes through between the old memory and the new one, in its order. Wherever the exec is at the
/// first look, and however far it comes between two looks, one of them finds it.
fn finds(
    file: &FileId,
    clock: impl Fn() -> Option<FileId>,
    may_enter: impl Fn() -> bool,
    steps: [&dyn Fn() -> bool; 2],
) -> bool {
    let is_on = |clock: FileId| clock.is_same(file);
    match clock() {
        Some(clock) => is_on(clock),
        None => may_enter() && (steps.iter().any(|step| step()) || clock().is_some_and(is_on)),
    }
}

/// Returns the processes on the clock in `file`, and those that execute a program on it: the clock is in neither the old memory nor the
/// new one for a moment. Sorted by process id.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn on_clock_or_entering(file: &FileId) -> io::Result<Vec<Process>> {
    let has_file = |pid| open_files(pid).any(|open| open.is_same(file));
    let is_of_lorentz = |pid| Process::read(pid).is_some_and(|one| one.comm.starts_with("lorentz"));
    // A look at the supervision takes 15 us, and the kernel shows no more of another user's process.
    let may_enter = |pid| is_ours(pid) && may_enter(pid);
    let is_traced = |pid| Supervision::of(pid).tracer.is_some_and(has_file);
    let maps_it = |pid| has_file(pid) && !is_of_lorentz(pid);
    let is_there = |pid: &u32| is_on_or_enters(*pid, file, may_enter, [&is_traced, &maps_it]);
    Ok(sorted(numbers()?.filter(is_there).filter_map(Process::read)))
}

/// Returns the processes on the clock in `file`, and of those for which `may_enter` holds the ones that execute a program on it. The
/// `steps` look for what an exec goes through, in its order: first its monitor traces the process, then the process has the clock's
/// file open, to map it. Sorted by process id.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn on_clock_or(
    file: &FileId,
    may_enter: impl Fn(u32) -> bool,
    steps: [&dyn Fn(u32) -> bool; 2],
) -> io::Result<Vec<Process>> {
    let is_there = |pid: u32| is_on_or_enters(pid, file, &may_enter, steps);
    let found = numbers()?.filter(|pid| is_there(*pid)).filter_map(Process::read);
    // As in `on_a_clock`: what is there after its start was read is that process.
    Ok(sorted(found.filter(|process| is_there(process.pid))))
}

fn is_on_or_enters(
    pid: u32,
    file: &FileId,
    may_enter: impl Fn(u32) -> bool,
    [traces, maps]: [&dyn Fn(u32) -> bool; 2],
) -> bool {
    finds(file, || clock_of(pid), || may_enter(pid), [&|| traces(pid), &|| maps(pid)])
}

fn sorted(found: impl Iterator<Item = Process>) -> Vec<Process> {
    let mut found: Vec<Process> = found.collect();
    found.sort_by_key(|process| process.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where an exec is: the old memory, traced without a clock, let go with the clock's file open, the new memory.
    const STEPS: usize = 4;

    #[test]
    fn an_exec_is_found_wherever_it_is_at_each_look() {
        let clock = tempfile::NamedTempFile::new().unwrap();
        let file = FileId::of(clock.path()).unwrap();
        let looks = 5;
        // Each look is at the step of the one before, or at a later one.
        for schedule in 0..STEPS.pow(looks) {
            let at: Vec<usize> =
                (0..looks).map(|look| schedule / STEPS.pow(look) % STEPS).collect();
            if at.windows(2).any(|pair| pair[0] > pair[1]) {
                continue;
            }
            let next = std::cell::Cell::new(0);
            let step = || {
                next.set(next.get() + 1);
                at[next.get() - 1]
            };
            let clock = || matches!(step(), 0 | 3).then(|| file.clone());
            let may_enter = || (0..STEPS).contains(&step());
            let steps: [&dyn Fn() -> bool; 2] = [&|| step() == 1, &|| step() == 2];
            assert!(finds(&file, clock, may_enter, steps), "{at:?}");
        }
    }
}
