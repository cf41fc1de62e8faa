//! Experiments, which several threads may use at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_clock::{Rate, Span};
use lorentz_container::StateDir;
use lorentz_control::processes::{self, Process};
use lorentz_experiment::{self as experiment, Experiment as Client, ExperimentRefusal, Refused};
use lorentz_experiment::{ExperimentOptions, ExperimentStatus, Joining};

use crate::command::LorentzCommand;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::host::check_outside;

/// The party that is responsible for an experiment's containers. When it ends, the containers go on by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This process, or the value that stands for the experiment in it.
    ThisProcess,
    /// No process: other processes continue the experiment.
    Nobody,
}

/// A running experiment. Each call has a connection of its own, so several threads may each move a timeline. After a fork, only
/// one of the two processes may use the value.
pub struct Experiment {
    name: String,
    state: StateDir,
    idle: Mutex<Vec<Client>>,
    guard: Mutex<Option<Guard>>,
    known: Mutex<HashMap<u32, Known>>,
}

/// The container in which a process was found. A search goes through all containers, so its result is kept.
struct Known {
    start_ticks: u64,
    container: String,
}

impl Experiment {
    /// Creates an experiment that runs in the background until [`Experiment::end`]. With [`Owner::ThisProcess`] it ends at the
    /// latest when this process ends.
    ///
    /// # Errors
    ///
    /// The name is not valid or is in use, the settings are not valid, or the process of the experiment cannot be made.
    pub fn create(name: &str, wanted: &ExperimentOptions, owner: Owner) -> Result<Experiment> {
        check_outside()?;
        let command = LorentzCommand::new("experiment")?.arg("create");
        let slice = wanted.timeslice_ns.map(|nanos| Span(nanos).to_string());
        let command = match slice {
            Some(slice) => command.arg(format!("--timeslice={slice}")),
            None => command,
        };
        let command = command.flag("--cpus", wanted.cpus.as_ref()).flag("--most", wanted.most);
        let command = command.switch("--as-fast-as-possible", wanted.as_fast_as_possible);
        let command = command.arg(format!("--compute={}", wanted.compute));
        command.arg("--").arg(name).call()?;
        let made = Experiment::open(name)?;
        if owner == Owner::ThisProcess {
            *made.guard() = Some(Guard::start(name, true).inspect_err(|_| drop(made.end()))?);
        }
        Ok(made)
    }

