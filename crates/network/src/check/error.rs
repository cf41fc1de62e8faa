//! Errors of the checks.

use serde_saphyr::Location;

use crate::topology::TopologyError;

/// An error in a topology file, or in a file that it names.
#[derive(Debug)]
pub(super) enum PlanError {
    Here {
        /// The place.
        at: Location,
        /// The error, and the accepted values.
        what: String,
    },
    /// In a mobility script.
    InScript(TopologyError),
}

/// The error `what` at a place of the file.
pub(super) fn refuse<T>(at: Location, what: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Here { at, what: what.into() })
}

/// The first ten of `names`, for a message.
pub(super) fn shown(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
