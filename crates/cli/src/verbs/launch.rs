//! `run`, `exec`, `attach`: programs onto a clock.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::Context;
use lorentz_container::{
    self as container, check_attachable, ClockOptions, Container, HostNow, Life, MonitorKind,
    NewContainer, StateDir, StateError, WhichClock,
};

use crate::args::{Attach, Exec, Run};
use crate::print;
use crate::view::View;
use crate::wrong::WrongInput;

pub fn run(args: &Run) -> anyhow::Result<i32> {
    if args.root.rootfs.is_some() || args.root.bundle.is_some() {
        return run_as_container(args);
    }
    let state = StateDir::open()?;
    let new =
        NewContainer { name: args.name.as_deref(), command: &args.command, kind: MonitorKind::Run };
    let made = make(&state, &new, &args.clock.options())?;
    let status = container::run(made.clone(), &args.command, args.clock.frozen);
    leave(&made, status)
}

/// With a root file system of its own: the OCI runtime does it, and takes this process's place.
fn run_as_container(args: &Run) -> anyhow::Result<i32> {
    let options = args.clock.options();
    // Refused here in the words of the command line.
    options.which(&HostNow::read()?)?;
    let state = StateDir::open()?;
    let name = args.name.clone().unwrap_or_else(|| state.unused_name());
    if state.container(&name).is_ok_and(|one| one.life().is_ok_and(|life| life != Life::Ended)) {
        return Err(StateError::NameInUse(name).into());
    }
    let root = args.root.options();
    let bundle = match (&args.root.bundle, &root) {
        (Some(bundle), _) => bundle.clone(),
        (None, Some(root)) => container::make_bundle(&name, root, &args.command)
            .map_err(|error| WrongInput(format!("{error:#}")))?,
        (None, None) => PathBuf::default(),
    };
    let mut command = container::runtime(&container::runtime_root());
    command.args(["run", "--as-lorentz", "--bundle"]).arg(&bundle);
    for annotation in options.annotations() {
        command.arg("--annotation").arg(annotation);
    }
    command.arg(&name);
    if root.is_none() && !args.command.is_empty() {
        command.arg("--").args(&args.command);
    }
    let error = command.exec();
    container::remove_bundle(&bundle);
    Err(error).context("lorentz-runtime, which makes containers")
}

pub fn exec(args: &Exec) -> anyhow::Result<i32> {
    let found = StateDir::open()?.find(&args.container)?;
    if let (Some(mut command), Some(bundle)) = (found.runtime("exec"), &found.record().bundle) {
        let error =
            command.arg("--as-lorentz").arg(&bundle.id).arg("--").args(&args.command).exec();
        return Err(error).context("lorentz-runtime, which enters containers");
    }
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
