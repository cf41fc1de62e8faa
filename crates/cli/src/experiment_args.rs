//! The command line of `lorentz experiment`: each flag, what it means and what it accepts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use lorentz_clock::{Rate, Span};
use lorentz_experiment::Cpus;

/// `lorentz experiment`.
#[derive(Args, Debug)]
pub struct Experiment {
    /// What to do.
    #[command(subcommand)]
    pub verb: ExperimentVerb,
}

/// What can be done with an experiment.
#[derive(Subcommand, Debug)]
pub enum ExperimentVerb {
    /// Make an experiment, without containers yet
    ///
    /// A process in the background moves it from then on, until 'rm'.
    Create(Create),
    /// Take a container or a running process in
    ///
    /// A process that is in no container is brought into virtual time first. 'lorentz run --experiment NAME' starts a
    /// program inside from its first instruction on. Containers may join while it runs.
    Add(Add),
    /// Start many containers with the same program, as part of the experiment
    ///
    /// NAME-1, NAME-2 and so on, in the background: a few processes look after all of them. A single one is started by
    /// 'lorentz run --experiment'.
    Populate(Populate),
    /// Let a container go on by itself
    Remove(Member),
    /// Change a container's TDF, from the next round on
    Dilate(DilateMember),
    /// Stop all containers at one virtual time
    ///
    /// That of the container that is furthest; the wall clocks show the same too.
    Synchronize(Named),
    /// Have rounds follow one another
    ///
    /// In each round every container runs for its share, its TDF times the timeslice, and is stopped otherwise.
    Start(Named),
    /// Have no further round begin, until 'start'
    Pause(Named),
    /// Let all containers go on by themselves; the experiment is empty then
    Stop(Named),
    /// Say how far a container goes with each 'progress' of its timeline
    Interval(Interval),
    /// Move all containers of a timeline by their intervals; returns when all have arrived
    Progress(Timeline),
    /// Forget the intervals of a timeline
    Reset(Timeline),
    /// Show how an experiment stands, or all of them
    ///
    /// Per container the CPU time it wanted and got, the slices at whose end it was still running, and how long its tasks
    /// took to stop then. SLOWDOWN is real seconds per virtual second.
    Status(Status),
    /// End an experiment; its containers go on by themselves
    ///
    /// Also what is left of one whose process has died.
    Rm(Named),
    /// Let the containers go when a process ends, or standard input
    ///
    /// For a simulator that may die while containers stand still at its word. It goes on in the background; a line on
    /// standard input sends it away. An experiment that runs by itself goes on.
    Guard(Guard),
}

/// `lorentz experiment create`.
#[derive(Args, Debug)]
pub struct Create {
    /// Name of the experiment
    ///
    /// Letters, digits, '.', '_' and '-', at most 128, the first a letter or digit; not in use.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Virtual length of a round [default: 3ms]
    ///
    /// From 1us to 1m. The shorter, the closer together the containers are, and the more is spent on it.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub timeslice: Option<Span>,
    /// Processors that the containers run on, each on one: 1 or 0,2-5 [default: all but the first]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub cpus: Option<Cpus>,
    /// Time in which nobody has anything to do is leapt over
    ///
    /// Else time runs no faster than the clock of the container with the greatest TDF would by itself.
    #[arg(long, visible_alias = "skip-idle")]
    pub as_fast_as_possible: bool,
    /// So many containers at once, at most [default: 1024]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<1, 1_000_000>)]
    pub most: Option<u32>,
}

/// An experiment.
#[derive(Args, Debug)]
pub struct Named {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// A container of an experiment.
#[derive(Args, Debug)]
pub struct Member {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The container: its name, or the number of any of its processes
    #[arg(value_name = "CONTAINER|PID")]
    pub container: String,
}

/// A TDF, however written.
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
    /// What was given, as a rate.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.or(self.tdf)
    }
}

/// `lorentz experiment add`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed"))]
pub struct Add {
    /// The container.
    #[command(flatten)]
    pub member: Member,
    /// Its TDF; 1 where none is given.
    #[command(flatten)]
    pub dilation: Dilation,
    /// The timeline it follows, where a simulator moves it by 'interval' and 'progress'
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
}

/// `lorentz experiment populate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed"))]
pub struct Populate {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// So many containers: 1 or more
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<1, 1_000_000>)]
    pub count: u32,
    /// What they are called, before the number [default: the experiment's name]
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,
    /// What they write goes to DIR/NAME.out [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Their TDF; 1 where none is given.
    #[command(flatten)]
    pub dilation: Dilation,
    /// The timeline they follow, where a simulator moves it
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `lorentz experiment dilate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed").required(true))]
pub struct DilateMember {
    /// The container.
    #[command(flatten)]
    pub member: Member,
    /// Its TDF.
    #[command(flatten)]
    pub dilation: Dilation,
}

/// `lorentz experiment interval`.
#[derive(Args, Debug)]
pub struct Interval {
    /// The container.
    #[command(flatten)]
    pub member: Member,
    /// How far: a duration above 0, in virtual time
    #[arg(value_name = "DUR", allow_hyphen_values = true)]
    pub interval: Span,
    /// The timeline that it follows, to make sure
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: Option<u32>,
}

/// `lorentz experiment guard`.
#[derive(Args, Debug)]
pub struct Guard {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The process whose end is waited for, beside that of standard input
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// End the experiment then, even one that runs by itself
    #[arg(long)]
    pub rm: bool,
}

/// `lorentz experiment progress` and `reset`.
#[derive(Args, Debug)]
pub struct Timeline {
    /// The experiment's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The timeline's number
    #[arg(value_name = "TIMELINE", allow_hyphen_values = true, value_parser = timeline)]
    pub timeline: u32,
}

/// `lorentz experiment status`.
#[derive(Args, Debug)]
pub struct Status {
    /// The experiment's name; all where none is given
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Show it again and again, until interrupted
    #[arg(long, requires = "name", conflicts_with_all = ["json", "prometheus"])]
    pub watch: bool,
    /// Print JSON; all times in nanoseconds
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Print a page for Prometheus (text format)
    #[arg(long)]
    pub prometheus: bool,
}

/// A whole number from LEAST to MOST.
fn number<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a number from {LEAST} to {MOST}"))
}

/// The number of a timeline.
pub fn timeline(text: &str) -> Result<u32, String> {
    number::<0, { u32::MAX }>(text)
}
