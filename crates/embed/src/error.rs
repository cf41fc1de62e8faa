//! Errors, one line each, of five kinds that every interface distinguishes.

use lorentz_container::{AttachRefused, StateError};
use lorentz_control::WrongOption;
use lorentz_experiment::{ExperimentRefusal, Refused};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error. After one of the first four, nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A value is not valid.
    WrongInput,
    /// There is no such container, process or experiment.
    NotFound,
    /// The call is not permitted now, or not for this container: a wrong order of calls, or another experiment moves it.
    Refused,
    /// The process of the experiment has ended.
    Ended,
    /// The machine or the kernel could not do it.
    Failed,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// One line that says what was given and what is accepted.
    pub text: String,
}

impl Error {
    /// Makes an error of this kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into().split_whitespace().collect::<Vec<_>>().join(" ") }
    }

    /// Makes an error of a value that is not valid.
    pub fn wrong_input(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::WrongInput, text)
    }

    /// Makes an error of the machine or the kernel.
    pub fn failed(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Failed, text)
    }
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Error {
        let kind = match &error {
            StateError::File { .. } => ErrorKind::Failed,
            StateError::WrongName { .. } | StateError::Untrusted { .. } => ErrorKind::WrongInput,
            StateError::Unknown(_)
            | StateError::Misspelt { .. }
            | StateError::NoProcess(_)
            | StateError::NotInside(_) => ErrorKind::NotFound,
            _ => ErrorKind::Refused,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<AttachRefused> for Error {
    fn from(error: AttachRefused) -> Error {
        let kind = match &error {
            AttachRefused::Gone(_) => ErrorKind::NotFound,
            _ => ErrorKind::Refused,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<WrongOption> for Error {
    fn from(error: WrongOption) -> Error {
        Error::wrong_input(error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::failed(error.to_string())
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Error {
        let text = format!("{error:#}");
        let error = match error.downcast::<StateError>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        let kind =
            match (error.downcast_ref::<ExperimentRefusal>(), error.downcast_ref::<Refused>()) {
                (Some(ExperimentRefusal::Unknown(_)), _) => ErrorKind::NotFound,
                (Some(ExperimentRefusal::Dead(_)), _) => ErrorKind::Ended,
                (Some(_), _) => ErrorKind::WrongInput,
                (_, Some(refused)) if refused.wrong_input => ErrorKind::Refused,
                _ => ErrorKind::Failed,
            };
        Error::new(kind, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let kind = |error: anyhow::Error| Error::from(error).kind;
        assert_eq!(kind(StateError::Unknown("web".into()).into()), ErrorKind::NotFound);
        assert_eq!(kind(StateError::SharedClock("web".into()).into()), ErrorKind::Refused);
        assert_eq!(kind(ExperimentRefusal::Unknown("lab".into()).into()), ErrorKind::NotFound);
        assert_eq!(kind(ExperimentRefusal::Dead("lab".into()).into()), ErrorKind::Ended);
        let refused = |wrong_input| Refused { why: "no".into(), wrong_input };
        assert_eq!(kind(refused(true).into()), ErrorKind::Refused);
        assert_eq!(kind(refused(false).into()), ErrorKind::Failed);
        assert_eq!(Error::from(AttachRefused::Gone(7)).kind, ErrorKind::NotFound);
        assert_eq!(Error::wrong_input("a\n  b").text, "a b");
    }
}
