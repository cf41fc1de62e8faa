//! Probe trains of adaptive size: our own method, after the published description of Kite2.
//!
//! Kirova et al., Future Internet 11(8):179 (2019), section 2.2.1, describes Kite2 as follows. It sends trains ever faster or
//! slower to find where the receiving interval begins to grow. It makes "instant" estimates again and again, and derives one
//! final value from them. The size of the train follows from the required accuracy. The paper does not publish how Kite2 does so;
//! this module is not Kite2.
//!
//! A train at rate r over a bottleneck of capacity C, of which A is available, makes delays grow by
//!
//! ```text
//! s(r) = (r - A) / C  seconds per second  where r > A,  and 0 where r <= A
//! ```
//!
//! 1. A train at the highest rate. If delays do not grow, that rate is available *at least*. Otherwise the search begins below
//!    the rate at which the train arrived, and halves the bracket until its width is `SEARCH_RESOLUTION`.
//! 2. Rounds of trains above the estimate so far. There the bottleneck never falls idle, and s(r) is a line except for the
//!    randomness of the cross traffic. The rates are chosen by the line so far, such that delays grow by `SLOPES`. The growth
//!    then exceeds that randomness equally on a nearly full path and on a free one. On a nearly full path these rates are several
//!    times A. The line is fitted to all trains so far, each weighted by its length. It crosses zero at A, and with its steepness
//!    each round gives an instant estimate. A train that lost probes, or that the sender's machine interrupted, is sent again;
//!    trains are half as long from then on. A round whose trains do not grow raises the estimate.
//! 3. The final value is the median of the instants, with the confidence interval of a median. Rounds go on until it is narrow,
//!    or there have been `MAX_ROUNDS`.

use crate::estimator::{Bound, Estimator, EstimatorStep, Finding};
use crate::path::{Limits, Sending, Stream, StreamPlan};
use crate::rate::BitRate;
use crate::statistics::{confidence, growth, median};

/// Delays that grow more slowly than this, in seconds per second, count as not growing.
const THRESHOLD: f64 = 0.01;
/// The search ends when the bracket is narrower than this share of its upper end.
const SEARCH_RESOLUTION: f64 = 0.15;
/// Growth of the delays in the trains of a round, seconds per second.
///
/// Two trains are near the line's crossing, which is the result, but not so near that the queue runs empty. One is far off, for
/// the line's steepness. With three trains at these two slopes, the crossing has the least variance.
const SLOPES: [f64; 3] = [0.1, 0.1, 0.6];
/// Least and largest number of rounds for a final value, and the relative half width of an interval that is narrow.
const MIN_ROUNDS: usize = 8;
const MAX_ROUNDS: usize = 16;
const NARROW_HALF_WIDTH: f64 = 0.025;
/// Lengths of a train in the search and in the rounds, in packets and in seconds. It must be long enough to meet cross traffic.
const MIN_PACKETS: u32 = 60;
const ROUND_PACKETS: u32 = 250;
const SEARCH_SECONDS: f64 = 0.02;
const ROUND_SECONDS: f64 = 0.05;
/// Rest before a train, in lengths of the train.
const REST_LENGTHS: u64 = 3;
/// A train that lost a greater share than this was too fast, whatever its other probes show.
const MAX_LOSS: f64 = 0.05;
/// The lowest rate that is probed, bits per second.
const MIN_RATE: f64 = 50_000.0;
/// Number of trains without information after which the method gives up, and number of trains that the sender's machine
/// interrupted.
const MAX_SILENT: u32 = 60;
const MAX_INTERRUPTED: u32 = 200;
/// Number of trains of the search that are sent slower than planned before their rate counts as the fastest possible.
const MAX_SLOW: u32 = 8;
/// A train gives no information if a smaller share of it was sent as planned: the rest queued behind the part before.
const WHOLE: f64 = 0.7;
/// Shortest length of a train, as a share of its usual length.
const MIN_TRAIN_SHARE: f64 = 0.05;

/// One train of a round: its rate, bits per second; the growth of its delays, seconds per second; its length, s.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    rate: f64,
    slope: f64,
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// The first train, at the highest rate.
    Fastest,
    /// The search between a rate at which delays did not grow and one at which they did.
    Search,
    /// The rounds. The number is that of the current round's trains that have been reported.
    Round(usize),
}

