//! What can go wrong while a program is brought into virtual time.

use std::ffi::CString;
use std::io;

/// Why a program could not be brought into virtual time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command does not exist.
    #[error("{}: command not found", .0.to_string_lossy())]
    NotFound(CString),
    /// The command exists and cannot be executed.
    #[error("{}: {}", .0.to_string_lossy(), .1)]
    NotExecutable(CString, io::Error),
    /// A system call failed that has to work; the text says which, and what it needs.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// The process cannot be brought in; the text says why.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The last system call's error, as the failure of `what`.
    pub(crate) fn last(what: &'static str) -> Error {
        Error::System(what, io::Error::last_os_error())
    }
}

impl From<nix::Error> for Error {
    fn from(error: nix::Error) -> Error {
        Error::System("system call", io::Error::from(error))
    }
}
