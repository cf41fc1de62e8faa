//! An experiment, for several threads at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lorentz_clock::{Rate, Span};
use lorentz_container::processes::{self, Process};
use lorentz_container::StateDir;
use lorentz_experiment::{self as experiment, Experiment as Client, Refusal, Refused};
use lorentz_experiment::{Status, Wanted};

use crate::command::Command;
use crate::container::Container;
use crate::fault::{Fault, Kind, Result};
use crate::guard::Guard;
use crate::host::check_outside;

/// Who lets an experiment's containers go where nobody says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The end of this process, or of the value that stands for the experiment in it.
    ThisProcess,
    /// Nobody: other processes go on with it.
    Nobody,
}

/// A running experiment. A call takes a connection of its own, so that several threads may each move a timeline. It is not to
/// be used on both sides of a fork.
pub struct Experiment {
    name: String,
    state: StateDir,
    idle: Mutex<Vec<Client>>,
    guard: Mutex<Option<Guard>>,
    known: Mutex<HashMap<u32, Known>>,
}

/// The container that a process was found in, once: looking for it means looking at all containers.
struct Known {
    start_ticks: u64,
    container: String,
}

impl Experiment {
    /// Makes one, which goes on in the background until [`Experiment::end`]; with [`Owner::ThisProcess`] until this process
    /// ends, at the latest.
    ///
    /// # Errors
    ///
    /// A name that cannot be or is in use; settings that cannot be; where no process can be made.
    pub fn create(name: &str, wanted: &Wanted, owner: Owner) -> Result<Experiment> {
        check_outside()?;
        let command = Command::new("experiment")?.arg("create");
        let slice = wanted.timeslice_ns.map(|nanos| Span(nanos).to_string());
        let command = match slice {
            Some(slice) => command.arg(format!("--timeslice={slice}")),
            None => command,
        };
        let command = command.flag("--cpus", wanted.cpus.as_ref()).flag("--most", wanted.most);
        let command = command.switch("--as-fast-as-possible", wanted.as_fast_as_possible);
        command.arg("--").arg(name).call()?;
        let made = Experiment::open(name)?;
        if owner == Owner::ThisProcess {
            *made.guard() = Some(Guard::start(name, true).inspect_err(|_| drop(made.end()))?);
        }
        Ok(made)
    }

    /// The one called `name`.
    ///
    /// # Errors
    ///
    /// Where there is none, or its process has ended.
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

