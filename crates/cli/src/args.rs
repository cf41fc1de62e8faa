//! The command line: each verb and flag, its help text and its accepted values.

use std::ffi::OsString;
use std::str::FromStr;

use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use lorentz_clock::{Rate, SkipMode, Span};
use lorentz_container::{ForeignContainer, Newcomers};
use lorentz_control::{parse_read_cost, Date};
use lorentz_experiment::ComputeTime;

use crate::bandwidth_args::Bandwidth;
use crate::checkpoint_args::{CheckpointArgs, MigrateArgs, ReceiveArgs, RestoreArgs};
use crate::clock_args::ClockArgs;
use crate::clock_error_args::ClockVerb;
use crate::cluster_args::ClusterArgs;
use crate::edit_args::{NodeVerb, ScheduleVerb};
use crate::experiment_args::ExperimentArgs;
use crate::generate_args::GenerateVerb;
use crate::latency_args::Latency;
use crate::network_args::{Capture, Down, Export, Graph, Import, Inspect, LinkVerb, Up};
use crate::ready::ReadyFd;
use crate::root_args::RootArgs;
use crate::study_args::{Report, StudyVerb};
use crate::version::long_version;
use crate::web_args::WebArgs;

const VALUES: &str = "\
DUR   10ms, 1h30m, +3d, -1h30m; units ns us ms s m h d w y; a number alone is in seconds
TIME  2038-01-19T03:14:00Z, 2030-01-01, @1700000000: in UTC
      '2038-01-19 03:14', tomorrow, '2 days ago', 'next monday 9:00': in your time zone
      '2038-01-19 03:14 Europe/Berlin': in another one
      +2d, -1h30m: from now
R, N  2, 0.1, 1/10, 60x, +200ppm; above 0, from 1/1000000 to 1000000";

const RUN_STATUS: &str = "\
Exit status:
  the program's own, or 128+N if signal N ended the program
  127  command not found
  126  command not executable, or cannot run in virtual time
  125  lorentz itself failed
  2    wrong input; nothing was started";

/// Groups of verbs in the order of `lorentz --help`.
const GROUPS: &[(&str, &[&str])] = &[
    ("Containers", &["run", "attach", "detach", "exec", "ps", "top", "time", "why", "adopt", "rm"]),
    ("Checkpoints", &["checkpoint", "restore", "migrate"]),
    ("Clock", &["dilate", "freeze", "unfreeze", "leap", "step", "skip", "clock", "cluster"]),
    ("Experiments", &["experiment"]),
    (
        "Networks",
        &[
            "up", "down", "inspect", "link", "node", "schedule", "capture", "graph", "import",
            "export", "web",
        ],
    ),
    ("Measurement", &["latency", "bandwidth", "study", "report", "doctor"]),
];

/// Virtual time for unmodified Linux programs: set their date, change their speed, freeze them, jump ahead.
#[derive(Parser, Debug)]
#[command(name = "lorentz", version, long_version = long_version(), disable_help_subcommand = true, after_help = VALUES)]
#[command(arg_required_else_help = false, subcommand_required = true)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Parses a command line. `--help` shows the verbs by [`GROUPS`].
    pub fn parse_words(words: Vec<OsString>) -> Result<Cli, clap::Error> {
        let command = Cli::command();
        let template = help_template(&command);
        let words = as_help_flag(words);
        let mut matches = command.help_template(template).try_get_matches_from(words)?;
        Cli::from_arg_matches_mut(&mut matches)
    }
}

