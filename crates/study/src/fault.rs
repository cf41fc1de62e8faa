//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Level, Named};

/// Why a study did not end.
#[derive(thiserror::Error, Debug)]
pub enum StudyError {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is a finished study already.
    #[error("--output {}: it is there already; expected a new file", .0.display())]
    Exists(PathBuf),
    /// Another study was begun there.
    #[error(
        "--output {}: another study was begun there, in {}.part; expected its flags, or another file",
        .0.display(), .0.display()
    )]
    Another(PathBuf),
    /// A level was entered, but its clocks or namespaces are not as they are to be.
    #[error("level {}: it did not take effect: {why}; the study stops", level.name())]
    NoEffect {
        /// Which.
        level: Level,
        /// What is not as it is to be.
        why: String,
    },
    /// A level that was there went wrong.
    #[error("level {}: {why}", level.name())]
    Level {
        /// Which.
        level: Level,
        /// What happened.
        why: String,
    },
    /// Without what all others are compared with there is no study.
    #[error("no level is left to measure at: {0}")]
    NothingLeft(String),
    /// A signal asked for the end.
    #[error("interrupted; what was measured is kept, the same command goes on from there")]
    Interrupted,
    /// The data could not be written as a table.
    #[error("{}: {error}", path.display())]
    Table {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: parquet::errors::ParquetError,
    },
    /// A clock could not be read.
    #[error("the host's clocks: {0}")]
    Clock(#[from] nix::Error),
}

impl StudyError {
    /// `error` of what was done with `path`.
    pub fn at(path: &Path, error: io::Error) -> StudyError {
        StudyError::File { path: path.to_path_buf(), error }
    }

    /// Whether what was asked could not be, and nothing was started.
    pub fn is_wrong_input(&self) -> bool {
        matches!(self, StudyError::Exists(_) | StudyError::Another(_))
    }
}
