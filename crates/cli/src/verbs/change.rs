//! `dilate`, `freeze`, `unfreeze`, `leap`, `step`, `detach`, `skip`, `rm`: changes to what there is.

use std::collections::HashSet;

use anyhow::Context;
use lorentz_clock::{RealInstant, SkipMode, WallTime};
use lorentz_container::{self as container, Container, StateDir};
use lorentz_control::{ChangeCounts, Clock, ClockChange, Date, HostNow, Reading, Target};
use lorentz_experiment as experiment;

use crate::args::{Dilate, Leap, LookAt, Pause, Rm, Skip, StepArgs, WhenArgs};
use crate::print;
use crate::view::View;
use crate::wrong_input::WrongInput;

pub fn dilate(args: &Dilate) -> anyhow::Result<i32> {
    let rate = args.rate.or(args.tdf).ok_or_else(|| missing("--rate R or --tdf N"))?;
    let at = instant(&args.when)?;
    change(&args.at, |container| {
        let followed = experiment::dilate(&StateDir::open()?, container, rate, at)?;
        tell_of_others(container, &args.at.container);
        Ok(followed)
    })
}

/// Says that a process which was named by its id is not the only one on its clock.
fn tell_of_others(container: &Container, named: &str) {
    let Ok(pid) = named.parse::<u32>() else { return };
    let Ok(mut processes) = container.processes() else { return };
    processes.retain(|process| !process.has_ended());
    if processes.iter().any(|process| process.pid == pid) && processes.len() > 1 {
        let (others, name) = (processes.len() - 1, container.name());
        let them = if others == 1 { "process" } else { "processes" };
        eprintln!("lorentz: {pid} shares the clock of {name} with {others} other {them}; all go at this rate");
    }
}

pub fn freeze(args: &Pause) -> anyhow::Result<i32> {
    let at = instant(&args.when)?;
    change(&args.at, |container| match at {
        None => Ok(container::freeze(container)?),
        Some(at) => Ok(container::freeze_at(container, at)?),
    })
}

pub fn unfreeze(args: &Pause) -> anyhow::Result<i32> {
    let at = instant(&args.when)?;
    change(&args.at, |container| match at {
        None => Ok(container::unfreeze(container)?),
        Some(_) => {
            let clock = container.clock_to_change()?;
            clock.change(ClockChange::Unfreeze, at).context("lorentz unfreeze")
        }
    })
}

pub fn leap(args: &Leap) -> anyhow::Result<i32> {
    let at = instant(&args.when)?;
    let like = args.like.as_ref().map(|other| wall_clock_of(other, at)).transpose()?;
    change(&args.at, |container| {
        let clock = container.clock_to_change()?;
        let now = reading(&clock, at);
        let target = match (args.by, &args.to, like) {
            (Some(by), ..) => Target::By(by),
            (_, Some(to), _) => Target::To(date_inside(to, &now)?),
            (.., Some(other)) => Target::Like(other),
            _ => return Err(missing("--by DUR, --to TIME or --like NAME|PID")),
        };
        let by = target.leap(&now)?;
        clock.change(ClockChange::Leap(by), at).context("lorentz leap")
    })
}

pub fn step(args: &StepArgs) -> anyhow::Result<i32> {
    let at = instant(&args.when)?;
    change(&args.at, |container| {
        let clock = container.clock_to_change()?;
        let now = reading(&clock, at);
        let target = match (args.by, &args.to) {
            (Some(by), _) => Target::By(by),
            (_, Some(to)) => Target::To(date_inside(to, &now)?),
            _ => return Err(missing("--by DUR or --to TIME")),
        };
        let by = target.step(&now)?;
        clock.change(ClockChange::Step(by), at).context("lorentz step")
    })
}

/// An announced time on the host's monotonic clock, as the host's wall clock stands now.
fn instant(when: &WhenArgs) -> anyhow::Result<Option<RealInstant>> {
    let Some(date) = &when.announced else { return Ok(None) };
    let host = HostNow::read().context("the host's clocks")?;
    let at = date.from(host.wall).map_err(|error| WrongInput(format!("--at: {error}")))?;
    match host.real_at(at) {
        Some(real) if real > host.real => Ok(Some(real)),
        Some(_) => Err(WrongInput(format!(
            "--at {at}: is past; expected a time later than the host's, which is {}",
            host.wall
        ))
        .into()),
        None => {
            Err(WrongInput(format!("--at {at}: is too far away; expected a time within 290 years"))
                .into())
        }
    }
}

