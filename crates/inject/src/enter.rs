//! How a process that somebody else has made becomes a program on a clock: by itself, under the care of a monitor that
//! runs already.

use crate::{door, filter, launch, Error, Profile, Result};
use lorentz_clock::Policy;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The calling process, in front of the monitor's door.
pub struct Entrance {
    door: UnixStream,
    policy: Policy,
}

/// The calling process under the filter: all that is left to do is to execute its program. Trapped calls end it, for
/// there is no handler yet.
pub struct Entered(());

impl Entrance {
    /// At `door`, onto a clock of this policy.
    pub fn new(door: UnixStream, policy: Policy) -> Entrance {
        Entrance { door, policy }
    }

    /// Installs the filter and hands in its listener.
    ///
    /// # Errors
    ///
    /// A kernel that refuses; a monitor that is gone. Then nothing may be executed.
    pub fn enter(&self) -> Result<Entered> {
        let listener = filter::install(self.policy)?;
        door::hand_in_listener(&self.door, listener.as_fd())?;
        Ok(Entered(()))
    }
}

impl Entered {
    /// Puts the sandbox on that was chosen for the program.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses it.
    pub fn confine(&self, profile: &Profile) -> Result<()> {
        profile
            .install_inside()
            .map_err(|error| Error::System("installing the seccomp profile", error))
    }

    /// Becomes `program`.
    ///
    /// # Errors
    ///
    /// Where it cannot be executed.
    pub fn execute(
        self,
        program: &CStr,
        words: &[CString],
        variables: &[CString],
    ) -> Result<Infallible> {
        launch::execute(program, words, variables);
        Err(Error::NotExecutable(program.to_owned(), io::Error::last_os_error()))
    }
}
