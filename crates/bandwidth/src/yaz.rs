//! Calibrated rate probing, as Yaz does it.
//!
//! Sommers, Barford and Willinger, *A proposed framework for calibration of available bandwidth estimation tools*, ISCC 2006, and
//! the tool yaz. The sender sends streams at one interval. If the probes arrive further apart than they were sent, by more than
//! the resolution, the path is congested. The next interval is then longer by half the difference:
//!
//! ```text
//!     next = in + |out - in| / 2,  until out - in <= resolution;  available = 8 L / in
//! ```
//!
//! The method differs from the tool in these points:
//!
//! - Times are in nanoseconds throughout, not in whole microseconds.
//! - Each decision uses several streams, of 200 packets and not of 50: while a shorter one is sent, the queue still fills even if
//!   its rate is available.
//! - A difference must also exceed its own standard error.
//! - The resolution is a share of the rate. The tool's 500 kbit/s are a tenth or more of an available bandwidth of 5 Mbit/s or
//!   less.
//! - Compression does not count as congestion.
//! - The method begins at the highest rate asked for, not at 300 Mbit/s.
//! - A stream that the sender's interruptions slowed is sent again. Its rate is not that of the other streams: it may be below
//!   the available bandwidth while theirs is above.

use crate::estimator::{Bound, Estimator, EstimatorStep, Finding};
use crate::path::{Limits, Sending, Stream, StreamPlan};
use crate::rate::BitRate;
use crate::statistics::{confidence, median};

/// Number of packets in a stream, and number of streams for each decision.
const STREAM_LENGTH: u32 = 200;
const STREAMS_PER_DECISION: usize = 6;
/// Rest before a stream, in lengths of the stream.
const REST_LENGTHS: u64 = 1;
/// The resolution, as a share of the rate.
const RESOLUTION: f64 = 0.01;
/// Number of estimates for a result.
const ESTIMATES_PER_RESULT: usize = 3;
/// The longest interval, ns, and the length of the shortest packet, bytes. Below the rate of both the method gives up.
const MAX_INTERVAL: f64 = 1_000_000.0;
const MIN_BYTES: u32 = 228;
/// Largest number of decisions in one estimate. Then, the largest number of streams that were lost, or that the sender's
/// interruptions spoilt: in a row, and in all.
const MAX_DECISIONS: u32 = 60;
const MAX_BROKEN_IN_A_ROW: u32 = 12;
const MAX_BROKEN: u32 = 250;

/// The estimator of this method.
#[derive(Debug)]
pub struct Yaz {
    limits: Limits,
    /// Interval, ns, and length of a packet, bytes.
    interval: f64,
    bytes: u32,
    /// Mean intervals of sending and of arrival of the streams so far, ns.
    seen: Vec<(f64, f64)>,
    /// Number of probes at this interval: sent, and lost.
    sent: usize,
    lost: usize,
    decisions: u32,
    broken: u32,
    broken_in_all: u32,
    estimates: Vec<f64>,
}

impl Yaz {
    /// Makes an estimator for a path of these limits.
    pub fn new(limits: Limits) -> Yaz {
        let mut yaz = Yaz {
            limits,
            interval: 0.0,
            bytes: limits.most_bytes,
            seen: Vec::new(),
            sent: 0,
            lost: 0,
            decisions: 0,
            broken: 0,
            broken_in_all: 0,
            estimates: Vec::new(),
        };
        yaz.begin();
        yaz
    }

    /// Begins an estimate at the highest rate, or well above the estimate before.
    fn begin(&mut self) {
        let most = self.limits.rate_max.as_f64();
        let known = self.estimates.iter().copied().fold(0.0, f64::max);
        let rate = if known > 0.0 { (known * 1.3).min(most) } else { most };
        self.bytes = self.limits.most_bytes;
        self.decisions = 0;
        self.slow_down_to(f64::from(self.bytes) * 8e9 / rate);
    }

    /// Sets the interval, with shorter packets if it would be too long.
    fn slow_down_to(&mut self, interval: f64) {
        self.interval = interval.max(1.0);
        while self.interval > MAX_INTERVAL && self.bytes > MIN_BYTES {
            let shorter = (self.bytes / 2).max(MIN_BYTES);
            self.interval *= f64::from(shorter) / f64::from(self.bytes);
            self.bytes = shorter;
        }
        self.seen.clear();
        self.sent = 0;
        self.lost = 0;
    }

