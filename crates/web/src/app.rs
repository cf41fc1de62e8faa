//! The parts of the server that requests share.

use std::path::PathBuf;
use std::sync::Arc;

use lorentz_container::StateDir;
use tokio::sync::Semaphore;

use crate::live::Live;
use crate::names::Names;
use crate::root::Root;
use crate::secrets::{Secret, Sessions};

/// Most streams of changes at once.
pub const MAX_STREAMS: usize = 32;
/// Most terminals and captures at once.
pub const MAX_TERMINALS: usize = 16;
/// Most actions, reports and other work at once.
pub const MAX_WORK: usize = 8;

/// The parts that all requests share.
pub struct App {
    /// Names of the server.
    pub names: Names,
    /// Whether changes are refused.
    pub read_only: bool,
    /// The directory of the files.
    pub root: Root,
    /// The command `lorentz`.
    pub lorentz: PathBuf,
    /// The containers.
    pub state: StateDir,
    /// Sessions of browsers.
    pub sessions: Sessions,
    /// The reader of the system, and its listeners.
    pub live: Live,
    /// Bound of streams.
    pub streams: Arc<Semaphore>,
    /// Bound of terminals and captures.
    pub terminals: Arc<Semaphore>,
    /// Bound of commands and other work.
    pub work: Arc<Semaphore>,
    /// The token with which sessions begin.
    pub token: Secret,
    /// The token of `/metrics`.
    pub metrics_token: Option<Secret>,
}