/// Turns `lorentz help VERB...` into `lorentz VERB... --help`. Clap's own verb `help` would build the arguments of all verbs.
fn as_help_flag(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// Returns the template of `lorentz --help`, in which clap itself cannot group verbs.
fn help_template(command: &clap::Command) -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_string();
    for (group, verbs) in GROUPS {
        text += &format!("\n{group}:\n");
        for verb in *verbs {
            let about = command.find_subcommand(verb).and_then(clap::Command::get_about);
            text +=
                &format!("  {verb:10}  {}\n", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    text + "\n'lorentz help VERB' explains one of them.\n\nOptions:\n{options}{after-help}\n"
}

/// The verbs. Aliases are the names that users of other tools try first; docs/cli.md lists them.
///
/// `defer`: clap builds only the arguments of the verb that is called. To build all took a quarter of the command's start. A doc
/// comment of a deferred struct would replace the text of its verb here, so the structs of arguments have plain comments.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Verb {
    /// Run a program in virtual time
    ///
    /// The program is unmodified. Its clocks, waits and timers follow the container's clock from its first instruction
    /// on, and so do those of every program that it starts. Standard streams, the terminal, signals and the working
    /// directory pass through.
    Run(Box<RunArgs>),
    /// Bring a running process into virtual time
    ///
    /// Its waits in progress and armed timers follow the new clock too. An attach cannot be undone; a clock at rate 1 does
    /// no harm. It needs the rights of a debugger.
    Attach(AttachArgs),
    /// Give a container's programs the host's time back
    ///
    /// Their clocks show what the host's show, from now on. Refused where their CLOCK_MONOTONIC is ahead of the host's: that clock
    /// never goes back. The programs stay in the container, and its clock can be changed again.
    Detach(LookAt),
    /// Run one more program in a container, on its clock
    Exec(Exec),
    /// Save a container in a directory, and end its programs
    ///
    /// Its time stands still from here to 'lorentz restore'. Needs root and CRIU 4.1 ('lorentz doctor').
    Checkpoint(CheckpointArgs),
    /// Make a container of a checkpoint
    ///
    /// Its clocks, waits and timers go on where they stood. A process in the background supervises it; where its standard streams
    /// were pipes, it has this command's from then on.
    Restore(RestoreArgs),
    /// Move a container to another host, over ssh
    ///
    /// It stands still here, is restored there, and ends here when it runs there. The other host has this version of Lorentz, and
    /// the files that the programs have open. If the connection breaks, the container goes on here, or the message says what to do.
    Migrate(MigrateArgs),
    /// The other side of 'lorentz migrate'
    #[command(hide = true)]
    Receive(ReceiveArgs),
    /// List the containers
    #[command(aliases = ["list", "ls"])]
    Ps(Look),
    /// Show a container's clocks beside the host's
    ///
    /// Also shows its rate and TDF, whether its clock is frozen, announced changes, and the mechanism of its virtual time. With a
    /// process id it says how many of the process's call sites are rewritten.
    Time(LookAt),
    /// Watch the containers on a terminal, and change their clocks by keys
    ///
    /// Each container's clock, rate, state, processors, waits, timers and skipped time. The keys stand at the bottom; the command line
    /// that does the same as a key is shown.
    Top(TopArgs),
    /// Show what keeps a container's time from leaping
    ///
    /// Lists each thread: the call that it waits in, on which file, until when, and what may wake it from outside the container. Also
    /// for containers that do not skip idle time.
    Why(LookAt),
    /// Speed up or slow down a container's clock
    ///
    /// No clock jumps. Waits in progress and armed timers follow the new rate. On a frozen clock the rate applies once
    /// somebody unfreezes it.
    #[command(aliases = ["set-rate", "speed"])]
    Dilate(Dilate),
    /// Stop a container's clock and its programs
    ///
    /// Freezes all containers on the clock. Their programs stop too if there is a cgroup v2 freezer ('lorentz doctor').
    /// Freezing a frozen clock changes nothing.
    #[command(alias = "pause")]
    Freeze(Pause),
    /// Resume a frozen container
    #[command(aliases = ["resume", "unpause"])]
    Unfreeze(Pause),
    /// Move all clocks of a container forward
    ///
    /// As if the time had passed: waits and timers that are due by then end. Time does not go back; 'lorentz step' sets
    /// the wall clock alone, either way.
    #[command(alias = "jump")]
    Leap(Leap),
    /// Set a container's wall clock, forward or back
    ///
    /// As an operator or NTP would. Waits for a date follow. Other clocks and all other waits do not move.
    #[command(aliases = ["set-time", "bump"])]
    Step(StepArgs),
    /// Turn skipping of idle time on or off
    ///
    /// When every task of a container waits, the clock jumps to the next deadline. It never jumps past an answer that may
    /// still come from outside the container.
    Skip(Skip),
    /// Give a container's clock errors, and compare it with the truth
    ///
    /// Clocks that drift, jump and meet leap seconds, and are disciplined by the NTP daemons inside.
    #[command(subcommand)]
    Clock(ClockVerb),
    /// Keep one clock on several hosts
    ///
    /// All hosts follow one record in etcd. A change is published for an instant to come, so that it takes effect on every host at
    /// once. Programs come onto the clock by 'lorentz run --clock cluster/NAME'.
    Cluster(ClusterArgs),
    /// Run many containers in one virtual time, on few processors
    ///
    /// Their clocks advance together in rounds, although they share too few processors. Each has its own TDF.
    Experiment(ExperimentArgs),
    /// Create a network of nodes and links from a topology file
    ///
    /// All nodes are on one clock. The links' delay, rate and loss follow that clock.
    #[command(alias = "deploy")]
    Up(Up),
    /// Convert another emulator's scenario to a topology file
    ///
    /// Reads CORE, IMUNES, containerlab and Kathara. Standard error lists each element that a topology file cannot
    /// represent.
    Import(Import),
    /// Write a network in another emulator's format
    ///
    /// Writes scenarios of CORE, topologies of containerlab, and programs for Mininet. Standard error lists each element
    /// that the format has no place for.
    Export(Export),
    /// Remove a network and end its programs
    #[command(alias = "destroy")]
    Down(Down),
    /// Show networks: clock, nodes and links
    Inspect(Inspect),
    /// Show links, change their delay, rate and loss, add and remove them
    #[command(subcommand)]
    Link(LinkVerb),
    /// Add nodes to a network that runs, and remove them
    #[command(subcommand)]
    Node(NodeVerb),
    /// Show what is to come of a network's links and clocks, and change it
    #[command(subcommand)]
    Schedule(Box<ScheduleVerb>),
    /// Record an interface's frames as pcapng, with virtual timestamps
    Capture(Capture),
    /// Draw a network as SVG
    Graph(Graph),
    /// Show all of it in a browser, and control it
    Web(WebArgs),
    /// Measure the delay that a network stack adds to each packet
    #[command(subcommand)]
    Latency(Latency),
    /// Give programs whose monitor has died a new one
    ///
    /// Without a monitor, programs run on but can start no other program. 'lorentz ps' says which containers need this. It
    /// needs the rights of a debugger. 'exec' and 'run --clock' do the same first.
    Adopt(AdoptArgs),
    /// Remove what a crashed container left behind
    ///
    /// A container cleans up after itself when its last program ends; this is for the rest after a crash. It ends programs
    /// that still run after their monitor died. It is refused while a monitor lives, unless --force is given.
    #[command(alias = "remove")]
    Rm(Rm),
    /// Measure the available bandwidth to another host
    ///
    /// Sends streams of UDP probes to 'lorentz bandwidth serve' on that host, and looks for the rate from which on their
    /// delays grow. It loads the path for some seconds.
    Bandwidth(Box<Bandwidth>),
    /// Measure the cost of virtual time on this machine
    ///
    /// Compares native programs, namespaces, other runtimes' containers and libfaketime with Lorentz.
    #[command(subcommand)]
    Study(StudyVerb),
    /// Evaluate studies: statistics, plots and a summary, as one page
    ///
    /// Needs the Python package, installed as `lorentz-time[report]`; LORENTZ_PYTHON names the Python that has it.
    Report(Report),
    /// Show what this machine supports, and what stays real
    ///
    /// Tries each kernel feature. The exit status is 1 if a feature is missing without which nothing can run.
    Doctor(Look),
    /// Make man pages and completions, for packages
    #[command(subcommand, hide = true)]
    Generate(GenerateVerb),
    /// Print the offsets of the failpoints' words in a clock's file, as JSON
    #[cfg(feature = "failpoints")]
    Failpoints,
}

// `lorentz run`.
#[derive(Args, Debug)]
#[command(after_help = VALUES, after_long_help = format!("{VALUES}\n\n{RUN_STATUS}"))]
pub struct RunArgs {
    /// Name of the container
    ///
    /// The other verbs find the container by it. At most 128 letters, digits, '.', '_' and '-', the first a letter or
    /// digit; not in use. Default: a generated name such as quiet-lynx-4f2a.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Join this experiment from the first instruction on; --tdf or --rate sets the share of a processor
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rootfs", "image", "bundle", "clock", "frozen", "skip-idle"])]
    pub experiment: Option<String>,
    /// With --experiment: the timeline that the container follows, if a simulator moves it
    #[arg(long, value_name = "N", requires = "experiment", allow_hyphen_values = true)]
    #[arg(value_parser = crate::experiment_args::timeline)]
    pub timeline: Option<u32>,
    /// With --experiment: the number of processors that the container runs on at once
    #[arg(
        long,
        value_name = "N",
        requires = "experiment",
        allow_hyphen_values = true,
        default_value_t = 1
    )]
    pub parallel: u32,
    /// With --experiment: 'none' has the clock stand while the program computes, so that results repeat [default: the experiment's]
    #[arg(long, value_name = "real|none", requires = "experiment")]
    pub compute: Option<ComputeTime>,
    /// Write a newline to this file descriptor once the program is on its clock, and in its experiment
    ///
    /// For programs that start others: before that the other verbs do not find the container. The program does not
    /// inherit the descriptor. It closes without a newline if the program cannot be started.
    #[arg(long, value_name = "FD", conflicts_with_all = ["rootfs", "image", "bundle"])]
    pub ready_fd: Option<ReadyFd>,
    /// Print how the clock would start, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// The clock.
    #[command(flatten)]
    pub clock: ClockArgs,
    /// A root file system of its own.
    #[command(flatten)]
    pub root: RootArgs,
    /// The program and its arguments
    #[arg(required_unless_present_any = ["bundle", "image"], trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(help_heading = "Arguments")]
    pub command: Vec<OsString>,
}