    /// Opens the experiment called `name`.
    ///
    /// # Errors
    ///
    /// There is no such experiment, or its process has ended.
    pub fn open(name: &str) -> Result<Experiment> {
        let state = StateDir::open()?;
        let first = Client::open(&state, name)?;
        Ok(Experiment {
            name: name.to_string(),
            state,
            idle: Mutex::new(vec![first]),
            guard: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// Releases the containers of the experiment `name`, whose process has died.
    ///
    /// # Errors
    ///
    /// There is no such experiment, or its process lives.
    pub fn clear(name: &str) -> Result<()> {
        let state = StateDir::open()?;
        match Client::open(&state, name) {
            Ok(_) => {
                Err(Error::new(ErrorKind::Refused, format!("{name}: its process runs; end it")))
            }
            Err(error) if is_dead(&error) => Ok(experiment::release(&state, name)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the experiment's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a container, named by its name or by the id of any of its processes, at `rate` (the inverse of its TDF). Returns the
    /// container's name.
    ///
    /// A process that is not in virtual time is attached, with its descendants. `timeline` is the timeline that the container
    /// follows if a simulator moves the experiment.
    ///
    /// # Errors
    ///
    /// There is no such container or process, the process cannot be attached, or an experiment has the container already.
    pub fn add(&self, container: &str, rate: Rate, timeline: Option<u32>) -> Result<String> {
        self.add_as(&Joining { timeline, ..Joining::new(container, rate) })
    }

    /// Adds a container as [`Experiment::add`] does, with all options of [`Joining`].
    ///
    /// # Errors
    ///
    /// Those of [`Experiment::add`]; `parallel` is 0, or more than the number of the experiment's processors.
    pub fn add_as(&self, joining: &Joining<'_>) -> Result<String> {
        let found = Container::find_or_attach(joining.container, true)?;
        self.ask(|client| client.add_as(&Joining { container: found.name(), ..*joining }))?;
        Ok(found.name().to_string())
    }

    /// Releases a container, which goes on by itself.
    ///
    /// # Errors
    ///
    /// The container is not in this experiment.
    pub fn remove(&self, container: &str) -> Result<()> {
        let name = self.named(container)?;
        self.ask(|client| client.remove(&name))
    }

    /// Changes a container's rate, from the next round on.
    ///
    /// # Errors
    ///
    /// The container is not in this experiment.
    pub fn dilate(&self, container: &str, rate: Rate) -> Result<()> {
        let name = self.named(container)?;
        self.ask(|client| client.dilate(&name, rate))
    }

    /// Stops all containers at one virtual time.
    ///
    /// With [`Owner::ThisProcess`], this process is responsible for the frozen containers. If it ends before
    /// [`Experiment::stop`], a guard process lets them go on by themselves; if the experiment was started, they go on in it.
    ///
    /// # Errors
    ///
    /// The experiment is empty or already synchronized, or only some containers have a timeline. Nothing has changed then.
    pub fn synchronize(&self, owner: Owner) -> Result<()> {
        let mut guard = self.guard();
        let made = match (&*guard, owner) {
            (None, Owner::ThisProcess) => Some(Guard::start(&self.name, false)?),
            _ => None,
        };
        match (self.ask(Client::synchronize), made) {
            (Ok(()), Some(made)) => *guard = Some(made),
            (Err(error), Some(made)) => {
                made.dismiss();
                return Err(error);
            }
            (done, None) => return done,
        }
        Ok(())
    }

    /// Starts rounds that follow one another.
    ///
    /// # Errors
    ///
    /// The experiment is not synchronized, or a simulator moves it.
    pub fn start(&self) -> Result<()> {
        self.ask(Client::start)
    }

    /// Stops the experiment after the current round.
    ///
    /// # Errors
    ///
    /// The experiment does not run.
    pub fn pause(&self) -> Result<()> {
        self.ask(Client::pause)
    }

    /// Lets all containers go on by themselves. The experiment is then empty, and can be set up anew.
    ///
    /// # Errors
    ///
    /// The experiment's process has ended.
    pub fn stop(&self) -> Result<()> {
        self.ask(Client::stop)?;
        if let Some(guard) = self.guard().take_if(|guard| !guard.ends) {
            guard.dismiss();
        }
        Ok(())
    }

    /// Sets how far a container moves with each progress of its timeline: a virtual time above 0.
    ///
    /// # Errors
    ///
    /// The experiment is not synchronized, or the container does not follow the given `timeline`.
    pub fn set_interval(
        &self,
        container: &str,
        interval: Span,
        timeline: Option<u32>,
    ) -> Result<()> {
        if interval <= Span::ZERO {
            return Err(Error::wrong_input(format!(
                "interval {interval}: expected a duration above 0"
            )));
        }
        let name = self.named(container)?;
        self.ask(|client| client.set_interval(&name, interval, timeline))
    }

    /// Moves all containers of a timeline by their intervals; a container without an interval stays. Returns when all have
    /// arrived.
    ///
    /// # Errors
    ///
    /// The experiment is not synchronized, no container follows `timeline`, or another thread or process is moving it.
    pub fn progress(&self, timeline: u32) -> Result<()> {
        self.ask(|client| client.progress(timeline))
    }

    /// As [`Experiment::progress`], after setting these intervals as [`Experiment::set_interval`] does, all in one exchange.
    ///
    /// # Errors
    ///
    /// As of both. No interval is set then, and nothing moves.
    pub fn progress_with(&self, timeline: u32, intervals: &[(&str, Span)]) -> Result<()> {
        let intervals = self.all_named(intervals)?;
        self.ask(|client| client.progress_with(timeline, intervals))
    }

    /// Moves each of these containers by a virtual time of its own, above 0, in one exchange. The others stay. Returns when all
    /// have arrived.
    ///
    /// # Errors
    ///
    /// The experiment is not synchronized or runs by itself; a container is not in it, or is under way already. Nothing moves
    /// then.
    pub fn step(&self, moves: &[(&str, Span)]) -> Result<()> {
        let moves = self.all_named(moves)?;
        self.ask(|client| client.step(moves))
    }

    fn all_named(&self, spans: &[(&str, Span)]) -> Result<Vec<(String, Span)>> {
        spans.iter().map(|(container, span)| Ok((self.named(container)?, *span))).collect()
    }

    /// Drops the intervals of a timeline.
    ///
    /// # Errors
    ///
    /// As [`Experiment::progress`].
    pub fn reset(&self, timeline: u32) -> Result<()> {
        self.ask(|client| client.reset(timeline))
    }

    /// Returns the state of the experiment.
    ///
    /// # Errors
    ///
    /// The experiment's process has ended.
    pub fn status(&self) -> Result<ExperimentStatus> {
        self.ask(Client::status)
    }

    /// Ends the experiment: its containers go on by themselves, and its name is free. If the experiment's process has died, the
    /// call clears what is left.
    ///
    /// # Errors
    ///
    /// The experiment had ended before.
    pub fn end(&self) -> Result<()> {
        let answer = self.ask(Client::end);
        self.idle().clear();
        if let Some(guard) = self.guard().take() {
            guard.dismiss();
        }
        match answer {
            Err(error) if error.kind != ErrorKind::Ended => Err(error),
            // The experiment's process may have ended before its answer was on the way.
            _ if self.is_gone_soon() => Ok(()),
            _ => Experiment::clear(&self.name),
        }
    }

    /// Waits until the experiment's process has ended and has cleared up after itself. Returns false if that takes too long.
    fn is_gone_soon(&self) -> bool {
        const END_TIMEOUT: Duration = Duration::from_secs(2);
        let begun = Instant::now();
        while begun.elapsed() < END_TIMEOUT {
            let found = Client::open(&self.state, &self.name).map(drop);
            if found.is_err_and(|error| {
                matches!(error.downcast_ref(), Some(ExperimentRefusal::Unknown(_)))
            }) {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    /// Sends a request on a connection that no other thread uses.
    fn ask<T>(&self, request: impl FnOnce(&mut Client) -> anyhow::Result<T>) -> Result<T> {
        let idle = self.idle().pop();
        let mut client = match idle {
            Some(client) => client,
            None => Client::open(&self.state, &self.name)?,
        };
        match request(&mut client) {
            Err(error) if !error.is::<Refused>() && !error.is::<ExperimentRefusal>() => {
                self.idle().clear();
                Err(Error::new(ErrorKind::Ended, format!("{error:#}")))
            }
            answer => {
                self.idle().push(client);
                Ok(answer?)
            }
        }
    }

    /// Returns the name of the container that a name or process id stands for. A name need not be one of the experiment's.
    ///
    /// # Errors
    ///
    /// The process is in no container.
    pub fn named(&self, text: &str) -> Result<String> {
        let Ok(pid) = text.parse::<u32>() else { return Ok(text.to_string()) };
        if let Some(known) = self.known().get(&pid) {
            if processes::is_running(pid, known.start_ticks) {
                return Ok(known.container.clone());
            }
        }
        let container = Container::find(text)?.name().to_string();
        if let Some(Process { start_ticks, .. }) = Process::read(pid) {
            self.known().insert(pid, Known { start_ticks, container: container.clone() });
        }
        Ok(container)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(&self) -> MutexGuard<'_, Option<Guard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u32, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_dead(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ExperimentRefusal::Dead(_)))
}
