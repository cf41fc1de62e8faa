//! A fleet of [`crate::slops`]: streams at one rate, judged together.

use crate::path::{Sending, Stream};
use crate::statistics::{median, quantile, Tried};
use crate::trend::{Tests, Trend};

/// Streams in a fleet.
const FLEET: usize = 12;
/// The share of a fleet's streams that decides.
const AGGREGATE: f64 = 0.6;
/// Losses: a stream with more is lossy, a fleet with a stream that has many is above.
const LOSSY: f64 = 0.03;
const MANY_LOST: f64 = 0.15;
/// A stream of which fewer packets are left says nothing.
pub const LEAST_LENGTH: usize = 36;
/// The share of a stream between two interruptions that suffices, where that is more than [`LEAST_LENGTH`].
const LEAST_SHARE: f64 = 0.36;
/// Spoilt streams are sent again, so many times in a fleet, and so many more for each stream that was not spoilt.
const SPOILT: usize = 12;
const SPOILT_FOR_EACH: usize = 2;
/// The quartiles of rates that are alike are no further apart than this share of their median.
const ALIKE: f64 = 0.1;

/// The verdict of a fleet on its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// More than is available.
    Above,
    /// No more than is available.
    Below,
    /// In the region in which that varied.
    Grey,
    /// Nothing.
    Useless,
}

/// One stream of a fleet: the rate at which it was sent, and its trend, `None` where too little is left of it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Judged {
    sent: f64,
    trend: Option<Trend>,
}

/// The streams of a fleet that are back.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fleet {
    /// Those that the sender was not interrupted in.
    streams: Vec<Judged>,
    spoilt: Vec<Judged>,
    lossy: usize,
}

impl Fleet {
    /// Adds a stream; whether its sender's interruptions spoilt it, so that another has to be sent in its place.
    pub fn add(&mut self, stream: &Stream) -> bool {
        let sent = stream.rate_sent();
        if stream.loss() > MANY_LOST {
            // The whole fleet is above.
            self.streams = vec![Judged { sent, trend: Some(Trend::Increasing) }; FLEET];
            return false;
        }
        let delays = stream.longest_stretch().delays();
        let tests = if delays.len() < LEAST_LENGTH { None } else { Tests::of(&delays) };
        let judged = Judged { sent, trend: tests.map(Tests::trend) };
        let least = LEAST_LENGTH.max((LEAST_SHARE * stream.probes.len() as f64) as usize);
        if stream.longest_len() < least || stream.sending() == Sending::Interrupted {
            self.spoilt.push(judged);
            return true;
        }
        self.lossy += usize::from(stream.loss() > LOSSY);
        self.streams.push(judged);
        false
    }

    /// Whether there are enough streams, or so many spoilt ones that there will never be.
    pub fn is_complete(&self) -> bool {
        let good = self.streams.len();
        good >= FLEET || self.spoilt.len() >= SPOILT + SPOILT_FOR_EACH * good
    }

    /// Whether hardly any stream was sent as planned, but interruptions slowed all down alike: then that is the rate
    /// that was tried.
    fn is_slowed(&self) -> bool {
        if self.streams.len() >= FLEET / 2 || self.spoilt.len() < FLEET / 2 {
            return false;
        }
        let sent: Vec<f64> = self.spoilt.iter().map(|one| one.sent).collect();
        let between = quantile(&sent, 0.75) - quantile(&sent, 0.25);
        self.spoilt.iter().all(|one| one.trend.is_some()) && between <= ALIKE * median(&sent)
    }

    /// The streams that count.
    fn counting(&self) -> &[Judged] {
        if self.is_slowed() {
            &self.spoilt
        } else {
            &self.streams
        }
    }

    /// How many of the fleet's streams grow, do not grow, and say anything.
    fn counts(&self) -> (usize, usize, usize) {
        let trends = || self.counting().iter().filter_map(|one| one.trend);
        let of = |wanted| trends().filter(|trend| *trend == wanted).count();
        (of(Trend::Increasing), of(Trend::None), trends().count())
    }

    /// The rate at which its streams were sent.
    pub fn rate_sent(&self) -> f64 {
        median(&self.counting().iter().map(|one| one.sent).collect::<Vec<f64>>())
    }

    /// Where little may wait, too high a rate shows in losses and not in delays.
    fn is_lossy(&self) -> bool {
        self.lossy * 2 >= FLEET
    }

    /// The verdict on `rate`, at which it was sent. Where interruptions slowed its streams down, each says something
    /// of its own rate.
    pub fn tried(&self, rate: f64) -> Vec<Tried> {
        if self.is_slowed() {
            let one = |one: &Judged| {
                let yes = match one.trend? {
                    Trend::Increasing => 1.0,
                    Trend::Unclear => 0.5,
                    Trend::None => 0.0,
                };
                (one.sent > 0.0).then_some(Tried { at: one.sent, yes, of: 1.0 })
            };
            return self.spoilt.iter().filter_map(one).collect();
        }
        let (growing, flat, all) = self.counts();
        let unclear = (all - growing - flat) as f64;
        let yes = if self.is_lossy() { all as f64 } else { growing as f64 + unclear / 2.0 };
        // A rate that was never sent says nothing.
        Vec::from_iter((rate > 0.0).then_some(Tried { at: rate, yes, of: all as f64 }))
    }

    /// Of the streams together.
    pub fn judge(&self) -> Verdict {
        if self.is_lossy() {
            return Verdict::Above;
        }
        let (growing, flat, all) = self.counts();
        if all < FLEET / 2 {
            return Verdict::Useless;
        }
        match all as f64 * AGGREGATE {
            enough if growing as f64 >= enough => Verdict::Above,
            enough if flat as f64 >= enough => Verdict::Below,
            _ => Verdict::Grey,
        }
    }
}
