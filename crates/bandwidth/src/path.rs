//! A path, as an estimator sees it: a stream of probes goes in, and what became of each comes back.

use crate::rate::BitRate;
use crate::statistics::median;

/// A stream that was sent at a lesser share of the rate that was wanted fell short.
pub(crate) const FELL_SHORT: f64 = 0.95;

/// A stream of probes to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How many, at least 2.
    pub packets: u32,
    /// Length of each as an IP packet.
    pub bytes: u32,
    /// Nanoseconds from one to the next.
    pub interval: u64,
    /// Nanoseconds of silence before it, so that the path recovers from the one before.
    pub rest: u64,
}

impl Plan {
    /// Packets of `bytes` at `rate`, after a rest of `rests` times as long as the stream.
    pub fn at(rate: BitRate, bytes: u32, packets: u32, rests: u64) -> Plan {
        let interval = rate.interval(bytes).max(1);
        Plan { packets, bytes, interval, rest: interval * u64::from(packets) * rests }
    }

    /// The rate that is wanted.
    pub fn rate(&self) -> f64 {
        f64::from(self.bytes) * 8e9 / self.interval as f64
    }

    /// Nanoseconds from the first to the last.
    pub fn duration(&self) -> u64 {
        self.interval * u64::from(self.packets.saturating_sub(1))
    }
}

/// What became of one probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// When it was sent, nanoseconds of the sender's clock.
    pub sent: i64,
    /// When it arrived, nanoseconds of the receiver's clock, which is another one; `None` where it was lost.
    pub received: Option<i64>,
}

/// A stream as it was sent and received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// What was wanted.
    pub plan: Plan,
    /// Each probe, in the order of sending.
    pub probes: Vec<Probe>,
    /// Probes that arrived before one that was sent earlier.
    pub reordered: u32,
    /// Of the lost ones those that came through, but found the receiver's buffer full: its machine is too busy.
    pub overrun: u32,
}

/// How the sender kept to a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// At the rate that was wanted.
    AsPlanned,
    /// Most probes were on time, but pauses in its longest stretch made that slower: another program had the processor.
    Interrupted,
    /// Most probes were late: this machine cannot send at this rate.
    TooSlow,
}

/// A stretch of a stream that was sent as planned: both times of each probe in seconds, from the first one on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stretch {
    /// Sent and received.
    pub times: Vec<(f64, f64)>,
}

impl Stream {
    /// The share of the probes that the path lost.
    pub fn loss(&self) -> f64 {
        self.lost_on_path() as f64 / self.probes.len().max(1) as f64
    }

    /// How many the path lost; what the receiver's machine lost says nothing of it.
    pub fn lost_on_path(&self) -> usize {
        self.lost().saturating_sub(self.overrun as usize)
    }

    /// How many did not arrive.
    pub fn lost(&self) -> usize {
        self.probes.iter().filter(|probe| probe.received.is_none()).count()
    }

    /// The rate at which its longest stretch was really sent, bits per second: by first and last, for a short pause of
    /// the sender between them lets the path recover as any other gap does.
    pub fn rate_sent(&self) -> f64 {
        let longest = self.longest();
        let (Some(first), Some(last)) = (longest.first(), longest.last()) else { return 0.0 };
        let bits = f64::from(self.plan.bytes) * 8.0 * (longest.len() - 1) as f64;
        bits * 1e9 / (last.sent.saturating_sub(first.sent) as f64).max(1.0)
    }

    /// How the sender kept to the plan.
    pub fn sending(&self) -> Sending {
        if self.rate_sent() >= FELL_SHORT * self.plan.rate() {
            return Sending::AsPlanned;
        }
        let gaps = self.probes.windows(2).map(|pair| pair[1].sent.saturating_sub(pair[0].sent));
        let usual_gap = median(&gaps.map(|gap| gap as f64).collect::<Vec<f64>>());
        if usual_gap * FELL_SHORT > self.plan.interval as f64 {
            Sending::TooSlow
        } else {
            Sending::Interrupted
        }
    }

    /// How many probes are in the longest stretch, those that were lost too.
    pub fn longest_len(&self) -> usize {
        self.longest().len()
    }

    /// The longest stretch without a pause of the sender beyond twice the interval, or a millisecond where that is
    /// more (pathload's rule). Lost probes are left out.
    pub fn longest_stretch(&self) -> Stretch {
        Stretch::of(self.longest())
    }

