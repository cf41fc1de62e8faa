//! Refusals: nothing was changed.

use std::path::PathBuf;

use thiserror::Error;

/// A container that cannot be checkpointed, or a checkpoint that cannot be restored. Nothing was started or stopped.
#[derive(Debug, Error)]
pub enum CheckpointRefused {
    /// There is no CRIU that works.
    #[error("{found}; needed is {}", lorentz_container::criu::HOW_TO_GET)]
    NoCriu {
        /// The finding.
        found: String,
    },
    /// The caller is not root.
    #[error("checkpoint and restore need root, and a control group for the container")]
    NotRoot,
    /// The kernel does not tell which memory programs write.
    #[error("--pre-copy: {0}; migrate without it")]
    NoMemoryTracking(String),
    /// A container that this version cannot checkpoint.
    #[error("{name}: {why}")]
    Container {
        /// The container's name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The directory for a new checkpoint exists.
    #[error("{} exists; choose another directory for the checkpoint", .0.display())]
    Exists(PathBuf),
    /// A directory that cannot be restored here.
    #[error("{}: {why}", .dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
}

impl CheckpointRefused {
    /// Whether this host lacks something, so that no other input would help.
    pub fn is_of_host(&self) -> bool {
        use CheckpointRefused::{NoCriu, NoMemoryTracking, NotRoot};
        matches!(self, NoCriu { .. } | NotRoot | NoMemoryTracking(_))
    }
}
