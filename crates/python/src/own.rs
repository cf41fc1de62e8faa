//! The clock of the calling process ([`lorentz_embed::OwnClock`]). Times are nanoseconds, a rate is a text.

use lorentz_embed as embed;
use lorentz_embed::{Date, Error, Rate, SkipMode, Span};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{apart, clocks, date_text};
use crate::errors::NativeResult;

/// The clock of the calling process.
#[pyclass(frozen)]
struct OwnClock(embed::OwnClock);

#[pymethods]
impl OwnClock {
    /// Returns the clock of the calling process; `None` in real time.
    #[staticmethod]
    fn find(py: Python) -> NativeResult<Option<OwnClock>> {
        Ok(apart(py, embed::OwnClock::find)?.map(OwnClock))
    }

    /// Brings the calling process onto a new clock, if `tree` is true with its descendants.
    #[staticmethod]
    fn make(py: Python, tree: bool) -> NativeResult<OwnClock> {
        Ok(OwnClock(apart(py, || embed::OwnClock::make(tree))?))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the clocks at one moment, and how the clock goes on.
    fn reading<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reading = apart(py, || self.0.reading())?;
        let values = clocks(py, &reading)?;
        let rate = reading.rate;
        values.set_item("rate", (rate.num(), rate.den()))?;
        values.set_item("leapt_ns", reading.leapt.0)?;
        values.set_item("skip_idle", word(reading.skipping.mode))?;
        Ok(values)
    }

    /// Changes the rate: virtual seconds per real second.
    fn dilate(&self, py: Python, num: u64, den: u64) -> NativeResult<()> {
        let wrong =
            || Error::wrong_input(format!("rate {num}/{den}: expected 1/1000000 to 1000000"));
        let standing = (num, den) == (Rate::STANDING.num(), Rate::STANDING.den());
        apart(py, || match standing {
            true => self.0.stand(),
            false => self.0.dilate(Rate::new(num, den).ok_or_else(wrong)?),
        })
    }

    fn stand(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.stand())
    }

    fn leap(&self, py: Python, by_ns: i64) -> NativeResult<()> {
        apart(py, || self.0.leap(Span(by_ns)))
    }

    fn step(&self, py: Python, by_ns: i64) -> NativeResult<()> {
        apart(py, || self.0.step(Span(by_ns)))
    }

    /// Sets the wall clock to a date as text, told from the process's own clock: `2038-01-19T03:14:00Z`, `next monday 9:00`.
    fn set_wall(&self, py: Python, to: &str) -> NativeResult<()> {
        apart(py, || {
            let now = self.0.reading()?.wall;
            let wall = date_text(to.to_string()).parse::<Date>().and_then(|date| date.from(now));
            let wall = wall.map_err(|error| Error::wrong_input(format!("at {to}: {error}")))?;
            self.0.set_wall(wall)
        })
    }

    /// Sets how the clock treats idle time: `off`, `on` or `force`.
    fn set_skip_idle(&self, py: Python, mode: &str) -> NativeResult<()> {
        let mode = MODES.iter().find(|(name, _)| *name == mode).map(|(_, mode)| *mode);
        let mode =
            mode.ok_or_else(|| Error::wrong_input("skip_idle: expected off, on or force"))?;
        apart(py, || self.0.set_skipping(mode))
    }
}

const MODES: [(&str, SkipMode); 3] =
    [("off", SkipMode::Off), ("on", SkipMode::On), ("force", SkipMode::Force)];

fn word(mode: SkipMode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("off", |(name, _)| name)
}

/// Adds the class to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<OwnClock>()
}
