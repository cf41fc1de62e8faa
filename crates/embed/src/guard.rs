//! Protection against the death of this process while containers stand still because of it.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::command::LorentzCommand;
use crate::error::Result;

/// A `lorentz experiment guard` in the background. It waits for the end of this process, or of this value, and then releases the
/// containers. It is not a child of this process, because this process may wait for its own children.
pub(crate) struct Guard {
    line: UnixStream,
    /// Whether the guard ends the experiment too, whatever state the experiment is in.
    pub ends: bool,
}

impl Guard {
    /// Starts a guard for the experiment `name`.
    ///
    /// # Errors
    ///
    /// The command cannot be run.
    pub fn start(name: &str, ends: bool) -> Result<Guard> {
        let (mine, its) = UnixStream::pair()?;
        let guard = LorentzCommand::new("experiment")?.arg("guard").arg(name).switch("--rm", ends);
        let guard = guard.flag("--pid", Some(std::process::id()));
        guard.stdin(OwnedFd::from(its)).call()?;
        Ok(Guard { line: mine, ends })
    }

    /// Ends the guard, which has nothing to release any more.
    pub fn dismiss(mut self) {
        // A guard that was killed needs no message.
        let _ = self.line.write_all(b"\n");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Shut the socket down instead of only closing it: processes that were forked meanwhile have it open too.
        let _ = self.line.shutdown(Shutdown::Both);
    }
}
