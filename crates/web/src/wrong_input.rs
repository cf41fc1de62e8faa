//! Wrong settings.

/// A setting that cannot be: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongInput(pub String);
