//! How the time for which a container's tasks compute counts on its clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the time for which a container's tasks compute counts on its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeTime {
    /// The clock runs at the container's rate while tasks run.
    #[default]
    Real,
    /// The clock stands while tasks run. When all of them sleep, it goes to the next deadline: programs see the same instants in
    /// every run, however fast the machine is.
    None,
}

/// A text that is no [`ComputeTime`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("expected 'real' or 'none'")]
pub struct ComputeTimeError;

impl FromStr for ComputeTime {
    type Err = ComputeTimeError;

    fn from_str(text: &str) -> Result<ComputeTime, ComputeTimeError> {
        match text {
            "real" => Ok(ComputeTime::Real),
            "none" => Ok(ComputeTime::None),
            _ => Err(ComputeTimeError),
        }
    }
}

impl fmt::Display for ComputeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ComputeTime::Real => "real",
            ComputeTime::None => "none",
        })
    }
}
