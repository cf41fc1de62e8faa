//! The table of a clock's options, from which every interface is made: command line, annotations, environment, topology files,
//! Python.

use lorentz_clock::{Rate, SkipMode, Span, WallTime};

use crate::date::Date;
use crate::discipline::StartError;

/// One option of a clock, as every interface names, reads and shows it.
#[derive(Debug)]
pub struct ClockOption {
    /// Its name: `at` is `--at`, the annotation `lorentz.at` and the variable `LORENTZ_AT`.
    pub name: &'static str,
    /// The flag of the command line.
    pub flag: &'static str,
    /// The form of its value.
    pub value: OptionValue,
    /// The help, in one line.
    pub help: &'static str,
    /// The rest of the help; may be empty.
    pub details: &'static str,
    /// The name of the option without which the command line refuses this one.
    pub requires: Option<&'static str>,
    /// The name of the option that gives the same value in another unit. Annotations pass the value on under that name.
    pub passed_as: Option<&'static str>,
    /// The key of a network and of a node in a topology file, for an option that they have.
    pub topology_key: Option<&'static str>,
    read: fn(&mut ClockOptions, &str) -> Result<(), String>,
    show: fn(&ClockOptions) -> Option<String>,
}

/// The form of an option's value on the command line. Elsewhere a switch has the value `true` or `false`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionValue {
    /// No value.
    Switch,
    /// A quantity, which may begin with a minus sign: its placeholder.
    Quantity(&'static str),
    /// A name: its placeholder.
    Name(&'static str),
    /// One of a few words.
    Word {
        /// Its placeholder.
        shown: &'static str,
        /// The words.
        accepted: &'static [&'static str],
        /// The word that the flag alone stands for.
        implied: Option<&'static str>,
    },
}

impl ClockOption {
    /// The fields that an entry of the table may leave out.
    const EMPTY: ClockOption = ClockOption {
        name: "",
        flag: "",
        value: OptionValue::Switch,
        help: "",
        details: "",
        requires: None,
        passed_as: None,
        topology_key: None,
        read: |_, _| Ok(()),
        show: |_| None,
    };

    /// Reads the option's value from `text` into `options`.
    ///
    /// # Errors
    ///
    /// The values that are accepted.
    pub fn read(&self, options: &mut ClockOptions, text: &str) -> Result<(), String> {
        (self.read)(options, text)
    }

    /// Returns a value that the option accepts, for tests that go through the table.
    #[doc(hidden)]
    pub fn example(&self) -> &'static str {
        match self.value {
            OptionValue::Switch => "true",
            OptionValue::Quantity("TIME") => "@5",
            OptionValue::Quantity("ERROR") => "drift=1ppm",
            OptionValue::Word { accepted, .. } => accepted[0],
            OptionValue::Quantity(_) | OptionValue::Name(_) => "1",
        }
    }

    /// Returns the option's value in `options` as a text that [`ClockOption::read`] reads, of this option or of the one that it is passed
    /// on as. `None` if the option is not given.
    pub fn show(&self, options: &ClockOptions) -> Option<String> {
        (self.show)(options)
    }
}

