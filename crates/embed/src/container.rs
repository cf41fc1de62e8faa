//! A container's clock, found by the container's name or by the id of any of its processes.

use std::fmt::Display;
use std::time::Duration;

use lorentz_clock::{Rate, RealInstant, WallTime};
use lorentz_container::{
    self as container, check_attachable, ForeignContainer, StateDir, StateError,
};
use lorentz_control::host_time::{self, HostMoment};
use lorentz_control::processes::{self, Process};
use lorentz_control::{CgroupPlace, Clock, ClockChange, ClockOptions, HostNow, Reading, Target};
use lorentz_experiment as experiment;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::command::LorentzCommand;
use crate::error::{Error, ErrorKind, Result};
use crate::host::check_outside;

/// A container, as it was when it was found.
#[derive(Clone, Debug)]
pub struct Container(container::Container);

/// Options of attaching a running process.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// The rate of its clock, virtual seconds per real second.
    pub rate: Rate,
    /// Whether to attach its descendants too.
    pub tree: bool,
    /// The container's name. Without one, `lorentz attach` makes up a name.
    pub name: Option<String>,
    /// Whether the container is to join an experiment. The shim then makes its sends follow send ordering.
    pub for_experiment: bool,
}

impl Container {
    /// Finds the container that `text` names: by its name, or by the id of any of its processes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`].
    pub fn find(text: &str) -> Result<Container> {
        Ok(Container(StateDir::open()?.find(text)?))
    }

    /// Finds a container as [`Container::find`] does. A process in real time is attached at rate 1, such that it can join an
    /// experiment. If `tree` is true, its descendants are attached too.
    ///
    /// # Errors
    ///
    /// There is no such container or process, or the process cannot be attached.
    pub fn find_or_attach(text: &str, tree: bool) -> Result<Container> {
        match (Container::look_for(text)?, text.parse()) {
            (Some(found), _) => Ok(found),
            (None, Ok(pid)) => Container::attach(
                pid,
                &AttachOptions { tree, for_experiment: true, ..AttachOptions::default() },
            ),
            (None, Err(_)) => Container::find(text),
        }
    }

    /// Finds a container as [`Container::find`] does; `None` if `text` names a process in real time.
    ///
    /// # Errors
    ///
    /// There is neither a container nor a process of that name.
    pub fn look_for(text: &str) -> Result<Option<Container>> {
        match StateDir::open()?.find(text) {
            Err(StateError::NotInside(_)) => Ok(None),
            found => Ok(Some(Container(found?))),
        }
    }

    /// Brings the running process `pid` into virtual time, in a new container. That cannot be undone; rate 1 does no harm.
    ///
    /// # Errors
    ///
    /// The process does not exist, belongs to another user, or is in virtual time already; or the name is not valid.
    pub fn attach(pid: u32, how: &AttachOptions) -> Result<Container> {
        check_outside()?;
        check_attachable(&StateDir::open()?, pid)?;
        Container::attach_by(&pid.to_string(), how)
    }

    /// Brings the container of LXC called `name`, which may have its directory before it, into virtual time: all its processes, and
    /// those that enter it later. It has its name here too.
    ///
    /// # Errors
    ///
    /// LXC knows no such container that runs, or one of its processes cannot be attached.
    pub fn attach_lxc(name: &str, how: &AttachOptions) -> Result<Container> {
        check_outside()?;
        Container::attach_by(&format!("lxc:{name}"), how)
    }

    /// Returns the process id of the first process of the container of LXC called `name`, as [`Container::attach_lxc`] takes it;
    /// `None` if LXC knows none that runs.
    pub fn lxc_process(name: &str) -> Option<u32> {
        format!("lxc:{name}").parse::<ForeignContainer>().ok()?.first_process().ok()
    }

