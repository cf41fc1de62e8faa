//! `run`, `exec`, `attach`: programs onto a clock.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::Context;
use lorentz_clock::Rate;
use lorentz_container::{
    self as container, check_attachable, AttachReach, Container, Liveness, MonitorKind,
    NewContainer, Newcomers, StateDir, StateError,
};
use lorentz_control::processes::Process;
use lorentz_control::{ClockOptions, HostNow, WhichClock};
use lorentz_experiment::{Experiment, Joining};

use crate::args::{AttachArgs, AttachTarget, Exec, RunArgs};
use crate::out_of_memory::MemoryWatch;
use crate::print;
use crate::print_dry_run::PlannedClock;
use crate::ready::ReadyFd;
use crate::root_args::is_interactive;
use crate::view::View;
use crate::wrong_input::WrongInput;

pub fn run(args: &RunArgs) -> anyhow::Result<i32> {
    if args.dry_run {
        return dry_run(args);
    }
    if args.root.is_given() {
        return run_as_container(args);
    }
    if args.root.newcomers.is_some() {
        let expected =
            "expected with --rootfs, --image or --bundle: nobody can enter another container";
        return Err(WrongInput(format!("--newcomers: {expected}")).into());
    }
    let ready = args.ready_fd.map(ReadyFd::open).transpose()?;
    let state = StateDir::open()?;
    let experiment = args.experiment.as_ref().map(|name| Experiment::open(&state, name));
    let mut experiment = experiment.transpose()?;
    let new = NewContainer {
        name: args.name.as_deref(),
        command: &args.command,
        has_programs: true,
        ..NewContainer::monitored_by(MonitorKind::Run)
    };
    let options =
        ClockOptions { in_experiment: args.experiment.is_some(), ..args.clock.options.clone() };
    let made = make(&state, &new, &options)?;
    let rate = options.rate.or(options.tdf).unwrap_or(Rate::ONE);
    let mut refused = None;
    let joins = |container: &Container| {
        if let Some(experiment) = &mut experiment {
            let RunArgs { timeline, parallel, compute, .. } = *args;
            let joining = Joining::new(container.name(), rate);
            let joining = Joining { timeline, parallel, compute, ..joining };
            let added = experiment.add_as(&joining);
            added.map_err(|error| refused.insert(error).to_string()).map_err(anyhow::Error::msg)?;
        }
        // The reader may have gone. The program does not need it.
        let _ = ready.map(|mut ready| ready.write_all(b"\n"));
        Ok(())
    };
    let memory = MemoryWatch::begin();
    let status = container::run(made.clone(), &args.command, options.frozen, joins);
    explain_kill(&memory, &args.command, &status);
    leave(&made, refused.map_or(status, Err))
}

/// Prints how the clock would start.
fn dry_run(args: &RunArgs) -> anyhow::Result<i32> {
    let host = HostNow::read()?;
    let which = args.clock.options.which(&host)?;
    let (clock_of, settings) = match &which {
        WhichClock::New(settings) => (None, Some(settings)),
        WhichClock::Of(name) => {
            StateDir::open()?.container(name)?;
            (Some(name.as_str()), None)
        }
    };
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let planned = PlannedClock { clock_of, settings, host: &host, command };
    match args.json {
        true => print::out_json(&planned.json())?,
        false => print::out(&planned.words())?,
    }
    Ok(0)
}

