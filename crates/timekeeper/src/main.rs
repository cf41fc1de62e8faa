//! TimeKeeper's utilities (section 3.4 of its documentation) as one program. `timekeeper-dilate` and the other names are links to
//! it; `timekeeper dilate` does the same.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgGroup, Args, Parser, Subcommand};
use lorentz_embed::{Error, ErrorKind, Owner, Result};
use timekeeper::keeper;

/// TimeKeeper's utilities, on Lorentz: virtual time for Linux containers
#[derive(Parser, Debug)]
#[command(name = "timekeeper", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    utility: Utility,
}

#[derive(Subcommand, Debug)]
#[command(rename_all = "camelCase")]
enum Utility {
    /// Set the TDF of a process
    Dilate(Dilate),
    /// Stop a process and its time
    Freeze(Process),
    /// Let a process and its time go on
    Unfreeze(Process),
    /// Move a process forward in virtual time
    Leap(Leap),
    /// Print the time of a process: seconds since 1970, with microseconds
    Gettime(Who),
    /// Add a process to the experiment; make the experiment if there is none
    AddToExperiment(Add),
    /// Stop all processes of the experiment at one virtual time
    SynchronizeAndFreeze,
    /// Start the experiment, which then runs by itself
    StartExperiment,
    /// Set how far a process moves with each progress of its timeline
    SetInterval(Interval),
    /// Move all processes of a timeline by their intervals
    Progress(Progress),
    /// Drop the intervals of a timeline
    Reset(OneTimeline),
    /// End the experiment; its processes go on by themselves
    StopExperiment,
}

/// A process, or a container.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("who").required(true))]
struct Who {
    /// The process
    #[arg(short, value_name = "PID", group = "who", value_parser = pid)]
    pid: Option<i32>,
    /// The container, by its name
    #[arg(short, value_name = "NAME", group = "who")]
    name: Option<String>,
}

impl Who {
    fn text(&self) -> String {
        self.pid.map(|pid| pid.to_string()).or_else(|| self.name.clone()).unwrap_or_default()
    }
}

#[derive(Args, Debug)]
struct Dilate {
    /// Apply it to the descendants too
    #[arg(short)]
    recursive: bool,
    #[command(flatten)]
    who: Who,
    /// Real seconds per virtual second; 0 for real time, -N for 1/N
    #[arg(value_name = "TDF", allow_negative_numbers = true, value_parser = tdf)]
    tdf: f64,
}

#[derive(Args, Debug)]
struct Process {
    /// Apply it to the descendants too
    #[arg(short)]
    recursive: bool,
    /// The process
    #[arg(value_name = "PID", value_parser = pid)]
    pid: i32,
}

#[derive(Args, Debug)]
struct Leap {
    /// The process
    #[arg(value_name = "PID", value_parser = pid)]
    pid: i32,
    /// How far, in virtual microseconds, above 0
    #[arg(value_name = "INTERVAL", allow_negative_numbers = true, value_parser = micros)]
    micros: i64,
}

#[derive(Args, Debug)]
struct Add {
    /// The timeline that the process follows if a simulator moves the experiment; below 0 or not given: none
    #[arg(short, value_name = "TIMELINE", allow_negative_numbers = true)]
    #[arg(value_parser = any_timeline)]
    timeline: Option<i32>,
    /// Its TDF; without this option, its present TDF
    #[arg(short, value_name = "TDF", allow_negative_numbers = true, value_parser = tdf)]
    dilation: Option<f64>,
    #[command(flatten)]
    who: Who,
}

#[derive(Args, Debug)]
struct Interval {
    #[command(flatten)]
    who: Who,
    /// The interval in virtual microseconds, above 0
    #[arg(value_name = "TIME", allow_negative_numbers = true, value_parser = micros)]
    micros: i64,
    /// The timeline with which the process was added
    #[arg(value_name = "TIMELINE", allow_negative_numbers = true, value_parser = timeline)]
    timeline: i32,
}

#[derive(Args, Debug)]
struct Progress {
    /// Move exactly to the end of the interval (always so on Lorentz)
    #[arg(short)]
    force: bool,
    #[command(flatten)]
    timeline: OneTimeline,
}

#[derive(Args, Debug)]
struct OneTimeline {
    /// The timeline
    #[arg(
        short, value_name = "TIMELINE", default_value = "0", allow_negative_numbers = true, value_parser = timeline,
    )]
    timeline: i32,
}

fn tdf(text: &str) -> std::result::Result<f64, String> {
    let tdf: f64 = text.parse().map_err(|_| "expected a number such as 10, 0.5, -2, 0")?;
    keeper::rate_of(tdf).map(|_| tdf).map_err(|error| error.text)
}

fn pid(text: &str) -> std::result::Result<i32, &'static str> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or("expected the number of a running process")
}

