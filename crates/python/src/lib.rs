//! `lorentz._native`: the Rust half of the Python package, thin over [`lorentz_embed`].
//!
//! The users' interface and its documentation are in `python/lorentz`. Here, times are nanoseconds and a rate is a text. While a
//! call waits, other Python threads run.

mod calls;
mod errors;
mod own;
mod timers;

use calls::{apart, clocks, date_text};
use errors::{
    EndedError, FailedError, LorentzError, NativeResult, NotFoundError, RefusedError,
    WrongInputError,
};
use lorentz_embed as embed;
use lorentz_embed::{
    AttachOptions, ComputeTime, Container, Date, Error, ExperimentOptions, Joining, Owner, Rate,
    Span, Target, WallTime,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::wrap_pyfunction;

fn rate(tdf: &str) -> embed::Result<Rate> {
    Rate::parse_tdf(tdf).map_err(|error| Error::wrong_input(format!("tdf {tdf}: {error}")))
}

fn compute_time(text: &str) -> Result<ComputeTime, Error> {
    text.parse().map_err(|error| Error::wrong_input(format!("compute {text}: {error}")))
}

/// A running experiment.
#[pyclass(frozen)]
struct Experiment(embed::Experiment);

#[pymethods]
impl Experiment {
    // One parameter for each option that Python's users have.
    #[expect(clippy::too_many_arguments)]
    #[staticmethod]
    fn create(
        py: Python,
        name: &str,
        timeslice_ns: Option<i64>,
        cpus: Option<&str>,
        as_fast_as_possible: bool,
        most: Option<u32>,
        compute: &str,
        end_with_process: bool,
    ) -> NativeResult<Experiment> {
        let cpus = cpus
            .map(|text| text.parse().map_err(|e| Error::wrong_input(format!("cpus {text}: {e}"))))
            .transpose()?;
        let compute = compute_time(compute)?;
        let wanted = ExperimentOptions { timeslice_ns, cpus, as_fast_as_possible, compute, most };
        let owner = if end_with_process { Owner::ThisProcess } else { Owner::Nobody };
        apart(py, || embed::Experiment::create(name, &wanted, owner)).map(Experiment)
    }

    #[staticmethod]
    fn open(py: Python, name: &str) -> NativeResult<Experiment> {
        apart(py, || embed::Experiment::open(name)).map(Experiment)
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    fn add(
        &self,
        py: Python,
        who: &str,
        tdf: &str,
        timeline: Option<u32>,
        parallel: u32,
        compute: Option<&str>,
    ) -> NativeResult<String> {
        let compute = compute.map(compute_time).transpose()?;
        apart(py, || {
            let joining = Joining::new(who, rate(tdf)?);
            self.0.add_as(&Joining { timeline, parallel, compute, ..joining })
        })
    }

    fn remove(&self, py: Python, container: &str) -> NativeResult<()> {
        apart(py, || self.0.remove(container))
    }

    fn dilate(&self, py: Python, container: &str, tdf: &str) -> NativeResult<()> {
        apart(py, || self.0.dilate(container, rate(tdf)?))
    }

    fn synchronize(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.synchronize(Owner::ThisProcess))
    }

    fn start(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.start())
    }

    fn pause(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.pause())
    }

    fn stop(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.stop())
    }

    fn set_interval(
        &self,
        py: Python,
        container: &str,
        nanos: i64,
        timeline: Option<u32>,
    ) -> NativeResult<()> {
        apart(py, || self.0.set_interval(container, Span(nanos), timeline))
    }

    fn progress(&self, py: Python, timeline: u32) -> NativeResult<()> {
        apart(py, || self.0.progress(timeline))
    }

    fn step(&self, py: Python, moves: Vec<(String, i64)>) -> NativeResult<()> {
        let moves: Vec<_> = moves.iter().map(|(who, nanos)| (&**who, Span(*nanos))).collect();
        apart(py, || self.0.step(&moves))
    }

    fn reset(&self, py: Python, timeline: u32) -> NativeResult<()> {
        apart(py, || self.0.reset(timeline))
    }

    /// Returns the status as JSON.
    fn status(&self, py: Python) -> NativeResult<String> {
        apart(py, || {
            let status = self.0.status()?;
            serde_json::to_string(&status).map_err(|error| Error::failed(error.to_string()))
        })
    }

    fn end(&self, py: Python) -> NativeResult<()> {
        apart(py, || self.0.end())
    }
}

/// Releases the containers of an experiment whose process has died, and removes its files.
#[pyfunction]
fn clear(py: Python, name: &str) -> NativeResult<()> {
    apart(py, || embed::Experiment::clear(name))
}

/// Returns the clocks of a container and of the host, at one moment, in ns.
#[pyfunction]
fn reading<'py>(py: Python<'py>, container: &str) -> PyResult<Bound<'py, PyDict>> {
    clocks(py, &apart(py, || Container::find(container)?.reading())?)
}

/// Returns the name of the container with this name or process id.
#[pyfunction]
fn find(py: Python, who: &str) -> NativeResult<String> {
    apart(py, || Ok(Container::find(who)?.name().to_string()))
}

