//! Processes that go on in the background.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::OFlag;
use nix::unistd::{fork, pipe2, setsid, ForkResult};

/// Runs `work` in a new process with a session of its own. Returns when `work` has dropped the descriptor that it receives, has
/// written to it, or has ended. The caller must have one thread only.
///
/// # Errors
///
/// If no process can be made. The caller does not see the errors of `work`, nor that its process was killed.
pub fn start(work: impl FnOnce(OwnedFd) -> anyhow::Result<()>) -> anyhow::Result<()> {
    start_and_hear(work).map(drop)
}

/// As [`start`]. Returns whether `work` has written to the descriptor.
fn start_and_hear(work: impl FnOnce(OwnedFd) -> anyhow::Result<()>) -> anyhow::Result<bool> {
    // Close-on-exec: programs that `work` starts must not keep the pipe open.
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => {
            drop(writer);
            Ok(File::from(reader).read_exact(&mut [0]).is_ok())
        }
        ForkResult::Child => {
            drop(reader);
            let _ = setsid();
            let status = match work(writer) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            // SAFETY: ends this process. Nothing of the parent's may run again here.
            unsafe { libc::_exit(status) }
        }
    }
}

/// As [`start`], for a process that keeps only the descriptors in `kept` of its parent's. Returns when `work` calls
/// [`Ready::done`].
///
/// # Errors
///
/// If no process can be made, or `work` has failed, or was killed, before it was ready.
pub fn start_in_background(
    kept: &[BorrowedFd],
    work: impl FnOnce(&Ready) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (error_reader, error_writer) = UnixStream::pair()?;
    let is_ready = start_and_hear(|pipe| {
        close_standard_streams()?;
        let kept: Vec<BorrowedFd> =
            kept.iter().copied().chain([pipe.as_fd(), error_writer.as_fd()]).collect();
        keep_only(&kept);
        let ready = Ready { pipe, error_writer };
        work(&ready).inspect_err(|error| ready.failed(error))
    })?;
    let mut why = String::new();
    error_reader.set_nonblocking(true)?;
    // If the process goes on, nothing more comes.
    let _ = (&error_reader).read_to_string(&mut why);
    anyhow::ensure!(why.is_empty(), why);
    anyhow::ensure!(is_ready, "its process in the background was killed before it was ready");
    Ok(())
}

/// The means of a process in the background to report to its starter that it is ready, or why not.
pub struct Ready {
    pipe: OwnedFd,
    error_writer: UnixStream,
}

impl Ready {
    /// Reports that the process is ready. Writes a byte and does not rely on the end of the pipe, which programs that wait for
    /// their exec keep open.
    pub fn done(&self) {
        // The starter may have ended.
        let _ = nix::unistd::write(&self.pipe, &[1]);
    }

    /// Reports an error. Call it before `done`.
    pub fn failed(&self, error: &anyhow::Error) {
        let _ = (&self.error_writer).write_all(format!("{error:#}").as_bytes());
    }
}

/// Closes all descriptors that this process has inherited, except the standard streams and `kept`. Another process may wait for the
/// end of a pipe whose other end is among them.
pub fn keep_only(kept: &[BorrowedFd]) {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut from = 3;
    for number in numbers.into_iter().chain([u32::MAX]) {
        if number > from {
            // SAFETY: from here on this process uses no descriptors but `kept` and the standard streams.
            unsafe { libc::syscall(libc::SYS_close_range, from, number - 1, 0) };
        }
        from = number.saturating_add(1);
    }
}

/// Closes the descriptors that this process was started with, except the standard streams. All others are close-on-exec.
///
/// # Errors
///
/// If there is no /proc.
pub fn close_inherited() -> std::io::Result<()> {
    const STREAMS: i32 = 3;
    let entries = std::fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let open: Vec<i32> = numbers.filter(|fd| *fd >= STREAMS).collect();
    for fd in open {
        // SAFETY: a number in. The directory's own is closed by now.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: nothing in this process has opened it.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// Redirects the standard streams to /dev/null. A pipe that the caller reads to its end must not be kept open by a process that
/// only supervises others.
///
/// # Errors
///
/// If there is no /dev/null.
pub fn close_standard_streams() -> anyhow::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}
