//! Containers that run, but that this state directory does not have.

use lorentz_control::processes;

use crate::StateError;

/// Returns `error`, or a better one for a container that runs and is not found. Then its clock is in another directory, or its
/// directory was deleted.
pub(super) fn explain_missing(text: &str, error: StateError) -> StateError {
    match error {
        StateError::Unknown(_) | StateError::NotInside(_) => find_elsewhere(text).unwrap_or(error),
        error => error,
    }
}

fn find_elsewhere(text: &str) -> Option<StateError> {
    let clocks = processes::all().ok()?.into_iter().filter_map(|process| {
        let clock = processes::clock_of(process.pid)?;
        let dir = clock.path().parent()?.to_path_buf();
        let named = dir.file_name().is_some_and(|name| name == text);
        (named || process.pid.to_string() == text).then_some((process.pid, clock, dir))
    });
    let clocks: Vec<_> = clocks.collect();
    let (pid, clock, dir) = clocks.first()?;
    let name = text.to_string();
    if clock.is_deleted() {
        let of_same = clocks.iter().filter(|(_, other, _)| other.is_same(clock));
        let pids: Vec<String> = of_same.map(|(pid, ..)| pid.to_string()).collect();
        return Some(StateError::Deleted { name, pids: pids.join(" ") });
    }
    Some(StateError::Elsewhere { name, dir: dir.clone(), pid: *pid })
}
