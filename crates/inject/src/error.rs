//! Errors of bringing a program into virtual time.

use std::ffi::CString;
use std::io;

/// The reason why a program could not be brought into virtual time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command does not exist.
    #[error("{}: command not found", .0.to_string_lossy())]
    NotFound(CString),
    /// The command exists, but the kernel cannot execute it.
    #[error("{}: {}", .0.to_string_lossy(), .1)]
    NotExecutable(CString, io::Error),
    /// A necessary system call failed. The text names the call and its requirements.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// The process cannot be brought in. The text says why.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Makes an error of the last system call's errno, for the failed call `what`.
    pub(crate) fn last(what: &'static str) -> Error {
        Error::System(what, io::Error::last_os_error())
    }
}

impl From<nix::Error> for Error {
    fn from(error: nix::Error) -> Error {
        Error::System("system call", io::Error::from(error))
    }
}
