//! `experiment`: many containers, one virtual time.

use std::io::IsTerminal;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use lorentz_clock::Rate;
use lorentz_container::{self as container, BatchSpawn, Container, StateDir, MAX_BATCH};
use lorentz_control::{ClockOptions, HostNow, WhichClock};
use lorentz_experiment::{
    self as experiment, Ended, Experiment, ExperimentOptions, ExperimentRefusal, Joining,
};
use serde_json::{json, Value};

use crate::experiment_args::{
    Add, ContainerMove, Create, ExperimentVerb, Populate, StatusArgs, StepMoves,
};
use crate::print;
use crate::print_experiment;
use crate::verbs::guard;

/// Does what was asked.
pub fn dispatch(verb: &ExperimentVerb) -> anyhow::Result<i32> {
    use ExperimentVerb as Verb;
    let state = StateDir::open()?;
    let open = |name: &str| Experiment::open(&state, name);
    match verb {
        Verb::Create(args) => create(&state, args)?,
        Verb::Add(args) => add(&state, args)?,
        Verb::Populate(args) => populate(&state, args)?,
        Verb::Remove(member) => open(&member.name)?.remove(&named(&state, &member.container)?)?,
        Verb::Dilate(args) => {
            let rate = args.dilation.rate().unwrap_or(Rate::ONE);
            let mut experiment = open(&args.target.name)?;
            experiment.dilate(&named(&state, &args.target.container)?, rate)?;
        }
        Verb::Synchronize(one) => open(&one.name)?.synchronize()?,
        Verb::Start(one) => open(&one.name)?.start()?,
        Verb::Pause(one) => open(&one.name)?.pause()?,
        Verb::Stop(one) => open(&one.name)?.stop()?,
        Verb::Interval(args) => {
            let mut experiment = open(&args.target.name)?;
            let container = named(&state, &args.target.container)?;
            experiment.set_interval(&container, args.interval, args.timeline)?;
        }
        Verb::Progress(args) => open(&args.name)?.progress(args.timeline)?,
        Verb::Step(args) => step(&state, args)?,
        Verb::Reset(args) => open(&args.name)?.reset(args.timeline)?,
        Verb::Status(args) => status(&state, args)?,
        Verb::Rm(one) => rm(&state, &one.name)?,
        Verb::Guard(args) => guard::start(state, args)?,
    }
    Ok(0)
}

fn create(state: &StateDir, args: &Create) -> anyhow::Result<()> {
    let wanted = ExperimentOptions {
        timeslice_ns: args.timeslice.map(|span| span.0),
        cpus: args.cpus.clone(),
        as_fast_as_possible: args.as_fast_as_possible,
        compute: args.compute,
        most: args.most,
    };
    experiment::create(state, &args.name, &wanted)
}

fn step(state: &StateDir, args: &StepMoves) -> anyhow::Result<()> {
    let mut experiment = Experiment::open(state, &args.name)?;
    let moves = args.moves.iter();
    let moves = moves.map(|ContainerMove { container, by }| Ok((named(state, container)?, *by)));
    experiment.step(moves.collect::<anyhow::Result<Vec<_>>>()?)
}

fn add(state: &StateDir, args: &Add) -> anyhow::Result<()> {
    let mut experiment = Experiment::open(state, &args.target.name)?;
    let container = experiment::container_for(state, &args.target.container)?;
    let rate = args.dilation.rate().unwrap_or(Rate::ONE);
    let Add { timeline, parallel, compute, .. } = *args;
    let joining = Joining::new(container.name(), rate);
    experiment.add_as(&Joining { timeline, parallel, compute, ..joining })
}

/// So many at a time as one process looks after; each has the experiment to itself meanwhile.
fn populate(state: &StateDir, args: &Populate) -> anyhow::Result<()> {
    let status = Experiment::open(state, &args.name)?.status()?;
    if args.count as usize + status.containers.len() > status.most as usize {
        return Err(ExperimentRefusal::Full(status.most))
            .context(format!("--count {}", args.count));
    }
    status.cpus.check_parallel(args.parallel)?;
    let rate = args.dilation.rate().unwrap_or(Rate::ONE);
    let options = ClockOptions { rate: Some(rate), in_experiment: true, ..Default::default() };
    let WhichClock::New(settings) = options.which(&HostNow::read()?)? else {
        anyhow::bail!("a clock of its own was expected");
    };
    let prefix = args.prefix.as_deref().unwrap_or(&args.name);
    let names: Vec<String> = (1..=args.count).map(|number| format!("{prefix}-{number}")).collect();
    names.iter().try_for_each(|name| state.check_new_name(name))?;
    let progress = indicatif::ProgressBar::new(u64::from(args.count));
    for names in names.chunks(MAX_BATCH) {
        let output = args.output.as_deref();
        let batch = BatchSpawn { names, command: &args.command, output, settings: &settings };
        container::spawn_batch(state, &batch, || {
            let mut experiment = Experiment::open(state, &args.name)?;
            let Populate { timeline, parallel, compute, .. } = *args;
            Ok(move |one: &Container| {
                let joining = Joining::new(one.name(), rate);
                experiment.add_as(&Joining { timeline, parallel, compute, ..joining })
            })
        })?;
        progress.inc(names.len() as u64);
    }
    progress.finish_and_clear();
    Ok(())
}

/// The name of the container that a name or number means.
fn named(state: &StateDir, text: &str) -> anyhow::Result<String> {
    Ok(state.find(text)?.name().to_string())
}

fn rm(state: &StateDir, name: &str) -> anyhow::Result<()> {
    match Experiment::open(state, name).and_then(|mut experiment| experiment.end()) {
        Ok(()) => Ok(()),
        Err(error)
            if error.is::<Ended>()
                || matches!(error.downcast_ref(), Some(ExperimentRefusal::Dead(_))) =>
        {
            experiment::release(state, name)
        }
        Err(error) => Err(error),
    }
}

fn status(state: &StateDir, args: &StatusArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else { return all(state, args) };
    let mut experiment = Experiment::open(state, name)?;
    loop {
        let status = experiment.status()?;
        if args.json {
            return Ok(print::out_json(&serde_json::to_value(&status)?)?);
        }
        if args.prometheus {
            return Ok(print::out(&status.prometheus())?);
        }
        let page = print_experiment::status(&status);
        if !args.watch {
            return Ok(print::out(&page)?);
        }
        const CLEAR: &str = "\x1b[H\x1b[J";
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        print::out(&format!("{clear}{page}\n"))?;
        sleep(Duration::from_secs(1));
    }
}

fn all(state: &StateDir, args: &StatusArgs) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for name in Experiment::list(state)? {
        let status = Experiment::open(state, &name).and_then(|mut one| one.status());
        found.push((name, status.ok()));
    }
    if args.json {
        let entry = |(name, status): &(String, Option<experiment::ExperimentStatus>)| match status {
            Some(status) => serde_json::to_value(status).unwrap_or(Value::Null),
            None => json!({ "name": name, "phase": "dead" }),
        };
        return Ok(print::out_json(&found.iter().map(entry).collect())?);
    }
    if args.prometheus {
        let alive: Vec<_> = found.iter().filter_map(|(_, status)| status.as_ref()).collect();
        return Ok(print::out(&experiment::prometheus(&alive))?);
    }
    Ok(print::out(&print_experiment::all(&found))?)
}
