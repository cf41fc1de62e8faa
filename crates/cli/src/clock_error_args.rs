//! The command line of `lorentz clock`: each flag, its help text and its accepted values.

use clap::{Args, Subcommand, ValueEnum};
use lorentz_clock::Span;
use lorentz_control::discipline::parse_frequency;

// Verbs of `lorentz clock`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum ClockVerb {
    /// Show how far a container's clock is from the truth, and what disciplines it
    ///
    /// The truth is the clock that the container would have without errors: leaps, freezes and rates move both. The rest is what
    /// adjtimex(2) shows inside.
    Show(ErringClock),
    /// Print the error of a container's clock again and again
    ///
    /// A line for each look: the wall clock, its offset to the truth, its frequency error, the bound that a daemon has told. Ends with
    /// the container. In an experiment, looks lie at whole multiples of --every of the truth.
    Log(LogArgs),
    /// Check that a clock's error is within the bound that its NTP daemon has told
    ///
    /// The exit status is 1 if it is not, or if no daemon has told a bound.
    Check(ErringClock),
    /// Let a container's clock run too fast or too slow
    ///
    /// All its clocks drift, as those of a machine with a bad oscillator. A daemon inside may discipline them by adjtimex(2).
    #[command(allow_negative_numbers = true)]
    Drift(DriftArgs),
    /// Move a container's wall clock away from the truth
    ///
    /// At once, as 'lorentz step' does; with --slew all clocks drift until it is so far.
    Bump(BumpArgs),
    /// Move a container's wall clock forth and back, again and again
    Strobe(StrobeArgs),
    /// Let CLOCK_BOOTTIME and the wall clock go on at once, as after a suspend of the machine
    ///
    /// CLOCK_MONOTONIC stands still meanwhile. Waits and timers on the two clocks that are due by then end; the others last as long as
    /// before. No error: the truth goes on too.
    Suspend(SuspendArgs),
    /// Have a leap second come at the end of the container's UTC day
    ///
    /// As a daemon asks the kernel for it (STA_INS, STA_DEL): programs see the 61st second as natively.
    LeapSecond(LeapSecondArgs),
    /// End all errors of a container's clock
    ///
    /// No drift, no discipline; the wall clock is set to true time.
    Reset(ErringClock),
}

// One container's clock.
#[derive(Args, Clone, Debug)]
pub struct ErringClock {
    /// The container: its name, or the id of any of its processes
    #[arg(value_name = "NAME|PID")]
    pub container: String,
    /// Print the clock's error as JSON
    #[arg(long)]
    pub json: bool,
}

// `lorentz clock log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// Virtual time between two looks
    #[arg(long, value_name = "DUR", default_value = "1s", allow_hyphen_values = true)]
    pub every: Span,
    /// End after so much virtual time
    #[arg(long = "for", value_name = "DUR", allow_hyphen_values = true)]
    pub length: Option<Span>,
}

// `lorentz clock drift`.
#[derive(Args, Debug)]
pub struct DriftArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// How much too fast the clock is: +100ppm, -20ppb, 1%; at most 10% either way
    #[arg(value_name = "DRIFT", allow_hyphen_values = true, value_parser = parse_frequency)]
    pub drift: i64,
    /// For so much virtual time, on top of the drift that it has
    #[arg(long = "for", value_name = "DUR", allow_hyphen_values = true)]
    pub length: Option<Span>,
}

// `lorentz clock bump`.
#[derive(Args, Debug)]
pub struct BumpArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// How far: +90s, -100ms
    #[arg(value_name = "DUR", allow_hyphen_values = true)]
    pub by: Span,
    /// Let all clocks drift there in so much virtual time; by at most 10%
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub slew: Option<Span>,
}

// `lorentz clock strobe`.
#[derive(Args, Debug)]
pub struct StrobeArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// How far the wall clock is moved forth, and then back
    #[arg(value_name = "DUR", allow_hyphen_values = true)]
    pub by: Span,
    /// Virtual time between two moves
    #[arg(long, value_name = "DUR", default_value = "10ms", allow_hyphen_values = true)]
    pub period: Span,
    /// How long, in virtual time
    #[arg(long = "for", value_name = "DUR", default_value = "5s", allow_hyphen_values = true)]
    pub length: Span,
}

// `lorentz clock suspend`.
#[derive(Args, Debug)]
pub struct SuspendArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// How long: 2h
    #[arg(value_name = "DUR", allow_hyphen_values = true)]
    pub length: Span,
}

// `lorentz clock leap-second`.
#[derive(Args, Debug)]
pub struct LeapSecondArgs {
    #[command(flatten)]
    pub at: ErringClock,
    /// 'insert' repeats the day's last second, 'delete' leaves it out, 'none' asks for neither
    #[arg(value_name = "insert|delete|none", hide_possible_values = true)]
    pub what: LeapSecondWord,
}

/// The fate of the day's last second.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum LeapSecondWord {
    Insert,
    Delete,
    None,
}
