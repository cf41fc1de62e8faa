//! Self-loading periodic streams, as pathload sends and judges them.
//!
//! Source: Jain and Dovrolis, SIGCOMM 2002 (see [`crate::trend`]), and the tool pathload 1.3.2. A *fleet* is `STREAMS_PER_FLEET`
//! streams of `STREAM_LENGTH` packets at one rate. The delays of each stream grow or do not grow ([`crate::trend`]). The fleet's
//! verdict is one of three: the rate is above the available bandwidth, below it, or in the *grey region*. In the grey region the
//! available bandwidth varied meanwhile. The search halves the distance to the grey region from both sides. The result is the range
//! within which the available bandwidth varied.
//!
//! The method differs from the tool in these points. On a well filled path, the randomness of the cross traffic outweighs the
//! trend of 100 packets: with 50 of 300 Mbit/s available, the tool's way gave estimates 4 % too high in the median, with a random
//! error of a tenth.
//!
//! - Streams are four times as long, with shorter rests.
//! - The value within the range is not its middle. It is the rate at which as many streams grow as do not, computed from all
//!   streams ([`crossing`]). A misjudged fleet moves the ends of the range, but hardly this value.
//! - A stream that the sender's machine interrupted is *spoilt* and sent again (module `fleet`). After some spoilt streams,
//!   streams are shorter and their packets longer and farther apart. The sender then sleeps between packets and is interrupted
//!   less. The search ends when `MAX_SPOILT` streams were spoilt.

use crate::estimator::{Bound, Estimator, EstimatorStep, Finding};
use crate::fleet::{Fleet, Verdict, MIN_LENGTH};
use crate::path::{Limits, Stream, StreamPlan, SHORTFALL_RATIO};
use crate::rate::BitRate;
use crate::statistics::{crossing, Tried};

/// Number of packets in a stream, and the shortest interval at low rates, ns.
const STREAM_LENGTH: u32 = 400;
const DEFAULT_INTERVAL: f64 = 80_000.0;
/// The same two for a sender that is interrupted: pathload's number of packets, and an interval long enough to sleep from one
/// packet to the next.
const SHORT_STREAM_LENGTH: u32 = 100;
const LONG_INTERVAL: f64 = 240_000.0;
/// Streams become short after this number of spoilt streams, if these are more than this share of all.
const SPOILT_BEFORE_SHORTER: u32 = 3;
const SPOILT_SHARE: f64 = 0.25;
/// Number of packets of the train that determines where the search begins, and largest number of attempts to send it
/// uninterrupted.
const TRAIN: u32 = 50;
const MAX_TRAINS: u32 = 5;
/// Length of the shortest packet, bytes.
const MIN_BYTES: u32 = 228;
/// Rest before a stream, in lengths of the stream: the mean load is at most a fifth of the rate.
const REST_LENGTHS: u64 = 4;
/// The search ends when the bracket is narrower than the first share of the rate at which it began. With a grey region, the gaps
/// beside that region must be narrower than the second share.
const RESOLUTION: f64 = 0.02;
const GREY_RESOLUTION: f64 = 0.05;
/// Largest number of fleets. A search with more does not converge: hundreds of simulated paths took 15 at most.
const MAX_FLEETS: u32 = 24;
/// Number of spoilt streams in all fleets after which the search ends.
const MAX_SPOILT: u32 = 200;
/// Number of fleets without new information after which the search ends.
const MAX_IDLE_FLEETS: u32 = 2;
/// A search that ends early gives a value only if its range is at most this share of its upper end.
const MAX_RANGE: f64 = 0.2;
/// With an interrupted sender, the result is a value only if its range is at most this share of its upper end.
const MAX_RANGE_INTERRUPTED: f64 = 0.3;
/// A rate counts as higher than the one before from this ratio on.
const HIGHER_RATIO: f64 = 1.2;

/// The estimator of this method.
#[derive(Debug)]
pub struct Slops {
    limits: Limits,
    rate: f64,
    fleet: Fleet,
    /// For each fleet so far, the number of streams whose delays grew.
    judged: Vec<Tried>,
    /// A rate that is below the available bandwidth, and one that is above, bits per second.
    low: f64,
    high: f64,
    grey: Option<(f64, f64)>,
    /// The rate at which the search began, bits per second. The resolution is a share of it.
    began: f64,
    started: bool,
    trains: u32,
    fleets: u32,
    useless: u32,
    /// Number of fleets that gave no new information because their streams were slower than planned.
    stuck: u32,
    at_most: u32,
    streams: u32,
    spoilt: u32,
    /// Whether the streams to come are short, with packets far apart.
    short: bool,
}