fn any_timeline(text: &str) -> std::result::Result<i32, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

fn timeline(text: &str) -> std::result::Result<i32, &'static str> {
    text.parse().ok().filter(|&number| number >= 0).ok_or("expected a whole number of 0 or more")
}

fn micros(text: &str) -> std::result::Result<i64, &'static str> {
    let micros = text.parse().ok().filter(|&micros| micros > 0);
    micros.ok_or("expected a whole number of microseconds above 0")
}

fn dispatch(utility: &Utility) -> Result<()> {
    match utility {
        Utility::Dilate(args) => keeper::dilate(&args.who.text(), args.tdf, args.recursive),
        Utility::Freeze(args) => keeper::freeze(&args.pid.to_string(), args.recursive),
        Utility::Unfreeze(args) => keeper::unfreeze(&args.pid.to_string()),
        Utility::Leap(args) => keeper::leap(&args.pid.to_string(), args.micros),
        Utility::Gettime(who) => {
            let time = keeper::time_of(&who.text())?;
            println!("{}.{:06}", time.secs, time.nanos / 1_000);
            Ok(())
        }
        Utility::AddToExperiment(args) => {
            if let Some(tdf) = args.dilation {
                keeper::dilate(&args.who.text(), tdf, true)?;
            }
            keeper::add_to_experiment(&args.who.text(), args.timeline.unwrap_or(-1))
        }
        // The caller, most likely a shell, continues the experiment in other processes.
        Utility::SynchronizeAndFreeze => keeper::synchronize_and_freeze(Owner::Nobody),
        Utility::StartExperiment => keeper::start(),
        Utility::SetInterval(args) => {
            keeper::set_interval(&args.who.text(), args.micros, args.timeline)
        }
        Utility::Progress(args) => keeper::progress(args.timeline.timeline),
        Utility::Reset(args) => keeper::reset(args.timeline),
        Utility::StopExperiment => keeper::stop(),
    }
}

/// Returns the arguments as `timekeeper UTILITY ...`, whatever the name of the program.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    let called = words.first().map(|word| Path::new(word).to_path_buf()).unwrap_or_default();
    let called = called.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(utility) = called.strip_prefix("timekeeper-") {
        words.insert(1, utility.into());
    }
    words
}

/// Returns clap's error without its hints, as one line.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let words = text.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
    words.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn main() {
    let cli = match Cli::try_parse_from(words(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            let shown = error.print();
            std::process::exit(if shown.is_ok() { 0 } else { 1 });
        }
        Err(error) => {
            eprintln!("timekeeper: {}", one_line(&error));
            std::process::exit(2);
        }
    };
    if let Err(Error { kind, text }) = dispatch(&cli.utility) {
        eprintln!("timekeeper: {text}");
        std::process::exit(match kind {
            ErrorKind::Failed | ErrorKind::Ended => 1,
            ErrorKind::WrongInput | ErrorKind::NotFound | ErrorKind::Refused => 2,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_link_is_its_utility() {
        let words = |text: &str| super::words(text.split(' ').map(OsString::from).collect());
        let linked = words("/usr/bin/timekeeper-dilate -r -p 7 -2");
        let cli = Cli::try_parse_from(linked).unwrap();
        let Utility::Dilate(Dilate { recursive: true, tdf: -2.0, who }) = cli.utility else {
            panic!("{cli:?}");
        };
        assert_eq!(who.text(), "7");
        for utility in [
            "timekeeper-freeze -r 7",
            "timekeeper-unfreeze 7",
            "timekeeper-leap 7 1000000",
            "timekeeper-gettime -n lxc-1",
            "timekeeper-addToExperiment -t 1 -d 0.5 -p 7",
            "timekeeper-addToExperiment -n lxc-1 -t -1",
            "timekeeper-synchronizeAndFreeze",
            "timekeeper-startExperiment",
            "timekeeper-setInterval -p 7 1000 0",
            "timekeeper-progress -f -t 0",
            "timekeeper-reset -t 0",
            "timekeeper-stopExperiment",
        ] {
            Cli::try_parse_from(words(utility)).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        for (words, says) in [
            ("timekeeper dilate -p 7 1e9", "expected 0, or a number from 1/1000000 to 1000000"),
            ("timekeeper dilate -p 0 2", "expected the number of a running process"),
            ("timekeeper dilate 2", "<-p <PID>|-n <NAME>>"),
            ("timekeeper progress -t -1", "expected a whole number of 0 or more"),
            ("timekeeper setInterval -p 7 0 1", "microseconds above 0"),
            ("timekeeper leap 7 -1", "microseconds above 0"),
            ("timekeeper dance", "dance"),
        ] {
            let line = one_line(&Cli::try_parse_from(words.split(' ')).unwrap_err());
            assert!(line.contains(says) && !line.contains('\n'), "{line}");
        }
    }
}