/// The table of clock options, a row for each. `$make` is a macro that makes one interface from it.
///
/// A row has the docs of the field, the option's name, the field and its type, functions that parse and show a value, the
/// fields of its [`ClockOption`], and, for an option that topology files have too, the key with the type of its value in the
/// schema, and its docs for a network and for a node.
#[doc(hidden)]
#[macro_export]
macro_rules! with_clock_options {
    ($make:ident) => {
        $make! {
            /// `--at`: wall time at the start.
            "at" => at: Option<WallTime> [Date::of_the_host, text_of] {
                help: "Start the wall clock at this time [default: the host's]",
                value: OptionValue::Quantity("TIME"),
                details: "Not before 1970. Excludes --offset.",
            } topology {
                at: "Option<String>",
                "Wall time at the start, as 2038-01-19T03:14:00Z [default: the host's]",
                "Wall time at the start, as 2038-01-19T03:14:00Z; only in rounds [default: the network's]",
            }
            /// `--offset`: start of the wall clock, relative to the host's.
            "offset" => offset: Option<Span> [str::parse::<Span>, text_of] {
                help: "Start the wall clock this far from the host's: +10d, -1h30m",
                value: OptionValue::Quantity("DUR"),
                details: "Moves the wall clock alone, not before 1970. Excludes --at.",
            }
            /// `--rate`: virtual seconds per real second.
            "rate" => rate: Option<Rate> [str::parse::<Rate>, text_of] {
                help: "Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm [default: 1]",
                value: OptionValue::Quantity("R"),
                details: "Above 0, from 1/1000000 to 1000000. Excludes --tdf.",
            } topology {
                rate: "Option<NumberOrText>",
                "Virtual seconds per real second, as 2, 0.1, 1/10, 60x; not with tdf",
                "Virtual seconds per real second of a processor, as 2, 0.1, 1/10, 60x; only in rounds, not with tdf",
            }
            /// `--tdf`: the inverse of the rate. This field holds the rate.
            "tdf" => tdf: Option<Rate> [Rate::parse_tdf, text_of] {
                help: "Time dilation factor, the inverse of --rate: real seconds per virtual second",
                value: OptionValue::Quantity("N"),
                details: "Written as a rate is: 10, 0.5, 1/3. Excludes --rate.",
                passed_as: Some("rate"),
            } topology {
                tdf: "Option<NumberOrText>",
                "Real seconds per virtual second, as 10 or 1/3; not with rate",
                "Real seconds per virtual second of a processor, as 10 or 1/3; only in rounds, not with rate [default: the network's]",
            }
            /// `--monotonic`: start of CLOCK_MONOTONIC, relative to the host's.
            "monotonic" => monotonic: Option<Span> [str::parse::<Span>, text_of] {
                help: "Start CLOCK_MONOTONIC this far from the host's",
                value: OptionValue::Quantity("DUR"),
                details: "The clock may not become negative: the host's counts from its boot.",
            }
            /// `--boottime`: start of CLOCK_BOOTTIME, relative to the host's.
            "boottime" => boottime: Option<Span> [str::parse::<Span>, text_of] {
                help: "Start CLOCK_BOOTTIME, and with it the uptime, this far from the host's",
                value: OptionValue::Quantity("DUR"),
                details: "The clock may not become negative: the host's counts from its boot.",
            }
            /// `--frozen`: whether time stands still at the start.
            "frozen" => frozen: bool [parse_switch, switch_text] {
                help: "Start with a frozen clock: the program starts at 'lorentz unfreeze'",
            }
            /// `--skip-idle`: whether time skips idle periods.
            "skip-idle" => skip_idle: Option<SkipMode> [parse_skip_mode, skip_mode_text] {
                help: "Skip idle time",
                value: SKIP_MODES,
                details: "When every task of the container waits, its clocks jump to the next deadline. \
                    While a task waits for an answer that may come from outside (a connection, a terminal, \
                    a pipe), time keeps to its rate; 'lorentz ps' names the process. =force: skip even then.",
            }
            /// `--read-cost`: virtual cost of a clock read, with `--skip-idle`.
            "read-cost" => read_cost: Option<Span> [parse_read_cost, text_of] {
                help: "With --skip-idle: virtual time that each clock read costs",
                value: OptionValue::Quantity("DUR"),
                details: "A program that spins on a clock is never idle; with a cost it ends. From 0 to 1s.",
                requires: Some("skip-idle"),
            }
            /// `--clock-error`: how the clock errs from the start.
            "clock-error" => clock_error: Option<StartError> [str::parse::<StartError>, text_of] {
                help: "Let the clock err: offset=100ms,drift=+100ppm,wander=1ppb,seed=7, any of them",
                value: OptionValue::Quantity("ERROR"),
                details: "offset: the wall clock is so far from the truth at the start. drift: all clocks are so much too \
                    fast, at most 10%. wander: the drift walks at random, so far in a second, as the seed decides. 'lorentz clock' shows and changes the error; daemons inside may mend it.",
            } topology {
                clock_error: "Option<String>",
                "How its nodes' clocks err, as offset=100ms,drift=+100ppm,wander=1ppb,seed=7; only in rounds",
                "How its clock errs, as offset=100ms,drift=+100ppm,wander=1ppb,seed=7; only in rounds [default: the network's]",
            }
            /// `--may-set-clock`: whether programs without CAP_SYS_TIME may set the clock.
            "may-set-clock" => may_set_clock: bool [parse_switch, switch_text] {
                help: "Let programs set the container's clock that may not set the machine's",
                details: "By clock_settime, settimeofday and adjtimex. Without it they need CAP_SYS_TIME, as natively.",
            }
            /// `--cpu-clocks`: whether CPU clocks are the host's.
            "cpu-clocks" => real_cpu_clocks: Option<bool> [parse_is_real, is_real_text] {
                help: "Show CPU time at the clock's rate, or as the host does [default: virtual]",
                value: REAL_OR_VIRTUAL,
                details: "virtual: no program uses more CPU time than time passed.",
            }
            /// `--file-times`: whether file times are the host's.
            "file-times" => real_file_times: Option<bool> [parse_is_real, is_real_text] {
                help: "Show file times in virtual time, or in the host's [default: virtual]",
                value: REAL_OR_VIRTUAL,
                details: "virtual: a file that is written inside shows the time inside; an older one keeps its \
                    time.",
            }
            /// `--trap-tsc`: whether `rdtsc` reads virtual time.
            "trap-tsc" => trap_tsc: bool [parse_switch, switch_text] {
                help: "Make the rdtsc instruction return virtual time, at about 2 us each",
            }
            /// `--no-rewrite`: whether call sites stay as they are.
            "no-rewrite" => no_rewrite: bool [parse_switch, switch_text] {
                help: "Leave the code of programs as it is: each call that concerns time is trapped",
                details: "By default the places in a program's code that make such calls often are rewritten in \
                    its memory, so that they cost no trap. Its files stay as they are.",
            }
            /// `--clock`: name of a container whose clock is used instead of a new one.
            "clock" => clock: Option<String> [parse_clock_name, text_of] {
                help: "Use the clock of this container instead of a new one; cluster/NAME: one that hosts share",
                value: OptionValue::Name("NAME|cluster/NAME"),
                details: "Without --name the program becomes part of that container. 'lorentz cluster' makes the clocks \
                    that hosts share. Excludes all other clock options.",
            }
        }
    };
}

