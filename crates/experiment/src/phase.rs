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
pub enum Step {
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
    /// Clear the intervals of a timeline.
    Reset,
    /// End the run.
    Stop,
}

/// How the containers of an experiment advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
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
pub enum WrongOrder {
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

impl Step {
    /// Returns the name that every interface uses.
    pub fn name(self) -> &'static str {
        match self {
            Step::Synchronize => "synchronize",
            Step::Start => "start",
            Step::Pause => "pause",
            Step::Interval => "interval",
            Step::Progress => "progress",
            Step::Reset => "reset",
            Step::Stop => "stop",
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
    /// [`WrongOrder`] if the others are synchronized and advance in the other manner.
    pub fn joined_by(self, has_timeline: bool, manner: Manner) -> Result<(), WrongOrder> {
        match (self, manner) {
            (Phase::Running | Phase::Paused, _) | (Phase::Synchronized, Manner::ByItself)
                if has_timeline =>
            {
                Err(WrongOrder::RunsByItself("add with a timeline"))
            }
            (Phase::Stepping, _) | (Phase::Synchronized, Manner::Stepwise) if !has_timeline => {
                Err(WrongOrder::Stepwise("add without a timeline"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the phase after `step`.
    ///
    /// # Errors
    ///
    /// [`WrongOrder`] if this phase does not allow `step`.
    pub fn after(self, step: Step, manner: Manner) -> Result<Phase, WrongOrder> {
        let name = step.name();
        match step {
            Step::Stop => return Ok(Phase::SettingUp),
            Step::Synchronize => {
                return match (self, manner) {
                    (Phase::SettingUp, Manner::Empty) => Err(WrongOrder::Empty(name)),
                    (Phase::SettingUp, Manner::Mixed) => Err(WrongOrder::Mixed(name)),
                    (Phase::SettingUp, _) => Ok(Phase::Synchronized),
                    _ => Err(WrongOrder::Synchronized(name)),
                }
            }
            _ if self == Phase::SettingUp => return Err(WrongOrder::NotSynchronized(name)),
            _ => (),
        }
        match (step, manner, self) {
            (_, Manner::Mixed, _) => Err(WrongOrder::Mixed(name)),
            (Step::Start | Step::Pause, Manner::Stepwise, _) => Err(WrongOrder::Stepwise(name)),
            (Step::Start, _, Phase::Running) => Err(WrongOrder::Running(name)),
            (Step::Start, ..) => Ok(Phase::Running),
            (Step::Pause, _, Phase::Running | Phase::Paused) => Ok(Phase::Paused),
            (Step::Pause, ..) => Err(WrongOrder::NotRunning(name)),
            (_, Manner::ByItself | Manner::Empty, _) => Err(WrongOrder::RunsByItself(name)),
            _ => Ok(Phase::Stepping),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Manner::{ByItself, Empty, Mixed, Stepwise};
    use Phase::{Paused, Running, SettingUp, Stepping, Synchronized};

    #[test]
    fn figure_3_1_runs_by_itself() {
        let mut phase = SettingUp;
        for (step, next) in [
            (Step::Synchronize, Synchronized),
            (Step::Start, Running),
            (Step::Pause, Paused),
            (Step::Pause, Paused),
            (Step::Start, Running),
            (Step::Stop, SettingUp),
        ] {
            phase = phase.after(step, ByItself).unwrap();
            assert_eq!(phase, next);
        }
    }

    #[test]
    fn figure_3_2_is_moved_by_a_simulator() {
        let mut phase = SettingUp;
        for (step, next) in [
            (Step::Synchronize, Synchronized),
            (Step::Interval, Stepping),
            (Step::Progress, Stepping),
            (Step::Reset, Stepping),
            (Step::Stop, SettingUp),
        ] {
            phase = phase.after(step, Stepwise).unwrap();
            assert_eq!(phase, next);
        }
    }

    #[test]
    fn who_joins_is_moved_as_the_others_are() {
        for (phase, manner) in [(Running, ByItself), (Paused, Empty), (Synchronized, ByItself)] {
            assert!(
                phase.joined_by(true, manner).is_err() && phase.joined_by(false, manner).is_ok()
            );
        }
        for (phase, manner) in [(Stepping, Stepwise), (Synchronized, Stepwise)] {
            assert!(
                phase.joined_by(false, manner).is_err() && phase.joined_by(true, manner).is_ok()
            );
        }
        assert!(SettingUp.joined_by(true, ByItself).is_ok());
    }

    #[test]
    fn the_wrong_order_is_an_error_that_says_what_comes_first() {
        for (phase, step, manner, word) in [
            (SettingUp, Step::Progress, Stepwise, "not synchronized yet"),
            (SettingUp, Step::Start, ByItself, "not synchronized yet"),
            (SettingUp, Step::Synchronize, Empty, "no containers"),
            (SettingUp, Step::Synchronize, Mixed, "give one to all"),
            (Synchronized, Step::Synchronize, ByItself, "synchronized already"),
            (Synchronized, Step::Start, Stepwise, "have timelines"),
            (Running, Step::Interval, ByItself, "no timeline"),
            (Running, Step::Start, ByItself, "runs already"),
            (Synchronized, Step::Pause, ByItself, "does not run"),
            (Stepping, Step::Pause, Stepwise, "have timelines"),
            (Stepping, Step::Start, Mixed, "give one to all"),
        ] {
            let error = phase.after(step, manner).unwrap_err().to_string();
            assert!(error.starts_with(step.name()) && error.contains(word), "{error}");
        }
    }
}
