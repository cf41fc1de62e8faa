//! Freezing: time stands still, and so do the tasks where there is a control group to stop them.
//!
//! The clock is first in both directions. A task that runs on for a moment then sees time that stands still,
//! never a stop it could measure; a task that is let go finds time running.

use lorentz_clock::RealInstant;

use crate::changing::ClockChange;
use crate::followers::BrokenOff;
use crate::processes;
use crate::{Clock, Container, Followed, StateError};

/// Freezes `container` and every other on its clock. Twice does no harm.
///
/// # Errors
///
/// Where the clock cannot be written or its containers cannot be listed; where the caller is one of those that would stop.
pub fn freeze(container: &Container) -> Result<Followed, StateError> {
    refuse_for_oneself(container)?;
    let clock = container.clock_to_change()?;
    let followed = clock.freeze().map_err(|error| clock_error(container, error))?;
    // A timer that is still set when its process is stopped would go off when it is let go.
    clock.settle();
    stop_tasks(container, &clock)?;
    Ok(followed)
}

/// The same when the host's CLOCK_MONOTONIC shows `at`. The container's monitor stops the tasks then.
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_at(container: &Container, at: RealInstant) -> Result<Followed, StateError> {
    refuse_for_oneself(container)?;
    let clock = container.clock_to_change()?;
    clock.change(ClockChange::Freeze, Some(at)).map_err(|error| clock_error(container, error))
}

/// Lets `container` and every other on its clock go on. Twice does no harm.
///
/// # Errors
///
/// As [`freeze`].
pub fn unfreeze(container: &Container) -> Result<Followed, StateError> {
    let clock = container.clock_to_change()?;
    let followed = clock.unfreeze().map_err(|error| clock_error(container, error))?;
    let_tasks_go(container)?;
    clock.settle();
    Ok(followed)
}

/// Has the tasks stand still or go on as their clock does, where that has changed by itself.
pub(crate) fn follow_clock(container: &Container, clock: &Clock) -> Result<(), StateError> {
    if clock.is_frozen() {
        stop_tasks(container, clock)?;
        // Somebody may have let time go on meanwhile.
        if clock.is_frozen() {
            return Ok(());
        }
    }
    let_tasks_go(container)
}

fn stop_tasks(container: &Container, clock: &Clock) -> Result<(), StateError> {
    let waiting = clock.waiting();
    for one in container.sharing_its_clock()? {
        if let Some(cgroup) = one.cgroup() {
            let broken_off = BrokenOff::look(&cgroup.pids().unwrap_or_default(), &waiting);
            // One that has just ended has no group to freeze, and a task held by the kernel stops as soon as
            // it returns from there: time stands still for it already.
            let _ = cgroup.freeze();
            broken_off.tell();
        }
    }
    Ok(())
}

fn let_tasks_go(container: &Container) -> Result<(), StateError> {
    for one in container.sharing_its_clock()? {
        if let Some(cgroup) = one.cgroup() {
            cgroup.thaw();
        }
    }
    Ok(())
}

/// A command that runs on the clock which it stops would stop itself, and nobody would let it go on.
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
