//! Entering a clock from inside: a process that another program has created becomes a program on a clock. A monitor that
//! already runs supervises it.

use crate::{filter, launch, profile, registration, Error, Profile, Result};
use lorentz_clock::Policy;
use lorentz_shim::filter::Extra;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The calling process, connected to the monitor's registration socket.
pub struct SelfRegistration {
    socket: UnixStream,
    policy: Policy,
}

/// The calling process under the filter. The only thing left to do is to execute its program: a trapped call ends the process,
/// for there is no handler yet.
pub struct FilteredProcess(());

impl SelfRegistration {
    /// Makes the registration through `socket` with a clock of this policy.
    pub fn new(socket: UnixStream, policy: Policy) -> SelfRegistration {
        SelfRegistration { socket, policy }
    }

    /// Installs the filter and sends its listener to the monitor.
    ///
    /// # Errors
    ///
    /// The kernel refuses the filter, or the monitor is gone. The process must not execute a program then.
    pub fn register(&self) -> Result<FilteredProcess> {
        let listener = filter::install(self.policy)?;
        registration::register_listener(&self.socket, listener.as_fd())?;
        Ok(FilteredProcess(()))
    }
}

impl FilteredProcess {
    /// Installs the seccomp profile that was chosen for the program.
    ///
    /// # Errors
    ///
    /// The kernel refuses the profile.
    pub fn confine(&self, profile: &Profile) -> Result<()> {
        profile
            .install_inside()
            .map_err(|error| Error::System("installing the seccomp profile", error))
    }

    /// Has capset(2) give the program those of the capabilities it asks for that it may have. This process must not call it any more.
    ///
    /// # Errors
    ///
    /// The kernel refuses the filter.
    pub fn narrow_capset(&self) -> Result<()> {
        profile::trap_too(Extra::Capabilities)
            .map_err(|error| Error::System("installing the filter for capset", error))
    }

    /// Executes `program`. Returns only on failure.
    ///
    /// # Errors
    ///
    /// The kernel cannot execute the program.
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
