//! Directories of experiments: beside the containers of their user.

use std::io;

use lorentz_container::{ServiceDir, StateDir};

use crate::fault::Refusal;

const FOLDER: &str = ".experiments";

/// The place of the experiment `name`, which need not exist.
pub(crate) fn of(state: &StateDir, name: &str) -> Result<ServiceDir, Refusal> {
    ServiceDir::of(state, FOLDER, name).ok_or_else(|| Refusal::WrongName(name.to_string()))
}

/// Lists the existing experiments, by name.
pub(crate) fn all(state: &StateDir) -> io::Result<Vec<String>> {
    ServiceDir::all(state, FOLDER)
}
