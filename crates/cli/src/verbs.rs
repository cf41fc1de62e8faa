//! What the commands do: find the container, ask for the change, print.

mod change;
mod launch;
mod look;

use crate::args::Verb;

/// Does what was asked, and returns the exit status.
pub fn perform(verb: &Verb) -> anyhow::Result<i32> {
    match verb {
        Verb::Run(args) => launch::run(args),
        Verb::Attach(args) => launch::attach(args),
        Verb::Exec(args) => launch::exec(args),
        Verb::Ps(args) => look::ps(args),
        Verb::Time(args) => look::time(args),
        Verb::Doctor(args) => look::doctor(args),
        Verb::Dilate(args) => change::dilate(args),
        Verb::Freeze(args) => change::freeze(args),
        Verb::Unfreeze(args) => change::unfreeze(args),
        Verb::Leap(args) => change::leap(args),
        Verb::Step(args) => change::step(args),
        Verb::Skip(args) => change::skip(args),
        Verb::Rm(args) => change::rm(args),
    }
}
