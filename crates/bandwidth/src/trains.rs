//! Probe trains of adaptive size: our own method, from what is published of Kite2.
//!
//! Kirova et al., Future Internet 11(8):179 (2019), section 2.2.1: trains are sent ever faster or slower to find where
//! the receiving interval begins to grow; "instant" estimates are made again and again and analysed to one final
//! value; the size of the train follows from the accuracy that is wanted. How it does so inside is not published; this
//! is not Kite2.
//!
//! A train at rate r over a bottleneck of capacity C, of which A is available, makes delays grow by
//!
//! ```text
//! s(r) = (r - A) / C  seconds per second  where r > A,  and 0 where r <= A
//! ```
//!
//! 1. A train at the highest rate. Where delays do not grow, that much is available *at least*. Else the search begins
//!    below the rate at which it arrived, and halves the bracket until it is [`ROUGH`].
//! 2. Rounds of trains above the estimate so far, where the bottleneck never falls idle and s(r) is a line but for the
//!    chance in the cross traffic. Their rates are such that delays grow by [`SLOPES`], as by the line so far: as much
//!    beyond that chance on a path that is nearly full, where these rates are several times A, as on one that is free.
//!    Of all trains so far the line is drawn, each weighted by its length; where it crosses zero is A, and by its
//!    steepness each round has an instant estimate of its own. A train that lost probes or was interrupted by its
//!    sender's machine is sent again, half as long from then on; rounds whose trains do not grow raise the estimate.
//! 3. The final value is the median of the instants, its confidence interval that of a median. Rounds go on until it is
//!    narrow, or there have been [`MOST_ROUNDS`].

use crate::estimate::{Bound, Estimator, Finding, Step};
use crate::path::{Limits, Plan, Sending, Stream};
use crate::rate::BitRate;
use crate::statistics::{confidence, growth, median};

/// Delays that grow by less than this, seconds per second, do not grow.
const THRESHOLD: f64 = 0.01;
/// A bracket of this width, relative to its upper end, is left to the rounds.
const ROUGH: f64 = 0.15;
/// How fast delays are to grow in the trains of a round, seconds per second: two near the line's crossing, which is what
/// is asked for, but not so near that the queue runs empty, and one far off, for the line's steepness. Of three trains
/// at these two slopes a line's crossing has the least variance so.
const SLOPES: [f64; 3] = [0.1, 0.1, 0.6];
/// Rounds for a final value, and the relative half width of its interval that is narrow.
const LEAST_ROUNDS: usize = 8;
const MOST_ROUNDS: usize = 16;
const NARROW: f64 = 0.025;
/// Lengths of a train in the search and in the rounds: packets, and seconds, for cross traffic has to be seen too.
const LEAST_PACKETS: u32 = 60;
const ROUND_PACKETS: u32 = 250;
const SEARCH_SECONDS: f64 = 0.02;
const ROUND_SECONDS: f64 = 0.05;
/// How many times a train's own length is rested before it.
const RESTS: u64 = 3;
/// A train of which more than this share is lost was too fast, whatever those that arrived say.
const LOSSY: f64 = 0.05;
/// The lowest rate that is probed, bits per second.
const LEAST_RATE: f64 = 50_000.0;
/// Trains that say nothing before it is given up; those that the sender's machine interrupted.
const MOST_SILENT: u32 = 60;
const MOST_INTERRUPTED: u32 = 200;
/// Trains of the search that are sent slower than was wanted, before that is taken for the fastest that can be.
const MOST_SLOW: u32 = 8;
/// A train of which a lesser share was sent as planned says nothing: the queue began it with what was before.
const WHOLE: f64 = 0.7;
/// Trains are not made shorter than this share of their usual length.
const SHORTEST: f64 = 0.05;

/// One train of a round: the rate at which it was sent, how its delays grew, how long it was.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    rate: f64,
    slope: f64,
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// The first train.
    Fastest,
    /// Between a rate that did not grow and one that did.
    Search,
    /// Rounds; the number of trains of this one that are back.
    Round(usize),
}

/// The estimator.
#[derive(Debug)]
pub struct Trains {
    limits: Limits,
    phase: Phase,
    low: f64,
    high: f64,
    rate: f64,
    /// How much longer trains are than usual, because estimates scatter; or shorter, so that the path's queue holds
    /// them, or that the sender is not interrupted while it sends them.
    length: f64,
    estimate: f64,
    /// Of the search's trains that arrived.
    fastest: Option<Point>,
    round: Vec<Point>,
    rounds: Vec<Vec<Point>>,
    flat_rounds: u32,
    silent: u32,
    interrupted: u32,
    /// Trains that were sent slower than was wanted, of the search and of the rounds.
    slow_in_search: u32,
    slow_in_rounds: u32,
}

