//! Self-loading periodic streams, as pathload sends and judges them.
//!
//! Jain and Dovrolis, SIGCOMM 2002, and the tool pathload 1.3.2. A *fleet* is [`FLEET`] streams of [`LENGTH`] packets
//! at one rate. Each stream's delays grow or not ([`crate::trend`]); the fleet says that the rate is above what is
//! available, below it, or in the *grey region* in which that varied meanwhile. Rates are halved towards it from both
//! sides. The result is a range: that within which the available bandwidth varied.
//!
//! Different from the tool, for on a well filled path the chance of the cross traffic outweighs the trend of 100
//! packets (of 50 Mbit/s that are left of 300 estimates were 4 % too high in the median, and a tenth off by chance):
//!
//! - streams are four times as long, with shorter rests;
//! - the value within the range is not its middle but the rate at which as many streams grow as do not, of all that
//!   were sent ([`crossing`]): one fleet that was misjudged moves the ends of the range, and hardly that.

use crate::estimate::{Bound, Estimator, Finding, Step};
use crate::path::{Limits, Plan, Stream};
use crate::rate::BitRate;
use crate::statistics::{crossing, Tried};
use crate::trend::{Tests, Trend};

/// Packets in a stream, streams in a fleet.
const LENGTH: u32 = 400;
const FLEET: usize = 12;
/// Packets of the train that tells where to begin.
const TRAIN: u32 = 50;
/// The share of a fleet's streams that decides.
const AGGREGATE: f64 = 0.6;
/// Losses: a stream with more is lossy, a fleet with a stream that has many is above.
const LOSSY: f64 = 0.03;
const MANY_LOST: f64 = 0.15;
/// A stream of which fewer packets are left says nothing.
const LEAST_LENGTH: usize = 36;
/// The shortest interval at low rates, nanoseconds, and the shortest packet.
const USUAL_INTERVAL: f64 = 80_000.0;
const LEAST_BYTES: u32 = 228;
/// Rest before a stream, in lengths of it: the load is a fifth at most.
const RESTS: u64 = 4;
/// The result is narrow enough at this share of where it began, and the grey region's edges at that.
const RESOLUTION: f64 = 0.02;
const GREY_RESOLUTION: f64 = 0.05;
/// A search with more fleets does not converge.
const MOST_FLEETS: u32 = 40;

/// What a fleet says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fleet {
    Above,
    Below,
    Grey,
    Useless,
}

/// The estimator.
#[derive(Debug)]
pub struct Slops {
    limits: Limits,
    rate: f64,
    trends: Vec<Option<Trend>>,
    /// The fleets so far: of how many streams delays grew.
    judged: Vec<Tried>,
    lossy: usize,
    /// A rate that is below, one that is above.
    low: f64,
    high: f64,
    grey: Option<(f64, f64)>,
    /// Where the search began: what its resolution is a share of.
    began: f64,
    started: bool,
    fleets: u32,
    useless: u32,
    at_most: u32,
    sent: Vec<f64>,
}

impl Slops {
    /// An estimator at its beginning.
    pub fn new(limits: Limits) -> Slops {
        let most = limits.rate_max.as_f64();
        Slops {
            limits,
            rate: most,
            trends: Vec::new(),
            judged: Vec::new(),
            lossy: 0,
            low: 0.0,
            high: most * 1.01,
            grey: None,
            began: most,
            started: false,
            fleets: 0,
            useless: 0,
            at_most: 0,
            sent: Vec::new(),
        }
    }

    /// Interval and length of packets: long packets far apart rather than short ones close together.
    fn plan(&self) -> Plan {
        let most = self.limits.most_bytes;
        let bytes =
            (self.rate * USUAL_INTERVAL / 8e9).clamp(LEAST_BYTES.into(), most.into()) as u32;
        Plan::at(BitRate::from_f64(self.rate), bytes, LENGTH.min(self.limits.most_packets), RESTS)
    }

    fn train(&self) -> Plan {
        let packets = TRAIN.min(self.limits.most_packets);
        Plan { rest: 0, ..Plan::at(self.limits.rate_max, self.limits.most_bytes, packets, 0) }
    }

    /// The rate at which a back-to-back train arrives: above what is available, below the capacity.
    fn begin(&mut self, train: &Stream) -> Step {
        self.started = true;
        let arrived = train.longest_stretch().intervals();
        let rate = arrived.map(|(_, out)| f64::from(train.plan.bytes) * 8.0 / out.max(1e-12));
        self.rate = rate.unwrap_or(self.rate / 2.0).min(self.limits.rate_max.as_f64());
        self.began = self.rate;
        Step::Probe(self.plan())
    }

    fn add(&mut self, stream: &Stream) {
        self.sent.push(stream.rate_sent());
        if stream.loss() > MANY_LOST {
            // The whole fleet is above.
            self.trends = vec![Some(Trend::Increasing); FLEET];
            return;
        }
        self.lossy += usize::from(stream.loss() > LOSSY);
        let delays = stream.longest_stretch().delays();
        let tests = if delays.len() < LEAST_LENGTH { None } else { Tests::of(&delays) };
        self.trends.push(tests.map(Tests::trend));
    }