    fn plan(&self) -> StreamPlan {
        let interval = self.interval.round() as u64;
        let packets = STREAM_LENGTH.min(self.limits.most_packets);
        StreamPlan {
            packets,
            bytes: self.bytes,
            interval,
            rest: interval * u64::from(packets) * REST_LENGTHS,
        }
    }

    fn rate(&self, interval: f64) -> f64 {
        f64::from(self.bytes) * 8e9 / interval
    }

    fn decide(&mut self) -> EstimatorStep {
        let sent = median(&self.seen.iter().map(|pair| pair.0).collect::<Vec<f64>>());
        let grown: Vec<f64> = self.seen.iter().map(|pair| pair.1 - pair.0).collect();
        let mean = grown.iter().sum::<f64>() / grown.len() as f64;
        let variance =
            grown.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / (grown.len() - 1) as f64;
        let error = (variance / grown.len() as f64).sqrt();
        let rate = self.rate(sent);
        // The difference between the interval of this rate and that of a rate one resolution lower.
        let least = sent * RESOLUTION / (1.0 - RESOLUTION);
        let too_much_lost = self.lost as f64 > 0.01 * self.sent as f64;
        self.decisions += 1;
        if mean <= least.max(2.0 * error) && !too_much_lost {
            return self.close_estimate(rate);
        }
        let longer = if mean > 0.0 { mean / 2.0 } else { sent * RESOLUTION };
        self.slow_down_to(sent + longer.max(least / 2.0));
        if self.interval > MAX_INTERVAL || self.decisions > MAX_DECISIONS {
            let bound = if self.interval > MAX_INTERVAL { Bound::AtMost } else { Bound::Unknown };
            return EstimatorStep::Done(Finding::bound(
                bound,
                self.rate(self.interval),
                &self.limits,
            ));
        }
        EstimatorStep::Probe(self.plan())
    }

    fn close_estimate(&mut self, rate: f64) -> EstimatorStep {
        // The first streams got through: no higher rate is probed.
        let first = self.decisions == 1 && self.estimates.is_empty();
        if first {
            return EstimatorStep::Done(Finding::bound(Bound::AtLeast, rate, &self.limits));
        }
        self.estimates.push(rate);
        if self.estimates.len() < ESTIMATES_PER_RESULT {
            self.begin();
            return EstimatorStep::Probe(self.plan());
        }
        let middle = median(&self.estimates);
        let half = confidence(&self.estimates).max(RESOLUTION * middle);
        EstimatorStep::Done(Finding::value(middle, middle - half, middle + half))
    }
}

impl Estimator for Yaz {
    fn step(&mut self, seen: Option<&Stream>) -> EstimatorStep {
        let Some(stream) = seen else { return EstimatorStep::Probe(self.plan()) };
        self.sent += stream.probes.len();
        self.lost += stream.lost_on_path();
        let stretch = stream.longest_stretch();
        let is_whole = stretch.times.len() * 2 >= stream.probes.len();
        let usable = is_whole && stream.reordered == 0 && stream.sending() != Sending::Interrupted;
        match stretch.intervals() {
            Some((sent, received)) if usable => {
                self.broken = 0;
                self.seen.push((sent * 1e9, received * 1e9));
            }
            // The rate is so much too high that most probes are lost.
            _ if stream.loss() > 0.3 && self.interval < MAX_INTERVAL => {
                self.decisions += 1;
                self.slow_down_to(2.0 * self.interval);
            }
            _ => {
                self.broken += 1;
                self.broken_in_all += 1;
                if self.broken >= MAX_BROKEN_IN_A_ROW || self.broken_in_all >= MAX_BROKEN {
                    let bound =
                        Finding::bound(Bound::Unknown, self.rate(self.interval), &self.limits);
                    return EstimatorStep::Done(bound);
                }
            }
        }
        if self.seen.len() < STREAMS_PER_DECISION {
            return EstimatorStep::Probe(self.plan());
        }
        self.decide()
    }

    fn range(&self) -> (f64, f64) {
        let lowest = self.estimates.iter().copied().fold(f64::INFINITY, f64::min);
        (
            if lowest.is_finite() { lowest } else { 0.0 },
            BitRate::from_f64(self.rate(self.interval)).as_f64(),
        )
    }
}
