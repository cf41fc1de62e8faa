//! The `lorentz` command: virtual time for Linux containers.
//!
//! It parses, asks [`lorentz_container`], [`lorentz_network`], [`lorentz_experiment`], [`lorentz_bandwidth`],
//! [`lorentz_packets`] and [`lorentz_study`], and prints; it knows nothing else.
//!
//! ```text
//! lorentz run --at 2038-01-19 --rate 60x --name web -- python3 server.py
//! lorentz time web
//! lorentz leap web --by 1d
//! ```
//!
//! [`args`] defines the verbs and flags, [`verbs`] carries them out, [`view`] and [`mod@print`] make the output, [`diagnostics`] makes
//! error lines and exit statuses, [`start`] begins the process.

#![cfg_attr(not(test), no_main)]

mod args;
mod bandwidth_args;
mod checkpoint_args;
mod clock_args;
mod clock_error_args;
mod cluster_args;
mod complete;
mod diagnostics;
mod edit_args;
mod exit_status;
mod experiment_args;
mod faketime;
mod generate_args;
mod impairment_flags;
mod latency_args;
mod network_args;
mod out_of_memory;
mod print;
mod print_clock_error;
mod print_dry_run;
mod print_experiment;
mod print_latency;
mod print_network;
mod print_why;
mod ready;
mod root_args;
mod start;
mod study_args;
mod tour;
mod verbs;
mod version;
mod view;
mod web_args;
mod why;
mod wrong_input;

use std::ffi::OsString;

use args::{Cli, Verb};

/// Carries out a command line and returns the exit status.
fn main(words: Vec<OsString>) -> i32 {
    lorentz_control::on_busy_clock(|line| eprintln!("lorentz: {line}"));
    if complete::try_complete(&words) {
        return 0;
    }
    if faketime::is_meant(&words) {
        return match faketime::translate(&words) {
            Ok(faketime::Words::Run(words)) => carry_out(words),
            Ok(faketime::Words::Usage(text)) => show(text),
            Err(error) => complain(&error, exit_status::WRONG_INPUT),
        };
    }
    match words.len() {
        1 => show(tour::TOUR),
        _ => carry_out(words),
    }
}

fn carry_out(words: Vec<OsString>) -> i32 {
    let cli = match Cli::parse_words(words) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => return show_help(&error),
        Err(error) => {
            return complain(&diagnostics::command_line(&error), exit_status::WRONG_INPUT)
        }
    };
    match verbs::dispatch(&cli.verb) {
        Ok(status) => status,
        Err(error) => {
            let launches = matches!(cli.verb, Verb::Run(_) | Verb::Exec(_));
            complain(&diagnostics::line(&error), exit_status::exit_status(&error, launches))
        }
    }
}

/// `--help` and `--version`.
fn show_help(error: &clap::Error) -> i32 {
    match error.print() {
        Ok(()) => 0,
        Err(_) => exit_status::FAILED,
    }
}

fn show(text: &str) -> i32 {
    match print::out(text) {
        Ok(()) => 0,
        Err(_) => exit_status::FAILED,
    }
}

fn complain(line: &str, status: i32) -> i32 {
    eprintln!("lorentz: {line}");
    status
}
