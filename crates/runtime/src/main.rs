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
//! [`workload`] is the last step of each before its program. [`checkpoint`] saves containers and brings them back. [`lifecycle`] has
//! the other verbs. [`terminal`] serves a program in the
//! foreground. [`report`] prints errors.

#![cfg_attr(not(test), no_main)]

mod annotations;
mod args;
mod checkpoint;
mod config;
mod copyup;
mod create;
mod describe;
mod enter;
#[cfg(test)]
mod fuzz;
mod lifecycle;
mod log_capture;
mod report;
mod resources;
mod rights;
mod runtime_dir;
mod sandbox;
mod terminal;
mod workload;

use clap::Parser;
#[cfg(not(test))]
use lorentz_container::{limits, on_ample_stack};

use args::{Cli, RuntimeVerb};
use runtime_dir::RuntimeDir;

/// Called by the C library, without Rust's runtime setup: that ignores SIGPIPE, and programs would inherit it.
#[cfg(not(test))]
#[export_name = "main"]
extern "C" fn start() -> libc::c_int {
    const PANICKED: i32 = 101;
    limits::raise();
    on_ample_stack(|| std::panic::catch_unwind(main).unwrap_or(PANICKED))
}

/// Carries out the command line. Returns the exit status.
#[cfg_attr(test, allow(dead_code))]
fn main() -> i32 {
    let cli = match Cli::try_parse_from(args::words(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { report::FAILED } else { 0 };
        }
    };
    let done = report::Log::of(&cli.global)
        .and_then(|log| dispatch(&cli).inspect_err(|error| log.error(error)));
    match done {
        Ok(status) => status,
        Err(error) => {
            let as_lorentz = match &cli.verb {
                RuntimeVerb::Run(run) => run.as_lorentz,
                RuntimeVerb::Exec(exec) => exec.as_lorentz,
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

/// Carries out the verb. Returns the exit status.
fn dispatch(cli: &Cli) -> anyhow::Result<i32> {
    let runtime_dir = RuntimeDir::of(&cli.global)?;
    match &cli.verb {
        RuntimeVerb::Create(args) => create::create(&runtime_dir, args),
        RuntimeVerb::Run(args) => create::run(&runtime_dir, args),
        RuntimeVerb::Exec(args) => enter::exec(&runtime_dir, &args.exec),
        RuntimeVerb::Start(args) => lifecycle::start(&runtime_dir, &args.container_id),
        RuntimeVerb::State(args) => lifecycle::state(&runtime_dir, &args.container_id),
        RuntimeVerb::Kill(args) => lifecycle::kill(&runtime_dir, args),
        RuntimeVerb::Delete(args) => {
            lifecycle::delete(&runtime_dir, &args.container_id, args.force)
        }
        RuntimeVerb::Pause(args) => lifecycle::pause(&runtime_dir, &args.container_id),
        RuntimeVerb::Resume(args) => lifecycle::resume(&runtime_dir, &args.container_id),
        RuntimeVerb::List(args) => lifecycle::list(&runtime_dir, args),
        RuntimeVerb::Ps(args) => lifecycle::ps(&runtime_dir, args),
        RuntimeVerb::Update(args) => resources::update(&runtime_dir, args),
        RuntimeVerb::Features(_) => describe::features(),
        RuntimeVerb::Spec(args) => describe::spec(args),
        RuntimeVerb::Events(_) => {
            anyhow::bail!("events is not supported: engines read the control groups themselves")
        }
        RuntimeVerb::Checkpoint(args) => checkpoint::checkpoint(&runtime_dir, args),
        RuntimeVerb::Restore(args) => checkpoint::restore(&runtime_dir, args),
    }
}
