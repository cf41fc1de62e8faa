//! What TimeKeeper's functions do, in Rust's terms.

use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use lorentz_embed::{
    real_wall_clock, simplest_ratio, Container, Experiment, Fault, Kind, Owner, Rate, Result, Span,
    Target, WallTime, Wanted,
};

/// The name of the experiment.
pub const EXPERIMENT: &str = "timekeeper";

/// The rate of a dilation: that of TDF n for n above 0; that of TDF 1/n for -n; real time for 0. TimeKeeper's figure 2.1 shows
/// each. Kept exactly: 0.1 is 1/10.
///
/// # Errors
///
/// A TDF beyond 1/1000000 to 1000000.
pub fn rate_of(dilation: f32) -> Result<Rate> {
    let size = dilation.abs();
    let same = |num: u64, den: u64| (num as f64 / den as f64) as f32 == size;
    let tdf = match size {
        0.0 => Some(Rate::ONE),
        _ => simplest_ratio(size.into(), same).and_then(|(num, den)| Rate::new(num, den)),
    };
    let tdf = tdf.ok_or_else(|| {
        Fault::wrong(format!(
            "TDF {dilation}: expected 0, or a number from 1/1000000 to 1000000, negative for its inverse"
        ))
    })?;
    Ok(if dilation < 0.0 { tdf } else { tdf.inverse() })
}

/// Sets the TDF of the container of `who`, which is a name or a process. A process that is in none is brought into one, with its
/// descendants if `tree`; then those are brought in, too, where they are not.
///
/// # Errors
///
/// A wrong TDF; no such container or process; one that cannot be changed.
pub fn dilate(who: &str, dilation: f32, tree: bool) -> Result<()> {
    let rate = rate_of(dilation)?;
    if dilation == 0.0 && Container::look_for(who)?.is_none() {
        return Ok(());
    }
    let container = find(who, tree)?;
    match container.experiment() {
        Some(EXPERIMENT) => existing("dilate")?.dilate(container.name(), rate),
        _ => container.dilate(rate, None),
    }
}

/// Stops the container of `who`, brought in as by [`dilate`].
///
/// # Errors
///
/// As [`dilate`]; one in an experiment.
pub fn freeze(who: &str, tree: bool) -> Result<()> {
    find(who, tree)?.freeze(None)
}

/// Lets the container of `who` go on, and what of it [`mod@crate::clone`] holds.
///
/// # Errors
///
/// Where it is in no container; one in an experiment.
pub fn unfreeze(who: &str) -> Result<()> {
    let container = Container::find(who)?;
    container.unfreeze(None)?;
    container.continue_stopped()
}

/// Moves the container of `who` forward to the time of `other`.
///
/// # Errors
///
/// As [`freeze`]; where that is in its past.
pub fn leap(who: &str, other: &str) -> Result<()> {
    let time = time_of(other)?;
    find(who, false)?.leap(Target::Like(time), None)
}

/// The wall clock of `who`; the host's, where that is a process in real time.
///
/// # Errors
///
/// Where there is no such container or process.
pub fn time_of(who: &str) -> Result<WallTime> {
    match Container::look_for(who)? {
        Some(container) => Ok(container.reading()?.wall),
        None => real_wall_clock(),
    }
}

/// Takes the container of `who` into the experiment, which is made where there is none, at the TDF it has.
///
/// # Errors
///
/// As [`freeze`].
pub fn add_to_experiment(who: &str, timeline: i32) -> Result<()> {
    let experiment = existing_or_new()?;
    let container = find(who, true)?;
    let rate = container.reading()?.rate;
    match experiment.add(container.name(), rate, u32::try_from(timeline).ok()) {
        Err(fault) if fault.kind == Kind::Ended => {
            // Somebody has ended it since this process knew it.
            forget();
            let experiment = existing_or_new()?;
            experiment.add(container.name(), rate, u32::try_from(timeline).ok()).map(drop)
        }
        added => added.map(drop),
    }
}