/// Attaches to a running process and puts it into virtual time. Returns the name of its new container.
#[pyfunction]
fn attach(py: Python, pid: u32, tdf: &str, tree: bool, name: Option<&str>) -> NativeResult<String> {
    apart(py, || {
        let name = name.map(str::to_string);
        let how = AttachOptions { rate: rate(tdf)?, tree, name, for_experiment: false };
        Ok(Container::attach(pid, &how)?.name().to_string())
    })
}

/// Parses a date of the host's wall clock.
fn announced(at: Option<&str>) -> Result<Option<WallTime>, Error> {
    let time = |text: &str| {
        Date::of_the_host(&date_text(text.to_string()))
            .map_err(|error| Error::wrong_input(format!("at {text}: {error}")))
    };
    at.map(time).transpose()
}

#[pyfunction]
fn dilate(py: Python, container: &str, tdf: &str, at: Option<&str>) -> NativeResult<()> {
    apart(py, || Container::find(container)?.dilate(rate(tdf)?, announced(at)?))
}

#[pyfunction]
fn freeze(py: Python, container: &str, at: Option<&str>) -> NativeResult<()> {
    apart(py, || Container::find(container)?.freeze(announced(at)?))
}

#[pyfunction]
fn unfreeze(py: Python, container: &str, at: Option<&str>) -> NativeResult<()> {
    apart(py, || Container::find(container)?.unfreeze(announced(at)?))
}

#[pyfunction]
fn leap(py: Python, container: &str, by_ns: i64, at: Option<&str>) -> NativeResult<()> {
    apart(py, || Container::find(container)?.leap(Target::By(Span(by_ns)), announced(at)?))
}

#[pyfunction]
fn leap_like(py: Python, container: &str, other: &str) -> NativeResult<()> {
    apart(py, || {
        let wall = Container::find(other)?.reading()?.wall;
        Container::find(container)?.leap(Target::Like(wall), None)
    })
}

#[pyfunction]
fn step(py: Python, container: &str, by_ns: i64, at: Option<&str>) -> NativeResult<()> {
    apart(py, || Container::find(container)?.step(Target::By(Span(by_ns)), announced(at)?))
}

/// Parses a duration. Returns nanoseconds.
#[pyfunction]
fn parse_duration(text: &str) -> NativeResult<i64> {
    let span: Result<Span, _> = text.parse();
    Ok(span.map_err(|error| Error::wrong_input(format!("duration {text}: {error}")))?.0)
}

/// Parses a TDF. Returns it in lowest terms: real seconds, virtual seconds.
#[pyfunction]
fn parse_tdf(text: &str) -> NativeResult<(u64, u64)> {
    let rate = rate(text)?;
    Ok((rate.den(), rate.num()))
}

/// Returns the simplest ratio that rounds to `number`: real seconds, virtual seconds.
#[pyfunction]
fn tdf_of_number(number: f64) -> NativeResult<(u64, u64)> {
    let rate = embed::rate_of_tdf(number)?;
    Ok((rate.den(), rate.num()))
}

/// Returns the flags of the command for clock options, each given by its name and its value.
#[pyfunction]
fn clock_flags(given: Vec<(String, String)>) -> NativeResult<Vec<String>> {
    let value = |name: &str, text: String| if name == "at" { date_text(text) } else { text };
    let given: Vec<_> =
        given.into_iter().map(|(name, text)| (name.clone(), value(&name, text))).collect();
    Ok(embed::clock_flags(&given)?)
}

/// Runs the `lorentz` command with the arguments `words` to its end. Returns its output.
#[pyfunction]
fn call(py: Python, words: Vec<String>) -> NativeResult<String> {
    apart(py, || {
        let [verb, words @ ..] = &words[..] else {
            return Err(Error::wrong_input("no words; expected a verb of lorentz"));
        };
        words.iter().fold(embed::LorentzCommand::new(verb)?, embed::LorentzCommand::arg).call()
    })
}

/// Returns the path of the `lorentz` command.
#[pyfunction]
fn command() -> NativeResult<String> {
    Ok(embed::command_path()?.to_string_lossy().into_owned())
}

#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Experiment>()?;
    let py = module.py();
    module.add("LorentzError", py.get_type::<LorentzError>())?;
    module.add("WrongInputError", py.get_type::<WrongInputError>())?;
    module.add("NotFoundError", py.get_type::<NotFoundError>())?;
    module.add("RefusedError", py.get_type::<RefusedError>())?;
    module.add("EndedError", py.get_type::<EndedError>())?;
    module.add("FailedError", py.get_type::<FailedError>())?;
    for function in [
        wrap_pyfunction!(clear, module)?,
        wrap_pyfunction!(reading, module)?,
        wrap_pyfunction!(find, module)?,
        wrap_pyfunction!(attach, module)?,
        wrap_pyfunction!(dilate, module)?,
        wrap_pyfunction!(freeze, module)?,
        wrap_pyfunction!(unfreeze, module)?,
        wrap_pyfunction!(leap, module)?,
        wrap_pyfunction!(leap_like, module)?,
        wrap_pyfunction!(step, module)?,
        wrap_pyfunction!(parse_duration, module)?,
        wrap_pyfunction!(parse_tdf, module)?,
        wrap_pyfunction!(tdf_of_number, module)?,
        wrap_pyfunction!(clock_flags, module)?,
        wrap_pyfunction!(call, module)?,
        wrap_pyfunction!(command, module)?,
    ] {
        module.add_function(function)?;
    }
    own::add(module)?;
    timers::add(module)
}