impl Slops {
    /// Makes an estimator for a path of these limits.
    pub fn new(limits: Limits) -> Slops {
        let most = limits.rate_max.as_f64();
        Slops {
            limits,
            rate: most,
            fleet: Fleet::default(),
            judged: Vec::new(),
            low: 0.0,
            high: most * 1.01,
            grey: None,
            began: most,
            started: false,
            trains: 0,
            fleets: 0,
            useless: 0,
            stuck: 0,
            at_most: 0,
            streams: 0,
            spoilt: 0,
            short: false,
        }
    }

    /// Plans the next stream. It prefers long packets far apart to short ones close together.
    fn plan(&self) -> StreamPlan {
        let most = self.limits.most_bytes;
        let (length, interval) = if self.short {
            (SHORT_STREAM_LENGTH, LONG_INTERVAL)
        } else {
            (STREAM_LENGTH, DEFAULT_INTERVAL)
        };
        let bytes = (self.rate * interval / 8e9).clamp(MIN_BYTES.into(), most.into()) as u32;
        StreamPlan::at(
            BitRate::from_f64(self.rate),
            bytes,
            length.min(self.limits.most_packets),
            REST_LENGTHS,
        )
    }

    fn train(&self) -> StreamPlan {
        let packets = TRAIN.min(self.limits.most_packets);
        let rests = if self.trains == 0 { 0 } else { REST_LENGTHS };
        StreamPlan::at(self.limits.rate_max, self.limits.most_bytes, packets, rests)
    }

    /// Begins the search from the rate at which a back-to-back train arrives: above the available bandwidth, below the capacity.
    ///
    /// A few packets between two interruptions do not show that rate. A search that begins far too low takes long, because
    /// streams are slow at low rates.
    fn begin(&mut self, train: &Stream) -> EstimatorStep {
        self.trains += 1;
        let is_whole = train.longest_len() >= MIN_LENGTH.min(train.probes.len());
        if !is_whole && self.trains < MAX_TRAINS {
            return EstimatorStep::Probe(self.train());
        }
        self.started = true;
        let arrived = train.longest_stretch().intervals().filter(|_| is_whole);
        let rate = arrived.map(|(_, out)| f64::from(train.plan.bytes) * 8.0 / out.max(1e-12));
        self.rate = rate.unwrap_or(self.rate / 2.0).min(self.limits.rate_max.as_f64());
        self.began = self.rate;
        EstimatorStep::Probe(self.plan())
    }

    fn add(&mut self, stream: &Stream) {
        self.streams += 1;
        let is_spoilt = self.fleet.add(stream);
        self.spoilt += u32::from(is_spoilt);
        let share = f64::from(self.spoilt) / f64::from(self.streams);
        self.short |= self.spoilt >= SPOILT_BEFORE_SHORTER && share > SPOILT_SHARE;
    }

    fn close_fleet(&mut self) -> EstimatorStep {
        let fleet = std::mem::take(&mut self.fleet);
        let verdict = fleet.judge();
        // The rate that was actually sent counts, not the planned one.
        let sent = fleet.rate_sent();
        let rate = if sent < SHORTFALL_RATIO * self.rate { sent } else { self.rate };
        self.judged.extend(fleet.tried(rate));
        self.fleets += 1;
        self.learn(verdict, rate);
        match self.finding() {
            Some(finding) => EstimatorStep::Done(finding),
            None => self.next_fleet(),
        }
    }

    /// Moves the bracket according to a fleet that was sent at `rate`.
    fn learn(&mut self, verdict: Verdict, rate: f64) {
        let most = self.limits.rate_max.as_f64();
        let fell_short = rate < self.rate;
        let before = (self.low, self.high, self.grey);
        match verdict {
            Verdict::Above => {
                self.high = rate;
                self.at_most = 0;
                if self.grey.is_some_and(|(_, top)| top >= rate) {
                    self.grey = None;
                }
            }
            Verdict::Below => {
                let was_low = self.low;
                // A stream slower than planned may be below a rate that is known to be below.
                self.low = if fell_short { rate.max(was_low) } else { rate };
                if self.grey.is_some_and(|(bottom, _)| bottom <= rate) {
                    self.grey = None;
                }
                // The sender has reached its limit if it does not get faster although a higher rate is planned. If a higher rate
                // was sent before and was above, the sender was only interrupted.
                let no_faster = fell_short && rate < HIGHER_RATIO * was_low;
                if self.high > most && (no_faster || rate >= 0.995 * most) {
                    self.at_most += 1;
                }
            }
            Verdict::Grey => {
                let (bottom, top) = self.grey.unwrap_or((rate, rate));
                self.grey = Some((bottom.min(rate), top.max(rate)));
            }
            Verdict::Useless => self.useless += 1,
        }
        if fell_short && self.low >= self.high {
            // This rate is above, so a rate that was judged to be below was misjudged.
            self.low = 0.0;
        }
        // A rate that was below may be above by now, because traffic changes.
        self.low = self.low.min(self.high * (1.0 - RESOLUTION / 2.0));
        let is_same = before == (self.low, self.high, self.grey);
        self.stuck += u32::from(fell_short && is_same && self.high <= most);
    }

