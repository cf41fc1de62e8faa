//! The command line of `lorentz experiment`: each flag, its help text and its accepted values.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use lorentz_clock::{Rate, Span};
use lorentz_experiment::{ComputeTime, Cpus};

// `lorentz experiment`.
#[derive(Args, Debug)]
pub struct ExperimentArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: ExperimentVerb,
}

// Verbs of `lorentz experiment`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum ExperimentVerb {
    /// Create an experiment without containers
    ///
    /// A process in the background runs its rounds, until 'rm'.
    Create(Create),
    /// Add a container or a running process
    ///
    /// A process that is in no container is attached first. 'lorentz run --experiment NAME' starts a program inside from
    /// its first instruction on. Containers may join while the experiment runs.
    Add(Add),
    /// Start many containers with the same program in the experiment
    ///
    /// Starts NAME-1, NAME-2 and so on in the background; a few processes supervise all of them. 'lorentz run
    /// --experiment' starts a single one.
    Populate(Populate),
    /// Remove a container, which then runs by itself
    Remove(ExperimentContainerArgs),
    /// Change a container's TDF, from the next round on
    Dilate(DilateContainer),
    /// Stop all containers at one virtual time
    ///
    /// The time is that of the container that is furthest ahead. Their wall clocks show the same time too.
    Synchronize(NamedArgs),
    /// Start the rounds
    ///
    /// In each round every container runs for its share, its TDF times the timeslice, and is stopped otherwise.
    Start(NamedArgs),
    /// Stop after the current round, until 'start'
    Pause(NamedArgs),
    /// Remove all containers, which then run by themselves
    Stop(NamedArgs),
    /// Set how far a container moves with each 'progress' of its timeline
    Interval(IntervalArgs),
    /// Move all containers of a timeline by their intervals, and wait until all have arrived
    Progress(Timeline),
    /// Move containers by virtual times of their own, all at once
    Step(StepMoves),
    /// Clear the intervals of a timeline
    Reset(Timeline),
    /// Show the progress and load of an experiment, or of all
    ///
    /// Per container: the CPU time that it wanted and got, the slices at whose end it was still running, and how long its
    /// tasks took to stop then. SLOWDOWN is real seconds per virtual second.
    Status(StatusArgs),
    /// End an experiment; its containers then run by themselves
    ///
    /// Also removes the rest of an experiment whose process has died.
    Rm(NamedArgs),
    /// Resume the containers when a process or standard input ends
    ///
    /// For a simulator that may die while it keeps containers stopped. The guard waits in the background; a line on
    /// standard input ends it. An experiment that runs by itself goes on.
    Guard(GuardArgs),
}

// `lorentz experiment create`.
#[derive(Args, Debug)]
pub struct Create {
    /// Name of the experiment
    ///
    /// Letters, digits, '.', '_' and '-', at most 128, the first a letter or digit; not in use.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Virtual length of a round [default: 3ms]
    ///
    /// From 1us to 1m. A shorter timeslice keeps the containers' clocks closer together, and costs more.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub timeslice: Option<Span>,
    /// Processors for the containers, each on one of them: 1 or 0,2-5 [default: all but the first]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub cpus: Option<Cpus>,
    /// Skip time in which every container waits
    ///
    /// Without it time runs no faster than the clock of the container with the greatest TDF would by itself.
    #[arg(long, visible_alias = "skip-idle")]
    pub as_fast_as_possible: bool,
    /// 'none' has clocks stand while programs compute, so that results repeat, for containers that do not choose
    #[arg(long, value_name = "real|none", default_value_t)]
    pub compute: ComputeTime,
    /// Maximum number of containers at once [default: 1024]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<1, 1_000_000>)]
    pub most: Option<u32>,
}

// An experiment.
#[derive(Args, Debug)]
pub struct NamedArgs {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
}

// A container of an experiment.
#[derive(Args, Debug)]
pub struct ExperimentContainerArgs {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "CONTAINER|PID")]
    pub container: String,
}

// A TDF, or its inverse as a rate.
#[derive(Args, Debug)]
pub struct Dilation {
    /// Time dilation factor: real seconds per virtual second in its slices
    ///
    /// Above 0, from 1/1000000 to 1000000.
    #[arg(long, value_name = "N", group = "speed", allow_hyphen_values = true)]
    #[arg(value_parser = Rate::parse_tdf)]
    pub tdf: Option<Rate>,
    /// The same as a rate: virtual seconds per real second
    #[arg(long, value_name = "R", group = "speed", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
}

