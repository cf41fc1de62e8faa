//! The command line: each flag, what it means and what it accepts, in this one place.

use std::ffi::OsString;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use lorentz_clock::{Rate, SkipMode, Span, WallTime};
use lorentz_container::{parse_read_cost, ClockOptions};

use crate::bandwidth_args::Bandwidth;
use crate::experiment_args::Experiment;
use crate::latency_args::Latency;
use crate::network_args::{Capture, Down, Graph, Import, Inspect, LinkVerb, Up};
use crate::root_args::RootArgs;
use crate::study_args::{Report, StudyVerb};

const VALUES: &str = "\
DUR   10ms, 1h30m, +3d, -1h30m; units ns us ms s m h d w y; a number alone is seconds
TIME  2038-01-19T03:14:00Z, 2030-01-01, @1700000000; UTC where no zone is given
R, N  2, 0.1, 1/10, 60x, +200ppm; above 0, from 1/1000000 to 1000000";

const RUN_STATUS: &str = "\
Exit status:
  the program's own, or 128+N if signal N ended it
  127  command not found
  126  not executable, or cannot be brought into virtual time
  125  lorentz itself failed
  2    wrong input; nothing was started";

/// Virtual time for Linux programs: another date, another speed, standing still, jumping; changed while they run.
#[derive(Parser, Debug)]
#[command(name = "lorentz", version, disable_help_subcommand = true, after_help = VALUES)]
#[command(arg_required_else_help = false, subcommand_required = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run a program in virtual time
    ///
    /// Any program, unmodified: its clocks, waits and timers follow the container's clock from its first
    /// instruction on, and so do those of all it starts. Standard streams, the terminal, signals and the working
    /// directory pass through.
    Run(Box<Run>),
    /// Bring a running process into virtual time
    ///
    /// With its waits and timers. It cannot be taken out again; a clock at rate 1 does no harm. Needs the rights
    /// that a debugger needs.
    Attach(Attach),
    /// Run one more program in a container, on its clock
    Exec(Exec),
    /// List what runs in virtual time
    Ps(Look),
    /// Show a container's clocks beside the host's
    ///
    /// And its rate and TDF, whether time runs or is frozen, and by which mechanism its programs were brought into
    /// virtual time.
    Time(LookAt),
    /// Set how fast time passes
    ///
    /// From this moment on; waits in progress and armed timers follow. On a frozen clock: once it is unfrozen.
    Dilate(Dilate),
    /// Let time stand still, and the programs with it
    ///
    /// Of all containers on the clock. Their tasks stop too where there is a cgroup v2 freezer ('lorentz doctor').
    /// What is frozen already stays so.
    Freeze(Pause),
    /// Let time go on
    Unfreeze(Pause),
    /// Move all clocks forward
    ///
    /// As if the time had passed: sleeps that would have ended end. Time does not go backwards: for the wall clock
    /// alone there is 'lorentz step'.
    Leap(Leap),
    /// Move the wall clock alone, forward or back
    ///
    /// As an operator or NTP would. Waits for a date follow; other clocks and all other waits do not move.
    Step(Step),
    /// Have time leap over what everybody only waits for, or not
    ///
    /// When all of a container sleeps and nothing is to come from outside, its time leaps to the next deadline.
    Skip(Skip),
    /// Move many containers through one virtual time, in rounds
    ///
    /// Their clocks advance together although they share too few processors, each with its own TDF.
    Experiment(Experiment),
    /// Make a network from a topology file: nodes on one clock, joined by links that keep its time
    Up(Up),
    /// Write another emulator's scenario as a topology file
    ///
    /// Of CORE, IMUNES, containerlab or Kathara. What is not understood, or cannot be had, is listed on standard error.
    Import(Import),
    /// Take a network down, with all that runs in it
    Down(Down),
    /// Show networks: their clock, nodes and links
    Inspect(Inspect),
    /// Show what links do to frames, and change it
    #[command(subcommand)]
    Link(LinkVerb),
    /// Record what an interface sends and gets, as pcapng with virtual time stamps
    Capture(Capture),
    /// Draw a network, as SVG
    Graph(Graph),
    /// Measure what the network stack of containers adds to each packet
    #[command(subcommand)]
    Latency(Latency),
    /// Clear what a container left behind
    ///
    /// A container clears up after itself when its last program ends; this is for what a crash left. Programs
    /// that still run after their monitor died are ended. Refused while a monitor lives.
    Rm(Rm),
    /// Measure the available bandwidth to another host, or serve those who do
    ///
    /// Streams of UDP probes are sent to 'lorentz bandwidth serve' there; from which rate on their delays grow is what
    /// is looked for. It loads the path for some seconds.
    Bandwidth(Box<Bandwidth>),
    /// Measure what virtual time costs on this machine, beside containers of others and libfaketime
    #[command(subcommand)]
    Study(StudyVerb),
    /// Judge what was measured: statistics, plots and a summary in words, as one page
    ///
    /// Needs the Python package, installed as `lorentz[report]`; LORENTZ_PYTHON names the Python that has it.
    Report(Report),
    /// Tell what this host can do, and what is not virtual yet
    ///
    /// Each feature is tried. The exit status is 1 where something is missing without which nothing can run.
    Doctor(Look),
    /// Print where in a clock's file the words of the failpoints lie, as JSON
    #[cfg(feature = "failpoints")]
    Failpoints,
}

