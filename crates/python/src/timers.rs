//! The precise timers ([`lorentz_timers`]): moments and intervals are ticks.

use crate::errors::{FailedError, WrongInputError};
use lorentz_timers as timers;
use lorentz_timers::{Interval, Moment, OutOfRange, TimeSource, Woken};
use pyo3::prelude::*;
use pyo3::wrap_pyfunction;
use std::time::Duration;

fn out_of_range(_: OutOfRange) -> PyErr {
    WrongInputError::new_err("time out of range")
}

#[pyfunction]
fn timers_now() -> i64 {
    Moment::now().ticks()
}

#[pyfunction]
fn timers_moment_ns(moment: i64) -> i64 {
    Moment::from_ticks(moment).nanos()
}

#[pyfunction]
fn timers_moment_wall_ns(moment: i64) -> i128 {
    Moment::from_ticks(moment).wall().as_nanos()
}

#[pyfunction]
fn timers_moment_from_wall(nanos: i128) -> PyResult<i64> {
    let wall = lorentz_embed::WallTime::from_nanos(nanos);
    Moment::from_wall(wall).map(Moment::ticks).map_err(out_of_range)
}

#[pyfunction]
fn timers_interval(nanos: i64) -> PyResult<i64> {
    Interval::from_nanos(nanos).map(Interval::ticks).map_err(out_of_range)
}

#[pyfunction]
fn timers_interval_ns(interval: i64) -> i128 {
    Interval::from_ticks(interval).nanos()
}

/// Returns whether it has come to the moment; false if a signal was handled.
#[pyfunction]
fn timers_sleep_until(py: Python, moment: i64) -> bool {
    let woken = py.detach(|| timers::sleep_until_signal(Moment::from_ticks(moment)));
    woken == Woken::Elapsed
}

#[pyfunction]
fn timers_source() -> (String, &'static str, u64) {
    (TimeSource::in_force().to_string(), TimeSource::reason(), TimeSource::hertz())
}

#[pyfunction]
fn timers_force_source(source: &str) -> PyResult<()> {
    let source: TimeSource = source
        .parse()
        .map_err(|error: timers::UnknownSource| WrongInputError::new_err(error.to_string()))?;
    source.force().map_err(|error| FailedError::new_err(error.to_string()))
}

#[pyfunction]
fn timers_calibrate(py: Python, nanos: u64) -> PyResult<()> {
    let done = py.detach(|| TimeSource::calibrate(Duration::from_nanos(nanos)));
    done.map_err(|error| FailedError::new_err(error.to_string()))
}

/// Returns the processor's name, and whether it has rdtscp, a constant TSC, and an invariant one.
#[pyfunction]
fn timers_processor() -> (String, bool, bool, bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use timers::tsc::{brand_string, is_constant_tsc, is_invariant_tsc, is_rdtscp_supported};
        (brand_string(), is_rdtscp_supported(), is_constant_tsc(), is_invariant_tsc())
    }
    #[cfg(not(target_arch = "x86_64"))]
    (String::new(), false, false, false)
}

/// Says why the HPET cannot be used; `None` if it can.
#[pyfunction]
fn timers_hpet() -> Option<String> {
    let opened = timers::Hpet::open(std::path::Path::new(timers::Hpet::PATH));
    opened.err().map(|error| format!("{} {error}", timers::Hpet::PATH))
}

/// Adds the functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(timers_now, module)?,
        wrap_pyfunction!(timers_moment_ns, module)?,
        wrap_pyfunction!(timers_moment_wall_ns, module)?,
        wrap_pyfunction!(timers_moment_from_wall, module)?,
        wrap_pyfunction!(timers_interval, module)?,
        wrap_pyfunction!(timers_interval_ns, module)?,
        wrap_pyfunction!(timers_sleep_until, module)?,
        wrap_pyfunction!(timers_source, module)?,
        wrap_pyfunction!(timers_force_source, module)?,
        wrap_pyfunction!(timers_calibrate, module)?,
        wrap_pyfunction!(timers_processor, module)?,
        wrap_pyfunction!(timers_hpet, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
