//! Experiments.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use lorentz_embed::{
    rate_of_tdf, ComputeTime, Error, Experiment, ExperimentOptions, Joining, Owner, Result, Span,
};

use crate::ffi_text::{give_text, given, optional_text, text, to_status};

/// `lorentz_settings` of the header. A value of zero stands for the default.
#[repr(C)]
pub struct LorentzSettings {
    timeslice_ns: i64,
    cpus: *const c_char,
    most: u32,
    as_fast_as_possible: c_int,
    end_with_process: c_int,
}

impl LorentzSettings {
    fn wanted(&self) -> Result<ExperimentOptions> {
        let cpus = optional_text("cpus", self.cpus)?;
        let cpus = cpus
            .map(|text| text.parse().map_err(|e| Error::wrong_input(format!("cpus {text}: {e}"))));
        Ok(ExperimentOptions {
            timeslice_ns: Some(self.timeslice_ns).filter(|&nanos| nanos != 0),
            cpus: cpus.transpose()?,
            as_fast_as_possible: self.as_fast_as_possible != 0,
            compute: ComputeTime::Real,
            most: Some(self.most).filter(|&most| most != 0),
        })
    }

    fn owner(&self) -> Owner {
        match self.end_with_process {
            0 => Owner::Nobody,
            _ => Owner::ThisProcess,
        }
    }
}

type Handle<'a> = Option<&'a Experiment>;
type NewHandle<'a> = Option<&'a mut MaybeUninit<*mut Experiment>>;

fn hand_over(out: NewHandle, make: impl FnOnce() -> Result<Experiment>) -> c_int {
    to_status(given("experiment", out).and_then(|out| {
        out.write(Box::into_raw(Box::new(make()?)));
        Ok(())
    }))
}

fn with(experiment: Handle, act: impl FnOnce(&Experiment) -> Result<()>) -> c_int {
    to_status(given("experiment", experiment).and_then(act))
}

/// Returns the timeline of this number; `None` for a negative one.
fn timeline(number: i64) -> Result<Option<u32>> {
    match (u32::try_from(number), number) {
        (Ok(timeline), _) => Ok(Some(timeline)),
        (Err(_), ..=-1) => Ok(None),
        _ => Err(Error::wrong_input(format!(
            "timeline {number}: expected a number from 0 to 4294967295"
        ))),
    }
}

fn existing_timeline(number: i64) -> Result<u32> {
    let none =
        || Error::wrong_input(format!("timeline {number}: expected a number from 0 to 4294967295"));
    timeline(number)?.ok_or_else(none)
}

/// Makes an experiment.
#[no_mangle]
pub extern "C" fn lorentz_experiment_create(
    name: *const c_char,
    settings: Option<&LorentzSettings>,
    out: NewHandle,
) -> c_int {
    hand_over(out, || {
        let wanted = settings.map(LorentzSettings::wanted).transpose()?.unwrap_or_default();
        let owner = settings.map_or(Owner::Nobody, LorentzSettings::owner);
        Experiment::create(text("name", name)?, &wanted, owner)
    })
}

/// Opens an experiment.
#[no_mangle]
pub extern "C" fn lorentz_experiment_open(name: *const c_char, out: NewHandle) -> c_int {
    hand_over(out, || Experiment::open(text("name", name)?))
}

/// Closes a handle.
#[no_mangle]
pub extern "C" fn lorentz_experiment_close(experiment: Option<Box<Experiment>>) {
    drop(experiment);
}

/// Clears the remains of an experiment whose process has died.
#[no_mangle]
pub extern "C" fn lorentz_experiment_clear(name: *const c_char) -> c_int {
    to_status(text("name", name).and_then(Experiment::clear))
}

/// Adds a container.
#[no_mangle]
pub extern "C" fn lorentz_experiment_add(
    experiment: Handle,
    container: *const c_char,
    tdf: f64,
    timeline_number: i64,
) -> c_int {
    with(experiment, |experiment| {
        let (container, rate) = (text("container", container)?, rate_of_tdf(tdf)?);
        experiment.add(container, rate, timeline(timeline_number)?).map(drop)
    })
}

/// `lorentz_joining` of the header. A value of zero stands for the default, but for the timeline.
#[repr(C)]
pub struct LorentzJoining {
    tdf: f64,
    timeline: i64,
    parallel: u32,
    compute_none: c_int,
}

/// Adds a container with all options.
#[no_mangle]
pub extern "C" fn lorentz_experiment_add_as(
    experiment: Handle,
    container: *const c_char,
    options: Option<&LorentzJoining>,
) -> c_int {
    with(experiment, |experiment| {
        let options = given("options", options)?;
        let tdf = if options.tdf == 0.0 { 1.0 } else { options.tdf };
        experiment
            .add_as(&Joining {
                timeline: timeline(options.timeline)?,
                parallel: options.parallel.max(1),
                compute: (options.compute_none != 0).then_some(ComputeTime::None),
                ..Joining::new(text("container", container)?, rate_of_tdf(tdf)?)
            })
            .map(drop)
    })
}

