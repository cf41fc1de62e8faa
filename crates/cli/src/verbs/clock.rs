//! `clock`: how far a container's clock is from the truth, and faults of it.

use std::io;
use std::time::Duration;

use anyhow::Context;
use lorentz_clock::{Span, VirtualInstant};
use lorentz_container::{Container, StateDir};
use lorentz_control::discipline::{ClockErrorChange, ErrorHistory, ErrorReading};
use lorentz_control::{host_time, Clock};

use crate::clock_error_args::{
    BumpArgs, ClockVerb, DriftArgs, ErringClock, LeapSecondArgs, LeapSecondWord, LogArgs,
    StrobeArgs, SuspendArgs,
};
use crate::exit_status::FAILED;
use crate::print;
use crate::print_clock_error as shown;
use crate::wrong_input::WrongInput;

pub fn dispatch(verb: &ClockVerb) -> anyhow::Result<i32> {
    match verb {
        ClockVerb::Show(args) => show(args),
        ClockVerb::Log(args) => log(args),
        ClockVerb::Check(args) => check(args),
        ClockVerb::Drift(DriftArgs { at, drift, length }) => {
            let length = length.map(|length| positive("--for", length)).transpose()?;
            change(at, ClockErrorChange::Drift(*drift, length))
        }
        ClockVerb::Bump(BumpArgs { at, by, slew }) => {
            let slew = slew.map(|slew| positive("--slew", slew)).transpose()?;
            change(at, ClockErrorChange::Bump(*by, slew))
        }
        ClockVerb::Strobe(args) => strobe(args),
        ClockVerb::Suspend(SuspendArgs { at, length }) => {
            change(at, ClockErrorChange::Suspend(positive("suspend", *length)?))
        }
        ClockVerb::LeapSecond(LeapSecondArgs { at, what }) => {
            let insert = match what {
                LeapSecondWord::Insert => Some(true),
                LeapSecondWord::Delete => Some(false),
                LeapSecondWord::None => None,
            };
            change(at, ClockErrorChange::LeapSecond(insert))
        }
        ClockVerb::Reset(args) => change(args, ClockErrorChange::Reset),
    }
}

fn positive(flag: &str, length: Span) -> anyhow::Result<Span> {
    match length.0 > 0 {
        true => Ok(length),
        false => Err(WrongInput(format!("{flag} {length}: expected more than 0")).into()),
    }
}

fn open(args: &ErringClock) -> anyhow::Result<(Container, Clock)> {
    let container = StateDir::open()?.find(&args.container)?;
    // A clock that an experiment moves is the experiment's to change.
    let clock = match container.experiment()? {
        Some(_) => container.clock()?,
        None => container.clock_to_change()?,
    };
    Ok((container, clock))
}

fn read(container: &Container, clock: &Clock) -> anyhow::Result<ErrorReading> {
    clock.error().context("the clock's error").map_err(|error| container.explain(error))
}

fn show(args: &ErringClock) -> anyhow::Result<i32> {
    let (container, clock) = open(args)?;
    print(&container, &read(&container, &clock)?, args.json)?;
    Ok(0)
}

fn print(container: &Container, error: &ErrorReading, json: bool) -> io::Result<()> {
    match json {
        true => print::out_json(&shown::json(container.name(), error)),
        false => print::out(&shown::words(container.name(), error)),
    }
}

fn change(args: &ErringClock, change: ClockErrorChange) -> anyhow::Result<i32> {
    let (container, clock) = open(args)?;
    let changed = container.change_clock_error(change).map_err(|error| {
        match error.downcast_ref().map(io::Error::kind) {
            Some(io::ErrorKind::InvalidInput) => {
                WrongInput(format!("{}: {error}", container.name())).into()
            }
            Some(io::ErrorKind::Unsupported) => {
                let why = "its clock has several containers, and an error has one owner";
                WrongInput(format!("{}: {why}", container.name())).into()
            }
            _ => error.context("the clock's error"),
        }
    });
    changed.map_err(|error| container.explain(error))?;
    if args.json {
        print(&container, &read(&container, &clock)?, true)?;
    }
    Ok(0)
}

