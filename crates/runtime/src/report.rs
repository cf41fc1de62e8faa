//! Reporting of errors: on standard error, and in the log that the engine reads.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{bail, Context};
use liboci_cli::GlobalOpts;
use lorentz_control::HostNow;

/// Exit status of any error.
pub const FAILED: i32 = 1;

/// The log file, if the command line names one.
pub struct Log {
    file: Option<File>,
    json: bool,
}

impl Log {
    /// Opens the log.
    pub fn of(global: &GlobalOpts) -> anyhow::Result<Log> {
        let json = match global.log_format.as_deref() {
            Some("json") => true,
            None | Some("text" | "") => false,
            Some(other) => bail!("--log-format {other}: expected text or json"),
        };
        let file = match &global.log {
            Some(path) => Some(open(path).with_context(|| format!("--log {}", path.display()))?),
            None => None,
        };
        Ok(Log { file, json })
    }

    /// Writes an error to the log. A failure of that has no other place to go.
    pub fn error(&self, error: &anyhow::Error) {
        let Some(mut file) = self.file.as_ref() else { return };
        let message = line(error);
        let time = HostNow::read().map(|now| now.wall.to_string()).unwrap_or_default();
        let entry = if self.json {
            serde_json::json!({ "level": "error", "msg": message, "time": time }).to_string()
        } else {
            let quoted = serde_json::Value::from(message);
            format!("time=\"{time}\" level=error msg={quoted}")
        };
        let _ = writeln!(file, "{entry}");
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Formats `error` and its causes as one line, without the parts that a cause repeats.
pub fn line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        match parts.last_mut() {
            Some(last) if last.ends_with(&text) => {}
            Some(last) if text.starts_with(last.as_str()) => *last = text,
            _ => parts.push(text),
        }
    }
    WORDY.iter().fold(parts.join(": "), |text, wordy| text.replace(wordy, ""))
}

/// Words of libcontainer around an error of a process that it has made.
const WORDY: [&str; 3] = [
    "failed to create container: ",
    "exec process failed with error error in executing process : ",
    "exec process failed with error ",
];

/// Returns the exit status of `lorentz run` for a container that could not be started for the reason in `line`.
pub fn launch_status(line: &str) -> i32 {
    const REASONS: [(&str, i32); 6] = [
        ("in use by a running", 2),
        ("already exists", 2),
        ("executable file not found", 127),
        ("stat: no such file", 127),
        ("permission denied", 126),
        ("exec \"", 126),
    ];
    REASONS.iter().find(|(reason, _)| line.contains(reason)).map_or(125, |(_, status)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_in_one_line() {
        let error =
            anyhow::anyhow!("no such\nfile").context("opening: no such file").context("create");
        assert_eq!(line(&error), "create: opening: no such file");
    }
}
