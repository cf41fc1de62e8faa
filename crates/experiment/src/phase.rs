//! What may be asked of an experiment when: the orders of TimeKeeper's figures 3.1 and 3.2.
//!
//! ```text
//! setting up --synchronize--> synchronized --start--> running <--pause, start--> paused
//!                                  |
//!                                  '------interval, progress, reset--> stepping
//! ```
//!
//! `stop` ends it from anywhere: the containers go on by themselves, and a new one may be set up. An experiment runs either by
//! itself (concurrent best effort: its containers have no timeline) or as a simulator says (concurrent synchronisation: each
//! has one), never both.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How far an experiment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Containers are added; each runs by itself, at its own rate.
    SettingUp,
    /// All stand at one virtual time.
    Synchronized,
    /// Rounds follow one another.
    Running,
    /// No round is begun.
    Paused,
    /// A simulator says how far each may go.
    Stepping,
}

/// What is asked that changes the phase, or depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// All to one virtual time.
    Synchronize,
    /// Rounds, from here on.
    Start,
    /// No more rounds, until it is started again.
    Pause,
    /// How far a container is to go.
    Interval,
    /// To go there.
    Progress,
    /// To forget the intervals of a timeline.
    Reset,
    /// To end.
    Stop,
}

/// How the containers of an experiment were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// There are none.
    Empty,
    /// None has a timeline.
    ByItself,
    /// Each has one.
    Stepwise,
    /// Some have one.
    Mixed,
}

/// Asked at the wrong time; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WrongOrder {
    /// Something has to come first.
    #[error("{0}: the experiment is not synchronized yet; 'synchronize' comes first")]
    NotSynchronized(&'static str),
    /// It has been done.
    #[error("{0}: the experiment is synchronized already; 'stop' ends it")]
    Synchronized(&'static str),
    /// There is nobody to do it with.
    #[error("{0}: the experiment has no containers; 'add' comes first")]
    Empty(&'static str),
    /// Both manners at once.
    #[error("{0}: some containers have a timeline and some have not; give one to all, or to none")]
    Mixed(&'static str),
    /// It runs by itself.
    #[error("{0}: these containers have no timeline: the experiment runs by itself, by 'start'")]
    RunsByItself(&'static str),
    /// A simulator moves it.
    #[error("{0}: these containers have timelines: the experiment is moved by 'interval' and 'progress'")]
    Stepwise(&'static str),
    /// It does not run.
    #[error("{0}: the experiment does not run; 'start' comes first")]
    NotRunning(&'static str),
    /// It runs.
    #[error("{0}: the experiment runs already")]
    Running(&'static str),
}

impl Step {
    /// Its name, on every face.
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
    /// Its name, on every face.
    pub fn name(self) -> &'static str {
        match self {
            Phase::SettingUp => "setting-up",
            Phase::Synchronized => "synchronized",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Stepping => "stepping",
        }
    }

    /// Whether a container may join that has a timeline, or has none.
    ///
    /// # Errors
    ///
    /// Once the others stand together, one that is not moved as they are.
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

    /// The phase after `step`.
    ///
    /// # Errors
    ///
    /// Where this is not the time for it.
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