/// Makes [`ClockOptions`] and [`CLOCK_OPTIONS`] from one entry for each option.
macro_rules! clock_options {
    ($(
        $(#[$field_doc:meta])*
        $name:literal => $field:ident: $type:ty [$parse:expr, $show:expr] { $($entry:tt)* }
        $(topology { $key:ident: $shape:tt, $of_network:literal, $of_node:literal, })?
    )*) => {
        /// Options of a clock as given. The default is the host's time at the host's rate.
        ///
        /// ```
        /// use lorentz_control::{ClockOptions, HostNow};
        ///
        /// let host = HostNow::read()?;
        /// let asked = ClockOptions { at: Some("2038-01-19T03:14:00Z".parse()?), ..Default::default() };
        /// let start = asked.settings(&host)?.segment(&host);
        /// assert_eq!(start.wall_at(start.virt).to_string(), "2038-01-19T03:14:00Z");
        ///
        /// let wrong = ClockOptions { offset: Some("1h".parse()?), ..asked };
        /// assert_eq!(
        ///     wrong.settings(&host).unwrap_err().to_string(),
        ///     "--at and --offset exclude each other: give one of them",
        /// );
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct ClockOptions {
            $($(#[$field_doc])* pub $field: $type,)*
            /// `--experiment`: whether a program's sending waits until the experiment's other clocks have come as far.
            pub in_experiment: bool,
        }

        /// Every option of a clock, in the order of the help.
        pub const CLOCK_OPTIONS: &[ClockOption] = &[$(ClockOption {
            name: $name,
            flag: concat!("--", $name),
            read: |options, text| {
                options.$field = $parse(text).map_err(|error| error.to_string())?.into();
                Ok(())
            },
            show: |options| $show(&options.$field),
            $(topology_key: Some(stringify!($key)),)?
            $($entry)*
            ..ClockOption::EMPTY
        }),*];
    };
}
with_clock_options!(clock_options);

const SKIP_MODES: OptionValue =
    OptionValue::Word { shown: "on|force", accepted: &["on", "off", "force"], implied: Some("on") };

const REAL_OR_VIRTUAL: OptionValue =
    OptionValue::Word { shown: "virtual|real", accepted: &["virtual", "real"], implied: None };

/// Parses the value of a switch.
fn parse_switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("expected true or false"),
    }
}

fn parse_skip_mode(text: &str) -> Result<SkipMode, &'static str> {
    match text {
        "on" | "true" | "1" => Ok(SkipMode::On),
        "off" | "false" | "0" => Ok(SkipMode::Off),
        "force" => Ok(SkipMode::Force),
        _ => Err("expected on, off or force"),
    }
}

