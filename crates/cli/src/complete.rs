//! Completion on the command line, with the names that there are: containers, networks, nodes and their interfaces, experiments,
//! images.
//!
//! `lorentz generate complete-bash` prints a function for the shell. It calls `lorentz` with the words typed so far and
//! [`VARIABLE`] set; [`try_complete`] answers.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use clap::{Arg, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use lorentz_container::StateDir;
use lorentz_experiment::Experiment;
use lorentz_network::Network;

use crate::args::Cli;

/// The variable by which a shell asks for completions.
const VARIABLE: &str = "LORENTZ_COMPLETE";

/// Answers a shell that asks for completions. Returns whether one did.
pub fn try_complete(words: &[OsString]) -> bool {
    // A look at one variable, not at the whole definition: this is part of each start.
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let env = CompleteEnv::with_factory(command_with_names).var(VARIABLE);
    let here = std::env::current_dir().ok();
    // A shell shows no error in the midst of a line; it completes nothing.
    let _ = env.try_complete(words.iter().cloned(), here.as_deref());
    // This program's `main` is not std's, which would do it at the end.
    let _ = io::stdout().flush();
    true
}

/// Returns the function that a shell completes the words of `lorentz` by.
pub fn registration(shell: &str) -> Option<String> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let name = "lorentz";
    shells.completer(shell)?.write_registration(VARIABLE, name, name, name, &mut script).ok()?;
    String::from_utf8(script).ok()
}

/// The definition of the command line, with candidates for values that are names.
fn command_with_names() -> clap::Command {
    let mut command = Cli::command();
    // Verbs define their arguments when they are built.
    command.build();
    with_names(command, Subject::Containers)
}

/// The things that a verb's NAME is one of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Containers,
    Experiments,
    /// Clocks of clusters, whose names only the store knows.
    Clusters,
}

fn with_names(command: clap::Command, subject: Subject) -> clap::Command {
    let subject = match command.get_name() {
        "experiment" => Subject::Experiments,
        "cluster" => Subject::Clusters,
        _ => subject,
    };
    let is_removal = command.get_name() == "rm" && subject == Subject::Containers;
    let of_experiments = subject == Subject::Experiments;
    let command = command.mut_args(|arg| match names_for(&arg, of_experiments, is_removal) {
        Some(names) => arg.add(ArgValueCandidates::new(move || {
            names().into_iter().map(CompletionCandidate::new).collect::<Vec<_>>()
        })),
        None => arg,
    });
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().into()).collect();
    verbs.into_iter().fold(command, |command, verb| {
        command.mut_subcommand(verb, |verb| with_names(verb, subject))
    })
}

/// Returns the function that lists the names that an argument takes, by the word that `--help` shows for its value.
fn names_for(arg: &Arg, of_experiments: bool, is_removal: bool) -> Option<fn() -> Vec<String>> {
    let shown = arg.get_value_names()?.first()?.as_str();
    match (arg.get_id().as_str(), shown) {
        ("experiment", _) => Some(experiments),
        (_, "NAME") if of_experiments && arg.is_positional() => Some(experiments),
        ("clock", _) | (_, "NAME|PID" | "CONTAINER") => Some(containers),
        (_, "NAME") if is_removal => Some(containers),
        (_, "NETWORK") => Some(networks),
        (_, "NODE:INTERFACE") => Some(interfaces),
        (_, "NODE") => Some(nodes),
        (_, "IMAGE") => Some(images),
        _ => None,
    }
}

fn containers() -> Vec<String> {
    let state = StateDir::open().and_then(|state| state.list());
    state.unwrap_or_default().iter().map(|one| one.name().to_string()).collect()
}

fn experiments() -> Vec<String> {
    let state = StateDir::open().ok();
    state.and_then(|state| Experiment::list(&state).ok()).unwrap_or_default()
}

fn networks() -> Vec<String> {
    let state = StateDir::open().ok();
    state.and_then(|state| Network::list(&state).ok()).unwrap_or_default()
}

fn nodes() -> Vec<String> {
    let nodes = of_each_network(|status| {
        let nodes = status.nodes.iter().map(|node| node.name.clone());
        nodes.chain(status.switches.keys().cloned()).collect()
    });
    in_order(nodes)
}

fn interfaces() -> Vec<String> {
    in_order(of_each_network(|status| {
        let directions = status.links.iter().flat_map(|link| &link.directions);
        directions.map(|direction| direction.from.to_string()).collect()
    }))
}

fn of_each_network(of: impl Fn(&lorentz_network::NetworkStatus) -> Vec<String>) -> Vec<String> {
    let Ok(state) = StateDir::open() else { return Vec::new() };
    let statuses = Network::list(&state)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| Network::open(&state, &name).ok()?.status().ok());
    statuses.flat_map(|status| of(&status)).collect()
}

fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

/// The images of podman.
fn images() -> Vec<String> {
    let mut podman = Command::new("podman");
    podman.args(["images", "--format", "{{.Repository}}:{{.Tag}}"]);
    let output = podman.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().map(str::to_string).collect()
}
