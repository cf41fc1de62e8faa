//! Errors of a study.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Level, Named};

/// Why a study did not end.
#[derive(thiserror::Error, Debug)]
pub enum StudyError {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The output file exists. A study never overwrites a file.
    #[error("--output {}: it is there already; expected a new file", .0.display())]
    Exists(PathBuf),
    /// Beside the output file lies the journal of a study with other settings.
    #[error(
        "--output {}: another study was begun there, in {}.part; expected its flags, or another file",
        .0.display(), .0.display()
    )]
    Another(PathBuf),
    /// The journal of an interrupted study cannot be understood.
    #[error(
        "{}: line {line}: not a line of a study's journal; move the folder {} away to begin anew",
        path.display(), path.parent().unwrap_or(path).display()
    )]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Its first wrong line, from 1.
        line: usize,
    },
    /// The measuring program runs at the level, but its clocks or namespaces are not those of the level.
    #[error("level {}: it did not take effect: {why}; the study stops", level.name())]
    NoEffect {
        /// The level.
        level: Level,
        /// The clock or namespace that is wrong, and the expected one.
        why: String,
    },
    /// The measuring program at a level failed, or ended.
    #[error("level {}: {why}", level.name())]
    Level {
        /// The level.
        level: Level,
        /// The failed call, or the last line of the program's standard error.
        why: String,
    },
    /// The baseline cannot be measured, and every level is compared with the baseline.
    #[error("no level is left to measure at: {0}")]
    NothingLeft(String),
    /// SIGINT, SIGTERM or SIGHUP stopped the study.
    #[error("interrupted; what was measured is kept, the same command goes on from there")]
    Interrupted,
    /// The Parquet file could not be written.
    #[error("{}: {error}", path.display())]
    Table {
        /// The Parquet file.
        path: PathBuf,
        /// The error of the writer.
        error: parquet::errors::ParquetError,
    },
    /// A clock could not be read.
    #[error("the host's clocks: {0}")]
    Clock(#[from] nix::Error),
}

impl StudyError {
    /// Adds to `error` the file that it concerns.
    pub fn at(path: &Path, error: io::Error) -> StudyError {
        StudyError::File { path: path.to_path_buf(), error }
    }

    /// Returns whether the command line is wrong. Nothing was started then.
    pub fn is_wrong_input(&self) -> bool {
        matches!(self, StudyError::Exists(_) | StudyError::Another(_) | StudyError::Journal { .. })
    }
}