/// The point that `--to` names, told from the container's clock.
fn date_inside(to: &Date, now: &Reading) -> anyhow::Result<WallTime> {
    to.from(now.wall).map_err(|error| WrongInput(format!("--to: {error}")).into())
}

/// The clocks as they are, or will be then.
fn reading(clock: &Clock, at: Option<RealInstant>) -> Reading {
    at.map_or_else(|| clock.reading(), |at| clock.reading_at(at))
}

pub fn detach(args: &LookAt) -> anyhow::Result<i32> {
    let container = StateDir::open()?.find(&args.container)?;
    let clock = container.clock_to_change()?;
    let name = container.name();
    let refused = |reason: String| Err(WrongInput(format!("{name}: {reason}")).into());
    let reading = clock.reading();
    if reading.frozen {
        return refused(format!("frozen; 'lorentz unfreeze {name}' first"));
    }
    if reading.skipping.mode != SkipMode::Off {
        return refused(format!("skips idle time; 'lorentz skip {name} off' first"));
    }
    let ahead = clock.follow_host().context("lorentz detach");
    match ahead.map_err(|error| container.explain(error))? {
        None => show_clocks(&container, args.json),
        Some(ahead) => refused(format!(
            "its CLOCK_MONOTONIC is {ahead} ahead of the host's, and never goes back; 'lorentz dilate {name} --rate 1' gives it \
             the host's rate, 'lorentz step {name}' another date"
        )),
    }
}

pub fn skip(args: &Skip) -> anyhow::Result<i32> {
    let container = StateDir::open()?.find(&args.container)?;
    // Where time may skip at once, the container may have ended before it is shown.
    container::skip::set(&container, args.mode.mode(), args.read_cost)
        .map_err(|error| container.explain(error))?;
    show_clocks(&container, args.json)
}

/// Prints the clocks of a container that has been changed, where JSON is asked for.
fn show_clocks(container: &Container, json: bool) -> anyhow::Result<i32> {
    if json {
        let view = View::of(container)?;
        print::out_json(&print::clocks_json(&view, view.clock_state()))?;
    }
    Ok(0)
}

pub fn rm(args: &Rm) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let mut names = args.names.clone();
    let mut known = HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    // All of them are there before the first goes.
    let found: Result<Vec<_>, _> =
        names.iter().map(|name| state.container_to_remove(name)).collect();
    let found = found?;
    let results = container::clear_all(&state, &found.iter().collect::<Vec<_>>(), args.force)?;
    for (container, ended) in found.iter().zip(results) {
        report_removed(container, ended?)?;
    }
    Ok(0)
}

/// Prints how many programs were ended with `container`, and removes what else there is of it.
fn report_removed(container: &Container, ended: usize) -> anyhow::Result<()> {
    let name = container.name();
    match ended {
        0 => (),
        1 => print::out(&format!("{name}: 1 program ended\n"))?,
        many => print::out(&format!("{name}: {many} programs ended\n"))?,
    }
    if let (Some(mut runtime), Some(bundle)) =
        (container.runtime("delete"), &container.record().bundle)
    {
        // The OCI runtime removes its own files of the container too, if they still exist.
        runtime.args(["--force", &bundle.id]).status().context("lorentz-runtime")?;
    }
    Ok(())
}

/// The wall clock of another container.
fn wall_clock_of(other: &str, at: Option<RealInstant>) -> anyhow::Result<lorentz_clock::WallTime> {
    let other = StateDir::open()?.find(other).map_err(|error| {
        if error.is_wrong_input() {
            anyhow::Error::new(WrongInput(format!("--like {error}")))
        } else {
            error.into()
        }
    })?;
    Ok(reading(&other.clock()?, at).wall)
}

/// Makes `change`, and prints what has come of it.
fn change(
    at: &LookAt,
    change: impl FnOnce(&Container) -> anyhow::Result<ChangeCounts>,
) -> anyhow::Result<i32> {
    let container = StateDir::open()?.find(&at.container)?;
    let followed = change(&container).map_err(|error| container.explain(error))?;
    report(at, &container, followed)
}

/// Prints the clocks as they stand now, where asked to.
fn report(at: &LookAt, container: &Container, followed: ChangeCounts) -> anyhow::Result<i32> {
    match followed.dropped {
        0 => (),
        1 => eprintln!("lorentz: a change that was announced for later is dropped"),
        many => eprintln!("lorentz: {many} changes that were announced for later are dropped"),
    }
    if at.json {
        print::out_json(&print::changed_json(&View::of(container)?, followed))?;
    }
    Ok(0)
}

fn missing(what: &str) -> anyhow::Error {
    WrongInput(format!("expected {what}")).into()
}
