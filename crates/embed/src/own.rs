//! The clock of the calling process itself, for a program that changes its own time.

use std::fs;
use std::process;
use std::sync::Mutex;

use lorentz_clock::{Rate, SkipMode, Span, WallTime};
use lorentz_container::{self as container, skip, StateDir};
use lorentz_control::{host_time, processes, Clock, ClockChange, Reading, Target};

use crate::command::LorentzCommand;
use crate::error::{Error, ErrorKind, Result};

/// The clock of the calling process. Changes of it concern every process on that clock. Several threads may use the value at once.
pub struct OwnClock {
    state: StateDir,
    container: container::Container,
    /// The clock, mapped once. After a fork the child may find the lock taken for ever: the thread that has it is the parent's.
    /// Therefore no thread waits for the lock ([`OwnClock::with_clock`]).
    clock: Mutex<Clock>,
}

impl OwnClock {
    /// Finds the container of the calling process; `None` in real time.
    ///
    /// # Errors
    ///
    /// The process is on a clock of another version of Lorentz, or its container is gone.
    pub fn find() -> Result<Option<OwnClock>> {
        if processes::clock_of(process::id()).is_none() {
            return Ok(None);
        }
        notice_clock()?;
        let state = StateDir::open()?;
        let container = state.of_process(process::id())?;
        OwnClock::of(state, container).map(Some)
    }

    fn of(state: StateDir, container: container::Container) -> Result<OwnClock> {
        let clock = Mutex::new(container.clock()?);
        Ok(OwnClock { state, container, clock })
    }

    /// Brings the calling process onto a new clock at rate 1. If `tree` is true, its descendants too. Other threads go on meanwhile,
    /// except for about a millisecond.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`]: the kernel does not allow the process to be traced. [`ErrorKind::Failed`]: one of the processes cannot
    /// be brought in.
    pub fn make(tree: bool) -> Result<OwnClock> {
        check_traceable()?;
        let state = StateDir::open()?;
        let name = state.unused_name();
        let attach = LorentzCommand::new("attach")?.flag("--name", Some(&name));
        let attached = attach.switch("--tree", tree).arg(process::id().to_string()).call();
        attached.map_err(|Error { kind, text }| {
            let refused = text.contains("not permitted") || text.contains("is traced by");
            Error::new(if refused { ErrorKind::Refused } else { kind }, text)
        })?;
        notice_clock()?;
        let container = state.container(&name)?;
        OwnClock::of(state, container)
    }

    /// Returns the container's name.
    pub fn name(&self) -> &str {
        self.container.name()
    }

    /// Returns the container's clocks and the host's, of one moment.
    ///
    /// # Errors
    ///
    /// The container is gone.
    pub fn reading(&self) -> Result<Reading> {
        self.with_clock(|clock| Ok(clock.reading()))
    }

    /// Changes the rate.
    ///
    /// # Errors
    ///
    /// An experiment moves the clock, the clock cannot be changed, or the container is gone.
    pub fn dilate(&self, rate: Rate) -> Result<()> {
        self.change("dilate", |_| Ok(ClockChange::Dilate(rate)))
    }

    /// Lets time stand while programs run. Time leaps over idle time where skipping is on. [`OwnClock::dilate`] ends it.
    ///
    /// # Errors
    ///
    /// As [`OwnClock::dilate`].
    pub fn stand(&self) -> Result<()> {
        self.dilate(Rate::STANDING)
    }

    /// Moves all clocks forward by `by`, 0 or more.
    ///
    /// # Errors
    ///
    /// As [`OwnClock::dilate`]; also if `by` is below 0, or too far.
    pub fn leap(&self, by: Span) -> Result<()> {
        self.change("leap", |reading| Ok(ClockChange::Leap(Target::By(by).leap(reading)?)))
    }

    /// Moves the wall clock alone by `by`, in either direction.
    ///
    /// # Errors
    ///
    /// As [`OwnClock::dilate`]; also for a target before 1970, or too far.
    pub fn step(&self, by: Span) -> Result<()> {
        self.change("step", |reading| Ok(ClockChange::Step(Target::By(by).step(reading)?)))
    }

    /// Sets the wall clock alone, in either direction.
    ///
    /// # Errors
    ///
    /// As [`OwnClock::step`].
    pub fn set_wall(&self, to: WallTime) -> Result<()> {
        self.change("step", |reading| Ok(ClockChange::Step(Target::To(to).step(reading)?)))
    }

    /// Sets whether time leaps over what all tasks only wait for. The container's monitor starts the process that makes the leaps.
    ///
    /// # Errors
    ///
    /// As [`OwnClock::dilate`].
    pub fn set_skipping(&self, mode: SkipMode) -> Result<()> {
        Ok(skip::set(&self.container, mode, None)?)
    }

    fn change(
        &self,
        verb: &str,
        change: impl FnOnce(&Reading) -> Result<ClockChange>,
    ) -> Result<()> {
        self.check_no_experiment()?;
        self.with_clock(|clock| {
            clock
                .change(change(&clock.reading())?, None)
                .map_err(|error| Error::failed(format!("{verb} {}: {error}", self.name())))
                .map(drop)
        })
    }

    /// Uses the mapped clock, or maps it again while another thread uses it.
    fn with_clock<T>(&self, act: impl FnOnce(&Clock) -> Result<T>) -> Result<T> {
        match self.clock.try_lock() {
            Ok(clock) => act(&clock),
            Err(_) => act(&self.container.clock()?),
        }
    }

    /// Refuses a change of a clock that an experiment moves. A clock of a time namespace alone cannot be here: the calling process
    /// has a shim.
    fn check_no_experiment(&self) -> Result<()> {
        match &self.state.container(self.name())?.record().experiment {
            None => Ok(()),
            Some(experiment) => Err(Error::new(
                ErrorKind::Refused,
                format!("{}: experiment {experiment} moves its clock", self.name()),
            )),
        }
    }
}

/// Makes this process read the host's clocks past the shim.
///
/// # Errors
///
/// [`ErrorKind::Refused`]: the shim is one of another version of Lorentz.
fn notice_clock() -> Result<()> {
    if !host_time::is_virtual() {
        host_time::look_again();
    }
    match host_time::is_virtual() {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Refused,
            "this process is on a clock of another version of Lorentz; expected one of this version",
        )),
    }
}

/// Checks that the kernel's module Yama lets a child trace the calling process, and the programs that the process starts later.
///
/// PR_SET_PTRACER would allow the first, not the second: the kernel does not pass the permission on to children. Their execs would
/// be refused.
fn check_traceable() -> Result<()> {
    const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";
    const CAP_SYS_PTRACE: u32 = 19;
    let scope = fs::read_to_string(SCOPE).map_or(0, |text| text.trim().parse().unwrap_or(0));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let may_trace = effective.is_some_and(|capabilities| capabilities >> CAP_SYS_PTRACE & 1 == 1);
    match scope {
        0 => Ok(()),
        1 | 2 if may_trace => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Refused,
            format!("kernel.yama.ptrace_scope is {scope}; expected 0, or root"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_real_time_has_no_clock() {
        assert!(OwnClock::find().unwrap().is_none());
    }
}