    fn next_fleet(&mut self) -> EstimatorStep {
        let most = self.limits.rate_max.as_f64();
        self.rate = match self.grey {
            // Probe in the wider of the two gaps beside the grey region.
            Some((bottom, top)) if self.high - top >= bottom - self.low => (top + self.high) / 2.0,
            Some((bottom, _)) => (self.low + bottom) / 2.0,
            // Double the rate until a rate is above.
            None if self.high > most => (2.0 * self.rate).min(most),
            None => (self.low + self.high) / 2.0,
        };
        EstimatorStep::Probe(self.plan())
    }

    fn finding(&self) -> Option<Finding> {
        let least = f64::from(MIN_BYTES) * 8e9 / 200e6;
        if self.at_most >= 2 {
            return Some(Finding::bound(Bound::AtLeast, self.low, &self.limits));
        }
        if self.high > self.limits.rate_max.as_f64() {
            // No rate was above yet: the upper end of the bracket is only where probing ends.
            return self.give_up();
        }
        if self.high < 2.0 * least {
            return Some(Finding::bound(Bound::AtMost, self.high, &self.limits));
        }
        let (bottom, top) = match self.grey {
            _ if self.high - self.low <= RESOLUTION * self.began.min(self.high * 2.0) => {
                (self.low, self.high)
            }
            Some((bottom, top)) => {
                let narrow = GREY_RESOLUTION * self.began.min(2.0 * self.high);
                if self.high - top > narrow || bottom - self.low > narrow {
                    return self.give_up();
                }
                (bottom, top)
            }
            None => return self.give_up(),
        };
        Some(self.value(bottom, top))
    }

    /// Returns the value between these rates, with the bracket as its range. Returns an unknown value if interruptions left that
    /// range too wide.
    fn value(&self, bottom: f64, top: f64) -> Finding {
        let value = crossing(&self.judged).unwrap_or((bottom + top) / 2.0);
        let (low, high) = (self.low.min(bottom).min(value), self.high.max(top).max(value));
        if self.short && high - low > MAX_RANGE_INTERRUPTED * high {
            return Finding::bound(Bound::Unknown, value, &self.limits);
        }
        Finding::value(value, low, high)
    }

    /// Ends a search that takes too long, or in which nothing new is learnt. The result is a value in a range if that range is
    /// narrow, and if the search has not merely failed to converge.
    fn give_up(&self) -> Option<Finding> {
        let is_interrupted = self.useless >= MAX_IDLE_FLEETS
            || self.stuck >= MAX_IDLE_FLEETS
            || self.spoilt >= MAX_SPOILT;
        if !is_interrupted && self.fleets < MAX_FLEETS {
            return None;
        }
        let is_bracket = self.low > 0.0 && self.high <= self.limits.rate_max.as_f64();
        if is_interrupted && is_bracket && self.high - self.low <= MAX_RANGE * self.high {
            return Some(self.value(self.low, self.high));
        }
        let middle = (self.low + self.high) / 2.0;
        Some(Finding::bound(Bound::Unknown, middle, &self.limits))
    }
}

impl Estimator for Slops {
    fn step(&mut self, seen: Option<&Stream>) -> EstimatorStep {
        let Some(stream) = seen else { return EstimatorStep::Probe(self.train()) };
        if !self.started {
            return self.begin(stream);
        }
        self.add(stream);
        if self.fleet.is_complete() || self.spoilt >= MAX_SPOILT {
            return self.close_fleet();
        }
        EstimatorStep::Probe(self.plan())
    }

    fn range(&self) -> (f64, f64) {
        (self.low, self.high.min(self.limits.rate_max.as_f64()))
    }
}
