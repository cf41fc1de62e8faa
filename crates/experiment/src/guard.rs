//! What becomes of containers whose experiment has died: after a while they go on by themselves.
//!
//! The guard is a process that only waits for the end of the experiment's. Where that comes without a word, it gives people
//! some time to look at what stands still, and then lets go of it.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_clock::VirtualInstant;
use lorentz_container::{start_in_background, StateDir, StateError};

use crate::place;

/// How long containers stand still after the experiment's process has died.
pub const ORPHANED_FOR: Duration = Duration::from_secs(10);

/// Starts the guard of the calling process, which is that of the experiment `name` and has one thread only.
pub(crate) fn start(state: &StateDir, name: &str) -> anyhow::Result<()> {
    let (mine, end) = UnixStream::pair()?;
    start_in_background(&[end.as_fd()], |ready| {
        ready.done();
        // Until the other end is closed, which only the end of that process does.
        let _ = (&end).read(&mut [0]);
        let died = Instant::now();
        let place = place::of(state, name)?;
        while place.exists() && died.elapsed() < ORPHANED_FOR {
            sleep(Duration::from_millis(50));
        }
        if place.exists() {
            release(state, name)?;
        }
        Ok(())
    })?;
    // Open as long as this process lives.
    std::mem::forget(mine);
    Ok(())
}

/// Lets go of all containers of the experiment `name`, whose process has ended, and clears what is left of it.
///
/// # Errors
///
/// Where the containers cannot be listed.
pub fn release(state: &StateDir, name: &str) -> anyhow::Result<()> {
    for mut container in state.list()? {
        if container.record().experiment.as_deref() != Some(name) {
            continue;
        }
        // One that ends meanwhile needs nothing.
        let _ = container.set_experiment(None);
        let clock = container.clock().and_then(|clock| {
            let path = container.clock_path();
            clock.hold().map_err(|error| StateError::File { path, error })
        });
        if let Ok(clock) = clock {
            clock.let_go(clock.rate());
            // A program that waits for its turn to send would wait for ever.
            clock.set_turn(VirtualInstant::NEVER);
        }
        if let Some(cgroup) = container.cgroup() {
            cgroup.thaw();
        }
    }
    place::of(state, name)?.remove();
    Ok(())
}