/// `lorentz run`.
#[derive(Args, Debug)]
#[command(after_help = VALUES, after_long_help = format!("{VALUES}\n\n{RUN_STATUS}"))]
pub struct Run {
    /// Name of the container
    ///
    /// By it the other commands find it. Letters, digits, '.', '_' and '-', at most 128, the first a letter or
    /// digit; not in use. Default: one is made up, such as quiet-lynx-4f2a.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// As part of this experiment, from its first instruction on; --tdf or --rate say how much of a processor it gets
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rootfs", "bundle", "clock", "frozen", "skip_idle"])]
    pub experiment: Option<String>,
    /// With --experiment: the timeline it follows, where a simulator moves it
    #[arg(long, value_name = "N", requires = "experiment", allow_hyphen_values = true)]
    #[arg(value_parser = crate::experiment_args::timeline)]
    pub timeline: Option<u32>,
    /// The clock.
    #[command(flatten)]
    pub clock: ClockArgs,
    /// A root file system of its own.
    #[command(flatten)]
    pub root: RootArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "bundle", trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(help_heading = "Arguments")]
    pub command: Vec<OsString>,
}

/// `lorentz attach`.
#[derive(Args, Debug)]
#[command(after_help = VALUES)]
pub struct Attach {
    /// Number of the process: a running program of your own (of anybody's, as root)
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub pid: u32,
    /// Its descendants too
    #[arg(long)]
    pub tree: bool,
    /// It is to be part of an experiment: what it sends there is seen in turn
    #[arg(long, conflicts_with = "clock")]
    pub for_experiment: bool,
    /// Name of the container, as for 'lorentz run'
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the new container's clocks as JSON
    #[arg(long)]
    pub json: bool,
    /// The clock.
    #[command(flatten)]
    pub clock: ClockArgs,
}

