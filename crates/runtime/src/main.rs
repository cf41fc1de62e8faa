//! `lorentz-runtime`: an OCI runtime whose containers have clocks of their own.
//!
//! `libcontainer`, the library of the runtime youki, makes the containers. This runtime adds time. Annotations (`lorentz.rate=10`)
//! or environment variables (`LORENTZ_RATE=10`) say which clock a container gets. A monitor in the background supervises it. Every
//! process, also one that enters later, comes onto the clock before its first instruction.
//!
//! ```text
//! podman run --runtime lorentz-runtime --annotation lorentz.at=2038-01-19 IMAGE date
//! ```
//!
//! The modules: [`args`] has the command line, [`config`] the bundle's settings. [`create`] and [`enter`] make processes;
//! [`workload`] is the last step of each before its program. [`life`] has the other verbs. [`terminal`] serves a program in the
//! foreground. [`report`] prints errors.

#![cfg_attr(not(test), no_main)]

mod annotations;
mod args;
mod config;
mod copyup;
mod create;
mod describe;
mod enter;
#[cfg(test)]
mod fuzz;
mod life;
mod place;
mod report;
mod resources;
mod rights;
mod sandbox;
mod terminal;
mod witness;
mod workload;

use clap::Parser;
#[cfg(not(test))]
use lorentz_container::{limits, on_ample_stack};

use args::{Cli, Verb};
use place::Place;

/// Called by the C library, without Rust's runtime setup: that ignores SIGPIPE, and programs would inherit it.
#[cfg(not(test))]
#[no_mangle]
extern "C" fn main() -> libc::c_int {
    const PANICKED: i32 = 101;
    limits::raise();
    on_ample_stack(|| std::panic::catch_unwind(story).unwrap_or(PANICKED))
}

#[cfg_attr(test, allow(dead_code))]
fn story() -> i32 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { report::FAILED } else { 0 };
        }
    };
    let done = report::Log::of(&cli.global)
        .and_then(|log| perform(&cli).inspect_err(|error| log.error(error)));
    match done {
        Ok(status) => status,
        Err(error) => {
            let as_lorentz = match &cli.verb {
                Verb::Run(run) => run.as_lorentz,
                Verb::Exec(exec) => exec.as_lorentz,
                _ => false,
            };
            let line = report::line(&error);
            eprintln!("{}: {line}", if as_lorentz { "lorentz" } else { "lorentz-runtime" });
            if as_lorentz {
                report::launch_status(&line)
            } else {
                report::FAILED
            }
        }
    }
}

fn perform(cli: &Cli) -> anyhow::Result<i32> {
    let place = Place::of(&cli.global)?;
    match &cli.verb {
        Verb::Create(args) => create::create(&place, args),
        Verb::Run(args) => create::run(&place, args),
        Verb::Exec(args) => enter::exec(&place, &args.exec),
        Verb::Start(args) => life::start(&place, &args.container_id),
        Verb::State(args) => life::state(&place, &args.container_id),
        Verb::Kill(args) => life::kill(&place, args),
        Verb::Delete(args) => life::delete(&place, &args.container_id, args.force),
        Verb::Pause(args) => life::pause(&place, &args.container_id),
        Verb::Resume(args) => life::resume(&place, &args.container_id),
        Verb::List(args) => life::list(&place, args),
        Verb::Ps(args) => life::ps(&place, args),
        Verb::Update(args) => resources::update(&place, args),
        Verb::Features(_) => describe::features(),
        Verb::Spec(args) => describe::spec(args),
        Verb::Events(_) => {
            anyhow::bail!("events is not supported: engines read the control groups themselves")
        }
        Verb::Checkpoint(_) => anyhow::bail!(
            "checkpoint is not supported: a container's clock cannot be saved with it"
        ),
        Verb::Restore(_) => {
            anyhow::bail!("restore is not supported: a container's clock cannot be saved with it")
        }
    }
}
