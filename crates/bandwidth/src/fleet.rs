//! A fleet of [`crate::slops`]: streams at one rate that are judged together (Jain and Dovrolis, SIGCOMM 2002).

use crate::path::{Sending, Stream};
use crate::statistics::{median, quantile, Tried};
use crate::trend::{Tests, Trend};

/// Number of streams in a fleet.
const STREAMS_PER_FLEET: usize = 12;
/// Share of a fleet's streams that decides its verdict.
const DECISIVE_SHARE: f64 = 0.6;
/// A stream that loses a greater share than `MAX_LOSS` is lossy. A stream that loses a greater share than `DECISIVE_LOSS` decides
/// that the fleet is above.
const MAX_LOSS: f64 = 0.03;
const DECISIVE_LOSS: f64 = 0.15;
/// Number of packets that a stream must keep to be judged.
pub const MIN_LENGTH: usize = 36;
/// Share of a stream that must lie between two interruptions, if that is more than [`MIN_LENGTH`].
const MIN_SHARE: f64 = 0.36;
/// Number of spoilt streams that a fleet sends again, and the additional number for each stream that was not spoilt.
const SPOILT_ALLOWED: usize = 12;
const SPOILT_ALLOWED_PER_STREAM: usize = 2;
/// Rates are alike if their quartiles are no further apart than this share of their median.
const MAX_QUARTILE_SPREAD: f64 = 0.1;

/// The verdict of a fleet on its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The rate is more than is available.
    Above,
    /// The rate is no more than is available.
    Below,
    /// The rate is in the grey region, in which the available bandwidth varied.
    Grey,
    /// The fleet says nothing.
    Useless,
}

/// One stream of a fleet: the rate at which it was sent, and its trend; `None` if too little of the stream is left.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Judged {
    sent: f64,
    trend: Option<Trend>,
}

/// The streams of a fleet that have been reported so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fleet {
    /// The streams during which the sender was not interrupted.
    streams: Vec<Judged>,
    spoilt: Vec<Judged>,
    lossy: usize,
}

impl Fleet {
    /// Adds a stream. Returns whether the sender's interruptions spoilt the stream, so that another has to be sent in its place.
    pub fn add(&mut self, stream: &Stream) -> bool {
        let sent = stream.rate_sent();
        if stream.loss() > DECISIVE_LOSS {
            // This stream alone decides that the whole fleet is above.
            self.streams = vec![Judged { sent, trend: Some(Trend::Increasing) }; STREAMS_PER_FLEET];
            return false;
        }
        let delays = stream.longest_stretch().delays();
        let tests = if delays.len() < MIN_LENGTH { None } else { Tests::of(&delays) };
        let judged = Judged { sent, trend: tests.map(Tests::trend) };
        let least = MIN_LENGTH.max((MIN_SHARE * stream.probes.len() as f64) as usize);
        if stream.longest_len() - stream.held_up() < least
            || stream.sending() == Sending::Interrupted
        {
            self.spoilt.push(judged);
            return true;
        }
        self.lossy += usize::from(stream.loss() > MAX_LOSS);
        self.streams.push(judged);
        false
    }

    /// Whether the fleet has enough streams, or so many spoilt ones that it will never have enough.
    pub fn is_complete(&self) -> bool {
        let good = self.streams.len();
        good >= STREAMS_PER_FLEET
            || self.spoilt.len() >= SPOILT_ALLOWED + SPOILT_ALLOWED_PER_STREAM * good
    }

    /// Whether hardly any stream was sent as planned, but interruptions slowed all streams alike. The fleet then judges that
    /// slower rate.
    fn is_slowed(&self) -> bool {
        if self.streams.len() >= STREAMS_PER_FLEET / 2 || self.spoilt.len() < STREAMS_PER_FLEET / 2
        {
            return false;
        }
        let sent: Vec<f64> = self.spoilt.iter().map(|one| one.sent).collect();
        let between = quantile(&sent, 0.75) - quantile(&sent, 0.25);
        self.spoilt.iter().all(|one| one.trend.is_some())
            && between <= MAX_QUARTILE_SPREAD * median(&sent)
    }

    /// Returns the streams that count for the verdict.
    fn counting(&self) -> &[Judged] {
        if self.is_slowed() {
            &self.spoilt
        } else {
            &self.streams
        }
    }

    /// Returns how many of the fleet's streams grow, do not grow, and have a trend at all.
    fn counts(&self) -> (usize, usize, usize) {
        let trends = || self.counting().iter().filter_map(|one| one.trend);
        let of = |wanted| trends().filter(|trend| *trend == wanted).count();
        (of(Trend::Increasing), of(Trend::None), trends().count())
    }

    /// Returns the median rate at which the fleet's streams were sent, bits per second.
    pub fn rate_sent(&self) -> f64 {
        median(&self.counting().iter().map(|one| one.sent).collect::<Vec<f64>>())
    }

    /// Whether losses show that the rate is too high. On a path with a short queue, delays hardly grow.
    fn is_lossy(&self) -> bool {
        self.lossy * 2 >= STREAMS_PER_FLEET
    }

    /// Returns the observations at `rate`, at which the fleet was sent. If interruptions slowed its streams, each one is an
    /// observation at its own rate.
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
        // A rate that was never sent gives no observation.
        Vec::from_iter((rate > 0.0).then_some(Tried { at: rate, yes, of: all as f64 }))
    }

    /// Returns the verdict of all streams together.
    pub fn judge(&self) -> Verdict {
        if self.is_lossy() {
            return Verdict::Above;
        }
        let (growing, flat, all) = self.counts();
        if all < STREAMS_PER_FLEET / 2 {
            return Verdict::Useless;
        }
        match all as f64 * DECISIVE_SHARE {
            enough if growing as f64 >= enough => Verdict::Above,
            enough if flat as f64 >= enough => Verdict::Below,
            _ => Verdict::Grey,
        }
    }
}