/// `lorentz exec`.
#[derive(Args, Debug)]
#[command(after_help = RUN_STATUS)]
pub struct Exec {
    /// The container: its name, or the number of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Everything there is to look at.
#[derive(Args, Debug)]
pub struct Look {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One container to look at.
#[derive(Args, Debug)]
pub struct LookAt {
    /// The container: its name, or the number of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// Print its clocks as JSON
    #[arg(long)]
    pub json: bool,
}

/// When a change of a clock happens: at once, or at a time that is announced.
#[derive(Args, Debug)]
pub struct When {
    /// When the host's wall clock shows this time, not at once
    ///
    /// The change is announced now and comes by itself; 'lorentz time' shows it until then. An announced change that an
    /// earlier one overtakes is dropped. At most 16 are to come at once.
    #[arg(long = "at", value_name = "TIME", allow_hyphen_values = true)]
    pub announced: Option<WallTime>,
}

/// `lorentz freeze`, `lorentz unfreeze`.
#[derive(Args, Debug)]
#[command(after_help = VALUES)]
pub struct Pause {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// When.
    #[command(flatten)]
    pub when: When,
}

/// `lorentz dilate`.
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
    /// Time dilation factor, real seconds per virtual second: the inverse of a rate
    #[arg(long, value_name = "N", group = "speed", allow_hyphen_values = true)]
    #[arg(value_parser = Rate::parse_tdf)]
    pub tdf: Option<Rate>,
    /// When.
    #[command(flatten)]
    pub when: When,
}

/// `lorentz leap`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("target").required(true), after_help = VALUES)]
pub struct Leap {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// This far: a duration of 0 or more
    #[arg(long, value_name = "DUR", group = "target", allow_hyphen_values = true)]
    pub by: Option<Span>,
    /// Until the wall clock shows this time, which must be in its future
    #[arg(long, value_name = "TIME", group = "target", allow_hyphen_values = true)]
    pub to: Option<WallTime>,
    /// Until the wall clock shows what that of another container shows at that moment
    #[arg(long, value_name = "NAME|PID", group = "target")]
    pub like: Option<String>,
    /// When.
    #[command(flatten)]
    pub when: When,
}

/// `lorentz step`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("target").required(true), after_help = VALUES)]
pub struct Step {
    /// The container.
    #[command(flatten)]
    pub at: LookAt,
    /// This far, forward or back
    #[arg(long, value_name = "DUR", group = "target", allow_hyphen_values = true)]
    pub by: Option<Span>,
    /// To this time
    #[arg(long, value_name = "TIME", group = "target", allow_hyphen_values = true)]
    pub to: Option<WallTime>,
    /// When.
    #[command(flatten)]
    pub when: When,
}

/// `lorentz skip`.
#[derive(Args, Debug)]
pub struct Skip {
    /// The container: its name, or the number of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// on; off; force: whatever the outside may bring
    #[arg(value_name = "on|off|force", hide_possible_values = true)]
    pub mode: Switch,
    /// What reading a clock costs in virtual time, so that a program that spins on it comes to an end
    ///
    /// 0 or more, up to 1s.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = parse_read_cost)]
    pub read_cost: Option<Span>,
    /// Print its clocks as JSON
    #[arg(long)]
    pub json: bool,
}

/// Whether idle time is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// Skipped
    On,
    /// Not skipped
    Off,
    /// Skipped, whatever the outside may bring
    Force,
}

/// `lorentz rm`.
#[derive(Args, Debug)]
pub struct Rm {
    /// The containers' names
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// End their programs even while a monitor looks after them
    #[arg(long)]
    pub force: bool,
}

/// Which clock.
#[derive(Args, Debug)]
#[command(next_help_heading = "Clock")]
pub struct ClockArgs {
    /// The wall clock starts at this time [default: the host's]
    ///
    /// Not before 1970. Excludes --offset.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<WallTime>,
    /// ... or this far from the host's: +10d, -1h30m
    ///
    /// Moves the wall clock alone, not before 1970. Excludes --at.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub offset: Option<Span>,
    /// Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm [default: 1]
    ///
    /// Above 0, from 1/1000000 to 1000000. Excludes --tdf.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Time dilation factor, real seconds per virtual second: the inverse of --rate
    ///
    /// Written as a rate is: 10, 0.5, 1/3. Excludes --rate.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = Rate::parse_tdf)]
    pub tdf: Option<Rate>,
    /// CLOCK_MONOTONIC starts this far from the host's
    ///
    /// May not make it negative: the host's counts from its boot.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub monotonic: Option<Span>,
    /// CLOCK_BOOTTIME, and with it the uptime, starts this far from the host's
    ///
    /// May not make it negative: the host's counts from its boot.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub boottime: Option<Span>,
    /// Start with time standing still: the program starts when 'lorentz unfreeze' comes
    #[arg(long)]
    pub frozen: bool,
    /// Time leaps over what everybody only waits for
    ///
    /// When all of the container sleeps, its clocks leap to the next deadline. While somebody waits for something that
    /// can come from outside (a connection, a terminal, a pipe), time keeps to its rate: 'lorentz ps' says for whom.
    /// =force: leaps whatever the outside may bring.
    #[arg(long, value_name = "on|force", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "on", hide_possible_values = true)]
    pub skip_idle: Option<Switch>,
    /// With --skip-idle: what reading a clock costs in virtual time
    ///
    /// A program that spins on the clock is never idle; so it comes to an end. 0 or more, up to 1s.
    #[arg(long, value_name = "DUR", requires = "skip_idle", allow_hyphen_values = true)]
    #[arg(value_parser = parse_read_cost)]
    pub read_cost: Option<Span>,
    /// CPU clocks run at the clock's rate, or as the host's [default: virtual]
    ///
    /// Virtual: no program uses more CPU time than time passed.
    #[arg(long, value_name = "virtual|real", hide_possible_values = true)]
    pub cpu_clocks: Option<Whose>,
    /// File times are told in virtual time, or in the host's [default: virtual]
    ///
    /// Virtual: ages are right inside; what changed an hour before the start is an hour old.
    #[arg(long, value_name = "virtual|real", hide_possible_values = true)]
    pub file_times: Option<Whose>,
    /// The rdtsc instruction tells virtual time too, at about 2 us each
    #[arg(long)]
    pub trap_tsc: bool,
    /// On the clock of this container instead of a new one: several programs, one time
    ///
    /// Without --name it becomes part of that container. Excludes all other options of a clock.
    #[arg(long, value_name = "NAME")]
    pub clock: Option<String>,
}

