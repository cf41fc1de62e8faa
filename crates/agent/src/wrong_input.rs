//! Wrong input, which the command refuses with status 2.

/// One line that names the flag or name, its value and the accepted values.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongInput(pub String);
