//! `lorentz-web`: the page of Lorentz. It serves a page to one user's browser, and does for the page what the command line does.
//!
//! It has no state and no rights of its own: it is a process of the user who starts it, and may be ended and started again at any
//! time. [`system`] reads what runs; [`live`] tells pages of changes; [`actions`] runs `lorentz` for what a person does. A client of
//! this server can start programs as its user, so each request passes [`guard`] first, and [`listen`] bounds connections.
//!
//! - [`files`], [`check`]: topology files below one directory;
//! - [`terminal`], [`capture`]: by WebSocket; [`waits`], [`output`]: one container looked at closely;
//! - [`metrics`], [`report`]: for other programs and for papers;
//! - [`page`]: the page itself, which is inside this program.

mod actions;
mod app;
mod args;
mod capture;
mod check;
mod edits;
mod files;
mod guard;
mod history;
mod listen;
mod live;
mod log;
mod metrics;
mod names;
mod output;
mod page;
mod pty;
mod reply;
mod report;
mod root;
mod secrets;
mod server;
mod stream;
mod system;
mod terminal;
mod types;
mod waits;
mod words;
mod wrong_input;

use std::process::ExitCode;

use clap::Parser;

use args::WebArgs;

/// Show networks, experiments and containers in a browser, and control them
#[derive(Parser, Debug)]
#[command(name = "lorentz-web", version)]
struct Cli {
    #[command(flatten)]
    args: WebArgs,
}

/// Exit status for wrong input, as of all commands.
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { WRONG_INPUT } else { 0 });
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let served = runtime.block_on(server::serve(&cli.args));
        // Threads that still read a file or a socket do not delay the end.
        runtime.shutdown_background();
        served
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lorentz-web: {error:#}");
            let is_input = error.downcast_ref::<wrong_input::WrongInput>().is_some();
            ExitCode::from(if is_input { WRONG_INPUT } else { 1 })
        }
    }
}
