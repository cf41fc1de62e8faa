//! For the case that this process dies while containers stand still at its word.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::command::Command;
use crate::fault::Result;

/// A `lorentz experiment guard` in the background. It waits for the end of this process, or of this value: then it lets the
/// containers go. It is no child of this process, which may wait for its own.
pub(crate) struct Guard {
    line: UnixStream,
    /// It ends the experiment too, and whatever state that is in.
    pub ends: bool,
}

impl Guard {
    /// Starts one for the experiment `name`.
    ///
    /// # Errors
    ///
    /// Where the command cannot be run.
    pub fn start(name: &str, ends: bool) -> Result<Guard> {
        let (mine, its) = UnixStream::pair()?;
        let guard = Command::new("experiment")?.arg("guard").arg(name).switch("--rm", ends);
        let guard = guard.flag("--pid", Some(std::process::id()));
        guard.stdin(OwnedFd::from(its)).call()?;
        Ok(Guard { line: mine, ends })
    }

    /// There is nothing to be let go any more.
    pub fn dismiss(mut self) {
        // One that has been killed needs no word.
        let _ = self.line.write_all(b"\n");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Not only closed: processes that were forked meanwhile have it open too.
        let _ = self.line.shutdown(Shutdown::Both);
    }
}
