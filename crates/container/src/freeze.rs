//! Freezing a container: stops the clock, and the tasks too if there is a control group to stop them.

use lorentz_clock::RealInstant;
use lorentz_control::{processes, Cgroup, ChangeCounts, Clock, ClockChange};

use crate::{Container, StateError};

/// Freezes `container` and every other container on its clock. A second call does no harm.
///
/// # Errors
///
/// If the clock cannot be written, its containers cannot be listed, or the caller itself would stop.
pub fn freeze(container: &Container) -> Result<ChangeCounts, StateError> {
    refuse_for_oneself(container)?;
    let clock = container.clock_to_change()?;
    let groups = groups(container)?;
    let stopped_before =
        !groups.is_empty() && groups.iter().all(|group| group.is_frozen().unwrap_or(false));
    let followed = clock.freeze().map_err(|error| clock_error(container, error))?;
    // If a timer were still set when its process stops, it would go off when the process goes on. Tasks that are stopped already
    // cannot answer.
    if !stopped_before {
        clock.quiesce();
    }
    lorentz_control::stop_tasks(&clock, &groups);
    Ok(followed)
}

/// As [`freeze`], when the host's CLOCK_MONOTONIC shows `at`. The container's monitor stops the tasks then.
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_at(container: &Container, at: RealInstant) -> Result<ChangeCounts, StateError> {
    refuse_for_oneself(container)?;
    let clock = container.clock_to_change()?;
    clock.change(ClockChange::Freeze, Some(at)).map_err(|error| clock_error(container, error))
}

/// Lets `container` and every other container on its clock go on. A second call does no harm.
///
/// # Errors
///
/// As [`freeze`].
pub fn unfreeze(container: &Container) -> Result<ChangeCounts, StateError> {
    let clock = container.clock_to_change()?;
    // Before time goes on: a container that was started frozen may run to its end then.
    let groups = groups(container)?;
    let followed = clock.unfreeze().map_err(|error| clock_error(container, error))?;
    lorentz_control::let_tasks_go(&groups);
    clock.quiesce();
    Ok(followed)
}

/// Stops the tasks or lets them go on, as their clock does after an announced change has begun.
pub(crate) fn follow_clock(container: &Container, clock: &Clock) -> Result<(), StateError> {
    if clock.is_frozen() {
        stop_tasks(container, clock)?;
        // A controller may have let time go on in between.
        if clock.is_frozen() {
            return Ok(());
        }
    }
    let_tasks_go(container)
}

fn stop_tasks(container: &Container, clock: &Clock) -> Result<(), StateError> {
    lorentz_control::stop_tasks(clock, &groups(container)?);
    Ok(())
}

fn let_tasks_go(container: &Container) -> Result<(), StateError> {
    lorentz_control::let_tasks_go(&groups(container)?);
    Ok(())
}

/// Returns the control groups of all containers on the clock of `container`.
fn groups(container: &Container) -> Result<Vec<Cgroup>, StateError> {
    Ok(container.sharing_its_clock()?.iter().filter_map(Container::cgroup).collect())
}

/// Refuses to freeze the clock that the calling command itself is on: the command would stop, and nobody would let it go on.
fn refuse_for_oneself(container: &Container) -> Result<(), StateError> {
    let own = processes::clock_of(std::process::id());
    match own.is_some_and(|own| container.is_on(&own)) {
        true => Err(StateError::FreezesItself(container.name().to_string())),
        false => Ok(()),
    }
}

fn clock_error(container: &Container, error: std::io::Error) -> StateError {
    StateError::File { path: container.clock_path(), error }
}
