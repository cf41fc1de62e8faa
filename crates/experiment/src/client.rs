//! A running experiment, seen from any other process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use anyhow::Context;
use lorentz_clock::{Rate, Span, VirtualInstant};
use lorentz_container::StateDir;
use thiserror::Error;

use crate::fault::{Ended, Refusal};
use crate::place;
use crate::protocol::{Answer, Request, Status};

/// A running experiment. One request at a time is under way on one of these; any number of them may be open.
pub struct Experiment {
    name: String,
    stream: BufReader<UnixStream>,
}

impl AsFd for Experiment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

/// What a running experiment would not do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{why}")]
pub struct Refused {
    /// Why, in one line.
    pub why: String,
    /// The asker's mistake; else the machine's.
    pub wrong_input: bool,
}

/// A container that is to join an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// Its name.
    pub container: &'a str,
    /// Virtual seconds per real second in its slices: the inverse of its TDF.
    pub rate: Rate,
    /// The timeline that it follows, where a simulator moves it.
    pub timeline: Option<u32>,
    /// Whether its wall clock keeps its own date when all are brought to one virtual time; else all show the same.
    pub own_wall: bool,
}

impl Experiment {
    /// The one called `name` in `state`.
    ///
    /// # Errors
    ///
    /// Where there is none ([`Refusal::Unknown`]), or its process has ended ([`Refusal::Dead`]).
    pub fn open(state: &StateDir, name: &str) -> anyhow::Result<Experiment> {
        let place = place::of(state, name)?;
        if !place.exists() {
            return Err(Refusal::Unknown(name.to_string()).into());
        }
        let reached = place.connect().context("reaching the experiment")?;
        let stream = reached.ok_or_else(|| Refusal::Dead(name.to_string()))?;
        Ok(Experiment { name: name.to_string(), stream: BufReader::new(stream) })
    }

    /// The experiments in `state`, by name, those whose process has ended among them.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be read.
    pub fn list(state: &StateDir) -> io::Result<Vec<String>> {
        place::all(state)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the container called `container` in, at `rate` (the inverse of its TDF). `timeline`: the one it follows, where a
    /// simulator moves it.
    ///
    /// # Errors
    ///
    /// Where it is in an experiment already, shares its clock, or has ended.
    pub fn add(
        &mut self,
        container: &str,
        rate: Rate,
        timeline: Option<u32>,
    ) -> anyhow::Result<()> {
        self.add_as(&Joining { container, rate, timeline, own_wall: false })
    }

    /// The same, with everything that can be said of it.
    ///
    /// # Errors
    ///
    /// As for [`Experiment::add`].
    pub fn add_as(&mut self, joining: &Joining<'_>) -> anyhow::Result<()> {
        let Joining { container, rate, timeline, own_wall } = *joining;
        let (container, tdf) = (container.to_string(), (rate.den(), rate.num()));
        self.ask(&Request::Add { container, tdf, timeline, own_wall }).map(drop)
    }

    /// Lets a container go on by itself.
    ///
    /// # Errors
    ///
    /// Where it is not in this experiment.
    pub fn remove(&mut self, container: &str) -> anyhow::Result<()> {
        self.ask(&Request::Remove { container: container.to_string() }).map(drop)
    }

    /// Changes a container's rate, from the next round on.
    ///
    /// # Errors
    ///
    /// Where it is not in this experiment.
    pub fn dilate(&mut self, container: &str, rate: Rate) -> anyhow::Result<()> {
        let tdf = (rate.den(), rate.num());
        self.ask(&Request::Dilate { container: container.to_string(), tdf }).map(drop)
    }

    /// Stops all containers at one virtual time (TimeKeeper: `synchronizeAndFreeze`).
    ///
    /// # Errors
    ///
    /// Where it is empty or synchronized, or only some containers have a timeline.
    pub fn synchronize(&mut self) -> anyhow::Result<()> {
        self.ask(&Request::Synchronize).map(drop)
    }

    /// Has rounds follow one another from here on.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where a simulator moves it.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.ask(&Request::Start).map(drop)
    }

    /// Has no further round begin.
    ///
    /// # Errors
    ///
    /// Where it does not run.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.ask(&Request::Pause).map(drop)
    }

    /// Lets all containers go on by themselves. A new experiment may be set up in this one.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.ask(&Request::Stop).map(drop)
    }

    /// How far a container is to go with each progress of its timeline, virtual time above 0.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where the container does not follow `timeline`, if that is given.
    pub fn set_interval(
        &mut self,
        container: &str,
        interval: Span,
        timeline: Option<u32>,
    ) -> anyhow::Result<()> {
        let (container, nanos) = (container.to_string(), interval.0);
        self.ask(&Request::Interval { container, timeline, nanos }).map(drop)
    }

    /// Moves all containers of a timeline by their intervals; those that have none stay. Returns when all have arrived.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where no container follows `timeline`.
    pub fn progress(&mut self, timeline: u32) -> anyhow::Result<()> {
        self.ask(&Request::Progress { timeline }).map(drop)
    }

    /// Begins to move all containers of a timeline to the instant `to`; [`Experiment::has_advanced`] tells of the end. Nothing else is
    /// to be asked here meanwhile.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn advance(&mut self, timeline: u32, to: VirtualInstant) -> anyhow::Result<()> {
        self.say(&Request::Advance { timeline, to: to.0 })
    }

    /// Waits until what [`Experiment::advance`] has begun is done. Its descriptor is readable then.
    ///
    /// # Errors
    ///
    /// As [`Experiment::progress`].
    pub fn has_advanced(&mut self) -> anyhow::Result<()> {
        self.hear().map(drop)
    }

    /// Forgets the intervals of a timeline.
    ///
    /// # Errors
    ///
    /// As [`Experiment::progress`].
    pub fn reset(&mut self, timeline: u32) -> anyhow::Result<()> {
        self.ask(&Request::Reset { timeline }).map(drop)
    }

    /// How it stands.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => anyhow::bail!("the experiment {} has not told how it stands", self.name),
        }
    }

    /// Ends it. Its containers go on by themselves.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.ask(&Request::End).map(drop)
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Answer> {
        self.say(request)?;
        self.hear()
    }

    fn say(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let written = self.stream.get_mut().write_all(&line);
        written.map_err(|error| self.lost(error))
    }

    /// The error of a connection that failed: [`Ended`] if the other end closed it.
    fn lost(&self, error: io::Error) -> anyhow::Error {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        match error.kind() {
            BrokenPipe | ConnectionReset => Ended(self.name.clone()).into(),
            _ => anyhow::Error::from(error).context(format!("asking the experiment {}", self.name)),
        }
    }

    fn hear(&mut self) -> anyhow::Result<Answer> {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line);
        read.map_err(|error| self.lost(error))?;
        if line.is_empty() {
            return Err(Ended(self.name.clone()).into());
        }
        match serde_json::from_slice(&line)? {
            Answer::Refused { why, wrong_input } => Err(Refused { why, wrong_input }.into()),
            answer => Ok(answer),
        }
    }
}
