//! The interface of the estimators: each asks for streams, step by step, and ends with a finding.

use crate::path::{Limits, Stream, StreamPlan};
use crate::rate::BitRate;
use serde::Serialize;

/// Whether a number is the available bandwidth, or only a bound of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The number is the available bandwidth.
    Value,
    /// The available bandwidth is at least this: the sender could not send at a higher rate.
    AtLeast,
    /// The available bandwidth is at most this: no lower rate is probed, or no stream at a lower rate came through.
    AtMost,
    /// The measurement gives no number: the streams contradict each other, or too little of them arrived.
    Unknown,
}

/// The result of an estimator.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The available bandwidth.
    pub available: BitRate,
    /// Lower end of the 95 % confidence interval; for `slops`, of the range within which the available bandwidth varied.
    pub low: BitRate,
    /// Upper end, as `low`.
    pub high: BitRate,
    /// How to read `available`.
    pub bound: Bound,
}

impl Finding {
    /// Makes a finding with a value and its interval, in bits per second.
    pub(crate) fn value(available: f64, low: f64, high: f64) -> Finding {
        let [available, low, high] = [available, low, high].map(BitRate::from_f64);
        Finding {
            available,
            low: low.min(available),
            high: high.max(available),
            bound: Bound::Value,
        }
    }

    /// Makes a finding with only a bound, or with nothing. `rate` is in bits per second.
    pub(crate) fn bound(bound: Bound, rate: f64, limits: &Limits) -> Finding {
        let available = BitRate::from_f64(rate);
        let (low, high) = match bound {
            Bound::AtLeast => (available, limits.rate_max),
            Bound::AtMost => (BitRate(0), available),
            Bound::Value | Bound::Unknown => (BitRate(0), limits.rate_max),
        };
        Finding { available, low: low.min(available), high: high.max(available), bound }
    }
}

/// The next step of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum EstimatorStep {
    /// Send this stream.
    Probe(StreamPlan),
    /// The measurement is complete.
    Done(Finding),
}

/// A method of estimation: a state machine that asks for streams. It uses neither sockets nor clocks.
pub trait Estimator {
    /// Returns the next step. `seen` is the stream that the estimator asked for before; `None` at the beginning.
    fn step(&mut self, seen: Option<&Stream>) -> EstimatorStep;

    /// Returns the range in which the result lies as far as is known, bits per second.
    fn range(&self) -> (f64, f64);
}
