//! Calibrated rate probing, as Yaz does it.
//!
//! Sommers, Barford and Willinger, *A proposed framework for calibration of available bandwidth estimation tools*, ISCC
//! 2006, and the tool yaz. Streams are sent at one interval; where they arrive further apart than they were sent, by
//! more than the resolution, the path is congested, and the next interval is longer by half the difference:
//!
//! ```text
//!     next = in + |out - in| / 2,  until out - in <= resolution;  available = 8 L / in
//! ```
//!
//! Different from the tool: nanoseconds throughout instead of whole microseconds; several streams, of 200 packets
//! instead of 50, are put together for each decision, for the queue of a shorter one still fills where more is left; a
//! difference has to be above its own standard error, too, and the resolution is a share of the rate, for the tool's
//! 500 kbit/s are a tenth and more of what is left where that is 5 Mbit/s or less; compression does not count as
//! congestion; it begins at the highest rate that is asked for instead of 300 Mbit/s; a stream that the sender's
//! interruptions slowed down is sent again, for its rate is not that of the others, and it may be below what is
//! available though theirs is above.

use crate::estimate::{Bound, Estimator, Finding, Step};
use crate::path::{Limits, Plan, Sending, Stream};
use crate::rate::BitRate;
use crate::statistics::{confidence, median};

/// Packets in a stream, and streams for each decision.
const LENGTH: u32 = 200;
const STREAMS: usize = 6;
/// Rest before a stream, in lengths of it.
const RESTS: u64 = 1;
/// The resolution, a share of the rate.
const RESOLUTION: f64 = 0.01;
/// Estimates for a result.
const ESTIMATES: usize = 3;
/// The longest interval, nanoseconds, and the shortest packet: below that rate it gives up.
const LONGEST_INTERVAL: f64 = 1_000_000.0;
const LEAST_BYTES: u32 = 228;
/// Decisions in one estimate, and streams that are lost or spoilt by the sender's interruptions, in a row and in all.
const MOST_DECISIONS: u32 = 60;
const MOST_BROKEN: u32 = 12;
const MOST_BROKEN_IN_ALL: u32 = 250;

/// The estimator.
#[derive(Debug)]
pub struct Yaz {
    limits: Limits,
    /// Nanoseconds, and bytes of a packet.
    interval: f64,
    bytes: u32,
    /// Mean intervals sent and received of the streams so far, nanoseconds.
    seen: Vec<(f64, f64)>,
    /// Probes of the streams at this interval: sent, and lost.
    sent: usize,
    lost: usize,
    decisions: u32,
    broken: u32,
    broken_in_all: u32,
    estimates: Vec<f64>,
}

impl Yaz {
    /// An estimator at its beginning.
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

    /// At the highest rate, or well above what was found before.
    fn begin(&mut self) {
        let most = self.limits.rate_max.as_f64();
        let known = self.estimates.iter().copied().fold(0.0, f64::max);
        let rate = if known > 0.0 { (known * 1.3).min(most) } else { most };
        self.bytes = self.limits.most_bytes;
        self.decisions = 0;
        self.slow_down_to(f64::from(self.bytes) * 8e9 / rate);
    }

    /// Takes this interval, with shorter packets where it would be too long.
    fn slow_down_to(&mut self, interval: f64) {
        self.interval = interval.max(1.0);
        while self.interval > LONGEST_INTERVAL && self.bytes > LEAST_BYTES {
            let shorter = (self.bytes / 2).max(LEAST_BYTES);
            self.interval *= f64::from(shorter) / f64::from(self.bytes);
            self.bytes = shorter;
        }
        self.seen.clear();
        self.sent = 0;
        self.lost = 0;
    }

    fn plan(&self) -> Plan {
        let interval = self.interval.round() as u64;
        let packets = LENGTH.min(self.limits.most_packets);
        Plan { packets, bytes: self.bytes, interval, rest: interval * u64::from(packets) * RESTS }
    }

    fn rate(&self, interval: f64) -> f64 {
        f64::from(self.bytes) * 8e9 / interval
    }

    fn decide(&mut self) -> Step {
        let sent = median(&self.seen.iter().map(|pair| pair.0).collect::<Vec<f64>>());
        let grown: Vec<f64> = self.seen.iter().map(|pair| pair.1 - pair.0).collect();
        let mean = grown.iter().sum::<f64>() / grown.len() as f64;
        let variance =
            grown.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / (grown.len() - 1) as f64;
        let error = (variance / grown.len() as f64).sqrt();
        let rate = self.rate(sent);
        // The interval by which a rate one resolution lower is longer.
        let least = sent * RESOLUTION / (1.0 - RESOLUTION);
        let too_much_lost = self.lost as f64 > 0.01 * self.sent as f64;
        self.decisions += 1;
        if mean <= least.max(2.0 * error) && !too_much_lost {
            return self.close_estimate(rate);
        }
        let longer = if mean > 0.0 { mean / 2.0 } else { sent * RESOLUTION };
        self.slow_down_to(sent + longer.max(least / 2.0));
        if self.interval > LONGEST_INTERVAL || self.decisions > MOST_DECISIONS {
            let bound =
                if self.interval > LONGEST_INTERVAL { Bound::AtMost } else { Bound::Unknown };
            return Step::Done(Finding::bound(bound, self.rate(self.interval), &self.limits));
        }
        Step::Probe(self.plan())
    }

    fn close_estimate(&mut self, rate: f64) -> Step {
        // The first streams got through: no higher rate could be sent.
        let first = self.decisions == 1 && self.estimates.is_empty();
        if first {
            return Step::Done(Finding::bound(Bound::AtLeast, rate, &self.limits));
        }
        self.estimates.push(rate);
        if self.estimates.len() < ESTIMATES {
            self.begin();
            return Step::Probe(self.plan());
        }
        let middle = median(&self.estimates);
        let half = confidence(&self.estimates).max(RESOLUTION * middle);
        Step::Done(Finding::value(middle, middle - half, middle + half))
    }
}

impl Estimator for Yaz {
    fn step(&mut self, seen: Option<&Stream>) -> Step {
        let Some(stream) = seen else { return Step::Probe(self.plan()) };
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
            // So much too fast that most of it is lost.
            _ if stream.loss() > 0.3 && self.interval < LONGEST_INTERVAL => {
                self.decisions += 1;
                self.slow_down_to(2.0 * self.interval);
            }
            _ => {
                self.broken += 1;
                self.broken_in_all += 1;
                if self.broken >= MOST_BROKEN || self.broken_in_all >= MOST_BROKEN_IN_ALL {
                    let bound =
                        Finding::bound(Bound::Unknown, self.rate(self.interval), &self.limits);
                    return Step::Done(bound);
                }
            }
        }
        if self.seen.len() < STREAMS {
            return Step::Probe(self.plan());
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
