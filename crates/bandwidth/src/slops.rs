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
//!   were sent ([`crossing`]): one fleet that was misjudged moves the ends of the range, and hardly that;
//! - a stream that the sender's machine interrupted is *spoilt* and sent again ([`crate::fleet`]). After some of them
//!   streams are shorter and their packets longer and farther apart, so that the sender sleeps between them and is
//!   interrupted less. The search ends when [`MOST_SPOILT`] streams were spoilt.

use crate::estimate::{Bound, Estimator, Finding, Step};
use crate::fleet::{Fleet, Verdict, LEAST_LENGTH};
use crate::path::{Limits, Plan, Stream, FELL_SHORT};
use crate::rate::BitRate;
use crate::statistics::{crossing, Tried};

/// Packets in a stream; the shortest interval at low rates, nanoseconds.
const LENGTH: u32 = 400;
const USUAL_INTERVAL: f64 = 80_000.0;
/// The same where the sender is interrupted: pathload's length, and long enough to sleep from one packet to the next.
const SHORT_LENGTH: u32 = 100;
const LONG_INTERVAL: f64 = 240_000.0;
/// Streams are short once so many were spoilt, and more than this share.
const ENOUGH_SPOILT: u32 = 3;
const SPOILT_SHARE: f64 = 0.25;
/// Packets of the train that tells where to begin, and how often it is sent until one is not interrupted.
const TRAIN: u32 = 50;
const MOST_TRAINS: u32 = 5;
/// The shortest packet.
const LEAST_BYTES: u32 = 228;
/// Rest before a stream, in lengths of it: the load is a fifth at most.
const RESTS: u64 = 4;
/// The result is narrow enough at this share of where it began, and the grey region's edges at that.
const RESOLUTION: f64 = 0.02;
const GREY_RESOLUTION: f64 = 0.05;
/// A search with more fleets does not converge: hundreds of simulated paths took 15 at most.
const MOST_FLEETS: u32 = 24;
/// Streams that are spoilt, of all fleets, before the search ends.
const MOST_SPOILT: u32 = 200;
/// Fleets of which nothing was learnt, before the search ends.
const MOST_IDLE: u32 = 2;
/// A search that ends early tells a value if its range is as narrow as this share of the upper end.
const WIDEST: f64 = 0.2;
/// A wider range, as a share of its upper end, is not believed of an interrupted sender.
const WIDEST_INTERRUPTED: f64 = 0.3;
/// A rate that is less than so many times the one before is not higher.
const HIGHER: f64 = 1.2;

/// The estimator.
#[derive(Debug)]
pub struct Slops {
    limits: Limits,
    rate: f64,
    fleet: Fleet,
    /// The fleets so far: of how many streams delays grew.
    judged: Vec<Tried>,
    /// A rate that is below, one that is above.
    low: f64,
    high: f64,
    grey: Option<(f64, f64)>,
    /// Where the search began: what its resolution is a share of.
    began: f64,
    started: bool,
    trains: u32,
    fleets: u32,
    useless: u32,
    /// Fleets that told nothing new because their streams were slower than was wanted.
    stuck: u32,
    at_most: u32,
    streams: u32,
    spoilt: u32,
    /// Whether streams are short, and their packets far apart.
    short: bool,
}

impl Slops {
    /// An estimator at its beginning.
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

    /// Interval and length of packets: long packets far apart rather than short ones close together.
    fn plan(&self) -> Plan {
        let most = self.limits.most_bytes;
        let (length, interval) =
            if self.short { (SHORT_LENGTH, LONG_INTERVAL) } else { (LENGTH, USUAL_INTERVAL) };
        let bytes = (self.rate * interval / 8e9).clamp(LEAST_BYTES.into(), most.into()) as u32;
        Plan::at(BitRate::from_f64(self.rate), bytes, length.min(self.limits.most_packets), RESTS)
    }

    fn train(&self) -> Plan {
        let packets = TRAIN.min(self.limits.most_packets);
        let rests = if self.trains == 0 { 0 } else { RESTS };
        Plan::at(self.limits.rate_max, self.limits.most_bytes, packets, rests)
    }