    /// How many of the fleet's streams grow, do not grow, and say anything.
    fn counts(&self) -> (usize, usize, usize) {
        let of = |wanted| self.trends.iter().flatten().filter(|trend| **trend == wanted).count();
        (of(Trend::Increasing), of(Trend::None), self.trends.iter().flatten().count())
    }

    /// Where little may wait, too high a rate shows in losses and not in delays.
    fn is_lossy(&self) -> bool {
        self.lossy * 2 >= FLEET
    }

    /// Keeps what this fleet says of this rate; one that was never sent says nothing.
    fn remember(&mut self, rate: f64) {
        let (growing, flat, all) = self.counts();
        let unclear = (all - growing - flat) as f64;
        let yes = if self.is_lossy() { all as f64 } else { growing as f64 + unclear / 2.0 };
        if rate > 0.0 {
            self.judged.push(Tried { at: rate, yes, of: all as f64 });
        }
    }

    fn judge(&self) -> Fleet {
        if self.is_lossy() {
            return Fleet::Above;
        }
        let (growing, flat, all) = self.counts();
        if all < FLEET / 2 {
            return Fleet::Useless;
        }
        match all as f64 * AGGREGATE {
            enough if growing as f64 >= enough => Fleet::Above,
            enough if flat as f64 >= enough => Fleet::Below,
            _ => Fleet::Grey,
        }
    }

    fn close_fleet(&mut self) -> Step {
        let verdict = self.judge();
        // What was really sent counts, not what was wanted.
        let sent = crate::statistics::median(&self.sent);
        let rate = if sent < 0.95 * self.rate { sent } else { self.rate };
        let fell_short = rate < self.rate;
        self.remember(rate);
        self.trends.clear();
        self.sent.clear();
        self.lossy = 0;
        self.fleets += 1;
        match verdict {
            Fleet::Above => {
                self.high = rate;
                if self.grey.is_some_and(|(_, top)| top >= rate) {
                    self.grey = None;
                }
            }
            Fleet::Below => {
                self.low = rate;
                if self.grey.is_some_and(|(bottom, _)| bottom <= rate) {
                    self.grey = None;
                }
                if fell_short || rate >= 0.995 * self.limits.rate_max.as_f64() {
                    self.at_most += 1;
                }
            }
            Fleet::Grey => {
                let (bottom, top) = self.grey.unwrap_or((rate, rate));
                self.grey = Some((bottom.min(rate), top.max(rate)));
            }
            Fleet::Useless => self.useless += 1,
        }
        // What was below may be above by now: traffic changes.
        self.low = self.low.min(self.high * (1.0 - RESOLUTION / 2.0));
        match self.finding() {
            Some(finding) => Step::Done(finding),
            None => self.next_fleet(),
        }
    }

    fn next_fleet(&mut self) -> Step {
        let most = self.limits.rate_max.as_f64();
        self.rate = match self.grey {
            // The wider of the two gaps beside the grey region.
            Some((bottom, top)) if self.high - top >= bottom - self.low => (top + self.high) / 2.0,
            Some((bottom, _)) => (self.low + bottom) / 2.0,
            // Until something is above, faster and faster.
            None if self.high > most => (2.0 * self.rate).min(most),
            None => (self.low + self.high) / 2.0,
        };
        Step::Probe(self.plan())
    }

    fn finding(&self) -> Option<Finding> {
        let least = f64::from(LEAST_BYTES) * 8e9 / 200e6;
        if self.useless >= 2 || self.fleets >= MOST_FLEETS {
            return Some(Finding::bound(
                Bound::Unknown,
                (self.low + self.high) / 2.0,
                &self.limits,
            ));
        }
        if self.at_most >= 2 {
            return Some(Finding::bound(Bound::AtLeast, self.low, &self.limits));
        }
        if self.high > self.limits.rate_max.as_f64() {
            // Nothing was above yet: the end of the bracket is only where probing ends.
            return None;
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
                    return None;
                }
                (bottom, top)
            }
            None => return None,
        };
        let value = crossing(&self.judged).unwrap_or((bottom + top) / 2.0);
        let (low, high) = (self.low.min(bottom).min(value), self.high.max(top).max(value));
        Some(Finding::value(value, low, high))
    }
}

impl Estimator for Slops {
    fn step(&mut self, seen: Option<&Stream>) -> Step {
        let Some(stream) = seen else { return Step::Probe(self.train()) };
        if !self.started {
            return self.begin(stream);
        }
        self.add(stream);
        if self.trends.len() >= FLEET {
            return self.close_fleet();
        }
        Step::Probe(self.plan())
    }

    fn range(&self) -> (f64, f64) {
        (self.low, self.high.min(self.limits.rate_max.as_f64()))
    }
}
