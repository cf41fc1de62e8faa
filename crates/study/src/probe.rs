//! The study's side of the measuring program at a level.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::last_words::last_words;
use crate::protocol::{Greeting, ProbeAnswer, ProbeRequest, Sample};
use crate::root_file_system::RootFileSystem;
use crate::{Level, StudyError, Tools};

/// Time that a container may take for its removal.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A measuring program that runs at its level and waits for requests.
pub struct ProbeProcess {
    level: Level,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Reasons for a level that cannot be measured.
pub enum StartError {
    /// This machine does not have the level; the reason.
    Missing(String),
    /// The level runs but has no effect, or the host's clocks cannot be read.
    Error(StudyError),
}

impl ProbeProcess {
    /// Starts the measuring program at `level`.
    ///
    /// # Errors
    ///
    /// This machine does not have the level, or the level's proof fails.
    pub fn start(
        level: Level,
        tools: &Tools,
        root: &RootFileSystem,
        cpu: usize,
        folder: &Path,
    ) -> Result<ProbeProcess, StartError> {
        let missing = |why: String| StartError::Missing(why);
        let host = Greeting::own().map_err(|error| StartError::Error(error.into()))?;
        let mut command =
            level.command(tools, root, cpu, folder).map_err(|error| missing(error.to_string()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            missing(format!("{}: {error}", command.get_program().to_string_lossy()))
        })?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let mut probe = ProbeProcess { level, child, input, output: BufReader::new(output) };
        let line = probe.line();
        let Ok(greeting) = serde_json::from_str::<Greeting>(&line) else {
            return Err(missing(probe.error_output()));
        };
        level
            .prove(&host, &greeting)
            .map_err(|why| StartError::Error(StudyError::NoEffect { level, why }))?;
        Ok(probe)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        // An end of the output and a read error both become an empty line.
        let _ = self.output.read_line(&mut line);
        line
    }

    /// Ends the program and returns the last line of its standard error.
    fn error_output(&mut self) -> String {
        self.end();
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        last_words(&text)
    }

    /// Requests a record and returns its samples.
    ///
    /// # Errors
    ///
    /// A call failed at the level, or the program ended.
    pub fn ask(&mut self, ask: ProbeRequest) -> Result<Vec<Sample>, StudyError> {
        let mut line = serde_json::to_string(&ask).expect("plain data");
        line.push('\n');
        if let Some(input) = &mut self.input {
            // If the program is gone, the missing answer leads to its last words. They say more than EPIPE.
            let _ = input.write_all(line.as_bytes());
        }
        let answer = self.line();
        let why = match serde_json::from_str(&answer) {
            Ok(ProbeAnswer::Samples(samples)) => return Ok(samples),
            Ok(ProbeAnswer::Failed(why)) => why,
            Err(_) => self.error_output(),
        };
        Err(StudyError::Level { level: self.level, why })
    }

    /// Closes the program's input. The program ends then, and its container with it.
    fn end(&mut self) {
        self.input = None;
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ProbeProcess {
    fn drop(&mut self) {
        self.end();
    }
}