// `lorentz attach`.
#[derive(Args, Debug)]
#[command(after_help = VALUES)]
pub struct AttachArgs {
    /// Id of a running process, or a container of docker, podman or LXC: docker:NAME, podman:NAME, lxc:NAME
    ///
    /// A process is one of your own, or any as root. A container comes in with all its processes, by its name unless --name is given.
    #[arg(value_name = "PID|ENGINE:NAME", value_parser = str::parse::<AttachTarget>)]
    pub target: AttachTarget,
    /// Attach to its descendants too
    #[arg(long)]
    pub tree: bool,
    /// Prepare it for an experiment: its sends are ordered with those of the other containers
    #[arg(long, conflicts_with = "clock")]
    pub for_experiment: bool,
    /// Name of the container, as for 'lorentz run'
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Programs that enter its container from outside (nsenter, lxc-attach): bring them onto the clock, end them, or leave them
    ///
    /// For a container, or a PID that is the first process of one. The default is then attach, where the kernel lets root watch.
    #[arg(long, value_name = "attach|refuse|ignore", value_parser = str::parse::<Newcomers>)]
    pub newcomers: Option<Newcomers>,
    /// Do not ask before the shell that runs this command is attached
    #[arg(long)]
    pub yes: bool,
    /// Print the new container's clocks as JSON
    #[arg(long)]
    pub json: bool,
    /// The clock.
    #[command(flatten)]
    pub clock: ClockArgs,
}

