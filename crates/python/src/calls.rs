//! Calls from Python, and their results: what the functions of the other modules share.

use lorentz_embed as embed;
use lorentz_embed::WallTime;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::NativeResult;

/// Runs `act` without the GIL: other Python threads run meanwhile.
pub fn apart<T: Send>(
    py: Python,
    act: impl FnOnce() -> embed::Result<T> + Send,
) -> NativeResult<T> {
    Ok(py.detach(act)?)
}

/// Makes a dict of a reading, as the class `Time` has it.
pub fn clocks<'py>(py: Python<'py>, reading: &embed::Reading) -> PyResult<Bound<'py, PyDict>> {
    let nanos = |time: WallTime| time.as_nanos();
    let clocks = PyDict::new(py);
    clocks.set_item("wall_ns", nanos(reading.wall))?;
    clocks.set_item("monotonic_ns", reading.virt.0)?;
    clocks.set_item("boottime_ns", reading.boot.0)?;
    clocks.set_item("host_wall_ns", nanos(reading.host_wall))?;
    clocks.set_item("host_monotonic_ns", reading.real.0)?;
    clocks.set_item("limit_ns", reading.limit.map(|limit| limit.0))?;
    clocks.set_item("tdf", reading.rate.inverse().to_string())?;
    clocks.set_item("frozen", reading.frozen)?;
    Ok(clocks)
}

/// In Python a date without a zone is in UTC, also with a blank before its time: freezegun and time-machine have it so, and tests that
/// move from them keep their dates.
pub fn date_text(text: String) -> String {
    text.parse::<WallTime>().map_or(text, |wall| wall.to_string())
}