/// The estimator of this method.
#[derive(Debug)]
pub struct Trains {
    limits: Limits,
    phase: Phase,
    low: f64,
    high: f64,
    rate: f64,
    /// Length of trains relative to the usual length. It is more if estimates scatter. It is less if the path's queue cannot hold
    /// the train, or if the sender is interrupted while it sends.
    length: f64,
    estimate: f64,
    /// The fastest train of the search that arrived.
    fastest: Option<Point>,
    round: Vec<Point>,
    rounds: Vec<Vec<Point>>,
    flat_rounds: u32,
    silent: u32,
    interrupted: u32,
    /// Number of trains that were sent slower than planned, in the search and in the rounds.
    slow_in_search: u32,
    slow_in_rounds: u32,
}

impl Trains {
    /// Makes an estimator for a path of these limits.
    pub fn new(limits: Limits) -> Trains {
        let rate = limits.rate_max.as_f64();
        Trains {
            limits,
            phase: Phase::Fastest,
            low: 0.0,
            high: rate,
            rate,
            length: 1.0,
            estimate: 0.0,
            fastest: None,
            round: Vec::new(),
            rounds: Vec::new(),
            flat_rounds: 0,
            silent: 0,
            interrupted: 0,
            slow_in_search: 0,
            slow_in_rounds: 0,
        }
    }

    fn plan(&self) -> StreamPlan {
        let bytes = self.limits.most_bytes;
        let (seconds, least, rests) = match self.phase {
            Phase::Fastest => (0.0, MIN_PACKETS, 0),
            Phase::Search => (SEARCH_SECONDS, MIN_PACKETS, REST_LENGTHS),
            Phase::Round(_) => (ROUND_SECONDS, ROUND_PACKETS, REST_LENGTHS),
        };
        let long = (self.rate * seconds / (8.0 * f64::from(bytes))).ceil().max(f64::from(least));
        let long = (long * self.length) as u32;
        let packets = long.max(MIN_PACKETS).min(self.limits.most_packets);
        StreamPlan::at(BitRate::from_f64(self.rate), bytes, packets, rests)
    }

    fn send(&mut self, rate: f64) -> EstimatorStep {
        let most = self.limits.rate_max.as_f64();
        self.rate = rate.clamp(MIN_RATE.min(most), most);
        EstimatorStep::Probe(self.plan())
    }

    /// Returns the observation of a train, and the error of its slope. The slope is infinite if too much of the train was lost.
    /// `None` if the train gives no information.
    fn point(stream: &Stream) -> Option<(Point, f64)> {
        let rate = stream.rate_sent();
        let stretch = stream.longest_stretch();
        let seconds = stretch.times.last().map_or(0.0, |last| last.0);
        if stream.loss() > MAX_LOSS {
            return Some((Point { rate, slope: f64::INFINITY, seconds }, 0.0));
        }
        // A receiver too busy to take its packets gives no reliable timestamps either.
        if f64::from(stream.overrun) > MAX_LOSS * stream.probes.len() as f64 {
            return None;
        }
        let sent: Vec<f64> = stretch.times.iter().map(|time| time.0).collect();
        if Trains::was_interrupted(stream)
            || (sent.len() as f64) < WHOLE * (stream.probes.len() - stream.lost()) as f64
        {
            return None;
        }
        let (slope, error) = growth(&sent, &stretch.delays())?;
        Some((Point { rate, slope, seconds }, error))
    }

    /// Whether pauses of the sender or stalls of the path left too little of a train, or pauses slowed it: between them its rate
    /// was another.
    fn was_interrupted(stream: &Stream) -> bool {
        let whole = WHOLE * stream.probes.len() as f64;
        ((stream.longest_len() - stream.held_up()) as f64) < whole
            || stream.sending() == Sending::Interrupted
    }

    /// Whether this train was sent slower than planned.
    fn was_slow(&self, point: Point) -> bool {
        point.rate < 0.9 * self.rate
    }

    /// Handles a train that was too long for its sender, the path, or its receiver.
    fn silence(&mut self) -> EstimatorStep {
        self.silent += 1;
        self.shorten()
    }

    /// Handles a train that was interrupted, as [`Trains::silence`] does.
    fn interruption(&mut self) -> EstimatorStep {
        self.interrupted += 1;
        self.shorten()
    }

    fn shorten(&mut self) -> EstimatorStep {
        if self.phase != Phase::Fastest {
            self.length = (self.length / 2.0).max(MIN_TRAIN_SHARE);
        }
        if self.silent > MAX_SILENT || self.interrupted > MAX_INTERRUPTED {
            return EstimatorStep::Done(Finding::bound(Bound::Unknown, self.high, &self.limits));
        }
        EstimatorStep::Probe(self.plan())
    }

