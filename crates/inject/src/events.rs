//! The events that a monitor's process waits for: those of descriptors, and signals.

use crate::Result;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::BorrowedFd;

/// Signals that the monitor passes on to the program when somebody sends them to the monitor.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

pub(crate) fn has_happened(fd: &PollFd) -> bool {
    fd.revents().is_some_and(|events| !events.is_empty())
}

/// Whether `event` has happened to `fd`.
pub(crate) fn has_event(fd: BorrowedFd, event: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0].revents().is_some_and(|events| events.contains(event))
}

/// Makes this process a subreaper: orphans stay descendants of the monitor, which may therefore trace them.
pub(crate) fn become_subreaper() {
    // SAFETY: the call concerns only this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

pub(crate) fn open_signalfd() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    FORWARDED.iter().for_each(|signal| set.add(*signal));
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}