    /// The rate at which a back-to-back train arrives: above what is available, below the capacity. A few packets
    /// between two interruptions do not say that, and to begin far too low takes long: streams are slow there.
    fn begin(&mut self, train: &Stream) -> Step {
        self.trains += 1;
        let is_whole = train.longest_len() >= LEAST_LENGTH.min(train.probes.len());
        if !is_whole && self.trains < MOST_TRAINS {
            return Step::Probe(self.train());
        }
        self.started = true;
        let arrived = train.longest_stretch().intervals().filter(|_| is_whole);
        let rate = arrived.map(|(_, out)| f64::from(train.plan.bytes) * 8.0 / out.max(1e-12));
        self.rate = rate.unwrap_or(self.rate / 2.0).min(self.limits.rate_max.as_f64());
        self.began = self.rate;
        Step::Probe(self.plan())
    }

    fn add(&mut self, stream: &Stream) {
        self.streams += 1;
        let is_spoilt = self.fleet.add(stream);
        self.spoilt += u32::from(is_spoilt);
        let share = f64::from(self.spoilt) / f64::from(self.streams);
        self.short |= self.spoilt >= ENOUGH_SPOILT && share > SPOILT_SHARE;
    }

    fn close_fleet(&mut self) -> Step {
        let fleet = std::mem::take(&mut self.fleet);
        let verdict = fleet.judge();
        // The rate that was really sent counts, not the wanted one.
        let sent = fleet.rate_sent();
        let rate = if sent < FELL_SHORT * self.rate { sent } else { self.rate };
        self.judged.extend(fleet.tried(rate));
        self.fleets += 1;
        self.learn(verdict, rate);
        match self.finding() {
            Some(finding) => Step::Done(finding),
            None => self.next_fleet(),
        }
    }

    /// Moves the bracket by a fleet that was sent at `rate`.
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
                // Slower than was wanted, it may be below what is known to be below.
                self.low = if fell_short { rate.max(was_low) } else { rate };
                if self.grey.is_some_and(|(bottom, _)| bottom <= rate) {
                    self.grey = None;
                }
                // The sender's limit is where it does not get faster though more is wanted; where there was a higher
                // rate that was above, it was only interrupted.
                let no_faster = fell_short && rate < HIGHER * was_low;
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
            // It is above at a rate that was misjudged to be below.
            self.low = 0.0;
        }
        // What was below may be above by now: traffic changes.
        self.low = self.low.min(self.high * (1.0 - RESOLUTION / 2.0));
        let is_same = before == (self.low, self.high, self.grey);
        self.stuck += u32::from(fell_short && is_same && self.high <= most);
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
        if self.at_most >= 2 {
            return Some(Finding::bound(Bound::AtLeast, self.low, &self.limits));
        }
        if self.high > self.limits.rate_max.as_f64() {
            // Nothing was above yet: the end of the bracket is only where probing ends.
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

    /// The value between these, and the bracket as its range; nothing where interruptions left that too wide.
    fn value(&self, bottom: f64, top: f64) -> Finding {
        let value = crossing(&self.judged).unwrap_or((bottom + top) / 2.0);
        let (low, high) = (self.low.min(bottom).min(value), self.high.max(top).max(value));
        if self.short && high - low > WIDEST_INTERRUPTED * high {
            return Finding::bound(Bound::Unknown, value, &self.limits);
        }
        Finding::value(value, low, high)
    }

    /// Ends a search that goes on for too long, or in which nothing is learnt any more: a value in a range if that is
    /// narrow, and if the search did not just fail to converge.
    fn give_up(&self) -> Option<Finding> {
        let is_interrupted =
            self.useless >= MOST_IDLE || self.stuck >= MOST_IDLE || self.spoilt >= MOST_SPOILT;
        if !is_interrupted && self.fleets < MOST_FLEETS {
            return None;
        }
        let is_bracket = self.low > 0.0 && self.high <= self.limits.rate_max.as_f64();
        if is_interrupted && is_bracket && self.high - self.low <= WIDEST * self.high {
            return Some(self.value(self.low, self.high));
        }
        let middle = (self.low + self.high) / 2.0;
        Some(Finding::bound(Bound::Unknown, middle, &self.limits))
    }
}

impl Estimator for Slops {
    fn step(&mut self, seen: Option<&Stream>) -> Step {
        let Some(stream) = seen else { return Step::Probe(self.train()) };
        if !self.started {
            return self.begin(stream);
        }
        self.add(stream);
        if self.fleet.is_complete() || self.spoilt >= MOST_SPOILT {
            return self.close_fleet();
        }
        Step::Probe(self.plan())
    }

    fn range(&self) -> (f64, f64) {
        (self.low, self.high.min(self.limits.rate_max.as_f64()))
    }
}
