//! Requests for the clock of a container that an experiment moves: the experiment carries them out, where the clock stands.
//!
//! They are requests of the experiment's protocol, by its socket. Programs of the container make them by way of its monitor, which
//! is below experiments.

use std::io;

use anyhow::Context;
use lorentz_clock::Span;
use lorentz_control::discipline::ClockErrorChange;
use lorentz_syscalls::{Errno, Timex};
use serde::{Deserialize, Serialize};

use crate::{Connection, Container, ServiceDir};

/// A request for a container's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ClockRequest {
    /// adjtimex(2), by a program of the container.
    Adjust {
        /// The container's name.
        container: String,
        /// The struct timex.
        timex: Vec<u8>,
        /// Whether the program may set clocks.
        may_set: bool,
    },
    /// A change of the clock's error.
    ChangeError {
        /// The container's name.
        container: String,
        /// The change.
        change: ClockErrorChange,
    },
}

/// Answer to a [`ClockRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockAnswer {
    /// The result of adjtimex(2).
    Adjusted {
        /// The state of the clock; the number of an error below zero.
        result: i64,
        /// The struct timex.
        timex: Vec<u8>,
    },
    /// The error has been changed.
    Changed,
    /// The change is not possible.
    NotChanged {
        /// The accepted values.
        why: String,
    },
}

impl Container {
    /// Has the experiment that moves this container's clock carry out a request for it.
    ///
    /// # Errors
    ///
    /// If no experiment moves the clock, or the experiment does not answer.
    fn ask_experiment(&self, request: &ClockRequest) -> anyhow::Result<ClockAnswer> {
        let experiment = self.experiment()?.context("no experiment moves the clock")?;
        let directory = ServiceDir::of_experiment(self.state(), &experiment);
        let connection = directory.map(|directory| Connection::open(&directory)).transpose()?;
        let mut connection = connection.flatten().context("its experiment has ended")?;
        Ok(connection.ask(request)?)
    }

    /// Changes the error of this container's clock: by the experiment that moves it, if there is one.
    ///
    /// # Errors
    ///
    /// As [`lorentz_control::Clock::change_error`].
    pub fn change_clock_error(&self, change: ClockErrorChange) -> anyhow::Result<()> {
        if self.experiment()?.is_none() {
            self.clock_to_change()?.change_error(change)?;
            return Ok(());
        }
        self.have_error_changed(change)
    }

    /// Steps this container's wall clock: by the experiment that moves the clock, if there is one.
    ///
    /// # Errors
    ///
    /// As [`lorentz_control::Clock::step`].
    pub(crate) fn step_wall(&self, by: Span) -> anyhow::Result<()> {
        if self.experiment()?.is_none() {
            self.clock_to_change()?.step(by)?;
            return Ok(());
        }
        self.have_error_changed(ClockErrorChange::Bump(by, None))
    }

    fn have_error_changed(&self, change: ClockErrorChange) -> anyhow::Result<()> {
        let container = self.name().to_string();
        match self.ask_experiment(&ClockRequest::ChangeError { container, change })? {
            ClockAnswer::NotChanged { why } => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, why).into())
            }
            _ => Ok(()),
        }
    }

    /// Carries adjtimex(2) out for a program of the container, as [`lorentz_control::Clock::adjust`] does: by the experiment that moves
    /// the clock, if there is one. `None` if the clock is that of several containers, or their experiment does not answer.
    pub(crate) fn adjust_clock(
        &self,
        timex: &mut Timex,
        may_set: bool,
    ) -> Option<Result<i64, Errno>> {
        if self.experiment().ok()?.is_none() {
            return Some(self.clock_to_change().ok()?.adjust(timex, may_set));
        }
        let (container, bytes) = (self.name().to_string(), timex.to_bytes().to_vec());
        let request = ClockRequest::Adjust { container, timex: bytes, may_set };
        let Ok(ClockAnswer::Adjusted { result, timex: answer }) = self.ask_experiment(&request)
        else {
            return None;
        };
        *timex = Timex::from_bytes(answer.try_into().ok()?);
        Some(Errno::check(result as isize).map(|state| state as i64))
    }
}