    fn longest(&self) -> &[Probe] {
        let longest_gap = (2 * self.plan.interval).max(self.plan.interval + 1_000_000) as i64;
        let breaks = |pair: &[Probe]| pair[1].sent.saturating_sub(pair[0].sent) > longest_gap;
        let mut best: &[Probe] = &[];
        let mut begin = 0;
        for end in 1..=self.probes.len() {
            if end == self.probes.len() || breaks(&self.probes[end - 1..=end]) {
                if end - begin > best.len() {
                    best = &self.probes[begin..end];
                }
                begin = end;
            }
        }
        best
    }
}

impl Stretch {
    fn of(probes: &[Probe]) -> Stretch {
        let arrived = || probes.iter().filter_map(|probe| Some((probe.sent, probe.received?)));
        let Some((first_sent, first_received)) = arrived().next() else {
            return Stretch::default();
        };
        let seconds = |later: i64, first: i64| later.saturating_sub(first) as f64 * 1e-9;
        let times = arrived()
            .map(|(sent, received)| (seconds(sent, first_sent), seconds(received, first_received)));
        Stretch { times: times.collect() }
    }

    /// One-way delays beyond that of the first probe, seconds: the clocks' offset is gone.
    pub fn delays(&self) -> Vec<f64> {
        self.times.iter().map(|(sent, received)| received - sent).collect()
    }

    /// Mean interval sent and received, seconds; `None` for fewer than two probes.
    pub fn intervals(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.times.first()?, self.times.last()?);
        let gaps = (self.times.len() - 1) as f64;
        (gaps > 0.0).then(|| ((last.0 - first.0) / gaps, (last.1 - first.1) / gaps))
    }
}

/// What a path and the machines at its ends can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest IP packet that goes through whole.
    pub most_bytes: u32,
    /// The highest rate that is probed.
    pub rate_max: BitRate,
    /// The most probes in a stream.
    pub most_packets: u32,
}

/// Why a path could not be probed.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The connection, or a socket.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other end does not want us, or says something that it should not.
    #[error("the other end: {0}")]
    Peer(String),
}

/// A path that streams can be sent over.
pub trait Path {
    /// What it can do.
    fn limits(&self) -> Limits;

    /// Rests, sends a stream, and tells what became of it.
    fn probe(&mut self, plan: &Plan) -> Result<Stream, PathError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_was_sent_has_the_pauses_in_it() {
        // 8,000 bits every 10 us, 0.8 Gbit/s; a tenth of the gaps is 110 us, which makes half of that.
        let plan = Plan { packets: 101, bytes: 1000, interval: 10_000, rest: 0 };
        let at = |number: i64| number * 10_000 + number / 10 * 100_000;
        let probes = (0..101).map(|number| Probe { sent: at(number), received: Some(at(number)) });
        let stream = Stream { plan, probes: probes.collect(), reordered: 0, overrun: 0 };
        assert_eq!(stream.rate_sent(), 0.4e9);
        // Beyond a millisecond a pause ends the stretch.
        let mut broken = stream.clone();
        broken.probes[10..].iter_mut().for_each(|probe| probe.sent += 10_000_000);
        assert!((0.39e9..0.41e9).contains(&broken.rate_sent()), "{}", broken.rate_sent());
    }

    #[test]
    fn pauses_are_told_from_a_sender_that_is_too_slow() {
        let plan = Plan { packets: 101, bytes: 1000, interval: 10_000, rest: 0 };
        let sending = |at: fn(i64) -> i64| {
            let probe = |number| Probe { sent: at(number), received: Some(at(number)) };
            let probes = (0..101).map(probe).collect();
            Stream { plan, probes, reordered: 0, overrun: 0 }.sending()
        };
        assert_eq!(sending(|number| number * 10_000), Sending::AsPlanned);
        assert_eq!(sending(|number| number * 10_400), Sending::AsPlanned);
        assert_eq!(sending(|number| number * 11_000), Sending::TooSlow);
        assert_eq!(sending(|number| number * 10_000 + number / 10 * 50_000), Sending::Interrupted);
        // A pause that ends a stretch does not slow the stretches beside it.
        assert_eq!(sending(|n| n * 10_000 + n / 50 * 5_000_000), Sending::AsPlanned);
    }
}
