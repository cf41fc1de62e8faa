//! A process that lets a container go on when the process that checkpoints it has been killed.
//!
//! The checkpointing process and CRIU hold a pipe. The guard acts when both have ended: CRIU takes its own code out of the programs
//! before it ends.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use lorentz_container::{close_standard_streams, keep_only, start_process};
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};

/// Runs its action when the process that holds it is killed.
pub struct Guard {
    pipe: OwnedFd,
}

const DONE: &[u8] = b"d";

impl Guard {
    /// Starts the guard. It calls `act` if this process ends without [`Guard::disarm`].
    pub fn start(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Guard> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        start_process(|ready| {
            keep_only(&[ready.as_fd(), reader.as_fd()]);
            close_standard_streams()?;
            drop(ready);
            match read(&reader, &mut [0]) {
                Ok(0) => act(),
                _ => Ok(()),
            }
        })?;
        Ok(Guard { pipe: writer })
    }

    /// The descriptor that CRIU is to hold too.
    pub fn fd(&self) -> i32 {
        self.pipe.as_raw_fd()
    }

    /// Ends the guard.
    pub fn disarm(self) {
        let _ = write(&self.pipe, DONE);
    }
}
