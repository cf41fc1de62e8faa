//! Phases of an experiment and the requests that each allows: the orders of TimeKeeper's figures 3.1 and 3.2.
//!
//! ```text
//! setting up --synchronize--> synchronized --start--> running <--pause, start--> paused
//!                                  |
//!                                  '------interval, progress, reset--> stepping
//! ```
//!
//! `stop` ends the run in any phase: the containers go on by themselves, and a new run may be set up. An experiment either runs by
//! itself (concurrent best effort) or as a simulator says (concurrent synchronisation), never both. No container has a timeline in
//! the former; each has one in the latter.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Phase of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Containers join. Each runs by itself, at its own rate.
    SettingUp,
    /// All containers stand at one virtual time.
    Synchronized,
    /// Rounds follow each other.
    Running,
    /// No further round begins.
    Paused,
    /// A simulator says how far each container goes.
    Stepping,
}

/// A request that changes the phase or depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// Bring all containers to one virtual time.
    Synchronize,
    /// Start the rounds.
    Start,
    /// No further round until the next start.
    Pause,
    /// Set the interval of a container.
    Interval,
    /// Move a timeline by its intervals.
    Progress,
    /// Move containers by times of their own.
    Step,
    /// Clear the intervals of a timeline.
    Reset,
    /// End the run.
    Stop,
}

/// How the containers of an experiment advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceMode {
    /// The experiment has no containers.
    Empty,
    /// No container has a timeline.
    ByItself,
    /// Each container has a timeline.
    Stepwise,
    /// Some containers have a timeline, others have none.
    Mixed,
}

