//! A measurement: its method, its result, and the limitations that matter for reading it.

use crate::estimator::{Bound, Estimator, EstimatorStep, Finding};
use crate::path::{Limits, Path, PathError, Sending, Stream, SHORTFALL_RATIO};
use crate::rate::BitRate;
use crate::slops::Slops;
use crate::trains::Trains;
use crate::yaz::Yaz;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The estimation method.
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
    /// All methods.
    pub const ALL: [Method; 3] = [Method::Slops, Method::Trains, Method::Yaz];

    /// Makes an estimator of this method for a path of these limits.
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

/// A limitation of the path or the machines that matters for reading the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Caution {
    /// The sender could not send at the planned rate.
    RateNotReachable,
    /// The receiver's timestamps are too coarse for the intervals that were probed.
    ClockTooCoarse,
    /// Probes were lost.
    Loss,
    /// Probes arrived in another order than they were sent.
    Reordering,
    /// Probes came through the path, and the receiver's machine lost them because it was too busy.
    ReceiverOverrun,
    /// The sender was interrupted so often that only parts of streams could be used.
    Interrupted,
    /// The path delivered nothing for milliseconds, and then what had waited, so often that only parts of streams could be used.
    Stalled,
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
            Caution::Stalled => "the path delivered nothing at times",
        })
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// The method that was used.
    pub method: Method,
    /// The result.
    #[serde(flatten)]
    pub finding: Finding,
    /// Limitations that matter for reading the result.
    pub cautions: BTreeSet<Caution>,
    /// Number of streams sent.
    pub streams: u32,
    /// Number of probes sent.
    pub packets: u64,
    /// Number of probes lost.
    pub lost: u64,
    /// Number of lost probes that the receiver's machine lost.
    pub overrun: u64,
    /// Number of probes that arrived out of order.
    pub reordered: u64,
    /// Bytes sent in probes, IP headers included.
    pub bytes: u64,
    /// The highest rate that the sender actually reached.
    pub rate_reached: BitRate,
}

/// The progress of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EstimateProgress {
    /// Number of streams sent so far.
    pub streams: u32,
    /// Rate of the next stream, bits per second.
    pub rate: f64,
    /// Range in which the result lies, bits per second.
    pub range: (f64, f64),
}

/// Largest number of streams of a measurement. One that needs more has not converged.
const MAX_STREAMS: u32 = 2_000;

/// Measures `path` by `method`. Calls `progress` before each stream.
///
/// # Errors
///
/// A stream could not be sent, or its report could not be received.
pub fn measure(
    path: &mut dyn Path,
    method: Method,
    progress: &mut dyn FnMut(EstimateProgress),
) -> Result<Estimate, PathError> {
    let limits = path.limits();
    let mut estimator = method.estimator(limits);
    let mut tally = Tally::default();
    let mut seen: Option<Stream> = None;
    let finding = loop {
        match estimator.step(seen.as_ref()) {
            EstimatorStep::Done(finding) => break finding,
            EstimatorStep::Probe(_) if tally.streams >= MAX_STREAMS => {
                break Finding::bound(Bound::Unknown, 0.0, &limits);
            }
            EstimatorStep::Probe(plan) => {
                let (streams, range) = (tally.streams, estimator.range());
                progress(EstimateProgress { streams, rate: plan.rate(), range });
                let stream = path.probe(&plan)?;
                tally.add(&stream);
                seen = Some(stream);
            }
        }
    };
    Ok(tally.estimate(method, finding))
}

/// Counts over all streams of a measurement.
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
    stalled: u32,
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
        self.slow += u32::from(sent < SHORTFALL_RATIO * stream.plan.rate());
        self.coarse += u32::from(is_coarse(stream));
        let is_most = |part: usize| part * 10 >= stream.probes.len() * 9;
        let is_whole = is_most(stream.longest_len());
        self.broken += u32::from(!is_whole || stream.sending() == Sending::Interrupted);
        self.stalled += u32::from(!is_most(stream.probes.len() - stream.held_up()));
    }

    fn estimate(self, method: Method, finding: Finding) -> Estimate {
        let mut cautions = BTreeSet::new();
        let mut say = |caution, is_so: bool| {
            if is_so {
                cautions.insert(caution);
            }
        };
        // The back-to-back streams at the start always exceed what the sender can reach; others should not.
        say(Caution::RateNotReachable, self.slow > 1 + self.streams / 10);
        say(Caution::ClockTooCoarse, self.coarse > self.streams / 2);
        say(Caution::Loss, self.lost > self.overrun);
        say(Caution::ReceiverOverrun, self.overrun > 0);
        say(Caution::Reordering, self.reordered > 0);
        say(Caution::Interrupted, self.broken > self.streams / 4);
        say(Caution::Stalled, self.stalled > self.streams / 4);
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

/// Whether more than half of a stream's neighbouring probes have the same time of arrival. Then a clock or an interface delivers
/// packets in batches.
fn is_coarse(stream: &Stream) -> bool {
    let times: Vec<i64> = stream.probes.iter().filter_map(|probe| probe.received).collect();
    let same = times.windows(2).filter(|pair| pair[0] == pair[1]).count();
    same * 2 > times.len()
}
