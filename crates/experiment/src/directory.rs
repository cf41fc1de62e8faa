//! Directories of experiments: beside the containers of their user.

use std::io;

use lorentz_container::{ServiceDir, StateDir};

use crate::error::ExperimentRefusal;

/// The directory of the experiment `name`, which need not exist.
pub(crate) fn of_experiment(state: &StateDir, name: &str) -> Result<ServiceDir, ExperimentRefusal> {
    ServiceDir::of_experiment(state, name)
        .ok_or_else(|| ExperimentRefusal::WrongName(name.to_string()))
}

/// Lists the existing experiments, by name.
pub(crate) fn names(state: &StateDir) -> io::Result<Vec<String>> {
    ServiceDir::all_experiments(state)
}