fn check(args: &ErringClock) -> anyhow::Result<i32> {
    let (container, clock) = open(args)?;
    let error = read(&container, &clock)?;
    let within = error.is_within_bound();
    match args.json {
        true => print::out_json(&shown::json(container.name(), &error))?,
        false => print::out(&shown::verdict(container.name(), &error, within))?,
    }
    Ok(if within == Some(true) { 0 } else { FAILED })
}

fn log(args: &LogArgs) -> anyhow::Result<i32> {
    let every = positive("--every", args.every)?;
    let length = args.length.map(|length| positive("--for", length)).transpose()?;
    let (container, clock) = open(&args.at)?;
    if !args.at.json {
        print::out(&shown::log_head())?;
    }
    let print = |error: &ErrorReading| match args.at.json {
        true => print::out_json_line(&shown::json(container.name(), error)),
        false => print::out(&shown::log_line(error)),
    };
    if container.experiment()?.is_some() {
        match clock.error_history() {
            Ok(history) => {
                log_exactly(&container, history, every, length, print)?;
                return Ok(0);
            }
            // Another user's clock: a look tells what is when it is made, as without an experiment.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (),
            Err(error) => return Err(container.explain(error.into())),
        }
    }
    let mut due = clock.look().now();
    let end = length.map_or(VirtualInstant::NEVER, |length| due.plus(length));
    while due <= end && wait_until(&container, &clock, due) {
        print(&read(&container, &clock)?)?;
        due = due.plus(every);
    }
    Ok(0)
}

/// Looks at whole multiples of `every` of the truth, until the container ends or `length` is over.
fn log_exactly(
    container: &Container,
    mut history: ErrorHistory,
    every: Span,
    length: Option<Span>,
    print: impl Fn(&ErrorReading) -> io::Result<()>,
) -> anyhow::Result<()> {
    /// However late a look is made, it tells what was at its instant.
    const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
    let begun = history.truth()?;
    let mut due = VirtualInstant(begun.0 - begun.0 % every.0).plus(every);
    let end = length.map_or(VirtualInstant::NEVER, |length| due.plus(length));
    while due <= end {
        match history.at(due)? {
            Some(error) => {
                print(&error)?;
                due = due.plus(every);
            }
            None if container.dir().exists() => host_time::sleep(BETWEEN_LOOKS),
            None => break,
        }
    }
    Ok(())
}

fn strobe(args: &StrobeArgs) -> anyhow::Result<i32> {
    let period = positive("--period", args.period)?;
    let length = positive("--for", args.length)?;
    let (container, clock) = open(&args.at)?;
    let begun = clock.look().now();
    let mut moves = 0_i64;
    loop {
        let due = begun.plus(Span(period.0.saturating_mul(moves)));
        // It ends where it began.
        let is_over = due.since(begun) >= length && moves % 2 == 0;
        if is_over || !wait_until(&container, &clock, due) {
            return Ok(0);
        }
        let by = if moves % 2 == 0 { args.by } else { Span(-args.by.0) };
        change(&ErringClock { json: false, ..args.at.clone() }, ClockErrorChange::Bump(by, None))?;
        moves += 1;
    }
}

/// Waits until the clock shows `due`. Returns whether the container is still there.
fn wait_until(container: &Container, clock: &Clock, due: VirtualInstant) -> bool {
    /// The clock may change meanwhile.
    const MAX_SLEEP: Duration = Duration::from_millis(100);
    /// An experiment moves the clock, and may do so a thousand times as fast as real time.
    const MAX_SLEEP_IN_EXPERIMENT: Duration = Duration::from_micros(200);
    loop {
        if !container.dir().exists() {
            return false;
        }
        let look = clock.look();
        if look.now() >= due {
            return true;
        }
        let left = look.real_at(due).since(look.real).0.max(1) as u64;
        let most = match look.limit {
            VirtualInstant::NEVER => MAX_SLEEP,
            _ => MAX_SLEEP_IN_EXPERIMENT,
        };
        host_time::sleep(Duration::from_nanos(left).min(most));
    }
}
