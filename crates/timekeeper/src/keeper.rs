//! The work of TimeKeeper's functions, in Rust's types.

use std::collections::{BTreeMap, HashMap};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lorentz_embed::{
    real_wall_clock, simplest_ratio, AttachOptions, Container, Error, ErrorKind, Experiment,
    ExperimentOptions, Owner, Phase, Rate, Result, Span, Target, WallTime,
};

/// The name of the user's one experiment.
pub const EXPERIMENT: &str = "timekeeper";

/// Returns the rate of a dilation n: that of TDF n if n is above 0, that of TDF 1/-n if it is below 0, real time for 0.
///
/// Each case is in TimeKeeper's figure 2.1. The result is exact: a dilation of 0.1 is 1/10, also where it was of type float.
///
/// # Errors
///
/// The TDF is not from 1/1000000 to 1000000.
pub fn rate_of(dilation: f64) -> Result<Rate> {
    let size = dilation.abs();
    let is_float = f64::from(size as f32) == size;
    let same = |num: u64, den: u64| {
        let ratio = num as f64 / den as f64;
        if is_float {
            f64::from(ratio as f32) == size
        } else {
            ratio == size
        }
    };
    let tdf = match size {
        0.0 => Some(Rate::ONE),
        _ => simplest_ratio(size, same).and_then(|(num, den)| Rate::new(num, den)),
    };
    let tdf = tdf.ok_or_else(|| {
        Error::wrong_input(format!(
            "TDF {dilation}: expected 0, or a number from 1/1000000 to 1000000, negative for its inverse"
        ))
    })?;
    Ok(if dilation < 0.0 { tdf } else { tdf.inverse() })
}

/// Sets the TDF of the container of `who`, which is a name, also of LXC's, or a process id.
///
/// A process in real time is attached, with its descendants if `tree` is true. For a process in virtual time, `tree` attaches
/// those of its descendants that are in real time.
///
/// # Errors
///
/// A wrong TDF; no such container or process; a container whose clock cannot be changed.
pub fn dilate(who: &str, dilation: f64, tree: bool) -> Result<()> {
    let rate = rate_of(dilation)?;
    if dilation == 0.0 && look_for(who)?.is_none() {
        return Ok(());
    }
    find(who, tree)?.dilate(rate, None)
}

/// Stops the container of `who`. A process in real time is attached as by [`dilate`].
///
/// # Errors
///
/// As [`dilate`]; also for a container in an experiment.
pub fn freeze(who: &str, tree: bool) -> Result<()> {
    find(who, tree)?.freeze(None)
}

/// Lets the container of `who` go on, and those of its processes that [`mod@crate::clone`] has stopped.
///
/// # Errors
///
/// The process is in no container, or its container is in an experiment.
pub fn unfreeze(who: &str) -> Result<()> {
    let container = Container::find(name_here(who))?;
    container.unfreeze(None)?;
    container.continue_stopped()
}

/// Moves the container of `who` forward by virtual microseconds above 0.
///
/// # Errors
///
/// As [`freeze`].
pub fn leap(who: &str, micros: i64) -> Result<()> {
    if micros <= 0 {
        return Err(Error::wrong_input(format!(
            "interval {micros}: expected a number of microseconds above 0"
        )));
    }
    find(who, false)?.leap(Target::By(Span(micros.saturating_mul(1_000))), None)
}

/// Moves the container of `who` forward to the time of `other`.
///
/// # Errors
///
/// As [`freeze`]; also for a time in the container's past.
pub fn leap_to(who: &str, other: &str) -> Result<()> {
    let time = time_of(other)?;
    find(who, false)?.leap(Target::Like(time), None)
}

/// Returns the wall clock of `who`; the host's, if `who` is a process in real time.
///
/// # Errors
///
/// There is no such container or process.
pub fn time_of(who: &str) -> Result<WallTime> {
    match look_for(who)? {
        Some(container) => Ok(container.reading()?.wall),
        None => real_wall_clock(),
    }
}