/// Adds a container that runs on several processors at once.
#[no_mangle]
pub extern "C" fn lorentz_experiment_add_parallel(
    experiment: Handle,
    container: *const c_char,
    tdf: f64,
    timeline_number: i64,
    parallel: u32,
) -> c_int {
    with(experiment, |experiment| {
        let joining = Joining::new(text("container", container)?, rate_of_tdf(tdf)?);
        let timeline = timeline(timeline_number)?;
        experiment.add_as(&Joining { timeline, parallel, ..joining }).map(drop)
    })
}

/// Releases a container.
#[no_mangle]
pub extern "C" fn lorentz_experiment_remove(experiment: Handle, container: *const c_char) -> c_int {
    with(experiment, |experiment| experiment.remove(text("container", container)?))
}

/// Changes a container's TDF.
#[no_mangle]
pub extern "C" fn lorentz_experiment_dilate(
    experiment: Handle,
    container: *const c_char,
    tdf: f64,
) -> c_int {
    with(experiment, |experiment| {
        experiment.dilate(text("container", container)?, rate_of_tdf(tdf)?)
    })
}

/// Stops all containers at one virtual time.
#[no_mangle]
pub extern "C" fn lorentz_experiment_synchronize(experiment: Handle) -> c_int {
    with(experiment, |experiment| experiment.synchronize(Owner::ThisProcess))
}

/// Starts rounds that follow one another.
#[no_mangle]
pub extern "C" fn lorentz_experiment_start(experiment: Handle) -> c_int {
    with(experiment, Experiment::start)
}

/// Stops the experiment after the current round.
#[no_mangle]
pub extern "C" fn lorentz_experiment_pause(experiment: Handle) -> c_int {
    with(experiment, Experiment::pause)
}

/// Lets all containers go on by themselves.
#[no_mangle]
pub extern "C" fn lorentz_experiment_stop(experiment: Handle) -> c_int {
    with(experiment, Experiment::stop)
}

/// Sets how far a container moves with each progress of its timeline.
#[no_mangle]
pub extern "C" fn lorentz_experiment_set_interval(
    experiment: Handle,
    container: *const c_char,
    interval_ns: i64,
    timeline_number: i64,
) -> c_int {
    with(experiment, |experiment| {
        let timeline = timeline(timeline_number)?;
        experiment.set_interval(text("container", container)?, Span(interval_ns), timeline)
    })
}

/// Moves all containers of a timeline by their intervals.
#[no_mangle]
pub extern "C" fn lorentz_experiment_progress(experiment: Handle, timeline: i64) -> c_int {
    with(experiment, |experiment| experiment.progress(existing_timeline(timeline)?))
}

/// Moves each of `count` containers by a virtual time of its own.
///
/// # Safety
///
/// `containers` and `intervals_ns` have `count` elements each, those of the former C strings; or `count` is 0.
#[no_mangle]
pub unsafe extern "C" fn lorentz_experiment_step(
    experiment: Handle,
    containers: *const *const c_char,
    intervals_ns: *const i64,
    count: usize,
) -> c_int {
    with(experiment, |experiment| {
        if count > 0 && (containers.is_null() || intervals_ns.is_null()) {
            return Err(Error::wrong_input("containers, intervals_ns: NULL"));
        }
        let moves = (0..count).map(|at| {
            // SAFETY: by this function's contract both have an element `at`.
            let (name, nanos) = unsafe { (*containers.add(at), *intervals_ns.add(at)) };
            Ok((text("containers", name)?, Span(nanos)))
        });
        experiment.step(&moves.collect::<Result<Vec<_>>>()?)
    })
}

/// Drops the intervals of a timeline.
#[no_mangle]
pub extern "C" fn lorentz_experiment_reset(experiment: Handle, timeline: i64) -> c_int {
    with(experiment, |experiment| experiment.reset(existing_timeline(timeline)?))
}

/// Returns the state of the experiment as JSON.
#[no_mangle]
pub extern "C" fn lorentz_experiment_status(
    experiment: Handle,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> c_int {
    with(experiment, |experiment| {
        let out = given("json", json)?;
        let text = serde_json::to_string(&experiment.status()?)
            .map_err(|error| Error::failed(error.to_string()))?;
        out.write(give_text(text)?);
        Ok(())
    })
}

/// Ends the experiment.
#[no_mangle]
pub extern "C" fn lorentz_experiment_end(experiment: Handle) -> c_int {
    with(experiment, Experiment::end)
}
