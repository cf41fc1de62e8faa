//! The flags of `lorentz study` and `lorentz report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lorentz_study::{Effort, Level, Metric, Study, StudySettings};

const LEVELS_HELP: &str = "\
LEVELS   before, baseline, control, namespace, container, container-overlay, lorentz,
         lorentz-container, docker, podman, runc, libfaketime
METRICS  those of the study; docs/study.md lists them

Raw data goes to one Parquet file, a row for each sample; 'lorentz report' evaluates it. After an
interruption, the same command continues the study. A level that is not available here is left out,
with a message.";

// `lorentz study`.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum StudyVerb {
    /// Measure the 15 metrics of 'The Cost of Time Virtualization in Linux Containers': clock reads, sleeps, timers
    Clocks(StudyArgs),
    /// Count the clock reads in 3 s, with hot caches
    Hot(StudyArgs),
    /// Time a clock read whose pages were flushed from all caches
    Cold(StudyArgs),
    /// Measure timer cost and sleep miss time: idle, under 100 computing threads, under network and disk load
    Timers(StudyArgs),
}

// Options of every study.
#[derive(Args, Debug)]
#[command(after_help = LEVELS_HELP)]
pub struct StudyArgs {
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Take minutes: few and short records
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Take hours: as published
    #[arg(long)]
    pub full: bool,
    /// Levels to measure [default: all but control]
    #[arg(long, value_name = "LEVELS", value_delimiter = ',')]
    pub levels: Vec<Level>,
    /// Metrics to measure [default: all of the study]
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    pub metrics: Vec<Metric>,
    /// Records of each metric at each level: 1 to 100000
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub records: Option<u32>,
    /// Calls in a record, which is their mean: 1 to 1000000000
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub calls: Option<u32>,
    /// Name of this machine: 'lorentz report' sets it beside runs of other machines
    ///
    /// Letters, digits, '.', '_' and '-'. The report then has the platform as a factor.
    #[arg(long = "as", value_name = "NAME", value_parser = parse_platform)]
    pub platform: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl StudyVerb {
    /// Returns the study and its options.
    pub fn parts(&self) -> (Study, &StudyArgs) {
        match self {
            StudyVerb::Clocks(args) => (Study::Clocks, args),
            StudyVerb::Hot(args) => (Study::Hot, args),
            StudyVerb::Cold(args) => (Study::Cold, args),
            StudyVerb::Timers(args) => (Study::Timers, args),
        }
    }
}

impl StudyArgs {
    /// Returns the settings of `study` with these flags.
    pub fn settings(&self, study: Study) -> StudySettings {
        let effort = match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Usual,
        };
        let mut settings = StudySettings::new(study, effort);
        if !self.levels.is_empty() {
            settings.levels.clone_from(&self.levels);
        }
        if !self.metrics.is_empty() {
            settings.metrics.clone_from(&self.metrics);
        }
        settings.records = self.records.unwrap_or(settings.records);
        settings.calls = self.calls.unwrap_or(settings.calls);
        settings.platform.clone_from(&self.platform);
        settings
    }
}

/// Parses a name that can be part of a file's name.
fn parse_platform(text: &str) -> Result<String, &'static str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = !text.is_empty() && text.len() <= 64 && text.chars().all(is_fine);
    fits.then(|| text.to_string()).ok_or("expected 1 to 64 letters, digits, '.', '_' and '-'")
}

// `lorentz report`.
#[derive(Args, Debug)]
pub struct Report {
    /// Files that 'lorentz study' has written
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<OsString>,
    /// The folder for index.html and each table as CSV
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Compare with an older study of the same kind, and show changes beyond noise
    #[arg(long, value_name = "OLD")]
    pub against: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
