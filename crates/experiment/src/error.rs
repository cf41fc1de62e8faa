//! Errors of experiments. Each is one line of text.

use lorentz_clock::Span;
use thiserror::Error;

/// A request that cannot be carried out. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExperimentRefusal {
    /// The container is not in the experiment.
    #[error("{0}: not in this experiment; 'lorentz experiment status' shows who is")]
    NotIn(String),
    /// The container is in the experiment already.
    #[error("{0}: is in this experiment already")]
    AlreadyIn(String),
    /// The experiment has as many containers as it has room for.
    #[error("the experiment has room for {0} containers; 'create --most N' makes one with more")]
    Full(u32),
    /// The TDF is out of range: numerator, denominator.
    #[error("TDF {0}/{1}: expected a number above 0, from 1/1000000 to 1000000")]
    Tdf(u64, u64),
    /// The interval is not above 0.
    #[error("interval {0}: expected a duration above 0")]
    Interval(Span),
    /// No container follows the timeline.
    #[error("timeline {0}: no container follows it")]
    NoTimeline(u32),
    /// The container follows another timeline.
    #[error("{0}: does not follow timeline {1}")]
    OtherTimeline(String, u32),
    /// A container is named twice in one request.
    #[error("{0}: is named twice")]
    NamedTwice(String),
    /// Another request is moving the container.
    #[error("{0}: is under way by another progress or step")]
    Moving(String),
    /// Another request is moving the timeline.
    #[error("timeline {0}: a progress of it is under way")]
    UnderWay(u32),
    /// An experiment of that name exists.
    #[error("{0}: there is an experiment of this name; 'lorentz experiment rm {0}' ends it")]
    NameInUse(String),
    /// No experiment of that name exists.
    #[error("{0}: no such experiment; 'lorentz experiment status' shows which there are")]
    Unknown(String),
    /// The text cannot be an experiment's name.
    #[error("{0:?}: not an experiment's name; expected up to 128 letters, digits, '.', '_' and '-', the first a letter or digit")]
    WrongName(String),
    /// The experiment's process has ended.
    #[error("{0}: its process has ended; 'lorentz experiment rm {0}' lets its containers go on")]
    Dead(String),
    /// The timeslice is out of range.
    #[error("--timeslice {0}: expected a duration from 1us to 1m")]
    Timeslice(Span),
    /// This process may not use the processor. The text lists those it may use.
    #[error("--cpus {0}: this process may not use that processor; expected some of {1}")]
    NoCpu(usize, String),
    /// A container asks for no processor, or for more than the experiment has. The text lists those.
    #[error("--parallel {0}: expected a number from 1 to {1}, for the experiment has the processors {2}")]
    Parallel(u32, usize, String),
    /// The number of containers is out of range.
    #[error("--most {0}: expected a number from 1 to 1000000")]
    MaxContainers(u32),
}

/// The experiment's process ended while a caller waited for its answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the experiment {0} has ended; 'lorentz experiment rm {0}' lets its containers go on")]
pub struct Ended(pub String);

/// A request that the experiment refused. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{why}")]
pub struct Refused {
    /// The reason, in one line.
    pub why: String,
    /// The client's mistake if true, the machine's if false.
    pub wrong_input: bool,
}
