//! What an estimator is, and what comes out of one.

use crate::path::{Limits, Path, PathError, Plan, Sending, Stream, FELL_SHORT};
use crate::rate::BitRate;
use crate::slops::Slops;
use crate::trains::Trains;
use crate::yaz::Yaz;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Which estimator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Self-loading periodic streams: [`crate::slops`].
    Slops,
    /// Probe trains of adaptive size: [`crate::trains`].
    Trains,
    /// Calibrated rate probing: [`crate::yaz`].
    Yaz,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 3] = [Method::Slops, Method::Trains, Method::Yaz];

    /// An estimator of this kind for a path of these limits.
    pub fn estimator(self, limits: Limits) -> Box<dyn Estimator> {
        match self {
            Method::Slops => Box::new(Slops::new(limits)),
            Method::Trains => Box::new(Trains::new(limits)),
            Method::Yaz => Box::new(Yaz::new(limits)),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Method::Slops => "slops",
            Method::Trains => "trains",
            Method::Yaz => "yaz",
        })
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let known = Method::ALL.into_iter().find(|method| method.to_string() == text);
        known.ok_or_else(|| "expected slops, trains or yaz".to_string())
    }
}

/// Whether a number is the available bandwidth, or only a bound of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It is it.
    Value,
    /// There is more: no higher rate could be sent.
    AtLeast,
    /// There is less: no lower rate is probed, or none got through.
    AtMost,
    /// Nothing can be said: the streams contradict each other, or too little of them arrived.
    Unknown,
}

/// What an estimator has found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The available bandwidth.
    pub available: BitRate,
    /// The ends of the 95 % confidence interval; for `slops` the range within which the bandwidth varied.
    pub low: BitRate,
    /// See `low`.
    pub high: BitRate,
    /// What the number is.
    pub bound: Bound,
}

impl Finding {
    /// A value between these, in bits per second.
    pub(crate) fn value(available: f64, low: f64, high: f64) -> Finding {
        let [available, low, high] = [available, low, high].map(BitRate::from_f64);
        Finding {
            available,
            low: low.min(available),
            high: high.max(available),
            bound: Bound::Value,
        }
    }

    /// Only a bound, or nothing.
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

/// What comes next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// This stream is to be sent.
    Probe(Plan),
    /// That is all.
    Done(Finding),
}

/// A method of estimation: a state machine that asks for streams. It knows nothing of sockets and clocks.
pub trait Estimator {
    /// What to do next, `seen` being the stream that was asked for before; `None` at the beginning.
    fn step(&mut self, seen: Option<&Stream>) -> Step;

    /// The range in which the result lies as far as is known, bits per second.
    fn range(&self) -> (f64, f64);
}

/// Something that the path or the machines cannot give, and that a reader of the result should know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Caution {
    /// The sender could not send as fast as was wanted.
    RateNotReachable,
    /// Times of arrival are too coarse for the intervals that were probed.
    ClockTooCoarse,
    /// Probes were lost.
    Loss,
    /// Probes arrived in another order.
    Reordering,
    /// Probes came through and were lost by the receiver's machine, which was too busy to take them.
    ReceiverOverrun,
    /// The sender was interrupted so often that only parts of streams could be used.
    Interrupted,
}

impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Caution::RateNotReachable => "the probe rate that was wanted could not be reached here",
            Caution::ClockTooCoarse => "times of arrival are too coarse for the intervals probed",
            Caution::Loss => "probes were lost",
            Caution::Reordering => "probes arrived out of order",
            Caution::ReceiverOverrun => "the receiving machine was too busy to take all probes",
            Caution::Interrupted => "the sender was interrupted often",
        })
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// How it was found.
    pub method: Method,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What it is to be read with.
    pub cautions: BTreeSet<Caution>,
    /// Streams sent.
    pub streams: u32,
    /// Probes sent.
    pub packets: u64,
    /// Probes lost.
    pub lost: u64,
    /// Of these the ones that the receiver's machine lost.
    pub overrun: u64,
    /// Probes that arrived out of order.
    pub reordered: u64,
    /// Bytes sent in probes.
    pub bytes: u64,
    /// The highest rate that was really sent, bits per second.
    pub rate_reached: BitRate,
}

