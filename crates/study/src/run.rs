//! Runs a study from its first record to its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lorentz_timers::TimeSource;

use crate::environment::{steal_seconds, Environment};
use crate::journal::{Begin, Journal, RecordKey, StudyRecord};
use crate::load::{Load, RunningLoad};
use crate::probe::{ProbeProcess, StartError};
use crate::protocol::ProbeRequest;
use crate::root_file_system::RootFileSystem;
use crate::table;
use crate::{Level, Metric, Named, StudyError, StudySettings, Tools};

/// Progress of a study.
#[derive(Clone, Copy, Debug)]
pub struct StudyProgress {
    /// Records in the journal.
    pub done: u64,
    /// Records of the whole study.
    pub all: u64,
    /// Records of an earlier, interrupted run; `done` includes them.
    pub resumed: u64,
}

/// Result of a study.
#[derive(Clone, Debug)]
pub struct StudyOutcome {
    /// The Parquet file.
    pub path: PathBuf,
    /// Records in the file.
    pub records: u64,
    /// Records of an earlier, interrupted run; `records` includes them.
    pub resumed: u64,
    /// Levels that this machine does not have, with the reasons.
    pub left_out: BTreeMap<Level, String>,
}

/// Stops the study after its present record. A signal handler sets it.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Returns the folder beside the output that has the journal and the root file system until the study is done.
fn working_directory(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_os_string();
    name.push(".part");
    name.into()
}

/// Runs the study that `settings` describe and writes it to `output`. After an interruption the same call goes on.
///
/// # Errors
///
/// See [`StudyError`]. The records until then stay in the journal beside `output`.
pub fn run(
    settings: &StudySettings,
    tools: &Tools,
    output: &Path,
    show: &mut dyn FnMut(StudyProgress),
) -> Result<StudyOutcome, StudyError> {
    if output.exists() {
        return Err(StudyError::Exists(output.to_path_buf()));
    }
    if TimeSource::in_force() != TimeSource::Tsc {
        return Err(StudyError::NothingLeft(format!(
            "the stopwatch is the time-stamp counter, and it cannot be used here: {}",
            TimeSource::reason()
        )));
    }
    let folder = working_directory(output);
    fs::create_dir_all(&folder).map_err(|error| StudyError::at(&folder, error))?;
    let begin = Begin { settings: settings.clone(), environment: Environment::look() };
    let journal = Journal::open(&folder.join("journal"), begin)?
        .ok_or_else(|| StudyError::Another(output.to_path_buf()))?;
    let root = folder.join("root");
    let root =
        RootFileSystem::make(&root, &tools.probe).map_err(|error| StudyError::at(&root, error))?;
    let resumed = journal.records.len() as u64;
    let mut runner =
        Runner { settings, tools, root, folder, journal, left_out: BTreeMap::new(), resumed, show };
    runner.find_levels()?;
    runner.measure()?;
    let steal = steal_seconds() - runner.journal.begin.environment.steal_begin_s;
    table::write(output, &runner.journal, &runner.left_out, steal)?;
    let Runner { folder, journal, left_out, .. } = runner;
    fs::remove_dir_all(&folder).map_err(|error| StudyError::at(&folder, error))?;
    let records = journal.records.len() as u64;
    Ok(StudyOutcome { path: output.to_path_buf(), records, resumed, left_out })
}

struct Runner<'a> {
    settings: &'a StudySettings,
    tools: &'a Tools,
    root: RootFileSystem,
    folder: PathBuf,
    journal: Journal,
    left_out: BTreeMap<Level, String>,
    resumed: u64,
    show: &'a mut dyn FnMut(StudyProgress),
}

