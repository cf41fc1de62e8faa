//! The right to change a clock: an flock on the clock's file. The kernel releases the lock of a process that dies.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::change_pipe;
use crate::host_time::{sleep, HostMoment};

/// After so long a notice names the process that has the lock.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// A change takes some 10 us, or 2 ms if it waits for timers.
const RETRY_INTERVAL: Duration = Duration::from_micros(200);

/// The lock of a clock. Until it is dropped no signal but SIGKILL ends this process.
pub(crate) struct ClockLock {
    // Dropped in this order: a monitor that the pipe wakes finds the lock free.
    _file: Flock<File>,
    _signals: SignalsBlocked,
    _changes: Option<File>,
}

static NOTICE: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that prints one line when another process has kept a clock's lock for a second. Only the first call counts.
pub fn on_busy_clock(say: fn(&str)) {
    let _ = NOTICE.set(say);
}

impl ClockLock {
    /// Waits for the lock of the clock at `path`, at most 10 s.
    ///
    /// # Errors
    ///
    /// If the file is gone. `TimedOut` if another process keeps the lock; the error names that process.
    pub(crate) fn take(path: &Path) -> io::Result<ClockLock> {
        let begun = HostMoment::now();
        let mut noticed = false;
        // Before the lock: whatever happens to this process from here on, a monitor looks after the clock.
        let changes = change_pipe::hold(path);
        loop {
            if let Some(lock) = ClockLock::try_take(path)? {
                return Ok(ClockLock { _changes: changes, ..lock });
            }
            let waited = begun.elapsed();
            if waited > LOCK_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, busy(path)));
            }
            if waited > NOTICE_AFTER && !noticed {
                noticed = true;
                if let Some(say) = NOTICE.get() {
                    say(&format!("{}; waiting", busy(path)));
                }
            }
            sleep(RETRY_INTERVAL);
        }
    }

    /// Takes the lock, if no process has it; `None` otherwise.
    ///
    /// # Errors
    ///
    /// If the file is gone.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<ClockLock>> {
        let file = OpenOptions::new().write(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                let signals = SignalsBlocked::new()?;
                Ok(Some(ClockLock { _file: lock, _signals: signals, _changes: None }))
            }
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }
}

fn busy(path: &Path) -> String {
    match holder(path) {
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({}) is changing this clock", name.trim())
        }
        None => "another process is changing this clock".to_string(),
    }
}

/// Returns the process that has the lock, by /proc/locks. It took the lock, or inherited it.
fn holder(path: &Path) -> Option<u32> {
    let metadata = fs::metadata(path).ok()?;
    let device = metadata.dev();
    let file =
        format!("{:02x}:{:02x}:{}", libc::major(device), libc::minor(device), metadata.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK ADVISORY WRITE 4711 00:1a:1234 0 EOF
    let words = |line: &str| line.split_ascii_whitespace().map(str::to_string).collect::<Vec<_>>();
    let found = locks.lines().map(words).find(|words| {
        words.get(1).is_some_and(|kind| kind == "FLOCK") && words.get(5) == Some(&file)
    });
    found?.get(4)?.parse().ok().filter(|pid| *pid > 0)
}

/// Blocks all signals in this thread until it is dropped.
struct SignalsBlocked(SigSet);

impl SignalsBlocked {
    fn new() -> io::Result<SignalsBlocked> {
        Ok(SignalsBlocked(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?))
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let _ = self.0.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_taken_names_its_holder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.path()), None);
        let lock = ClockLock::take(file.path()).unwrap();
        assert!(ClockLock::try_take(file.path()).unwrap().is_none());
        assert_eq!(holder(file.path()), Some(std::process::id()));
        let message = busy(file.path());
        assert!(message.contains(&format!("process {} (", std::process::id())), "{message}");
        drop(lock);
        assert!(ClockLock::try_take(file.path()).unwrap().is_some());
    }
}
