//! Freezing: time stands still, and so do the tasks where there is a control group to stop them.
//!
//! The clock is first in both directions. A task that runs on for a moment then sees time that stands still,
//! never a stop it could measure; a task that is let go finds time running.

use crate::followers::BrokenOff;
use crate::{Container, Followed, StateError};

/// Freezes `container` and every other on its clock. Twice does no harm.
///
/// # Errors
///
/// Where the clock cannot be written or its containers cannot be listed.
pub fn freeze(container: &Container) -> Result<Followed, StateError> {
    let clock = container.clock_to_change()?;
    let followed = clock.freeze().map_err(|error| clock_error(container, error))?;
    // A timer that is still set when its process is stopped would go off when it is let go.
    clock.settle();
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
    Ok(followed)
}

/// Lets `container` and every other on its clock go on. Twice does no harm.
///
/// # Errors
///
/// As [`freeze`].
pub fn unfreeze(container: &Container) -> Result<Followed, StateError> {
    let clock = container.clock_to_change()?;
    let followed = clock.unfreeze().map_err(|error| clock_error(container, error))?;
    for one in container.sharing_its_clock()? {
        if let Some(cgroup) = one.cgroup() {
            cgroup.thaw();
        }
    }
    clock.settle();
    Ok(followed)
}

fn clock_error(container: &Container, error: std::io::Error) -> StateError {
    StateError::File { path: container.clock_path(), error }
}