impl Trains {
    /// An estimator at its beginning.
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

    fn plan(&self) -> Plan {
        let bytes = self.limits.most_bytes;
        let (seconds, least, rests) = match self.phase {
            Phase::Fastest => (0.0, LEAST_PACKETS, 0),
            Phase::Search => (SEARCH_SECONDS, LEAST_PACKETS, RESTS),
            Phase::Round(_) => (ROUND_SECONDS, ROUND_PACKETS, RESTS),
        };
        let long = (self.rate * seconds / (8.0 * f64::from(bytes))).ceil().max(f64::from(least));
        let long = (long * self.length) as u32;
        let packets = long.max(LEAST_PACKETS).min(self.limits.most_packets);
        Plan::at(BitRate::from_f64(self.rate), bytes, packets, rests)
    }

    fn send(&mut self, rate: f64) -> Step {
        let most = self.limits.rate_max.as_f64();
        self.rate = rate.clamp(LEAST_RATE.min(most), most);
        Step::Probe(self.plan())
    }

    /// What a train says; its slope is beyond all measure where too much of it was lost, `None` where nothing can be
    /// said.
    fn point(stream: &Stream) -> Option<(Point, f64)> {
        let rate = stream.rate_sent();
        let stretch = stream.longest_stretch();
        let seconds = stretch.times.last().map_or(0.0, |last| last.0);
        if stream.loss() > LOSSY {
            return Some((Point { rate, slope: f64::INFINITY, seconds }, 0.0));
        }
        // A receiver that has no time for what comes cannot be believed when it came, either.
        if f64::from(stream.overrun) > LOSSY * stream.probes.len() as f64 {
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

    /// Whether the sender's pauses left too little of a train, or slowed it down: between them its rate was another.
    fn was_interrupted(stream: &Stream) -> bool {
        let whole = WHOLE * stream.probes.len() as f64;
        (stream.longest_len() as f64) < whole || stream.sending() == Sending::Interrupted
    }

    /// Whether this train was sent slower than was wanted.
    fn was_slow(&self, point: Point) -> bool {
        point.rate < 0.9 * self.rate
    }

    /// The train was too long for its sender, for the path, or for its receiver.
    fn silence(&mut self) -> Step {
        self.silent += 1;
        self.shorten()
    }

    /// As [`Trains::silence`], of a train that was interrupted.
    fn interruption(&mut self) -> Step {
        self.interrupted += 1;
        self.shorten()
    }

    fn shorten(&mut self) -> Step {
        if self.phase != Phase::Fastest {
            self.length = (self.length / 2.0).max(SHORTEST);
        }
        if self.silent > MOST_SILENT || self.interrupted > MOST_INTERRUPTED {
            return Step::Done(Finding::bound(Bound::Unknown, self.high, &self.limits));
        }
        Step::Probe(self.plan())
    }

    /// The first train, and then halving.
    fn search(&mut self, point: Point, error: f64, stream: &Stream) -> Step {
        if point.slope.is_finite() && self.fastest.is_none_or(|known| point.rate > known.rate) {
            self.fastest = Some(point);
        }
        let grows = point.slope > THRESHOLD + error;
        if grows {
            self.high = point.rate.min(self.rate);
            if self.phase == Phase::Fastest {
                // What arrives of a train that is too fast is more than is available.
                let arrived = stream.longest_stretch().intervals();
                let arrived =
                    arrived.map(|(_, out)| f64::from(stream.plan.bytes) * 8.0 / out.max(1e-12));
                self.high = arrived.map_or(self.high, |rate| self.high.min(rate * 1.05));
            }
        } else {
            self.low = self.low.max(point.rate.min(self.rate));
            let is_slow = self.was_slow(point);
            self.slow_in_search += u32::from(is_slow);
            if is_slow && self.slow_in_search < MOST_SLOW {
                return self.silence();
            }
            // Nothing faster can be sent, or is to be.
            if self.phase == Phase::Fastest {
                return Step::Done(Finding::bound(Bound::AtLeast, self.low, &self.limits));
            }
            // A faster one was, and was above; but the sender does not get there any more.
            if is_slow {
                return Step::Done(Finding::bound(Bound::Unknown, self.low, &self.limits));
            }
        }
        self.phase = Phase::Search;
        if self.high < 2.0 * LEAST_RATE {
            return Step::Done(Finding::bound(Bound::AtMost, self.high, &self.limits));
        }
        if self.high - self.low > ROUGH * self.high {
            return self.send((self.low + self.high) / 2.0);
        }
        self.estimate = (self.low + self.high) / 2.0;
        self.phase = Phase::Round(0);
        self.send_round(0)
    }

    fn send_round(&mut self, number: usize) -> Step {
        let capacity = self.capacity();
        let most = SLOPES[SLOPES.len() - 1];
        let reach = (self.limits.rate_max.as_f64() - self.estimate).max(0.05 * self.estimate);
        let span = (most * capacity).min(reach) / most;
        self.phase = Phase::Round(number);
        self.send(self.estimate + span * SLOPES[number])
    }

    /// The bottleneck's capacity as far as is known: by the line, before there is one by the fastest train that arrived.
    fn capacity(&self) -> f64 {
        let line = self.line(self.rounds.iter().flatten());
        let known = line.map(|line| 1.0 / line.steepness);
        let first = || {
            let Point { rate, slope, .. } = self.fastest?;
            (slope > THRESHOLD).then(|| (rate - self.estimate) / slope)
        };
        known.or_else(first).unwrap_or(self.estimate).max(self.estimate)
    }

    fn add(&mut self, number: usize, point: Point) -> Step {
        if point.slope == f64::INFINITY {
            return self.silence();
        }
        self.slow_in_rounds += u32::from(self.was_slow(point));
        self.round.push(point);
        if number + 1 < SLOPES.len() {
            return self.send_round(number + 1);
        }
        let round = std::mem::take(&mut self.round);
        // Of the round together: to leave out single trains that do not grow would be to choose by chance.
        let slope = round.iter().map(|point| point.slope).sum::<f64>() / round.len() as f64;
        if slope < 2.0 * THRESHOLD {
            return self.flat_round();
        }
        self.rounds.push(round);
        let instants = self.instants();
        let Some(latest) = instants.last().copied() else { return self.silence() };
        let middle = median(&instants);
        self.estimate = if instants.len() < 3 { latest } else { middle };
        // Not further than what was seen allows, or the next trains say nothing.
        self.estimate = self.estimate.clamp(self.low * 0.5, self.limits.rate_max.as_f64());
        let half = self.half_width(&instants);
        let narrow = instants.len() >= LEAST_ROUNDS && half < NARROW * middle;
        // Short trains say less, so there are more of them.
        let most_rounds = (MOST_ROUNDS as f64 / self.length.clamp(0.25, 1.0)) as usize;
        if narrow || instants.len() >= most_rounds {
            return Step::Done(self.finding(&instants));
        }
        if instants.len().is_multiple_of(LEAST_ROUNDS) && self.silent + self.interrupted == 0 {
            self.length = (self.length * 2.0).min(2.0);
        }
        self.send_round(0)
    }

    /// There is more than was thought.
    fn flat_round(&mut self) -> Step {
        self.flat_rounds += 1;
        let most = self.limits.rate_max.as_f64();
        if self.flat_rounds > 2 * MOST_ROUNDS as u32 || self.estimate >= most {
            return Step::Done(match self.instants() {
                instants if instants.len() >= LEAST_ROUNDS / 2 => self.finding(&instants),
                _ => Finding::bound(Bound::AtLeast, self.estimate.min(most), &self.limits),
            });
        }
        self.estimate = (self.estimate * 1.1).min(most);
        self.send_round(0)
    }

    fn finding(&self, instants: &[f64]) -> Finding {
        let middle = median(instants);
        // The line would stand on rates that lie anywhere.
        if self.slow_in_rounds as usize * 2 > self.rounds.len() * SLOPES.len() {
            return Finding::bound(Bound::Unknown, middle, &self.limits);
        }
        let half = self.half_width(instants).max(0.005 * middle);
        Finding::value(middle, middle - half, middle + half)
    }

    /// Half the width of the confidence interval: by the scatter of the instants, or, as these have the line's steepness
    /// in common, by what becomes of the line's crossing when one round after the other is left out (the jackknife);
    /// whichever is wider.
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

    /// An estimate for each round, by the steepness of the line through all.
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

    /// The line through these trains, by weighted least squares; never so flat that it would cross below 0, nor so steep
    /// that the capacity would be below a rate that got through.
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
        let steepest = 1.0 / self.low.max(LEAST_RATE).min(rate);
        let flattest = (slope / rate).min(steepest);
        let found = if square > 0.0 { both / square } else { steepest };
        let steepness = found.clamp(flattest, steepest);
        Some(Line { steepness, crossing: rate - slope / steepness })
    }
}

/// A line through trains: 1 / C, and A.
#[derive(Clone, Copy, Debug)]
struct Line {
    steepness: f64,
    crossing: f64,
}

impl Estimator for Trains {
    fn step(&mut self, seen: Option<&Stream>) -> Step {
        let Some(stream) = seen else { return Step::Probe(self.plan()) };
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
