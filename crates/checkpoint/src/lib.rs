//! Checkpoint and restore: a container becomes a directory, and a directory a container, whose clocks go on as if no time had passed.
//!
//! CRIU saves and restores the processes. This crate stops the clock over that time, saves it, and gives the restored processes a
//! monitor. docs/checkpoint.md says what works.
//!
//! ```no_run
//! use lorentz_checkpoint::{checkpoint, restore, CheckpointOptions, RestoreOptions};
//! use lorentz_container::StateDir;
//!
//! let state = StateDir::open()?;
//! let dir = std::path::Path::new("saved");
//! checkpoint(&state.container("web")?, dir, CheckpointOptions::default())?;
//! restore(&state, dir, &RestoreOptions { name: Some("again"), ..Default::default() })?;
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! - [`checkpoint()`]: writes a directory;
//! - [`restore()`], [`check`]: make a container of one, or say whether that is possible;
//! - [`checkpoint_bundle`], [`BundleRestore`]: the same for a container of an OCI runtime;
//! - [`migrate()`], [`receive`]: the two sides of a migration;
//! - [`Checkpoint`]: the description in such a directory, which is checked before anything is started.

mod bundle;
mod capabilities;
mod compress;
mod criu;
mod directory;
mod dump;
mod error;
mod guard;
mod image;
mod images;
mod init;
mod migrate;
mod mount_points;
mod mounts;
mod pre_copy;
mod restore;
mod settle;
mod streams;

pub use bundle::{BundleMount, BundleParts, BundleRestore, RestoredBundle};
pub use directory::{BundleEntry, CapabilitiesEntry, Checkpoint, ProcessEntry, ThreadEntry};
pub use dump::{checkpoint, checkpoint_bundle, CheckpointOptions};
pub use error::CheckpointRefused;
/// The part of a process on which it depends which builds can restore its checkpoint, and the checksum of this build's.
pub use lorentz_inject::{shim_build_id, Shim};
pub use migrate::{migrate, receive, MigrateOptions};
pub use mounts::CgroupMount;
pub use restore::{check, restore, RestoreOptions, WallPolicy};
