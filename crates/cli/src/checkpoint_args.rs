//! The flags of `lorentz checkpoint`, `restore`, `migrate` and `receive`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

// `lorentz checkpoint`.
#[derive(Args, Debug)]
pub struct CheckpointArgs {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// The directory, which must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Let its programs go on
    #[arg(long)]
    pub leave_running: bool,
    /// Save TCP connections to outside the container too
    #[arg(long)]
    pub tcp_established: bool,
    /// Compress the memory of the programs
    #[arg(long)]
    pub compress: bool,
}

// `lorentz migrate`.
#[derive(Args, Debug)]
pub struct MigrateArgs {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// The other host, as ssh takes it
    #[arg(value_name = "[USER@]HOST")]
    pub host: String,
    /// Name of the container there
    ///
    /// Default: the name that it has here.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Wall clock: keep, it goes on where it stood; host, it moves forward as the host's did meanwhile
    #[arg(long, value_name = "keep|host", default_value = "keep", hide_possible_values = true)]
    pub wall: WallArg,
    /// Send the memory while the programs run; they stand still for the rest only
    ///
    /// The kernel has to mark the memory that programs write ('lorentz doctor': memory-tracking).
    #[arg(long)]
    pub pre_copy: bool,
    /// Command in place of ssh, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// The command lorentz at the other host
    #[arg(long, value_name = "COMMAND", default_value = "lorentz")]
    pub remote_lorentz: String,
}

// `lorentz receive`, which `lorentz migrate` starts.
#[derive(Args, Debug)]
pub struct ReceiveArgs {
    /// Name of the container
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Wall clock
    #[arg(long, value_name = "keep|host", default_value = "keep", hide_possible_values = true)]
    pub wall: WallArg,
}

// `lorentz restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The directory that 'lorentz checkpoint' wrote
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Name of the container
    ///
    /// Default: the name that it had.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Wall clock: keep, it goes on where it stood; host, it moves forward as the host's did meanwhile
    ///
    /// All other clocks go on where they stood. With 'host' it is as after a suspend.
    #[arg(long, value_name = "keep|host", default_value = "keep", hide_possible_values = true)]
    pub wall: WallArg,
    /// Leave the container frozen
    #[arg(long)]
    pub frozen: bool,
    /// Restore TCP connections to outside the container too
    #[arg(long)]
    pub tcp_established: bool,
    /// Only say whether the checkpoint can be restored here, and why not
    #[arg(long)]
    pub check: bool,
}

/// The wall clock of a restored container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WallArg {
    /// It goes on where it stood
    Keep,
    /// It moves forward as the host's did
    Host,
}
