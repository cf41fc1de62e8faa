//! Client of a running experiment, for use by any other process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use lorentz_clock::{Rate, RealInstant, Span, VirtualInstant};
use lorentz_container::{Connection, ConnectionError, Container, StateDir};
use lorentz_control::{ChangeCounts, ClockChange};

use crate::compute::ComputeTime;
use crate::directory;
use crate::error::{Ended, ExperimentRefusal, Refused};
use crate::protocol::{ExperimentAnswer, ExperimentRequest, ExperimentStatus, IdleAdvance};

/// A connection to a running experiment. It carries one request at a time. A process may open any number of connections.
pub struct Experiment {
    name: String,
    connection: Connection,
}

impl AsFd for Experiment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Changes the rate of a container's clock: at once, or at the instant `at`. In an experiment the rate holds from the next round on,
/// and nothing can be announced.
///
/// # Errors
///
/// If the clock cannot be changed, the container is gone, or its experiment has ended; for a container in an experiment, if `at` is
/// given.
pub fn dilate(
    state: &StateDir,
    container: &Container,
    rate: Rate,
    at: Option<RealInstant>,
) -> anyhow::Result<ChangeCounts> {
    match &container.record().experiment {
        Some(experiment) if at.is_none() => {
            Experiment::open(state, experiment)?.dilate(container.name(), rate)?;
            Ok(ChangeCounts::default())
        }
        _ => {
            let clock = container.clock_to_change()?;
            clock.change(ClockChange::Dilate(rate), at).context("lorentz dilate")
        }
    }
}

/// A container that is to join an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// The container's name.
    pub container: &'a str,
    /// Virtual seconds per real second in the container's slices: the inverse of its TDF.
    pub rate: Rate,
    /// The timeline the container follows, if a simulator moves it.
    pub timeline: Option<u32>,
    /// Whether the container's wall clock keeps its own date at [`Experiment::synchronize`]. All other wall clocks show one date.
    pub own_wall: bool,
    /// Number of processors that the container gets at once, from 1 to the number of those of the experiment.
    pub parallel: u32,
    /// How the time for which the container's tasks compute counts; `None` for the experiment's choice.
    pub compute: Option<ComputeTime>,
}

impl<'a> Joining<'a> {
    /// The container called `container`, at `rate`: on one processor, on no timeline, and with the date of the others.
    pub fn new(container: &'a str, rate: Rate) -> Joining<'a> {
        Joining { container, rate, timeline: None, own_wall: false, parallel: 1, compute: None }
    }
}

/// The end of an advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advanced {
    /// The instant to which the containers were to go, of an advance with [`IdleAdvance`].
    pub to: Option<VirtualInstant>,
    /// Some clock needs more steps: it stands before the instant, and another advance continues.
    pub is_behind: bool,
}

impl Experiment {
    /// Connects to the experiment called `name` in `state`.
    ///
    /// # Errors
    ///
    /// [`ExperimentRefusal::Unknown`] if there is no such experiment; [`ExperimentRefusal::Dead`] if its process has ended.
    pub fn open(state: &StateDir, name: &str) -> anyhow::Result<Experiment> {
        let directory = directory::of_experiment(state, name)?;
        if !directory.exists() {
            return Err(ExperimentRefusal::Unknown(name.to_string()).into());
        }
        let reached = Connection::open(&directory).context("reaching the experiment")?;
        let connection = reached.ok_or_else(|| ExperimentRefusal::Dead(name.to_string()))?;
        Ok(Experiment { name: name.to_string(), connection })
    }

    /// Lists the names of the experiments in `state`, sorted. Experiments whose process has ended are included.
    ///
    /// # Errors
    ///
    /// An error if the directory cannot be read.
    pub fn list(state: &StateDir) -> io::Result<Vec<String>> {
        directory::names(state)
    }

    /// The experiment's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the container called `container`, at `rate` (the inverse of its TDF). `timeline` is the one it follows, if a simulator
    /// moves it.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the container is in an experiment already, shares its clock, or has ended.
    pub fn add(
        &mut self,
        container: &str,
        rate: Rate,
        timeline: Option<u32>,
    ) -> anyhow::Result<()> {
        self.add_as(&Joining { timeline, ..Joining::new(container, rate) })
    }