// `lorentz exec`.
#[derive(Args, Debug)]
#[command(after_help = RUN_STATUS)]
pub struct Exec {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

// `lorentz adopt`.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// Set no_new_privs in its programs, where the kernel requires it
    ///
    /// Programs without CAP_SYS_ADMIN and without no_new_privs cannot be adopted otherwise. They can see the difference, and
    /// set-user-id programs that they start get no rights from then on.
    #[arg(long)]
    pub no_new_privs: bool,
    /// Print its clocks as JSON, with the processes that were adopted
    #[arg(long)]
    pub json: bool,
}

// `lorentz ps`, `lorentz doctor`.
#[derive(Args, Debug)]
pub struct Look {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Time between two looks, from 50ms to 1h
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = parse_interval)]
    pub interval: Span,
}

fn parse_interval(text: &str) -> Result<Span, String> {
    let bounds = Span(50_000_000)..=Span::from_secs(3600);
    let span = text.parse::<Span>().ok().filter(|span| bounds.contains(span));
    span.ok_or_else(|| "expected a duration from 50ms to 1h".to_string())
}

// One container.
#[derive(Args, Debug)]
pub struct LookAt {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// Print its clocks as JSON
    #[arg(long)]
    pub json: bool,
}

// The time of a change: at once, or announced.
#[derive(Args, Debug)]
pub struct WhenArgs {
    /// Announce the change for the moment when the host's wall clock shows this time
    ///
    /// Default: change at once. An announced change begins by itself; 'lorentz time' shows it until then. A change drops
    /// those that were announced for its own instant or a later one. At most 16 can be pending.
    #[arg(long = "at", value_name = "TIME", allow_hyphen_values = true)]
    pub announced: Option<Date>,
}