/// How far a measurement has come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Streams sent so far.
    pub streams: u32,
    /// The stream that comes next, bits per second.
    pub rate: f64,
    /// The range in which the result lies, bits per second.
    pub range: (f64, f64),
}

/// A measurement with more streams than this has not converged.
const MOST_STREAMS: u32 = 2_000;

/// Measures `path` by `method`, and tells `progress` before each stream.
pub fn measure(
    path: &mut dyn Path,
    method: Method,
    progress: &mut dyn FnMut(Progress),
) -> Result<Estimate, PathError> {
    let limits = path.limits();
    let mut estimator = method.estimator(limits);
    let mut tally = Tally::default();
    let mut seen: Option<Stream> = None;
    let finding = loop {
        match estimator.step(seen.as_ref()) {
            Step::Done(finding) => break finding,
            Step::Probe(_) if tally.streams >= MOST_STREAMS => {
                break Finding::bound(Bound::Unknown, 0.0, &limits);
            }
            Step::Probe(plan) => {
                let (streams, range) = (tally.streams, estimator.range());
                progress(Progress { streams, rate: plan.rate(), range });
                let stream = path.probe(&plan)?;
                tally.add(&stream);
                seen = Some(stream);
            }
        }
    };
    Ok(tally.estimate(method, finding))
}

/// What all streams of a measurement were like.
#[derive(Default)]
struct Tally {
    streams: u32,
    packets: u64,
    lost: u64,
    overrun: u64,
    reordered: u64,
    bytes: u64,
    fastest: f64,
    slow: u32,
    coarse: u32,
    broken: u32,
}

impl Tally {
    fn add(&mut self, stream: &Stream) {
        let packets = stream.probes.len() as u64;
        self.streams += 1;
        self.packets += packets;
        self.lost += stream.lost() as u64;
        self.overrun += u64::from(stream.overrun);
        self.reordered += u64::from(stream.reordered);
        self.bytes += packets * u64::from(stream.plan.bytes);
        let sent = stream.rate_sent();
        self.fastest = self.fastest.max(sent);
        self.slow += u32::from(sent < FELL_SHORT * stream.plan.rate());
        self.coarse += u32::from(is_coarse(stream));
        let whole = stream.longest_stretch().times.len() + stream.lost();
        let broke = whole * 10 < stream.probes.len() * 9;
        self.broken += u32::from(broke || stream.sending() == Sending::Interrupted);
    }

    fn estimate(self, method: Method, finding: Finding) -> Estimate {
        let mut cautions = BTreeSet::new();
        let mut say = |caution, is_so: bool| {
            if is_so {
                cautions.insert(caution);
            }
        };
        // Back-to-back streams at the start always ask for more than there is; others should not.
        say(Caution::RateNotReachable, self.slow > 1 + self.streams / 10);
        say(Caution::ClockTooCoarse, self.coarse > self.streams / 2);
        say(Caution::Loss, self.lost > self.overrun);
        say(Caution::ReceiverOverrun, self.overrun > 0);
        say(Caution::Reordering, self.reordered > 0);
        say(Caution::Interrupted, self.broken > self.streams / 4);
        Estimate {
            method,
            finding,
            cautions,
            streams: self.streams,
            packets: self.packets,
            lost: self.lost,
            overrun: self.overrun,
            reordered: self.reordered,
            bytes: self.bytes,
            rate_reached: BitRate::from_f64(self.fastest),
        }
    }
}

/// Whether more than half of a stream's neighbours have the same time of arrival: a clock, or an interface, that
/// delivers packets in batches.
fn is_coarse(stream: &Stream) -> bool {
    let times: Vec<i64> = stream.probes.iter().filter_map(|probe| probe.received).collect();
    let same = times.windows(2).filter(|pair| pair[0] == pair[1]).count();
    same * 2 > times.len()
}