/// All to one virtual time, standing still; what [`mod@crate::clone`] holds starts with the first round.
///
/// # Errors
///
/// The wrong order of calls.
pub fn synchronize_and_freeze(owner: Owner) -> Result<()> {
    let experiment = existing("synchronizeAndFreeze")?;
    experiment.synchronize(owner)?;
    for member in experiment.status()?.containers {
        // One that has ended meanwhile holds nobody.
        let _ = Container::find(&member.name).and_then(|container| container.continue_stopped());
    }
    Ok(())
}

/// Rounds follow one another.
///
/// # Errors
///
/// The wrong order of calls.
pub fn start() -> Result<()> {
    existing("startExp")?.start()
}

/// How far the container of `who` goes with each progress: virtual microseconds.
///
/// # Errors
///
/// The wrong order of calls; another timeline than its own; an interval that is not above 0.
pub fn set_interval(who: &str, micros: i64, timeline: i32) -> Result<()> {
    let experiment = existing("setInterval")?;
    if micros <= 0 {
        return Err(Fault::wrong(format!(
            "interval {micros}: expected a number of microseconds above 0"
        )));
    }
    let interval = Span(micros.saturating_mul(1_000));
    experiment.set_interval(who, interval, Some(number_of(timeline)?))
}

/// Moves all that follow `timeline` by their intervals. With or without force they arrive exactly.
///
/// # Errors
///
/// The wrong order of calls; a timeline that nobody follows.
pub fn progress(timeline: i32) -> Result<()> {
    existing("progress")?.progress(number_of(timeline)?)
}

/// Forgets the intervals of a timeline.
///
/// # Errors
///
/// As [`progress`].
pub fn reset(timeline: i32) -> Result<()> {
    existing("reset")?.reset(number_of(timeline)?)
}

/// Ends the experiment; its containers go on by themselves.
///
/// # Errors
///
/// Where there is none.
pub fn stop() -> Result<()> {
    let ended = match existing("stopExp") {
        Err(fault) if fault.kind == Kind::Ended => Experiment::clear(EXPERIMENT),
        experiment => experiment?.end(),
    };
    forget();
    ended
}

fn number_of(timeline: i32) -> Result<u32> {
    let negative = || Fault::wrong(format!("timeline {timeline}: expected one of 0 or more"));
    u32::try_from(timeline).map_err(|_| negative())
}

fn find(who: &str, tree: bool) -> Result<Container> {
    let container = Container::find_or_attach(who, tree)?;
    if let (true, Ok(pid)) = (tree, who.parse()) {
        container.attach_descendants(pid)?;
    }
    Ok(container)
}

/// The experiment as this process knows it, and which process that is: after a fork it is another.
static KNOWN: Mutex<Option<(u32, Arc<Experiment>)>> = Mutex::new(None);

fn known() -> Option<Arc<Experiment>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((owner, experiment)) if *owner == process::id() => Some(experiment.clone()),
        _ => {
            // The parent's: not even to be closed here.
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
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// The experiment, for `function`, which comes after [`add_to_experiment`].
fn existing(function: &str) -> Result<Arc<Experiment>> {
    if let Some(known) = known() {
        return Ok(known);
    }
    match Experiment::open(EXPERIMENT) {
        Err(fault) if fault.kind == Kind::NotFound => Err(Fault::new(
            Kind::Refused,
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
        Err(fault) if fault.kind == Kind::NotFound => create(),
        Err(fault) if fault.kind == Kind::Ended => {
            match Experiment::clear(EXPERIMENT) {
                // Another process was quicker, or it was only about to end.
                Err(fault) if fault.kind == Kind::NotFound => {}
                cleared => cleared?,
            }
            create()
        }
        opened => opened,
    };
    Ok(know(opened?))
}

fn create() -> Result<Experiment> {
    match Experiment::create(EXPERIMENT, &Wanted::default(), Owner::Nobody) {
        // Another process was quicker.
        Err(fault) if fault.kind == Kind::WrongInput => Experiment::open(EXPERIMENT),
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
        for dilation in [f32::NAN, f32::INFINITY, 1e-7, 2e6, -2e6] {
            assert_eq!(rate_of(dilation).unwrap_err().kind, Kind::WrongInput);
        }
    }
}