// `lorentz freeze`, `lorentz unfreeze`.
#[derive(Args, Debug)]
#[command(after_help = VALUES)]
pub struct Pause {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// When.
    #[command(flatten)]
    pub when: WhenArgs,
}

// `lorentz dilate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("speed").required(true), after_help = VALUES)]
pub struct Dilate {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm
    ///
    /// Above 0, from 1/1000000 to 1000000.
    #[arg(long, value_name = "R", group = "speed", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Time dilation factor, the inverse of a rate: real seconds per virtual second
    #[arg(long, value_name = "N", group = "speed", allow_hyphen_values = true)]
    #[arg(value_parser = Rate::parse_tdf)]
    pub tdf: Option<Rate>,
    /// When.
    #[command(flatten)]
    pub when: WhenArgs,
}

// `lorentz leap`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("target").required(true), after_help = VALUES)]
pub struct Leap {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// Move by this duration, 0 or more
    #[arg(long, value_name = "DUR", group = "target", allow_hyphen_values = true)]
    pub by: Option<Span>,
    /// Move until the wall clock shows this time, which must be in its future
    #[arg(long, value_name = "TIME", group = "target", allow_hyphen_values = true)]
    pub to: Option<Date>,
    /// Move until the wall clock shows the same as this container's
    #[arg(long, value_name = "NAME|PID", group = "target")]
    pub like: Option<String>,
    /// When.
    #[command(flatten)]
    pub when: WhenArgs,
}

// `lorentz step`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("target").required(true), after_help = VALUES)]
pub struct StepArgs {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// Move by this duration, forward or back
    #[arg(long, value_name = "DUR", group = "target", allow_hyphen_values = true)]
    pub by: Option<Span>,
    /// Set to this time
    #[arg(long, value_name = "TIME", group = "target", allow_hyphen_values = true)]
    pub to: Option<Date>,
    /// When.
    #[command(flatten)]
    pub when: WhenArgs,
}

// `lorentz skip`.
#[derive(Args, Debug)]
pub struct Skip {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// on; off; force: skip even while the outside may bring an answer
    #[arg(value_name = "on|off|force", hide_possible_values = true)]
    pub mode: SkipArg,
    /// Virtual time that each clock read costs, so that a program that spins on a clock ends
    ///
    /// From 0 to 1s.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = parse_read_cost)]
    pub read_cost: Option<Span>,
    /// Print its clocks as JSON
    #[arg(long)]
    pub json: bool,
}

/// Mode of skipping idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SkipArg {
    /// Skip
    On,
    /// Do not skip
    Off,
    /// Skip even while the outside may bring an answer
    Force,
}

// `lorentz rm`.
#[derive(Args, Debug)]
pub struct Rm {
    /// The containers' names
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// End their programs even while a monitor supervises them
    #[arg(long)]
    pub force: bool,
}

impl SkipArg {
    /// Converts to the library's type.
    pub fn mode(self) -> SkipMode {
        match self {
            SkipArg::On => SkipMode::On,
            SkipArg::Off => SkipMode::Off,
            SkipArg::Force => SkipMode::Force,
        }
    }
}

/// The operand of `lorentz attach`.
#[derive(Clone, Debug)]
pub enum AttachTarget {
    /// A process.
    Process(u32),
    /// A container of another engine.
    Container(ForeignContainer),
}

impl FromStr for AttachTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<AttachTarget, &'static str> {
        const EXPECTED: &str =
            "expected the number of a running process, docker:NAME, podman:NAME or lxc:NAME";
        if text.contains(':') {
            return text.parse().map(AttachTarget::Container);
        }
        let pid = text.parse().ok().filter(|&pid: &u32| pid > 0);
        pid.map(AttachTarget::Process).ok_or(EXPECTED)
    }
}

#[cfg(test)]
mod tests;