/// With a root file system of its own: the OCI runtime does it, and takes this process's place.
fn run_as_container(args: &RunArgs) -> anyhow::Result<i32> {
    let options = &args.clock.options;
    // Refused here in the words of the command line.
    options.which(&HostNow::read()?)?;
    let state = StateDir::open()?;
    let name = args.name.clone().unwrap_or_else(|| state.unused_name());
    if state
        .container(&name)
        .is_ok_and(|one| one.liveness().is_ok_and(|life| life != Liveness::Ended))
    {
        return Err(StateError::NameInUse(name).into());
    }
    check_newcomers(args.root.newcomers)?;
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
    if let Some(newcomers) = args.root.newcomers {
        command.arg("--annotation").arg(format!("lorentz.newcomers={}", newcomers.name()));
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
    let state = StateDir::open()?;
    let found = state.find(&args.container)?;
    replace_monitor(&found);
    // The record has the new monitor.
    let found = state.container(found.name())?;
    if let (Some(mut command), Some(bundle)) =
        (found.runtime_there("exec")?, &found.record().bundle)
    {
        command.arg("--as-lorentz");
        if is_interactive() {
            command.arg("--tty");
        }
        let error = command.arg(&bundle.id).arg("--").args(&args.command).exec();
        return Err(error).context("lorentz-runtime, which enters containers");
    }
    let command = lorentz_network::enter_node(&state, &found, &args.command)?;
    let memory = MemoryWatch::begin();
    let status = container::exec(&found, &command);
    explain_kill(&memory, &command, &status);
    leave(&found, status)
}

/// Says so if the kernel has killed the program for want of memory.
fn explain_kill(memory: &MemoryWatch, command: &[OsString], status: &anyhow::Result<i32>) {
    let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let why = status.as_ref().ok().and_then(|status| memory.explain(&program, *status));
    if let Some(why) = why {
        eprintln!("lorentz: {why}");
    }
}

pub fn attach(args: &AttachArgs) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let (pid, engines_name) = match &args.target {
        AttachTarget::Process(pid) => (*pid, None),
        AttachTarget::Container(container) => {
            (container.first_process().map_err(WrongInput)?, Some(container.name()))
        }
    };
    let process = check_attachable(&state, pid)?;
    if !args.yes && is_above(pid) && !agrees(&process.command(), pid)? {
        return Err(
            WrongInput(format!("{pid}: not attached; --yes attaches without a question")).into()
        );
    }
    let newcomers = newcomers_to(pid, args.newcomers)?;
    let command: Vec<OsString> = vec![process.command().into()];
    let new = NewContainer {
        name: args.name.as_deref().or(engines_name),
        command: &command,
        newcomers,
        ..NewContainer::monitored_by(MonitorKind::Attach)
    };
    let reach = match (engines_name.is_some(), args.tree) {
        // A container in the host's process id namespace has no other processes to itself.
        (true, _) if container::is_first_process(pid)? => AttachReach::PidNamespace,
        (true, _) | (false, true) => AttachReach::Descendants,
        (false, false) => AttachReach::Process,
    };
    let options = ClockOptions { in_experiment: args.for_experiment, ..args.clock.options.clone() };
    let mut clock = options.which(&HostNow::read()?)?;
    let rate = match &mut clock {
        WhichClock::New(settings) => settings.put_off_rate(),
        WhichClock::Of(_) => None,
    };
    let made = make_on(&state, &new, clock)?;
    // The monitor it leaves behind has entered the container by now; this process looks after nothing.
    let attached = leave(&made, container::attach(pid, reach, made.clone(), rate))?;
    if args.json {
        let view = View::of(&state.container(made.name())?)?;
        print::out_json(&print::clocks_json(&view, view.clock_state()))?;
    } else {
        let pids: Vec<String> = attached.pids.iter().map(u32::to_string).collect();
        print::out(&format!("{}: in virtual time: {}\n", made.name(), pids.join(" ")))?;
    }
    Ok(0)
}

/// Whether this process was started by `pid`, or by a program that it started: one's own shell.
fn is_above(pid: u32) -> bool {
    let parent = |of: u32| Process::read(of).map(|process| process.parent).filter(|of| *of > 1);
    std::iter::successors(Some(std::process::id()), |of| parent(*of)).skip(1).any(|of| of == pid)
}

/// Asks the person at the terminal. Where there is none, as in scripts, the answer is yes.
fn agrees(command: &str, pid: u32) -> anyhow::Result<bool> {
    if !is_interactive() {
        return Ok(true);
    }
    eprint!(
        "Process {pid} ({command}) runs this command. It, and all that it starts, will have the container's time until it ends. \
         Attach it? [y/N] "
    );
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// How the container of an attached process receives newcomers; `None` if nobody can enter it.
fn newcomers_to(pid: u32, asked: Option<Newcomers>) -> anyhow::Result<Option<Newcomers>> {
    let is_first = container::is_first_process(pid).unwrap_or(false);
    match asked {
        Some(asked) if !is_first => {
            let asked = asked.name();
            let expected = "expected the first process of a process id namespace";
            Err(WrongInput(format!("--newcomers {asked}: process {pid}: {expected}")).into())
        }
        asked => {
            check_newcomers(asked)?;
            Ok(asked.or(is_first.then_some(Newcomers::Attach)))
        }
    }
}

/// Checks that the kernel allows the watch that the user asks for.
fn check_newcomers(asked: Option<Newcomers>) -> anyhow::Result<()> {
    match asked.filter(|asked| *asked != Newcomers::Ignore) {
        None => Ok(()),
        Some(asked) => container::check_newcomers().map_err(|error| {
            let needs = "expected root, or CAP_BPF and CAP_PERFMON ('lorentz doctor')";
            WrongInput(format!("--newcomers {}: {error}; {needs}", asked.name())).into()
        }),
    }
}

/// The container to run in: a new one, or a place on another's clock.
fn make(state: &StateDir, new: &NewContainer, options: &ClockOptions) -> anyhow::Result<Container> {
    make_on(state, new, options.which(&HostNow::read()?)?)
}

fn make_on(state: &StateDir, new: &NewContainer, clock: WhichClock) -> anyhow::Result<Container> {
    Ok(match clock {
        WhichClock::New(settings) => state.create(new, &settings)?,
        WhichClock::Of(owner) => {
            if let Ok(owner) = state.container(&owner) {
                replace_monitor(&owner);
            }
            state.join(new, &owner)?
        }
    })
}

/// Gives the programs of a container whose monitor has died a new one, where the kernel allows it. The new program has a monitor of
/// its own, and runs in any case.
fn replace_monitor(container: &Container) {
    if let Some(why) = container::adopt_if_needed(container) {
        eprintln!("lorentz: {why}");
    }
}

/// Ends this process's part in `container`, and passes `result` on.
fn leave<T>(container: &Container, result: anyhow::Result<T>) -> anyhow::Result<T> {
    match (result, container.leave()) {
        (Ok(_), Err(error)) => Err(error.into()),
        (result, _) => result,
    }
}