impl Runner<'_> {
    fn start(&self, level: Level) -> Result<ProbeProcess, StartError> {
        let cpu = self.journal.begin.environment.cpu;
        ProbeProcess::start(level, self.tools, &self.root, cpu, &self.folder)
    }

    /// Starts each level once. A level that this machine does not have is left out of the whole study.
    fn find_levels(&mut self) -> Result<(), StudyError> {
        for &level in &self.settings.levels {
            match self.start(level) {
                Ok(_) => {}
                Err(StartError::Error(error)) => return Err(error),
                Err(StartError::Missing(why)) if level == Level::Baseline => {
                    return Err(StudyError::NothingLeft(format!("baseline: {why}")));
                }
                Err(StartError::Missing(why)) => {
                    self.left_out.insert(level, why);
                }
            }
        }
        Ok(())
    }

    fn present(&self, alone: bool) -> Vec<Level> {
        let levels = self.settings.levels.iter().copied();
        levels
            .filter(|level| level.is_alone() == alone && !self.left_out.contains_key(level))
            .collect()
    }

    fn measure(&mut self) -> Result<(), StudyError> {
        self.report_progress();
        for (number, &load) in self.settings.loads.iter().enumerate() {
            let _busy = RunningLoad::start(load, &self.tools.probe, &self.folder)?;
            for round in 0..self.settings.records {
                // First those that are alone, while no other is there.
                for levels in [self.present(true), self.present(false)] {
                    self.round(RecordPosition { round, number: number as u32, load }, &levels)?;
                }
            }
        }
        Ok(())
    }

    /// Enters the levels anew, and takes one record of each metric at each of them, in turns.
    fn round(&mut self, position: RecordPosition, levels: &[Level]) -> Result<(), StudyError> {
        let missing =
            |level: Level, metric: Metric| !self.journal.has(&position.key(level, metric));
        let metrics = &self.settings.metrics;
        let is_wanted = |level: &&Level| metrics.iter().any(|&metric| missing(**level, metric));
        let wanted: Vec<Level> = levels.iter().filter(is_wanted).copied().collect();
        let mut probes = Vec::new();
        for &level in &wanted {
            let entered = self.start(level).map_err(|error| match error {
                StartError::Missing(why) => self.or_interrupted(StudyError::Level { level, why }),
                StartError::Error(error) => error,
            })?;
            probes.push((level, entered));
        }
        for (turn, &metric) in metrics.iter().enumerate() {
            if !probes.is_empty() {
                let shift = (position.round as usize + turn) % probes.len();
                probes.rotate_left(shift);
            }
            for (level, probe) in &mut probes {
                self.record(position, *level, metric, probe)?;
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        position: RecordPosition,
        level: Level,
        metric: Metric,
        probe: &mut ProbeProcess,
    ) -> Result<(), StudyError> {
        let key = position.key(level, metric);
        if self.journal.has(&key) {
            return Ok(());
        }
        if STOP.load(Ordering::Relaxed) {
            return Err(StudyError::Interrupted);
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let request = ProbeRequest { metric, amount: self.settings.amount(metric) };
        let samples = probe.ask(request).map_err(|error| self.or_interrupted(error))?;
        let at_unix_s = at.as_secs_f64();
        self.journal.note(StudyRecord { key, load: position.load, at_unix_s, samples })?;
        self.report_progress();
        Ok(())
    }

    /// Returns `Interrupted` after an interrupt. The terminal sends SIGINT to the measuring programs too, and they fail then.
    fn or_interrupted(&self, error: StudyError) -> StudyError {
        if STOP.load(Ordering::Relaxed) {
            StudyError::Interrupted
        } else {
            error
        }
    }

    fn report_progress(&mut self) {
        let levels = self.present(true).len() + self.present(false).len();
        let per_round = levels * self.settings.metrics.len() * self.settings.loads.len();
        let all = per_round as u64 * u64::from(self.settings.records);
        let done = self.journal.records.len() as u64;
        (self.show)(StudyProgress { done, all, resumed: self.resumed });
    }
}

/// Round and load of a record.
#[derive(Clone, Copy)]
struct RecordPosition {
    round: u32,
    number: u32,
    load: Load,
}

impl RecordPosition {
    fn key(self, level: Level, metric: Metric) -> RecordKey {
        RecordKey { round: self.round, load: self.number, level, metric }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