    /// Handles the first train, and the trains of the search, which halves the bracket.
    fn search(&mut self, point: Point, error: f64, stream: &Stream) -> EstimatorStep {
        if point.slope.is_finite() && self.fastest.is_none_or(|known| point.rate > known.rate) {
            self.fastest = Some(point);
        }
        let grows = point.slope > THRESHOLD + error;
        if grows {
            self.high = point.rate.min(self.rate);
            if self.phase == Phase::Fastest {
                // A train that is too fast arrives at a rate above the available bandwidth.
                let arrived = stream.longest_stretch().intervals();
                let arrived =
                    arrived.map(|(_, out)| f64::from(stream.plan.bytes) * 8.0 / out.max(1e-12));
                self.high = arrived.map_or(self.high, |rate| self.high.min(rate * 1.05));
            }
        } else {
            self.low = self.low.max(point.rate.min(self.rate));
            let is_slow = self.was_slow(point);
            self.slow_in_search += u32::from(is_slow);
            if is_slow && self.slow_in_search < MAX_SLOW {
                return self.silence();
            }
            // The sender cannot, or must not, send faster.
            if self.phase == Phase::Fastest {
                return EstimatorStep::Done(Finding::bound(Bound::AtLeast, self.low, &self.limits));
            }
            // A faster train was sent, and its rate was above. The sender does not reach that rate any more.
            if is_slow {
                return EstimatorStep::Done(Finding::bound(Bound::Unknown, self.low, &self.limits));
            }
        }
        self.phase = Phase::Search;
        if self.high < 2.0 * MIN_RATE {
            return EstimatorStep::Done(Finding::bound(Bound::AtMost, self.high, &self.limits));
        }
        if self.high - self.low > SEARCH_RESOLUTION * self.high {
            return self.send((self.low + self.high) / 2.0);
        }
        self.estimate = (self.low + self.high) / 2.0;
        self.phase = Phase::Round(0);
        self.send_round(0)
    }

    fn send_round(&mut self, number: usize) -> EstimatorStep {
        let capacity = self.capacity();
        let most = SLOPES[SLOPES.len() - 1];
        let reach = (self.limits.rate_max.as_f64() - self.estimate).max(0.05 * self.estimate);
        let span = (most * capacity).min(reach) / most;
        self.phase = Phase::Round(number);
        self.send(self.estimate + span * SLOPES[number])
    }

    /// Returns the bottleneck's capacity as far as is known, bits per second: by the line, or before there is one, by the fastest
    /// train that arrived.
    fn capacity(&self) -> f64 {
        let line = self.line(self.rounds.iter().flatten());
        let known = line.map(|line| 1.0 / line.steepness);
        let first = || {
            let Point { rate, slope, .. } = self.fastest?;
            (slope > THRESHOLD).then(|| (rate - self.estimate) / slope)
        };
        known.or_else(first).unwrap_or(self.estimate).max(self.estimate)
    }

    fn add(&mut self, number: usize, point: Point) -> EstimatorStep {
        if point.slope == f64::INFINITY {
            return self.silence();
        }
        self.slow_in_rounds += u32::from(self.was_slow(point));
        self.round.push(point);
        if number + 1 < SLOPES.len() {
            return self.send_round(number + 1);
        }
        let round = std::mem::take(&mut self.round);
        // Judge the round as a whole: leaving out single trains that do not grow would select by chance.
        let slope = round.iter().map(|point| point.slope).sum::<f64>() / round.len() as f64;
        if slope < 2.0 * THRESHOLD {
            return self.flat_round();
        }
        self.rounds.push(round);
        let instants = self.instants();
        let Some(latest) = instants.last().copied() else { return self.silence() };
        let middle = median(&instants);
        self.estimate = if instants.len() < 3 { latest } else { middle };
        // Do not move beyond the observed range, or the next trains give no information.
        self.estimate = self.estimate.clamp(self.low * 0.5, self.limits.rate_max.as_f64());
        let half = self.half_width(&instants);
        let narrow = instants.len() >= MIN_ROUNDS && half < NARROW_HALF_WIDTH * middle;
        // Short trains give less information, so there are more rounds of them.
        let most_rounds = (MAX_ROUNDS as f64 / self.length.clamp(0.25, 1.0)) as usize;
        if narrow || instants.len() >= most_rounds {
            return EstimatorStep::Done(self.finding(&instants));
        }
        if instants.len().is_multiple_of(MIN_ROUNDS) && self.silent + self.interrupted == 0 {
            self.length = (self.length * 2.0).min(2.0);
        }
        self.send_round(0)
    }

