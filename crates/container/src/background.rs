//! Processes that go on in the background.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;

use nix::unistd::{fork, pipe, setsid, ForkResult};

/// Runs `work` in a process and a session of its own. Returns when it has dropped what it is given, or has ended. The caller
/// must have one thread only.
///
/// # Errors
///
/// Where no process can be made. What `work` returns stays there.
pub fn start(work: impl FnOnce(OwnedFd) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (ready, tell) = pipe()?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => {
            drop(tell);
            let _ = nix::unistd::read(&ready, &mut [0]);
            Ok(())
        }
        ForkResult::Child => {
            drop(ready);
            let _ = setsid();
            let status = match work(tell) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            // SAFETY: ends this process; nothing of the parent's is to be run again.
            unsafe { libc::_exit(status) }
        }
    }
}

/// A pipe that the caller reads to its end must not be kept open by who only looks after others.
///
/// # Errors
///
/// Where there is no /dev/null.
pub fn close_standard_streams() -> anyhow::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}
