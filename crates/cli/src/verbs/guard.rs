//! `experiment guard`: for a simulator that may die while containers stand still at its word.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use lorentz_container::{start_in_background, StateDir, StateError};
use lorentz_experiment::{Experiment, Phase};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::experiment_args::GuardArgs;

/// Goes into the background, and waits there.
pub fn start(state: StateDir, args: &GuardArgs) -> anyhow::Result<()> {
    let process = process(args.pid)?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let moved_by = Experiment::open(&state, &args.name)?.status()?.pid;
    start_in_background(&[process.as_fd(), input.as_fd()], |ready| {
        ready.done();
        if has_died(&process, &input)? {
            let mut experiment = Experiment::open(&state, &args.name)?;
            let status = experiment.status()?;
            // Not another that has the name by now.
            match status.phase {
                _ if status.pid != moved_by => {}
                _ if args.rm => experiment.end()?,
                Phase::Running | Phase::SettingUp => {}
                _ => experiment.stop()?,
            }
        }
        Ok(())
    })
}

/// Waits for the end of either, which is true, or a line on `input`, which is not.
fn has_died(process: &OwnedFd, input: &File) -> io::Result<bool> {
    let mut ends = [process.as_fd(), input.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    while poll(&mut ends, PollTimeout::NONE)? == 0 {}
    let said_something = ends[1].any() == Some(true);
    Ok(!said_something || (&*input).read(&mut [0])? == 0)
}

/// A hold of process `pid`.
fn process(pid: u32) -> Result<OwnedFd, StateError> {
    // SAFETY: plain numbers.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match raw {
        -1 => Err(StateError::NoProcess(pid)),
        // SAFETY: the call has made it, and nobody else has it.
        raw => Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) }),
    }
}