fn skip_mode_text(mode: &Option<SkipMode>) -> Option<String> {
    let word = mode.map(|mode| match mode {
        SkipMode::Off => "off",
        SkipMode::On => "on",
        SkipMode::Force => "force",
    });
    text_of(&word)
}

/// Parses `real` (true) or `virtual` (false).
fn parse_is_real(text: &str) -> Result<bool, &'static str> {
    match text {
        "real" => Ok(true),
        "virtual" => Ok(false),
        _ => Err("expected virtual or real"),
    }
}

fn is_real_text(is_real: &Option<bool>) -> Option<String> {
    text_of(&is_real.map(|is_real| if is_real { "real" } else { "virtual" }))
}

fn switch_text(is_on: &bool) -> Option<String> {
    text_of(&is_on.then_some(true))
}

fn text_of<T: ToString>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

/// Parses the value of `--clock`: the name of a container, or of a cluster clock, which is a container of this host too.
fn parse_clock_name(text: &str) -> Result<String, &'static str> {
    Ok(text.strip_prefix(CLUSTER).map_or_else(|| text.to_string(), cluster_container))
}

/// The word before the name of a cluster clock in the value of `--clock`.
const CLUSTER: &str = "cluster/";
/// The same in the name of its container.
const CLUSTER_CONTAINER: &str = "cluster.";

/// Returns the name of the container that has the cluster clock `name` on this host.
pub fn cluster_container(name: &str) -> String {
    format!("{CLUSTER_CONTAINER}{name}")
}

/// Returns the name of the cluster clock that the container called `container` has; `None` for other containers.
pub fn cluster_clock(container: &str) -> Option<&str> {
    container.strip_prefix(CLUSTER_CONTAINER)
}

/// Parses the cost of a clock read: 0 to 1 second.
///
/// # Errors
///
/// The reason why the text is wrong.
pub fn parse_read_cost(text: &str) -> Result<Span, String> {
    const MAX_COST: Span = Span(lorentz_clock::NANOS_PER_SEC);
    let span: Span = text.parse().map_err(|error: lorentz_clock::TextError| error.to_string())?;
    let fits = (Span::ZERO..=MAX_COST).contains(&span);
    fits.then_some(span).ok_or_else(|| "expected a duration from 0 to 1s".to_string())
}
