//! `dilate`, `freeze`, `unfreeze`, `leap`, `step`, `skip`, `rm`: changes to what there is.

use anyhow::Context;
use lorentz_container::{self as container, Container, Followed, StateDir, Target};

use crate::args::{Dilate, Leap, LookAt, Rm, Skip, Step};
use crate::print;
use crate::view::View;
use crate::wrong::WrongInput;

pub fn dilate(args: &Dilate) -> anyhow::Result<i32> {
    let rate = args.rate.or(args.tdf).ok_or_else(|| missing("--rate R or --tdf N"))?;
    let container = find(&args.at)?;
    let followed = container.clock_to_change()?.dilate(rate).context("lorentz dilate")?;
    report(&args.at, &container, followed)
}

pub fn freeze(args: &LookAt) -> anyhow::Result<i32> {
    let container = find(args)?;
    let followed = container::freeze(&container)?;
    report(args, &container, followed)
}

pub fn unfreeze(args: &LookAt) -> anyhow::Result<i32> {
    let container = find(args)?;
    let followed = container::unfreeze(&container)?;
    report(args, &container, followed)
}

pub fn leap(args: &Leap) -> anyhow::Result<i32> {
    let container = find(&args.at)?;
    let target = match (args.by, args.to, &args.like) {
        (Some(by), ..) => Target::By(by),
        (_, Some(to), _) => Target::To(to),
        (.., Some(other)) => Target::Like(wall_clock_of(other)?),
        _ => return Err(missing("--by DUR, --to TIME or --like NAME|PID")),
    };
    let clock = container.clock_to_change()?;
    let by = target.leap(&clock.reading())?;
    let followed = clock.leap(by).context("lorentz leap")?;
    report(&args.at, &container, followed)
}

pub fn step(args: &Step) -> anyhow::Result<i32> {
    let container = find(&args.at)?;
    let target = match (args.by, args.to) {
        (Some(by), _) => Target::By(by),
        (_, Some(to)) => Target::To(to),
        _ => return Err(missing("--by DUR or --to TIME")),
    };
    let clock = container.clock_to_change()?;
    let by = target.step(&clock.reading())?;
    let followed = clock.step(by).context("lorentz step")?;
    report(&args.at, &container, followed)
}

pub fn skip(args: &Skip) -> anyhow::Result<i32> {
    let container = StateDir::open()?.find(&args.container)?;
    container::skip::set(&container, args.mode.mode(), args.read_cost)?;
    if args.json {
        let view = View::of(&container)?;
        print::out_json(&print::clocks_json(&view, view.clock_state()))?;
    }
    Ok(0)
}

pub fn rm(args: &Rm) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    // All of them are there before the first goes.
    let found: Result<Vec<_>, _> = args.names.iter().map(|name| state.container(name)).collect();
    for container in found? {
        remove(&container, args.force)?;
    }
    Ok(0)
}

fn remove(container: &Container, force: bool) -> anyhow::Result<()> {
    let name = container.name();
    match container::clear(container, force)? {
        0 => (),
        1 => print::out(&format!("{name}: 1 program ended\n"))?,
        many => print::out(&format!("{name}: {many} programs ended\n"))?,
    }
    if let (Some(mut runtime), Some(bundle)) =
        (container.runtime("delete"), &container.record().bundle)
    {
        // What the OCI runtime has of it goes too, where it is still there.
        runtime.args(["--force", &bundle.id]).status().context("lorentz-runtime")?;
    }
    Ok(())
}

fn find(at: &LookAt) -> anyhow::Result<Container> {
    Ok(StateDir::open()?.find(&at.container)?)
}

/// What the wall clock of another container shows.
fn wall_clock_of(other: &str) -> anyhow::Result<lorentz_clock::WallTime> {
    let other = StateDir::open()?.find(other).map_err(|error| {
        if error.is_wrong_input() {
            anyhow::Error::new(WrongInput(format!("--like {error}")))
        } else {
            error.into()
        }
    })?;
    Ok(other.clock()?.reading().wall)
}

/// Prints the clocks as they stand now, where asked to.
fn report(at: &LookAt, container: &Container, followed: Followed) -> anyhow::Result<i32> {
    if at.json {
        print::out_json(&print::changed_json(&View::of(container)?, followed))?;
    }
    Ok(0)
}

fn missing(what: &str) -> anyhow::Error {
    WrongInput(format!("expected {what}")).into()
}
