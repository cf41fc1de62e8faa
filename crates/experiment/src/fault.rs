//! What an experiment refuses, one line each.

use lorentz_clock::Span;
use thiserror::Error;

/// Something was asked of an experiment that cannot be; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// It is no part of it.
    #[error("{0}: not in this experiment; 'lorentz experiment status' shows who is")]
    NotIn(String),
    /// It is part of it already.
    #[error("{0}: is in this experiment already")]
    Twice(String),
    /// No room.
    #[error("the experiment has room for {0} containers; 'create --most N' makes one with more")]
    Full(u32),
    /// Not a TDF.
    #[error("TDF {0}/{1}: expected a number above 0, from 1/1000000 to 1000000")]
    Tdf(u64, u64),
    /// Not an interval.
    #[error("interval {0}: expected a duration above 0")]
    Interval(Span),
    /// Nobody follows it.
    #[error("timeline {0}: no container follows it")]
    NoTimeline(u32),
    /// It follows another.
    #[error("{0}: does not follow timeline {1}")]
    OtherTimeline(String, u32),
    /// It is being moved.
    #[error("timeline {0}: a progress of it is under way")]
    UnderWay(u32),
    /// There is an experiment of that name.
    #[error("{0}: there is an experiment of this name; 'lorentz experiment rm {0}' ends it")]
    NameInUse(String),
    /// There is none of that name.
    #[error("{0}: no such experiment; 'lorentz experiment status' shows which there are")]
    Unknown(String),
    /// Not a name.
    #[error("{0:?}: not an experiment's name; expected up to 128 letters, digits, '.', '_' and '-', the first a letter or digit")]
    WrongName(String),
    /// Its process is gone.
    #[error("{0}: its process has ended; 'lorentz experiment rm {0}' lets its containers go on")]
    Dead(String),
    /// Not a timeslice.
    #[error("--timeslice {0}: expected a duration from 1us to 1m")]
    Timeslice(Span),
    /// A processor that is not there.
    #[error("--cpus {0}: this process may not use that processor; expected some of {1}")]
    NoCpu(usize, String),
    /// No room at all.
    #[error("--most {0}: expected a number from 1 to 1000000")]
    Most(u32),
}

/// The experiment's process ended while a caller waited for its answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the experiment {0} has ended; 'lorentz experiment rm {0}' lets its containers go on")]
pub struct Ended(pub String);