    fn attach_by(target: &str, how: &AttachOptions) -> Result<Container> {
        let state = StateDir::open()?;
        let clock = ClockOptions { rate: Some(how.rate), ..ClockOptions::default() };
        let command =
            clock.flags().iter().fold(LorentzCommand::new("attach")?, LorentzCommand::arg);
        let command = command.flag("--name", how.name.as_deref()).switch("--tree", how.tree);
        let command = command.switch("--for-experiment", how.for_experiment);
        let output = command.arg("--json").arg(target).call()?;
        let attached: serde_json::Value = serde_json::from_str(&output)
            .map_err(|error| Error::failed(format!("lorentz attach --json: {error}")))?;
        let mut made = state.container(attached["name"].as_str().unwrap_or_default())?;
        give_group(&mut made, attached["pids"].as_array().map_or(&[], Vec::as_slice))?;
        Ok(Container(made))
    }

    /// Brings the descendants of process `pid` that are not in virtual time onto this container's clock.
    ///
    /// # Errors
    ///
    /// One of them cannot be attached.
    pub fn attach_descendants(&self, pid: u32) -> Result<()> {
        for descendant in processes::descendants(&processes::all()?, pid) {
            let pid = descendant.pid;
            if descendant.has_ended() || processes::clock_of(pid).is_some() {
                continue;
            }
            let attached = LorentzCommand::new("attach")?
                .flag("--clock", Some(self.name()))
                .arg(pid.to_string());
            match attached.call() {
                Err(_) if leaves_real_time(pid) => {}
                attached => drop(attached?),
            }
            if let Some(cgroup) = self.0.cgroup() {
                // A process that has ended needs no control group.
                let _ = cgroup.add(pid);
            }
        }
        Ok(())
    }

    /// Returns the container's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the name of the experiment that moves the container's clock; `None` if none does.
    pub fn experiment(&self) -> Option<&str> {
        self.0.record().experiment.as_deref()
    }

    /// Returns the ids of the container's processes.
    ///
    /// # Errors
    ///
    /// /proc cannot be read.
    pub fn pids(&self) -> Result<Vec<u32>> {
        Ok(self.0.processes()?.iter().map(|process| process.pid).collect())
    }

    /// Sends SIGCONT to those of the container's processes that a signal has stopped.
    ///
    /// # Errors
    ///
    /// As [`Container::pids`].
    pub fn continue_stopped(&self) -> Result<()> {
        let pids = match self.0.cgroup() {
            Some(cgroup) => cgroup.pids()?,
            None => self.pids()?,
        };
        for process in pids.into_iter().filter_map(Process::read) {
            if process.state == 'T' {
                // A process that has ended needs no signal.
                let _ = kill(Pid::from_raw(process.pid as i32), Signal::SIGCONT);
            }
        }
        Ok(())
    }

    /// Returns the container's clocks and the host's, of one moment.
    ///
    /// # Errors
    ///
    /// The container is gone.
    pub fn reading(&self) -> Result<Reading> {
        check_outside()?;
        Ok(self.0.clock()?.reading())
    }

    /// Changes the rate of the container's clock: at once, or when the host's wall clock shows `at`. In an experiment the rate holds
    /// from the next round on.
    ///
    /// # Errors
    ///
    /// The clock cannot be changed, the container is gone, or `at` is past. For a container in an experiment, `at` is given, or the
    /// experiment has ended.
    pub fn dilate(&self, rate: Rate, at: Option<WallTime>) -> Result<()> {
        check_outside()?;
        let at = at.map(instant).transpose()?;
        Ok(experiment::dilate(&StateDir::open()?, &self.0, rate, at).map(drop)?)
    }

    /// Stops the container's clock, and its tasks if it has a control group: at once, or when the host's wall clock shows `at`.
    /// On a frozen container it has no effect.
    ///
    /// # Errors
    ///
    /// An experiment moves the clock, the clock cannot be changed, the container is gone, or `at` is past.
    pub fn freeze(&self, at: Option<WallTime>) -> Result<()> {
        check_outside()?;
        match at.map(instant).transpose()? {
            None => container::freeze(&self.0)?,
            Some(at) => container::freeze_at(&self.0, at)?,
        };
        Ok(())
    }

