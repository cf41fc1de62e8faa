//! The command line, as engines expect it of an OCI runtime.

use clap::{Args, Parser, Subcommand};
use liboci_cli::{
    Create, Delete, Exec, Features, GlobalOpts, Kill, List, Pause, Ps, Resume, Spec, Start, State,
    Update,
};

/// An OCI runtime whose containers have clocks of their own
#[derive(Parser, Debug)]
#[command(name = "lorentz-runtime", version, subcommand_required = true)]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: GlobalOpts,
    /// The verb.
    #[command(subcommand)]
    pub verb: RuntimeVerb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum RuntimeVerb {
    /// Make a container; its program waits for 'start'
    Create(Create),
    /// Let a container's program begin
    Start(Start),
    /// Print a container's state as JSON
    State(State),
    /// Send a signal to a container
    Kill(Kill),
    /// Remove a container that has stopped
    Delete(Delete),
    /// Run one more program in a container, on its clock
    Exec(ExecArgs),
    /// Make a container and let its program begin
    Run(Run),
    /// Stop a container's tasks, and its time with them
    Pause(Pause),
    /// Let them go on
    Resume(Resume),
    /// List the containers
    List(List),
    /// List a container's processes
    Ps(Ps),
    /// Change a container's resource limits
    Update(Update),
    /// Print what this runtime can do, as JSON
    Features(Features),
    /// Write a config.json to begin with
    Spec(Spec),
    /// Not supported
    #[command(hide = true)]
    Events(Absent),
    /// Not supported
    #[command(hide = true)]
    Checkpoint(Absent),
    /// Not supported
    #[command(hide = true)]
    Restore(Absent),
}

/// Arguments of a verb that other runtimes have and this one has not.
#[derive(Args, Debug)]
pub struct Absent {
    /// All of it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// `exec`, with what `lorentz exec` adds.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// The arguments that every runtime has.
    #[command(flatten)]
    pub exec: Exec,
    /// Tell errors as 'lorentz exec' does, and by its exit statuses
    #[arg(long, hide = true)]
    pub as_lorentz: bool,
}

/// `run`, with what `lorentz run --bundle` adds.
#[derive(Args, Debug)]
// The flattened arguments have a group of the same name.
#[group(skip)]
pub struct Run {
    /// The arguments that every runtime has.
    #[command(flatten)]
    pub run: liboci_cli::Run,
    /// Adds an annotation to those of the bundle, in place of one of the same key
    #[arg(long, value_name = "KEY=VALUE")]
    pub annotation: Vec<String>,
    /// Tell errors as 'lorentz run' does, and by its exit statuses
    #[arg(long, hide = true)]
    pub as_lorentz: bool,
    /// Program and arguments in place of the bundle's
    #[arg(last = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
