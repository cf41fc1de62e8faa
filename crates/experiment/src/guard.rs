//! Recovery of containers whose experiment has died: a guard process thaws them after some time.
//!
//! The guard only waits for the end of the experiment's process. If that process dies without removing the experiment, the guard
//! waits [`ORPHAN_RELEASE_DELAY`], so that people can look at the frozen containers. Then it lets the containers go on.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_clock::VirtualInstant;
use lorentz_container::{start_in_background, ServiceDir, StateDir, StateError};

use crate::directory;

/// Time that containers stand still after the experiment's process has died.
pub const ORPHAN_RELEASE_DELAY: Duration = Duration::from_secs(10);

/// Starts the guard of the calling process. The caller is the process of the experiment `name` and has one thread only.
pub(crate) fn start(state: &StateDir, name: &str) -> anyhow::Result<()> {
    let (mine, end) = UnixStream::pair()?;
    let directory = directory::of_experiment(state, name)?;
    let own = File::open(directory.file(""))?;
    start_in_background(&[end.as_fd(), own.as_fd()], |ready| {
        ready.done();
        // Returns when the other end is closed: only the end of the experiment's process closes it.
        let _ = (&end).read(&mut [0]);
        let died = Instant::now();
        while is_there(&directory, &own) {
            if died.elapsed() >= ORPHAN_RELEASE_DELAY {
                return release(state, name);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    })?;
    // This end stays open as long as this process lives.
    std::mem::forget(mine);
    Ok(())
}

/// Whether the path of `directory` still leads to `own`. A later experiment of the same name has a directory of its own there, and
/// the number of one that is open is not given away.
fn is_there(directory: &ServiceDir, own: &File) -> bool {
    let place = |found: Metadata| (found.dev(), found.ino());
    let now = fs::metadata(directory.file("")).map(place);
    now.is_ok() && now.ok() == own.metadata().map(place).ok()
}

/// Lets all containers of the experiment `name` go on by themselves, and removes the remains of the experiment. Its process has
/// ended.
///
/// # Errors
///
/// An error if the containers cannot be listed.
pub fn release(state: &StateDir, name: &str) -> anyhow::Result<()> {
    for mut container in state.list()? {
        if container.record().experiment.as_deref() != Some(name) {
            continue;
        }
        // A container that ends meanwhile needs nothing.
        let _ = container.set_experiment(None);
        let clock = container.clock().and_then(|clock| {
            let path = container.clock_path();
            clock.hold().map_err(|error| StateError::File { path, error })
        });
        if let Ok(clock) = clock {
            clock.let_go(clock.rate());
            // A program that waits for its turn to send (send ordering) would wait forever.
            clock.allow_sends_until(VirtualInstant::NEVER);
        }
        if let Some(cgroup) = container.cgroup() {
            cgroup.thaw();
        }
    }
    directory::of_experiment(state, name)?.remove();
    Ok(())
}