    /// Handles a round whose delays do not grow: more is available than estimated.
    fn flat_round(&mut self) -> EstimatorStep {
        self.flat_rounds += 1;
        let most = self.limits.rate_max.as_f64();
        if self.flat_rounds > 2 * MAX_ROUNDS as u32 || self.estimate >= most {
            return EstimatorStep::Done(match self.instants() {
                instants if instants.len() >= MIN_ROUNDS / 2 => self.finding(&instants),
                _ => Finding::bound(Bound::AtLeast, self.estimate.min(most), &self.limits),
            });
        }
        self.estimate = (self.estimate * 1.1).min(most);
        self.send_round(0)
    }

    fn finding(&self, instants: &[f64]) -> Finding {
        let middle = median(instants);
        // The line would rest on rates that were not the planned ones.
        if self.slow_in_rounds as usize * 2 > self.rounds.len() * SLOPES.len() {
            return Finding::bound(Bound::Unknown, middle, &self.limits);
        }
        let half = self.half_width(instants).max(0.005 * middle);
        Finding::value(middle, middle - half, middle + half)
    }

    /// Returns half the width of the confidence interval: the wider one of two. The first follows from the scatter of the
    /// instants. The instants share the line's steepness, so the second follows from the line's crossing when each round in turn
    /// is left out (the jackknife).
    fn half_width(&self, instants: &[f64]) -> f64 {
        let count = self.rounds.len();
        let without = |left_out: usize| {
            let others = self.rounds.iter().enumerate().filter(|(place, _)| *place != left_out);
            self.line(others.flat_map(|(_, round)| round)).map(|line| line.crossing)
        };
        let crossings: Vec<f64> = (0..count).filter_map(without).collect();
        let mean = crossings.iter().sum::<f64>() / crossings.len().max(1) as f64;
        let square: f64 = crossings.iter().map(|crossing| (crossing - mean).powi(2)).sum();
        let error = (square * (count as f64 - 1.0).max(0.0) / count.max(1) as f64).sqrt();
        confidence(instants).max(2.2 * error)
    }

    /// Returns an estimate for each round, by the steepness of the line through all.
    fn instants(&self) -> Vec<f64> {
        let Some(Line { steepness, .. }) = self.line(self.rounds.iter().flatten()) else {
            return Vec::new();
        };
        let of = |round: &Vec<Point>| {
            let weight: f64 = round.iter().map(|point| point.seconds).sum();
            let sum = round.iter().map(|p| p.seconds * (p.rate - p.slope / steepness)).sum::<f64>();
            sum / weight
        };
        self.rounds.iter().map(of).filter(|instant| *instant > 0.0).collect()
    }

    /// Fits the line to these trains by weighted least squares. The line is never so flat that it would cross zero at a negative
    /// rate. It is never so steep that the capacity would be below a rate that got through.
    fn line<'a>(&self, points: impl Iterator<Item = &'a Point> + Clone) -> Option<Line> {
        let weight: f64 = points.clone().map(|point| point.seconds).sum();
        if weight <= 0.0 {
            return None;
        }
        let mean = |value: fn(&Point) -> f64| -> f64 {
            points.clone().map(|point| point.seconds * value(point)).sum::<f64>() / weight
        };
        let (rate, slope) = (mean(|point| point.rate), mean(|point| point.slope));
        let (mut both, mut square) = (0.0, 0.0);
        for point in points {
            let off = point.rate - rate;
            both += point.seconds * off * (point.slope - slope);
            square += point.seconds * off * off;
        }
        let steepest = 1.0 / self.low.max(MIN_RATE).min(rate);
        let flattest = (slope / rate).min(steepest);
        let found = if square > 0.0 { both / square } else { steepest };
        let steepness = found.clamp(flattest, steepest);
        Some(Line { steepness, crossing: rate - slope / steepness })
    }
}

/// A line through trains. Its steepness is 1 / C, and it crosses zero at A.
#[derive(Clone, Copy, Debug)]
struct Line {
    steepness: f64,
    crossing: f64,
}

impl Estimator for Trains {
    fn step(&mut self, seen: Option<&Stream>) -> EstimatorStep {
        let Some(stream) = seen else { return EstimatorStep::Probe(self.plan()) };
        match (Trains::point(stream), self.phase) {
            (None, _) if Trains::was_interrupted(stream) => self.interruption(),
            (None, _) => self.silence(),
            (Some((point, _)), Phase::Round(number)) => self.add(number, point),
            (Some((point, error)), _) => self.search(point, error, stream),
        }
    }

    fn range(&self) -> (f64, f64) {
        match self.instants().as_slice() {
            [] => (self.low, self.high),
            instants => {
                let (middle, half) = (median(instants), self.half_width(instants));
                ((middle - half).max(0.0), middle + half)
            }
        }
    }
}
