//! The verbs: each finds the container, asks for the change, and prints.

mod adopt;
mod bandwidth;
mod change;
mod checkpoint;
mod clock;
mod edit;
mod experiment;
mod generate;
mod guard;
mod latency;
mod launch;
mod look;
mod network;
mod programs;
mod study;
mod top;
mod why;

use crate::args::Verb;

/// Carries out the verb, and returns the exit status.
pub fn dispatch(verb: &Verb) -> anyhow::Result<i32> {
    match verb {
        Verb::Run(args) => launch::run(args),
        Verb::Attach(args) => launch::attach(args),
        Verb::Detach(args) => change::detach(args),
        Verb::Exec(args) => launch::exec(args),
        Verb::Adopt(args) => adopt::adopt(args),
        Verb::Checkpoint(args) => checkpoint::checkpoint(args),
        Verb::Restore(args) => checkpoint::restore(args),
        Verb::Migrate(args) => checkpoint::migrate(args),
        Verb::Receive(args) => checkpoint::receive(args),
        Verb::Ps(args) => look::ps(args),
        Verb::Time(args) => look::time(args),
        Verb::Top(args) => top::top(args),
        Verb::Why(args) => why::why(args),
        Verb::Bandwidth(args) => bandwidth::bandwidth(args),
        Verb::Doctor(args) => look::doctor(args),
        Verb::Dilate(args) => change::dilate(args),
        Verb::Freeze(args) => change::freeze(args),
        Verb::Unfreeze(args) => change::unfreeze(args),
        Verb::Leap(args) => change::leap(args),
        Verb::Step(args) => change::step(args),
        Verb::Skip(args) => change::skip(args),
        Verb::Clock(verb) => clock::dispatch(verb),
        Verb::Latency(verb) => latency::latency(verb),
        Verb::Up(args) => network::up(args),
        Verb::Import(args) => network::import(args),
        Verb::Export(args) => network::export(args),
        Verb::Down(args) => network::down(args),
        Verb::Inspect(args) => network::inspect(args),
        Verb::Link(verb) => network::link(verb),
        Verb::Node(verb) => edit::node(verb),
        Verb::Schedule(verb) => edit::schedule(verb),
        Verb::Capture(args) => network::capture(args),
        Verb::Graph(args) => network::graph(args),
        Verb::Web(_) => programs::web(),
        Verb::Cluster(_) => programs::cluster(),
        Verb::Rm(args) => change::rm(args),
        Verb::Study(verb) => study::study(verb),
        Verb::Report(args) => study::report(args),
        Verb::Generate(verb) => generate::dispatch(verb),
        Verb::Experiment(args) => experiment::dispatch(&args.verb),
        #[cfg(feature = "failpoints")]
        Verb::Failpoints => failpoints(),
    }
}

#[cfg(feature = "failpoints")]
fn failpoints() -> anyhow::Result<i32> {
    use lorentz_clock::{Failpoint, FAILPOINTS_OFFSET};
    let place = |(point, name): &(Failpoint, &str)| {
        (name.to_string(), (FAILPOINTS_OFFSET + 4 * *point as usize).into())
    };
    let places: serde_json::Map<_, _> = Failpoint::ALL.iter().map(place).collect();
    crate::print::out_json(&places.into())?;
    Ok(0)
}
