//! The exceptions of the package.

use lorentz_embed::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(lorentz, LorentzError, PyException, "Something that Lorentz could not do.");
create_exception!(lorentz, WrongInputError, LorentzError, "A value that cannot be.");
create_exception!(
    lorentz,
    NotFoundError,
    LorentzError,
    "No such container, process or experiment."
);
create_exception!(
    lorentz,
    RefusedError,
    LorentzError,
    "Not now, or not to this one; nothing has changed."
);
create_exception!(lorentz, EndedError, LorentzError, "The process of the experiment has ended.");
create_exception!(lorentz, FailedError, LorentzError, "The machine or the kernel would not.");

/// An error that becomes a Python exception.
pub struct Raised(Error);

impl From<Error> for Raised {
    fn from(error: Error) -> Raised {
        Raised(error)
    }
}

impl From<Raised> for PyErr {
    fn from(Raised(Error { kind, text }): Raised) -> PyErr {
        match kind {
            ErrorKind::WrongInput => WrongInputError::new_err(text),
            ErrorKind::NotFound => NotFoundError::new_err(text),
            ErrorKind::Refused => RefusedError::new_err(text),
            ErrorKind::Ended => EndedError::new_err(text),
            ErrorKind::Failed => FailedError::new_err(text),
        }
    }
}

/// The result of a function of the module.
pub type NativeResult<T> = Result<T, Raised>;
