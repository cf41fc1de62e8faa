//! Processes that go on in the background.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::OFlag;
use nix::unistd::{fork, pipe2, setsid, ForkResult};

/// Runs `work` in a process and a session of its own. Returns when it has dropped what it is given, has written to it, or has ended. The caller
/// must have one thread only.
///
/// # Errors
///
/// Where no process can be made. What `work` returns stays there.
pub fn start(work: impl FnOnce(OwnedFd) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // Programs that `work` starts must not keep it open.
    let (ready, tell) = pipe2(OFlag::O_CLOEXEC)?;
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

/// As [`start`], for a process that has nothing of its parent's but the descriptors in `kept`. Returns when `work` says
/// that it is ready.
///
/// # Errors
///
/// Where no process can be made; what `work` has failed by, before it was ready.
pub fn start_in_background(
    kept: &[BorrowedFd],
    work: impl FnOnce(&Ready) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (said, say) = UnixStream::pair()?;
    start(|tell| {
        close_standard_streams()?;
        let kept: Vec<BorrowedFd> =
            kept.iter().copied().chain([tell.as_fd(), say.as_fd()]).collect();
        keep_only(&kept);
        let ready = Ready { tell, say };
        work(&ready).inspect_err(|error| ready.failed(error))
    })?;
    let mut why = String::new();
    said.set_nonblocking(true)?;
    // The rest of it never comes, where the process goes on.
    let _ = (&said).read_to_string(&mut why);
    anyhow::ensure!(why.is_empty(), why);
    Ok(())
}

/// How a process in the background tells who has started it that it is ready, or why not.
pub struct Ready {
    tell: OwnedFd,
    say: UnixStream,
}

impl Ready {
    /// It is. A word, and not the end of the pipe: programs that wait to be executed keep that open.
    pub fn done(&self) {
        // Nobody may be there any more to hear it.
        let _ = nix::unistd::write(&self.tell, &[1]);
    }

    /// Something has gone wrong. To be said before `done`.
    pub fn failed(&self, error: &anyhow::Error) {
        let _ = (&self.say).write_all(format!("{error:#}").as_bytes());
    }
}

/// Closes what this process has inherited, all but the standard streams and `kept`: somebody may wait for the end of a
/// pipe whose other end is among them.
pub fn keep_only(kept: &[BorrowedFd]) {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut from = 3;
    for number in numbers.into_iter().chain([u32::MAX]) {
        if number > from {
            // SAFETY: nothing of this process but `kept` is used from here on.
            unsafe { libc::syscall(libc::SYS_close_range, from, number - 1, 0) };
        }
        from = number.saturating_add(1);
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