/// Returns the id of the oldest process of the container called `name`, or of the first one of a container of LXC in real time.
///
/// # Errors
///
/// There is no such container, or it has no process.
pub fn pid_of(name: &str) -> Result<u32> {
    let unknown = || {
        Error::new(
            ErrorKind::NotFound,
            format!("{name}: no such container; expected one that 'lorentz ps' shows, or one of LXC that runs"),
        )
    };
    let Some(found) = look_for(name)? else {
        return Container::lxc_process(name).ok_or_else(unknown);
    };
    if found.name() != name_here(name) {
        return Err(unknown());
    }
    let pids = found.pids()?;
    let none = || Error::new(ErrorKind::NotFound, format!("{name}: has no process"));
    pids.into_iter().min().ok_or_else(none)
}

/// Sets how long the process with the greatest TDF runs in a round, in real nanoseconds. That of the others follows from their
/// TDFs. The experiment must not be synchronized yet; it is made anew, with the same containers.
///
/// # Errors
///
/// The experiment is synchronized, or a round would take less than 1 us or more than a minute of virtual time.
pub fn set_timeslice(real_nanos: i64) -> Result<()> {
    let experiment = existing("set_cbe_experiment_timeslice")?;
    let status = experiment.status()?;
    let greatest = status.containers.iter().map(|one| one.tdf).fold(1.0, f64::max);
    let timeslice = (real_nanos as f64 / greatest) as i64;
    if !(1_000..=60_000_000_000).contains(&timeslice) {
        return Err(Error::wrong_input(format!(
            "timeslice {real_nanos}: expected nanoseconds that are 1us to 1m of virtual time at TDF {greatest}"
        )));
    }
    if status.phase != Phase::SettingUp {
        let what = "set_cbe_experiment_timeslice: expected before synchronizeAndFreeze";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    experiment.end()?;
    forget();
    let wanted = ExperimentOptions {
        timeslice_ns: Some(timeslice),
        cpus: Some(status.cpus.clone()),
        as_fast_as_possible: status.as_fast_as_possible,
        ..ExperimentOptions::default()
    };
    let made = know(Experiment::create(EXPERIMENT, &wanted, Owner::Nobody)?);
    for one in &status.containers {
        let rate = rate_of(one.tdf)?;
        // A container that has ended meanwhile has no part in it.
        match made.add(&one.name, rate, one.timeline) {
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Adds the container of `who` to the experiment, at the TDF that it has. Makes the experiment if there is none. A `timeline`
/// below 0 means none.
///
/// # Errors
///
/// As [`freeze`].
pub fn add_to_experiment(who: &str, timeline: i32) -> Result<()> {
    // A wrong name leaves no experiment.
    let container = find(who, true)?;
    HAS_ADDED.store(true, Ordering::Relaxed);
    let experiment = existing_or_new()?;
    let rate = container.reading()?.rate;
    match experiment.add(container.name(), rate, u32::try_from(timeline).ok()) {
        Err(error) if error.kind == ErrorKind::Ended => {
            // Another process has ended the experiment since this process opened it.
            forget();
            let experiment = existing_or_new()?;
            experiment.add(container.name(), rate, u32::try_from(timeline).ok()).map(drop)
        }
        added => added.map(drop),
    }
}

/// Whether this process has added a process to the experiment.
static HAS_ADDED: AtomicBool = AtomicBool::new(false);

/// Returns the party that is responsible for what this process synchronizes. A simulator, which has added processes, answers for them.
/// A program that only synchronizes, as TimeKeeper's utility does, ends before others start the experiment.
pub fn owner() -> Owner {
    match HAS_ADDED.load(Ordering::Relaxed) {
        true => Owner::ThisProcess,
        false => Owner::Nobody,
    }
}

/// Stops all containers of the experiment at one virtual time. Processes that [`mod@crate::clone`] has stopped start with the
/// first round.
///
/// # Errors
///
/// The calls come in a wrong order.
pub fn synchronize_and_freeze(owner: Owner) -> Result<()> {
    let experiment = existing("synchronizeAndFreeze")?;
    experiment.synchronize(owner)?;
    for member in experiment.status()?.containers {
        // A container that has ended meanwhile has no stopped process.
        let _ = Container::find(&member.name).and_then(|container| container.continue_stopped());
    }
    Ok(())
}

/// Starts rounds that follow one another.
///
/// # Errors
///
/// The calls come in a wrong order.
pub fn start() -> Result<()> {
    existing("startExp")?.start()
}

/// Sets how far the container of `who` moves with each progress, in virtual microseconds above 0.
///
/// # Errors
///
/// The calls come in a wrong order, `timeline` is not the container's, or the interval is not above 0.
pub fn set_interval(who: &str, micros: i64, timeline: i32) -> Result<()> {
    let experiment = existing("setInterval")?;
    if micros <= 0 {
        return Err(Error::wrong_input(format!(
            "interval {micros}: expected a number of microseconds above 0"
        )));
    }
    let interval = Span(micros.saturating_mul(1_000));
    let (timeline, name) = (number_of(timeline)?, experiment.named(name_here(who))?);
    let waits = with_simulated(|all| {
        let kept = all.get_mut(&timeline).and_then(|intervals| intervals.get_mut(&name));
        kept.map(|kept| *kept = Some(interval)).is_some()
    });
    if waits {
        return Ok(());
    }
    experiment.set_interval(&name, interval, Some(timeline))?;
    // From the next call on it may wait for the progress.
    with_simulated(|all| all.get_mut(&timeline).map(|intervals| intervals.insert(name, None)));
    Ok(())
}

/// Intervals by the containers' names: `None` if the experiment knows of it.
type Intervals = BTreeMap<String, Option<Span>>;

/// The timelines that this process moves, with the intervals that its next progress takes along: a simulator that sets all of them
/// anew at each step has one exchange with the experiment, and not one for each. Only containers wait that have followed the
/// timeline before, so that a wrong one is refused at once.
static SIMULATED: Mutex<Option<(u32, Timelines)>> = Mutex::new(None);

type Timelines = HashMap<u32, Intervals>;

/// Calls `work` with the map of [`SIMULATED`]. A child does not take over its parent's.
fn with_simulated<T>(work: impl FnOnce(&mut Timelines) -> T) -> T {
    let mut simulated = SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = process::id();
    let (_, timelines) = match &mut *simulated {
        Some(known) if known.0 == own => known,
        other => other.insert((own, HashMap::new())),
    };
    work(timelines)
}

/// Moves all containers on `timeline` by their intervals. They arrive exactly, with or without force.
///
/// # Errors
///
/// The calls come in a wrong order, or no container follows the timeline.
pub fn progress(timeline: i32) -> Result<()> {
    let (experiment, timeline) = (existing("progress")?, number_of(timeline)?);
    let kept: Vec<(String, Span)> = with_simulated(|all| {
        let intervals = all.entry(timeline).or_default().iter_mut();
        intervals.filter_map(|(name, kept)| Some((name.clone(), kept.take()?))).collect()
    });
    let named: Vec<(&str, Span)> = kept.iter().map(|(name, span)| (&**name, *span)).collect();
    match experiment.progress_with(timeline, &named) {
        Err(error) if !named.is_empty() && error.kind == ErrorKind::Refused => {
            // One of them has ended, or left, since its interval was set; the others move.
            for (name, interval) in named {
                if experiment.set_interval(name, interval, Some(timeline)).is_err() {
                    with_simulated(|all| all.get_mut(&timeline).map(|known| known.remove(name)));
                }
            }
            experiment.progress(timeline)
        }
        done => done,
    }
}

/// Drops the intervals of a timeline.
///
/// # Errors
///
/// As [`progress`].
pub fn reset(timeline: i32) -> Result<()> {
    let timeline = number_of(timeline)?;
    existing("reset")?.reset(timeline)?;
    with_simulated(|all| all.remove(&timeline));
    Ok(())
}

/// Ends the experiment; its containers go on by themselves.
///
/// # Errors
///
/// There is no experiment.
pub fn stop() -> Result<()> {
    let ended = match existing("stopExp") {
        Err(error) if error.kind == ErrorKind::Ended => Experiment::clear(EXPERIMENT),
        experiment => experiment?.end(),
    };
    forget();
    ended
}

fn number_of(timeline: i32) -> Result<u32> {
    let negative = || Error::wrong_input(format!("timeline {timeline}: expected one of 0 or more"));
    u32::try_from(timeline).map_err(|_| negative())
}

/// The name that a container has here. A container of LXC may have its directory before it: `/srv/lxc/web`.
fn name_here(who: &str) -> &str {
    who.rsplit('/').next().unwrap_or(who)
}

/// Finds the container of `who`; `None` if that is a process, or a container of LXC, in real time.
fn look_for(who: &str) -> Result<Option<Container>> {
    match Container::look_for(name_here(who)) {
        Err(error) if error.kind == ErrorKind::NotFound && who.parse::<u32>().is_err() => {
            Container::lxc_process(who).map(|_| None).ok_or(error)
        }
        found => found,
    }
}

fn find(who: &str, tree: bool) -> Result<Container> {
    let how = AttachOptions { for_experiment: true, ..AttachOptions::default() };
    let container = match look_for(who)? {
        Some(container) => container,
        None if who.parse::<u32>().is_err() => Container::attach_lxc(who, &how)?,
        None => Container::find_or_attach(who, tree)?,
    };
    if let (true, Ok(pid)) = (tree, who.parse()) {
        container.attach_descendants(pid)?;
    }
    Ok(container)
}

/// The experiment that this process has opened, and the id of this process: after a fork the child has another id.
static KNOWN: Mutex<Option<(u32, Arc<Experiment>)>> = Mutex::new(None);

fn known() -> Option<Arc<Experiment>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((owner, experiment)) if *owner == process::id() => Some(experiment.clone()),
        _ => {
            // This experiment is the parent's. The child must not even close it.
            std::mem::forget(known.take());
            None
        }
    }
}

fn know(experiment: Experiment) -> Arc<Experiment> {
    let experiment = Arc::new(experiment);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known = Some((process::id(), experiment.clone()));
    experiment
}

fn forget() {
    with_simulated(HashMap::clear);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Opens the experiment for `function`, which must come after [`add_to_experiment`].
fn existing(function: &str) -> Result<Arc<Experiment>> {
    if let Some(known) = known() {
        return Ok(known);
    }
    match Experiment::open(EXPERIMENT) {
        Err(error) if error.kind == ErrorKind::NotFound => Err(Error::new(
            ErrorKind::Refused,
            format!("{function}: there is no experiment; addToExp comes first"),
        )),
        opened => Ok(know(opened?)),
    }
}

fn existing_or_new() -> Result<Arc<Experiment>> {
    if let Some(known) = known() {
        return Ok(known);
    }
    let opened = match Experiment::open(EXPERIMENT) {
        Err(error) if error.kind == ErrorKind::NotFound => create(),
        Err(error) if error.kind == ErrorKind::Ended => {
            match Experiment::clear(EXPERIMENT) {
                // Another process cleared it first, or the experiment was about to end by itself.
                Err(error) if error.kind == ErrorKind::NotFound => {}
                cleared => cleared?,
            }
            create()
        }
        opened => opened,
    };
    Ok(know(opened?))
}

fn create() -> Result<Experiment> {
    match Experiment::create(EXPERIMENT, &ExperimentOptions::default(), Owner::Nobody) {
        // Another process made it first.
        Err(error) if error.kind == ErrorKind::WrongInput => Experiment::open(EXPERIMENT),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dilations_are_as_figure_2_1_shows_them() {
        for (dilation, rate) in [
            (3.0, "1/3"),
            (2.0, "0.5"),
            (0.0, "1"),
            (-2.0, "2"),
            (-3.0, "3"),
            (0.1, "10"),
            (0.5, "2"),
            (-0.5, "0.5"),
            (1.0 / 3.0, "3"),
        ] {
            assert_eq!(rate_of(dilation), Ok(rate.parse().unwrap()), "{dilation}");
        }
        assert_eq!(rate_of(f64::from(0.1_f32)), Ok("10".parse().unwrap()), "of type float");
        for dilation in [f64::NAN, f64::INFINITY, 1e-7, 2e6, -2e6] {
            assert_eq!(rate_of(dilation).unwrap_err().kind, ErrorKind::WrongInput);
        }
    }
}