/// A request that the present phase does not allow. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PhaseError {
    /// The experiment is not synchronized yet.
    #[error("{0}: the experiment is not synchronized yet; 'synchronize' comes first")]
    NotSynchronized(&'static str),
    /// The experiment is synchronized already.
    #[error("{0}: the experiment is synchronized already; 'stop' ends it")]
    Synchronized(&'static str),
    /// The experiment has no containers.
    #[error("{0}: the experiment has no containers; 'add' comes first")]
    Empty(&'static str),
    /// Some containers have a timeline and others have none.
    #[error("{0}: some containers have a timeline and some have not; give one to all, or to none")]
    Mixed(&'static str),
    /// The experiment runs by itself.
    #[error("{0}: these containers have no timeline: the experiment runs by itself, by 'start'")]
    RunsByItself(&'static str),
    /// A simulator moves the experiment.
    #[error("{0}: these containers have timelines: the experiment is moved by 'interval' and 'progress'")]
    Stepwise(&'static str),
    /// The experiment does not run.
    #[error("{0}: the experiment does not run; 'start' comes first")]
    NotRunning(&'static str),
    /// The experiment runs already.
    #[error("{0}: the experiment runs already")]
    Running(&'static str),
}

impl Transition {
    /// Returns the name that every interface uses.
    pub fn name(self) -> &'static str {
        match self {
            Transition::Synchronize => "synchronize",
            Transition::Start => "start",
            Transition::Pause => "pause",
            Transition::Interval => "interval",
            Transition::Progress => "progress",
            Transition::Step => "step",
            Transition::Reset => "reset",
            Transition::Stop => "stop",
        }
    }
}

impl Phase {
    /// Returns the name that every interface uses.
    pub fn name(self) -> &'static str {
        match self {
            Phase::SettingUp => "setting-up",
            Phase::Synchronized => "synchronized",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Stepping => "stepping",
        }
    }

    /// Checks whether a container may join that has a timeline, or that has none.
    ///
    /// # Errors
    ///
    /// [`PhaseError`] if the others are synchronized and advance in the other mode.
    pub fn check_joining(self, has_timeline: bool, mode: AdvanceMode) -> Result<(), PhaseError> {
        match (self, mode) {
            (Phase::Running | Phase::Paused, _) | (Phase::Synchronized, AdvanceMode::ByItself)
                if has_timeline =>
            {
                Err(PhaseError::RunsByItself("add with a timeline"))
            }
            (Phase::Stepping, _) | (Phase::Synchronized, AdvanceMode::Stepwise)
                if !has_timeline =>
            {
                Err(PhaseError::Stepwise("add without a timeline"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the phase after `transition`.
    ///
    /// # Errors
    ///
    /// [`PhaseError`] if this phase does not allow `transition`.
    pub fn after(self, transition: Transition, mode: AdvanceMode) -> Result<Phase, PhaseError> {
        let name = transition.name();
        match transition {
            Transition::Stop => return Ok(Phase::SettingUp),
            Transition::Synchronize => {
                return match (self, mode) {
                    (Phase::SettingUp, AdvanceMode::Empty) => Err(PhaseError::Empty(name)),
                    (Phase::SettingUp, AdvanceMode::Mixed) => Err(PhaseError::Mixed(name)),
                    (Phase::SettingUp, _) => Ok(Phase::Synchronized),
                    _ => Err(PhaseError::Synchronized(name)),
                }
            }
            _ if self == Phase::SettingUp => return Err(PhaseError::NotSynchronized(name)),
            _ => (),
        }
        match (transition, mode, self) {
            (_, AdvanceMode::Mixed, _) => Err(PhaseError::Mixed(name)),
            (Transition::Start | Transition::Pause, AdvanceMode::Stepwise, _) => {
                Err(PhaseError::Stepwise(name))
            }
            (Transition::Start, _, Phase::Running) => Err(PhaseError::Running(name)),
            (Transition::Start, ..) => Ok(Phase::Running),
            (Transition::Pause, _, Phase::Running | Phase::Paused) => Ok(Phase::Paused),
            (Transition::Pause, ..) => Err(PhaseError::NotRunning(name)),
            (_, AdvanceMode::ByItself | AdvanceMode::Empty, _) => {
                Err(PhaseError::RunsByItself(name))
            }
            _ => Ok(Phase::Stepping),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AdvanceMode::{ByItself, Empty, Mixed, Stepwise};
    use Phase::{Paused, Running, SettingUp, Stepping, Synchronized};

    #[test]
    fn figure_3_1_runs_by_itself() {
        let mut phase = SettingUp;
        for (transition, next) in [
            (Transition::Synchronize, Synchronized),
            (Transition::Start, Running),
            (Transition::Pause, Paused),
            (Transition::Pause, Paused),
            (Transition::Start, Running),
            (Transition::Stop, SettingUp),
        ] {
            phase = phase.after(transition, ByItself).unwrap();
            assert_eq!(phase, next);
        }
    }

    #[test]
    fn figure_3_2_is_moved_by_a_simulator() {
        let mut phase = SettingUp;
        for (transition, next) in [
            (Transition::Synchronize, Synchronized),
            (Transition::Interval, Stepping),
            (Transition::Progress, Stepping),
            (Transition::Step, Stepping),
            (Transition::Reset, Stepping),
            (Transition::Stop, SettingUp),
        ] {
            phase = phase.after(transition, Stepwise).unwrap();
            assert_eq!(phase, next);
        }
    }

    #[test]
    fn who_joins_is_moved_as_the_others_are() {
        for (phase, mode) in [(Running, ByItself), (Paused, Empty), (Synchronized, ByItself)] {
            assert!(
                phase.check_joining(true, mode).is_err()
                    && phase.check_joining(false, mode).is_ok()
            );
        }
        for (phase, mode) in [(Stepping, Stepwise), (Synchronized, Stepwise)] {
            assert!(
                phase.check_joining(false, mode).is_err()
                    && phase.check_joining(true, mode).is_ok()
            );
        }
        assert!(SettingUp.check_joining(true, ByItself).is_ok());
    }

    #[test]
    fn the_wrong_order_is_an_error_that_says_what_comes_first() {
        for (phase, transition, mode, word) in [
            (SettingUp, Transition::Progress, Stepwise, "not synchronized yet"),
            (SettingUp, Transition::Start, ByItself, "not synchronized yet"),
            (SettingUp, Transition::Synchronize, Empty, "no containers"),
            (SettingUp, Transition::Synchronize, Mixed, "give one to all"),
            (Synchronized, Transition::Synchronize, ByItself, "synchronized already"),
            (Synchronized, Transition::Start, Stepwise, "have timelines"),
            (Running, Transition::Interval, ByItself, "no timeline"),
            (Running, Transition::Start, ByItself, "runs already"),
            (Synchronized, Transition::Pause, ByItself, "does not run"),
            (Stepping, Transition::Pause, Stepwise, "have timelines"),
            (Stepping, Transition::Start, Mixed, "give one to all"),
        ] {
            let error = phase.after(transition, mode).unwrap_err().to_string();
            assert!(error.starts_with(transition.name()) && error.contains(word), "{error}");
        }
    }
}