    /// Lets go of the containers of the experiment `name`, whose process has ended.
    ///
    /// # Errors
    ///
    /// Where it has not, or there is no such experiment.
    pub fn clear(name: &str) -> Result<()> {
        let state = StateDir::open()?;
        match Client::open(&state, name) {
            Ok(_) => Err(Fault::new(Kind::Refused, format!("{name}: its process runs; end it"))),
            Err(error) if is_dead(&error) => Ok(experiment::release(&state, name)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes in a container, by its name or the number of any of its processes, at `rate` (the inverse of its TDF). A process
    /// that is not in virtual time is brought into it, with its descendants. `timeline`: the one it follows, where a simulator
    /// moves it. Returns the container's name.
    ///
    /// # Errors
    ///
    /// Where there is no such container or process, or it cannot be brought in; where an experiment has it already.
    pub fn add(&self, container: &str, rate: Rate, timeline: Option<u32>) -> Result<String> {
        let found = Container::find_or_attach(container, true)?;
        self.ask(|client| client.add(found.name(), rate, timeline))?;
        Ok(found.name().to_string())
    }

    /// Lets a container go on by itself.
    ///
    /// # Errors
    ///
    /// Where it is not in this experiment.
    pub fn remove(&self, container: &str) -> Result<()> {
        let name = self.named(container)?;
        self.ask(|client| client.remove(&name))
    }

    /// Changes a container's rate, from the next round on.
    ///
    /// # Errors
    ///
    /// Where it is not in this experiment.
    pub fn dilate(&self, container: &str, rate: Rate) -> Result<()> {
        let name = self.named(container)?;
        self.ask(|client| client.dilate(&name, rate))
    }

    /// Stops all containers at one virtual time. Where the owner is this process and it ends before [`Experiment::stop`], the
    /// containers go on by themselves; those of an experiment that was started go on in it.
    ///
    /// # Errors
    ///
    /// Where it is empty or synchronized, or only some containers have a timeline; nothing has changed then.
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

    /// Has rounds follow one another from here on.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where a simulator moves it.
    pub fn start(&self) -> Result<()> {
        self.ask(Client::start)
    }

    /// Has no further round begin.
    ///
    /// # Errors
    ///
    /// Where it does not run.
    pub fn pause(&self) -> Result<()> {
        self.ask(Client::pause)
    }

    /// Lets all containers go on by themselves. A new experiment may be set up in this one.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn stop(&self) -> Result<()> {
        self.ask(Client::stop)?;
        if let Some(guard) = self.guard().take_if(|guard| !guard.ends) {
            guard.dismiss();
        }
        Ok(())
    }

    /// How far a container is to go with each progress of its timeline, virtual time above 0.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where the container does not follow `timeline`, if that is given.
    pub fn set_interval(
        &self,
        container: &str,
        interval: Span,
        timeline: Option<u32>,
    ) -> Result<()> {
        if interval <= Span::ZERO {
            return Err(Fault::wrong(format!("interval {interval}: expected a duration above 0")));
        }
        let name = self.named(container)?;
        self.ask(|client| client.set_interval(&name, interval, timeline))
    }

    /// Moves all containers of a timeline by their intervals; those that have none stay. Returns when all have arrived.
    ///
    /// # Errors
    ///
    /// Before [`Experiment::synchronize`]; where no container follows `timeline`, or somebody moves it already.
    pub fn progress(&self, timeline: u32) -> Result<()> {
        self.ask(|client| client.progress(timeline))
    }

    /// Forgets the intervals of a timeline.
    ///
    /// # Errors
    ///
    /// As [`Experiment::progress`].
    pub fn reset(&self, timeline: u32) -> Result<()> {
        self.ask(|client| client.reset(timeline))
    }

    /// How it stands.
    ///
    /// # Errors
    ///
    /// Where its process has ended.
    pub fn status(&self) -> Result<Status> {
        self.ask(Client::status)
    }

    /// Ends it; its containers go on by themselves, and its name is free. Where its process has died, what is left is cleared.
    ///
    /// # Errors
    ///
    /// Where it was gone before.
    pub fn end(&self) -> Result<()> {
        let answer = self.ask(Client::end);
        self.idle().clear();
        if let Some(guard) = self.guard().take() {
            guard.dismiss();
        }
        match answer {
            Err(fault) if fault.kind != Kind::Ended => Err(fault),
            // Its process may have ended before the answer was on its way.
            _ if self.is_gone_soon() => Ok(()),
            _ => Experiment::clear(&self.name),
        }
    }

    /// Waits until its process has ended, and cleared up after itself.
    fn is_gone_soon(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let found = Client::open(&self.state, &self.name).map(drop);
            if found.is_err_and(|error| matches!(error.downcast_ref(), Some(Refusal::Unknown(_)))) {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    /// Asks on a connection that no other thread uses.
    fn ask<T>(&self, request: impl FnOnce(&mut Client) -> anyhow::Result<T>) -> Result<T> {
        let idle = self.idle().pop();
        let mut client = match idle {
            Some(client) => client,
            None => Client::open(&self.state, &self.name)?,
        };
        match request(&mut client) {
            Err(error) if !error.is::<Refused>() => {
                self.idle().clear();
                Err(Fault::new(Kind::Ended, format!("{error:#}")))
            }
            answer => {
                self.idle().push(client);
                Ok(answer?)
            }
        }
    }

    /// The name of the container that a name or number means.
    fn named(&self, text: &str) -> Result<String> {
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
    matches!(error.downcast_ref(), Some(Refusal::Dead(_)))
}
