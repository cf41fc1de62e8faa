//! Files, checks of them, and what is looked at more closely.

use serde::{Deserialize, Serialize};

use super::Nanos;

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A topology file.
    Topology,
    /// A scenario of another emulator.
    Scenario,
    /// Another file.
    Other,
}

/// A file below the server's directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct FileEntry {
    /// Its path from the directory.
    pub path: String,
    /// Its kind.
    pub kind: FileKind,
    /// The name of its network.
    pub name: Option<String>,
    /// Its length.
    pub bytes: u64,
    /// When it was written last, by CLOCK_REALTIME.
    pub modified_ns: Nanos,
    /// Whether a network of that name runs.
    pub running: bool,
}

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Written {
    /// The version of its text, for `If-Match`.
    pub etag: String,
}

/// A text to check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct CheckRequest {
    /// The text of a topology file.
    pub text: String,
    /// Its path, if it has one: files that it names are relative to it.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub path: Option<String>,
}

/// A remark on a text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Remark {
    /// The line, from 1; 0 if the whole text is meant.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// The remark.
    pub message: String,
}

/// Lorentz's own check of a text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct CheckResult {
    /// The error that `lorentz up` would end with; at most one.
    pub errors: Vec<Remark>,
    /// Remarks that `lorentz up` would print.
    pub warnings: Vec<Remark>,
}

/// A scenario of another emulator, as a text or as a file; one of both is given.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ImportRequest {
    /// The file, below the server's directory.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub path: Option<String>,
    /// The text.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub text: Option<String>,
    /// `core`, `imn`, `containerlab` or `kathara`; needed with a text.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub format: Option<String>,
}

/// A topology file made of a scenario.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct ImportResult {
    /// The file's text.
    pub yaml: String,
    /// Elements that it cannot represent.
    pub notes: Vec<String>,
}

/// A thread that waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Wait {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub thread: String,
    /// The process's command line.
    pub command: String,
    /// The system call that waits.
    pub call: String,
    /// The file that it waits for, where the call's first argument is one.
    pub on: Option<String>,
    /// The one outside its clock that may wake the thread, for people.
    pub waker: Option<String>,
    /// The deadline, by CLOCK_MONOTONIC inside; `null` without one.
    pub until_ns: Option<Nanos>,
    /// Virtual time until then.
    pub remaining_ns: Option<Nanos>,
}

/// A part of a node's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct Output {
    /// The text from the asked byte on; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// The byte to ask from next.
    pub next: u64,
    /// Length of the file.
    pub end: u64,
}

/// One moment of the past.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct HistoryPoint {
    /// CLOCK_MONOTONIC of the host.
    pub real_ns: Nanos,
    /// Virtual time since the start.
    pub virtual_ns: Nanos,
    /// Virtual per real time since the point before.
    pub rate: Option<f64>,
    /// 99 of 100 frames since the network came up were at most so late.
    pub lateness_p99_ns: Option<i64>,
    /// Virtual time by which nodes were behind, in rounds.
    pub behind_ns: Option<i64>,
    /// Share of a processor: the emulator's, or that of an experiment's containers.
    pub cpu: Option<f64>,
}

/// The past of a network or an experiment, as far as the server has seen it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct History {
    /// Its points, the oldest first.
    pub points: Vec<HistoryPoint>,
}

/// The size of a terminal, from the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct TerminalSize {
    /// Characters of a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// The last message of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct TerminalEnd {
    /// Exit status of its shell.
    pub exit: i32,
}

/// A message of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub struct CaptureDropped {
    /// Frames that the page did not get, because it reads too slowly, so far.
    pub dropped: u64,
}
