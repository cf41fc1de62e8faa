//! Where experiments lie: beside the containers of their user.

use std::io;

use lorentz_container::{Place, StateDir};

use crate::fault::Refusal;

const FOLDER: &str = ".experiments";

/// Where the experiment `name` lies, which need not be there.
pub(crate) fn of(state: &StateDir, name: &str) -> Result<Place, Refusal> {
    Place::of(state, FOLDER, name).ok_or_else(|| Refusal::WrongName(name.to_string()))
}

/// Those that are there, by name.
pub(crate) fn all(state: &StateDir) -> io::Result<Vec<String>> {
    Place::all(state, FOLDER)
}
