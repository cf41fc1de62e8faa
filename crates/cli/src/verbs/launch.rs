//! `run`, `exec`, `attach`: programs onto a clock.

use std::ffi::OsString;

use lorentz_container::{
    self as container, check_attachable, ClockOptions, Container, HostNow, MonitorKind,
    NewContainer, StateDir, WhichClock,
};

use crate::args::{Attach, Exec, Run};
use crate::print;
use crate::view::View;

pub fn run(args: &Run) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let new =
        NewContainer { name: args.name.as_deref(), command: &args.command, kind: MonitorKind::Run };
    let made = make(&state, &new, &args.clock.options())?;
    let status = container::run(made.clone(), &args.command, args.clock.frozen);
    leave(&made, status)
}

pub fn exec(args: &Exec) -> anyhow::Result<i32> {
    let found = StateDir::open()?.find(&args.container)?;
    let status = container::exec(&found, &args.command);
    leave(&found, status)
}

pub fn attach(args: &Attach) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let process = check_attachable(&state, args.pid)?;
    let command: Vec<OsString> = vec![process.command().into()];
    let new =
        NewContainer { name: args.name.as_deref(), command: &command, kind: MonitorKind::Attach };
    let made = make(&state, &new, &args.clock.options())?;
    // The monitor it leaves behind has entered the container by now; this process looks after nothing.
    let attached = leave(&made, container::attach(args.pid, args.tree, made.clone()))?;
    if args.json {
        let view = View::of(&state.container(made.name())?)?;
        print::out_json(&print::clocks_json(&view, view.clock_state()))?;
    } else {
        let pids: Vec<String> = attached.pids.iter().map(u32::to_string).collect();
        print::out(&format!("{}: in virtual time: {}\n", made.name(), pids.join(" ")))?;
    }
    Ok(0)
}

/// The container to run in: a new one, or a place on another's clock.
fn make(state: &StateDir, new: &NewContainer, options: &ClockOptions) -> anyhow::Result<Container> {
    Ok(match options.which(&HostNow::read()?)? {
        WhichClock::New(settings) => state.create(new, &settings)?,
        WhichClock::Of(owner) => state.join(new, &owner)?,
    })
}

/// Ends this process's part in `container`, and passes `result` on.
fn leave<T>(container: &Container, result: anyhow::Result<T>) -> anyhow::Result<T> {
    match (result, container.leave()) {
        (Ok(_), Err(error)) => Err(error.into()),
        (result, _) => result,
    }
}