impl Dilation {
    /// Returns the given value as a rate.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.or(self.tdf)
    }
}

// `lorentz experiment add`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed"))]
pub struct Add {
    /// The container.
    #[command(flatten)]
    pub target: ExperimentContainerArgs,
    /// Its TDF; 1 where none is given.
    #[command(flatten)]
    pub dilation: Dilation,
    /// The timeline that it follows, if a simulator moves it by 'interval' and 'progress'
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
    /// Number of processors that it runs on at once, from 1 to the number of those of the experiment
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1)]
    pub parallel: u32,
    /// 'none' has its clock stand while its programs compute, so that results repeat [default: the experiment's]
    #[arg(long, value_name = "real|none")]
    pub compute: Option<ComputeTime>,
}

// `lorentz experiment populate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed"))]
pub struct Populate {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Number of containers, from 1 to 1000000
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<1, 1_000_000>)]
    pub count: u32,
    /// Their names before the number [default: the experiment's name]
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,
    /// Write their output to DIR/NAME.out [default: discard it]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Their TDF; 1 where none is given.
    #[command(flatten)]
    pub dilation: Dilation,
    /// The timeline that they follow, if a simulator moves it
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
    /// Number of processors that each runs on at once, from 1 to the number of those of the experiment
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1)]
    pub parallel: u32,
    /// 'none' has their clocks stand while their programs compute, so that results repeat [default: the experiment's]
    #[arg(long, value_name = "real|none")]
    pub compute: Option<ComputeTime>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

// `lorentz experiment dilate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed").required(true))]
pub struct DilateContainer {
    /// The container.
    #[command(flatten)]
    pub target: ExperimentContainerArgs,
    /// Its TDF.
    #[command(flatten)]
    pub dilation: Dilation,
}

// `lorentz experiment interval`.
#[derive(Args, Debug)]
pub struct IntervalArgs {
    /// The container.
    #[command(flatten)]
    pub target: ExperimentContainerArgs,
    /// A duration above 0, in virtual time
    #[arg(value_name = "DUR", allow_hyphen_values = true)]
    pub interval: Span,
    /// The timeline that it follows; refused if it follows another
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
}

// `lorentz experiment guard`.
#[derive(Args, Debug)]
pub struct GuardArgs {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Wait for the end of this process, beside that of standard input
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// Then end the experiment, even one that runs by itself
    #[arg(long)]
    pub rm: bool,
}

// `lorentz experiment step`.
#[derive(Args, Debug)]
pub struct StepMoves {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A container, by name or the id of a process, and how far it goes: a duration above 0, in virtual time
    #[arg(value_name = "CONTAINER|PID=DUR", required = true, value_parser = container_move)]
    pub moves: Vec<ContainerMove>,
}

/// How far one container goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerMove {
    /// The container's name, or the id of one of its processes.
    pub container: String,
    /// Virtual time.
    pub by: Span,
}

fn container_move(text: &str) -> Result<ContainerMove, String> {
    let (container, by) = text.split_once('=').ok_or("expected CONTAINER=DUR such as web=5ms")?;
    let by: Span = by.parse().map_err(|error| format!("{error}"))?;
    match by.0 {
        1.. => Ok(ContainerMove { container: container.to_string(), by }),
        _ => Err("expected a duration above 0".into()),
    }
}

// `lorentz experiment progress` and `reset`.
#[derive(Args, Debug)]
pub struct Timeline {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The timeline's number
    #[arg(value_name = "TIMELINE", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: u32,
}

// `lorentz experiment status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The experiment's name [default: all experiments]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Show it each second until interrupted
    #[arg(long, requires = "name", conflicts_with_all = ["json", "prometheus"])]
    pub watch: bool,
    /// Print JSON; all times in nanoseconds
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Print a page for Prometheus (text format)
    #[arg(long)]
    pub prometheus: bool,
}

/// Parses a whole number from MIN to MAX.
fn number<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| format!("expected a number from {MIN} to {MAX}"))
}

/// Parses the number of a timeline.
pub fn timeline(text: &str) -> Result<u32, String> {
    number::<0, { u32::MAX }>(text)
}