    /// Lets the container's clock and tasks go on: at once, or when the host's wall clock shows `at`. On a running container it
    /// has no effect.
    ///
    /// # Errors
    ///
    /// As [`Container::freeze`].
    pub fn unfreeze(&self, at: Option<WallTime>) -> Result<()> {
        check_outside()?;
        let Some(at) = at.map(instant).transpose()? else {
            container::unfreeze(&self.0)?;
            return Ok(());
        };
        self.change("unfreeze", &self.0.clock_to_change()?, ClockChange::Unfreeze, Some(at))
    }

    /// Moves all the container's clocks forward: at once, or when the host's wall clock shows `at`.
    ///
    /// # Errors
    ///
    /// As [`Container::freeze`]; also for a target in the container's past.
    pub fn leap(&self, target: Target, at: Option<WallTime>) -> Result<()> {
        check_outside()?;
        let at = at.map(instant).transpose()?;
        let clock = self.0.clock_to_change()?;
        let by = target.leap(&reading(&clock, at))?;
        self.change("leap", &clock, ClockChange::Leap(by), at)
    }

    /// Moves only the container's wall clock, in either direction: at once, or when the host's wall clock shows `at`.
    ///
    /// # Errors
    ///
    /// As [`Container::freeze`]; also for a target before 1970.
    pub fn step(&self, target: Target, at: Option<WallTime>) -> Result<()> {
        check_outside()?;
        let at = at.map(instant).transpose()?;
        let clock = self.0.clock_to_change()?;
        let by = target.step(&reading(&clock, at))?;
        self.change("step", &clock, ClockChange::Step(by), at)
    }

    fn change(
        &self,
        verb: &str,
        clock: &Clock,
        change: ClockChange,
        at: Option<RealInstant>,
    ) -> Result<()> {
        clock.change(change, at).map_err(|error| self.at(verb, error)).map(drop)
    }

    fn at(&self, verb: &str, error: impl Display) -> Error {
        Error::new(ErrorKind::Failed, format!("{verb} {}: {error}", self.name()))
    }
}

/// Returns the instant at which the host's wall clock shows `at`, if nobody sets that clock before.
fn instant(at: WallTime) -> Result<RealInstant> {
    let host = HostNow::read()?;
    host.real_at(at).filter(|real| *real > host.real).ok_or_else(|| {
        let now = host.wall;
        Error::wrong_input(format!("at {at}: expected a time later than the host's, which is {now}, by less than 290 years"))
    })
}

/// Returns the clocks now, or as they will be at `at`.
fn reading(clock: &Clock, at: Option<RealInstant>) -> Reading {
    at.map_or_else(|| clock.reading(), |at| clock.reading_at(at))
}

/// Whether process `pid` has ended or is on a clock, by now or within a second: it may be executing a program under its monitor.
fn leaves_real_time(pid: u32) -> bool {
    const TIMEOUT: Duration = Duration::from_secs(1);
    const POLL_INTERVAL: Duration = Duration::from_millis(1);
    let begun = HostMoment::now();
    while !processes::has_left_real_time(pid) {
        if begun.elapsed() > TIMEOUT {
            return false;
        }
        host_time::sleep(POLL_INTERVAL);
    }
    true
}

/// Gives an attached container a control group, so that its tasks can be stopped.
fn give_group(container: &mut container::Container, pids: &[serde_json::Value]) -> Result<()> {
    if let Some(cgroup) = container.make_cgroup(CgroupPlace::Own)? {
        for pid in pids.iter().filter_map(|pid| u32::try_from(pid.as_u64()?).ok()) {
            // A process that has ended needs no control group.
            let _ = cgroup.add(pid);
        }
    }
    Ok(())
}
