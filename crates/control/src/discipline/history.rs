//! The error of a clock that an experiment moves, at any instant of the truth: for a log whose lines do not depend on when they are made.
//!
//! The reader makes a file beside the clock's and keeps a shared lock on it. A process that stores a state of the clock's error appends
//! the state there; if nobody has the file locked, it removes the file. So a reader that comes late knows how the clock went on.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lorentz_clock::VirtualInstant;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use super::line::ErrorLine;
use super::reading::ErrorReading;
use super::state::ErrorState;
use crate::Clock;

/// The file beside the clock's.
const FILE: &str = "discipline.history";

/// Appends a state that has just been stored, if somebody reads.
pub(super) fn append(clock: &Path, state: &ErrorState) -> io::Result<()> {
    let path = clock.with_file_name(FILE);
    let file = match OpenOptions::new().append(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut line = serde_json::to_vec(state)?;
            line.push(b'\n');
            file.write_all(&line)
        }
        Ok(_nobody_reads) => fs::remove_file(path),
        Err((_, error)) => Err(error.into()),
    }
}

/// The error of a clock from now on, at instants of the truth in their order.
pub struct ErrorHistory<'a> {
    clock: &'a Clock,
    path: PathBuf,
    file: Flock<File>,
    /// A line that has not been read to its end.
    begun: Vec<u8>,
    /// The state in force at the last instant that was asked for, and those stored since. Never empty.
    states: VecDeque<ErrorState>,
}

impl Clock {
    /// Begins a history of the clock's error.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the clock's directory is another user's, who could not write the history; or if the clock's error cannot be
    /// read.
    pub fn error_history(&self) -> io::Result<ErrorHistory<'_>> {
        let path = self.path().with_file_name(FILE);
        let dir = path.parent().unwrap_or(Path::new("."));
        if fs::metadata(dir)?.uid() != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let file = open(&path)?;
        // States that are stored from now on stand in the file.
        let states = VecDeque::from([self.state_of_error()?]);
        Ok(ErrorHistory { clock: self, path, file, begun: Vec::new(), states })
    }
}

/// Opens the file with a shared lock, and makes it if need be. A process that stores a state may remove it until it is locked.
fn open(path: &Path) -> io::Result<Flock<File>> {
    loop {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        let file = Flock::lock(file, FlockArg::LockShared).map_err(|(_, error)| error)?;
        let is_there = fs::metadata(path).is_ok_and(|there| {
            file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
        });
        if is_there {
            return Ok(file);
        }
    }
}

impl ErrorHistory<'_> {
    /// Returns the truth now, on the monotonic clock.
    ///
    /// # Errors
    ///
    /// If the clock's error cannot be read.
    pub fn truth(&mut self) -> io::Result<VirtualInstant> {
        let now = self.clock.look().now();
        self.read()?;
        let last = self.states[self.states.len() - 1].clone();
        Ok(ErrorLine::new(last).truth_at(now))
    }

    /// Returns the error at the instant `truth`, with what changed at that instant; `None` if the clock has not gone beyond it yet. The
    /// instants of later calls must not be earlier.
    ///
    /// # Errors
    ///
    /// If a state cannot be read.
    pub fn at(&mut self, truth: VirtualInstant) -> io::Result<Option<ErrorReading>> {
        // In this order: what was stored before the clock went on is there to be read.
        let now = self.clock.look().now();
        self.read()?;
        loop {
            let own = ErrorLine::new(self.states[0].clone()).own_at(truth);
            if self.states.get(1).is_some_and(|next| next.own() <= own) {
                self.states.pop_front();
                continue;
            }
            if now <= own {
                return Ok(None);
            }
            self.states[0].advance(own);
            return Ok(Some(ErrorReading::of(&self.states[0])));
        }
    }

    /// Reads the states that have been stored meanwhile.
    fn read(&mut self) -> io::Result<()> {
        self.file.read_to_end(&mut self.begun)?;
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            self.states.push_back(serde_json::from_slice(&line)?);
        }
        Ok(())
    }
}

impl Drop for ErrorHistory<'_> {
    /// Removes the file, unless another reader has it. A reader that is killed leaves it to the next process that stores a state.
    fn drop(&mut self) {
        if self.file.relock(FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