    /// Adds a container with all options of [`Joining`].
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::add`]; [`Refused`] if `parallel` is out of range.
    pub fn add_as(&mut self, joining: &Joining<'_>) -> anyhow::Result<()> {
        let Joining { container, rate, timeline, own_wall, parallel, compute } = *joining;
        let (container, tdf) = (container.to_string(), (rate.den(), rate.num()));
        let add = ExperimentRequest::Add { container, tdf, timeline, own_wall, parallel, compute };
        self.ask(&add).map(drop)
    }

    /// Removes a container from the experiment. It goes on by itself.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the container is not in this experiment.
    pub fn remove(&mut self, container: &str) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Remove { container: container.to_string() }).map(drop)
    }

    /// Changes a container's rate, from the next round on.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the container is not in this experiment.
    pub fn dilate(&mut self, container: &str, rate: Rate) -> anyhow::Result<()> {
        let tdf = (rate.den(), rate.num());
        self.ask(&ExperimentRequest::Dilate { container: container.to_string(), tdf }).map(drop)
    }

    /// Stops all containers at one virtual time (TimeKeeper: `synchronizeAndFreeze`).
    ///
    /// # Errors
    ///
    /// [`Refused`] if the experiment is empty or synchronized already, or only some of its containers have a timeline.
    pub fn synchronize(&mut self) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Synchronize { at: None }).map(drop)
    }

    /// As [`Experiment::synchronize`], at `at` if no container is further.
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::synchronize`].
    pub fn synchronize_at(&mut self, at: VirtualInstant) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Synchronize { at: Some(at.0) }).map(drop)
    }

    /// Starts the rounds.
    ///
    /// # Errors
    ///
    /// [`Refused`] before [`Experiment::synchronize`], or if a simulator moves the experiment.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Start).map(drop)
    }

    /// Pauses the experiment: no further round begins.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the experiment does not run.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Pause).map(drop)
    }

    /// Ends the current run. All containers leave the experiment and go on by themselves; another run may be set up in this
    /// process.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the experiment's process has ended.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Stop).map(drop)
    }

    /// Sets how far a container goes with each progress of its timeline. `interval` is virtual time, above 0.
    ///
    /// # Errors
    ///
    /// [`Refused`] before [`Experiment::synchronize`], or if `timeline` is given and the container does not follow it.
    pub fn set_interval(
        &mut self,
        container: &str,
        interval: Span,
        timeline: Option<u32>,
    ) -> anyhow::Result<()> {
        let (container, nanos) = (container.to_string(), interval.0);
        self.ask(&ExperimentRequest::Interval { container, timeline, nanos }).map(drop)
    }

    /// Moves all containers of a timeline by their intervals. A container without an interval stays. Returns when all have arrived.
    ///
    /// # Errors
    ///
    /// [`Refused`] before [`Experiment::synchronize`], or if no container follows `timeline`.
    pub fn progress(&mut self, timeline: u32) -> anyhow::Result<()> {
        self.progress_with(timeline, [])
    }

    /// As [`Experiment::progress`], after setting `intervals` of the containers of these names, in the same exchange.
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::set_interval`] and [`Experiment::progress`], or a container that is named twice. No interval is set then,
    /// and nothing moves.
    pub fn progress_with(
        &mut self,
        timeline: u32,
        intervals: impl IntoIterator<Item = (String, Span)>,
    ) -> anyhow::Result<()> {
        let intervals = nanos_by_name(intervals)?;
        self.ask(&ExperimentRequest::Progress { timeline, intervals }).map(drop)
    }

    /// Moves each of the containers of these names by a time of its own. The others stay. Returns when all have arrived.
    ///
    /// # Errors
    ///
    /// [`Refused`] before [`Experiment::synchronize`], if the experiment runs by itself, or if one of the containers is not in it or
    /// is under way already. [`ExperimentRefusal`] for a time that is not above 0, or a container that is named twice. Nothing moves
    /// then.
    pub fn step(&mut self, moves: impl IntoIterator<Item = (String, Span)>) -> anyhow::Result<()> {
        let moves = nanos_by_name(moves)?;
        self.ask(&ExperimentRequest::Step { moves }).map(drop)
    }

    /// Begins to move all containers of a timeline to the instant `to`, and returns at once. No clock makes more jumps than `steps`. If no
    /// container has anything to do before `to`, all of them go further, as `idle` says. [`Experiment::has_advanced`] waits for the
    /// end. This connection takes no other request in between.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the experiment's process has ended.
    pub fn advance(
        &mut self,
        timeline: u32,
        to: VirtualInstant,
        steps: Option<u32>,
        idle: Option<IdleAdvance>,
    ) -> anyhow::Result<()> {
        self.send(&ExperimentRequest::Advance { timeline, to: to.0, steps, idle })
    }

    /// Waits until the move that [`Experiment::advance`] began is done. The connection's descriptor becomes readable then.
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::progress`].
    pub fn has_advanced(&mut self) -> anyhow::Result<Advanced> {
        Ok(match self.receive()? {
            ExperimentAnswer::Behind => Advanced { to: None, is_behind: true },
            ExperimentAnswer::Advanced { to, behind } => {
                Advanced { to: Some(VirtualInstant(to)), is_behind: behind }
            }
            _ => Advanced { to: None, is_behind: false },
        })
    }

    /// Returns the instants of the experiment at which the clocks of these containers showed these times. They differ where a clock errs.
    /// Containers that have ended are left out.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the experiment's process has ended.
    pub fn truth_at(
        &mut self,
        own: BTreeMap<String, Vec<i64>>,
    ) -> anyhow::Result<BTreeMap<String, Vec<i64>>> {
        match self.ask(&ExperimentRequest::TruthAt { own })? {
            ExperimentAnswer::Truth(truth) => Ok(truth),
            _ => anyhow::bail!("the experiment {} answered without the instants", self.name),
        }
    }

    /// Clears the intervals of a timeline's containers.
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::progress`].
    pub fn reset(&mut self, timeline: u32) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::Reset { timeline }).map(drop)
    }

    /// Returns the state of the experiment and of its containers.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the experiment's process has ended.
    pub fn status(&mut self) -> anyhow::Result<ExperimentStatus> {
        match self.ask(&ExperimentRequest::Status)? {
            ExperimentAnswer::Status(status) => Ok(*status),
            _ => anyhow::bail!("the experiment {} answered without its status", self.name),
        }
    }

    /// Ends the experiment and its process. Its containers go on by themselves.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the experiment's process has ended.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.ask(&ExperimentRequest::End).map(drop)
    }

    fn ask(&mut self, request: &ExperimentRequest) -> anyhow::Result<ExperimentAnswer> {
        self.send(request)?;
        self.receive()
    }

    fn send(&mut self, request: &ExperimentRequest) -> anyhow::Result<()> {
        let sent = self.connection.send(request);
        sent.map_err(|error| self.failed(error))
    }

    fn receive(&mut self) -> anyhow::Result<ExperimentAnswer> {
        let received = self.connection.receive();
        match received.map_err(|error| self.failed(error))? {
            ExperimentAnswer::Refused { why, wrong_input } => {
                Err(Refused { why, wrong_input }.into())
            }
            answer => Ok(answer),
        }
    }

    /// The error of a connection that failed: [`Ended`] if the other end closed it.
    fn failed(&self, error: ConnectionError) -> anyhow::Error {
        match error {
            ConnectionError::Ended => Ended(self.name.clone()).into(),
            ConnectionError::Io(error) => {
                anyhow::Error::from(error).context(format!("asking the experiment {}", self.name))
            }
            ConnectionError::Json(error) => error.into(),
        }
    }
}

fn nanos_by_name(
    spans: impl IntoIterator<Item = (String, Span)>,
) -> Result<BTreeMap<String, i64>, ExperimentRefusal> {
    let mut by_name = BTreeMap::new();
    for (name, span) in spans {
        if span <= Span::ZERO {
            return Err(ExperimentRefusal::Interval(span));
        }
        if by_name.insert(name.clone(), span.0).is_some() {
            return Err(ExperimentRefusal::NamedTwice(name));
        }
    }
    Ok(by_name)
}
