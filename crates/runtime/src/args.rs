//! The command line, as engines expect it of an OCI runtime.

use std::ffi::OsString;
use std::path::PathBuf;

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

/// The words of a command line, as clap reads them. containerd writes one flag with one dash, which runc's parser takes for two.
pub fn words(given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    given.map(|word| if word == "-no-subreaper" { "--no-subreaper".into() } else { word })
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
    /// Save a running container in a directory, by CRIU
    // podman gives --leave-running twice.
    #[command(args_override_self = true)]
    Checkpoint(CheckpointArgs),
    /// Make a container of a checkpoint; its programs go on where they stood
    #[command(args_override_self = true)]
    Restore(RestoreArgs),
    /// Not supported
    #[command(hide = true)]
    Events(Absent),
}

/// Arguments of a verb that other runtimes have and this one has not.
#[derive(Args, Debug)]
pub struct Absent {
    /// All of it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// `checkpoint`: the options of runc, as engines give them. Those that change nothing here are accepted.
#[derive(Args, Debug)]
pub struct CheckpointArgs {
    /// The container.
    #[arg(value_name = "CONTAINER-ID")]
    pub container_id: String,
    /// Directory for the checkpoint; an earlier checkpoint there is replaced
    #[arg(long, value_name = "DIR", default_value = "checkpoint")]
    pub image_path: PathBuf,
    /// Directory for CRIU's log when it fails
    #[arg(long, value_name = "DIR")]
    pub work_path: Option<PathBuf>,
    /// Let the container go on
    #[arg(long)]
    pub leave_running: bool,
    /// Save TCP connections to outside too
    #[arg(long)]
    pub tcp_established: bool,
    /// Compress the memory of the programs
    #[arg(long)]
    pub compress: bool,
    /// Options of both verbs.
    #[command(flatten)]
    pub usual: UsualArgs,
    /// Not supported: memory is saved at once
    #[arg(long, hide = true)]
    pub pre_dump: bool,
    /// Not supported: memory is saved at once
    #[arg(long, hide = true, value_name = "DIR")]
    pub parent_path: Option<PathBuf>,
    /// Not supported: memory is saved at once
    #[arg(long, hide = true)]
    pub lazy_pages: bool,
    /// Not supported: memory is saved in the directory
    #[arg(long, hide = true, value_name = "ADDRESS")]
    pub page_server: Option<String>,
}

/// `restore`: the options of runc, as engines give them.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The new container.
    #[arg(value_name = "CONTAINER-ID")]
    pub container_id: String,
    /// Directory with the container's config.json
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,
    /// Directory with the checkpoint
    #[arg(long, value_name = "DIR", default_value = "checkpoint")]
    pub image_path: PathBuf,
    /// Directory for CRIU's log when it fails
    #[arg(long, value_name = "DIR")]
    pub work_path: Option<PathBuf>,
    /// Do not wait for the program's end
    #[arg(short, long)]
    pub detach: bool,
    /// File for the program's process id
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Restore TCP connections to outside too
    #[arg(long)]
    pub tcp_established: bool,
    /// Options of both verbs.
    #[command(flatten)]
    pub usual: UsualArgs,
    /// Not supported: a restored program has no terminal
    #[arg(long, hide = true, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// No effect
    #[arg(long, hide = true)]
    pub no_pivot: bool,
    /// No effect
    #[arg(long, hide = true)]
    pub no_subreaper: bool,
    /// No effect
    #[arg(long, hide = true)]
    pub no_new_keyring: bool,
    /// No effect: a host with SELinux is not supported
    #[arg(long, hide = true, value_name = "TYPE:NAME")]
    pub lsm_profile: Option<String>,
    /// No effect: a host with SELinux is not supported
    #[arg(long, hide = true, value_name = "CONTEXT")]
    pub lsm_mount_context: Option<String>,
}

/// Options of `checkpoint` and `restore` for which there is no choice here: the first four are always on, and a restored container gets
/// the control groups of its bundle.
#[derive(Args, Debug)]
pub struct UsualArgs {
    /// No effect: always on
    #[arg(long, hide = true)]
    pub ext_unix_sk: bool,
    /// No effect: always on
    #[arg(long, hide = true)]
    pub shell_job: bool,
    /// No effect: always on
    #[arg(long, hide = true)]
    pub file_locks: bool,
    /// No effect: always on
    #[arg(long, hide = true)]
    pub link_remap: bool,
    /// No effect
    #[arg(long, hide = true)]
    pub auto_dedup: bool,
    /// No effect
    #[arg(long, hide = true, value_name = "MODE")]
    pub manage_cgroups_mode: Option<String>,
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
    fn the_words_of_engines_are_read() {
        let podman = "x checkpoint --leave-running --file-locks --leave-running --work-path /b id";
        let containerd = "x restore --detach -no-subreaper --bundle /b id";
        for line in [podman, containerd] {
            let given = line.split(' ').map(OsString::from);
            Cli::try_parse_from(words(given)).unwrap();
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
