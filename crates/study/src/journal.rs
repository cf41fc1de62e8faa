//! The journal: all records of a study so far. An interrupted study goes on from it.
//!
//! A journal is a file of JSON lines. The first line has the settings and the environment; each record adds a line as
//! soon as it is measured. If an interruption cuts a line short, that record counts as not measured.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::protocol::Sample;
use crate::{Level, Load, Metric, StudyError, StudySettings};

/// First line of a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// The settings of the study.
    pub settings: StudySettings,
    /// The machine it began on.
    pub environment: Environment,
}

/// Identity of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RecordKey {
    /// Number of the round, from 0 on.
    pub round: u32,
    /// Index into the loads of the settings. The same load can stand there twice.
    pub load: u32,
    /// The level it is measured at.
    pub level: Level,
    /// The metric.
    pub metric: Metric,
}

/// Samples of one metric, taken in one go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StudyRecord {
    /// Its identity.
    pub key: RecordKey,
    /// The load during the record.
    pub load: Load,
    /// The host's wall clock before the record, seconds since 1970.
    pub at_unix_s: f64,
    /// One sample, or as many as the settings say: see [`crate::Unit`].
    pub samples: Vec<Sample>,
}

/// The open journal and its records.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The first line.
    pub begin: Begin,
    /// All records so far.
    pub records: Vec<StudyRecord>,
    done: HashSet<RecordKey>,
}

impl Journal {
    /// Opens the journal at `path`, or begins one if there is no file. Returns `None` if the journal there has other settings.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, or is not a journal. It stays as it is then.
    pub fn open(path: &Path, begin: Begin) -> Result<Option<Journal>, StudyError> {
        let failure = |error| StudyError::at(path, error);
        let (begin, records) = match fs::read_to_string(path) {
            Ok(text) => {
                let (found, records) = parse(&text)
                    .map_err(|line| StudyError::Journal { path: path.to_path_buf(), line })?;
                if found.settings != begin.settings {
                    return Ok(None);
                }
                (found, records)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (begin, Vec::new()),
            Err(error) => return Err(failure(error)),
        };
        // Write the whole file anew: a line that was cut short must not stay in it.
        let beside = path.with_extension("new");
        let mut text = line(&begin);
        text.extend(records.iter().map(line));
        fs::write(&beside, text).map_err(failure)?;
        fs::rename(&beside, path).map_err(failure)?;
        let file = OpenOptions::new().append(true).open(path).map_err(failure)?;
        let done = records.iter().map(|record| record.key).collect();
        Ok(Some(Journal { path: path.to_path_buf(), file, begin, records, done }))
    }

    /// Returns whether the journal has that record.
    pub fn has(&self, key: &RecordKey) -> bool {
        self.done.contains(key)
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn note(&mut self, record: StudyRecord) -> Result<(), StudyError> {
        let text = line(&record);
        self.file.write_all(text.as_bytes()).map_err(|error| StudyError::at(&self.path, error))?;
        self.done.insert(record.key);
        self.records.push(record);
        Ok(())
    }
}

fn line<T: Serialize>(what: &T) -> String {
    let mut text = serde_json::to_string(what).expect("plain data");
    text.push('\n');
    text
}

/// Parses a journal. Leaves out a record at the end whose line was cut short.
///
/// # Errors
///
/// The number of the first wrong line, from 1.
fn parse(text: &str) -> Result<(Begin, Vec<StudyRecord>), usize> {
    let mut lines = text.split_inclusive('\n').enumerate();
    let begin = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok()).ok_or(1usize)?;
    let whole = lines.filter(|(_, line)| line.ends_with('\n'));
    let records = whole
        .map(|(number, line)| serde_json::from_str(line).map_err(|_| number + 1))
        .collect::<Result<_, _>>()?;
    Ok((begin, records))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Nanos, Ticks};
    use crate::{Effort, Study};

    fn begin(study: Study) -> Begin {
        let environment = Environment::default();
        Begin { settings: StudySettings::new(study, Effort::Quick), environment }
    }

    fn record(round: u32) -> StudyRecord {
        let (level, metric) = (Level::Baseline, Metric::HotMonotonic);
        let samples = vec![Sample { calls: 10, elapsed: Ticks(250), asked: Nanos(0) }];
        let key = RecordKey { round, load: 0, level, metric };
        StudyRecord { key, load: Load::Idle, at_unix_s: 1.5, samples }
    }

    #[test]
    fn what_was_noted_is_there_again_but_for_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, begin(Study::Hot)).unwrap().unwrap();
        journal.note(record(0)).unwrap();
        journal.note(record(1)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let mut again = Journal::open(&path, begin(Study::Hot)).unwrap().unwrap();
        assert_eq!(again.records, [record(0)]);
        assert!(again.has(&record(0).key) && !again.has(&record(1).key));
        again.note(record(1)).unwrap();
        let last = Journal::open(&path, begin(Study::Hot)).unwrap().unwrap();
        assert_eq!(last.records, [record(0), record(1)]);
    }

    #[test]
    fn a_file_that_is_no_journal_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::open(&path, begin(Study::Hot)).unwrap().unwrap().note(record(0)).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let cases = [
            ("".to_string(), "line 1"),
            (format!("of another version\n{good}"), "line 1"),
            (good.replace("round", "turn"), "line 2"),
            (good.replace("round", "turn") + good.lines().last().unwrap(), "line 2"),
        ];
        for (text, line) in cases {
            fs::write(&path, &text).unwrap();
            let refusal = Journal::open(&path, begin(Study::Hot)).map(|_| ()).unwrap_err();
            assert!(refusal.is_wrong_input());
            assert!(refusal.to_string().contains(line), "{refusal}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let refusal = Journal::open(&path, begin(Study::Hot)).map(|_| ()).unwrap_err();
        assert!(refusal.to_string().starts_with(path.to_str().unwrap()), "{refusal}");
        assert!(path.is_dir());
    }

    #[test]
    fn another_study_is_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::open(&path, begin(Study::Hot)).unwrap().unwrap().note(record(0)).unwrap();
        assert!(Journal::open(&path, begin(Study::Cold)).unwrap().is_none());
    }
}