/// Whose time something is told in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Whose {
    /// The container's
    Virtual,
    /// The host's
    Real,
}

impl Switch {
    /// The same, free of any command line.
    pub fn mode(self) -> SkipMode {
        match self {
            Switch::On => SkipMode::On,
            Switch::Off => SkipMode::Off,
            Switch::Force => SkipMode::Force,
        }
    }
}

impl ClockArgs {
    /// The same, free of any command line.
    pub fn options(&self) -> ClockOptions {
        let is_real = |whose: Whose| whose == Whose::Real;
        ClockOptions {
            at: self.at,
            offset: self.offset,
            rate: self.rate,
            tdf: self.tdf,
            monotonic: self.monotonic,
            boottime: self.boottime,
            frozen: self.frozen,
            skip_idle: self.skip_idle.map(Switch::mode),
            read_cost: self.read_cost,
            real_cpu_clocks: self.cpu_clocks.map(is_real),
            real_file_times: self.file_times.map(is_real),
            trap_tsc: self.trap_tsc,
            clock: self.clock.clone(),
            in_experiment: false,
        }
    }
}

fn parse_pid(text: &str) -> Result<u32, &'static str> {
    let pid = text.parse().ok().filter(|&pid: &u32| pid > 0);
    pid.ok_or("expected the number of a running process")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn run(words: &str) -> Run {
        match Cli::try_parse_from(words.split(' ')).unwrap().verb {
            Verb::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        let run = run("lorentz run --rate 10 --name web date --rate 3 -u -- x");
        assert_eq!(run.command, ["date", "--rate", "3", "-u", "--", "x"]);
        assert_eq!((run.clock.rate, run.name.as_deref()), (Rate::new(10, 1), Some("web")));
    }

    #[test]
    fn two_dashes_may_stand_before_the_command() {
        let run = run("lorentz run --offset -1h30m -- -odd --name x");
        assert_eq!(run.command, ["-odd", "--name", "x"]);
        assert_eq!(run.clock.offset, Some(Span::from_secs(-5_400)));
    }

    #[test]
    fn every_clock_option_arrives() {
        let run = run(
            "lorentz run --at @5 --offset 1 --rate 2 --tdf 4 --monotonic 3 --boottime -4 --frozen \
             --skip-idle=force --read-cost 1us --cpu-clocks real --file-times virtual --trap-tsc --clock web true",
        );
        let expected = ClockOptions {
            at: Some(WallTime { secs: 5, nanos: 0 }),
            offset: Some(Span::from_secs(1)),
            rate: Rate::new(2, 1),
            tdf: Rate::new(1, 4),
            monotonic: Some(Span::from_secs(3)),
            boottime: Some(Span::from_secs(-4)),
            frozen: true,
            skip_idle: Some(SkipMode::Force),
            read_cost: Some(Span(1_000)),
            real_cpu_clocks: Some(true),
            real_file_times: Some(false),
            trap_tsc: true,
            clock: Some("web".to_string()),
            in_experiment: false,
        };
        assert_eq!(run.clock.options(), expected);
    }
}
