//! A path as an estimator sees it: a stream of probes goes in, and a report on each probe comes back.

use crate::rate::BitRate;
use crate::statistics::median;

/// A stream fell short if it was sent at a smaller share of the planned rate than this.
pub(crate) const SHORTFALL_RATIO: f64 = 0.95;

/// Probes were held up together if they arrived so much closer to each other than the stream's probes are apart, and if the path
/// held them up for so long, ns. No bottleneck that serves in order delivers them like that.
const CLUMP_RATIO: f64 = 0.2;
const MIN_HOLD: i64 = 1_000_000;

/// A stream of probes to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPlan {
    /// Number of probes, at least 2.
    pub packets: u32,
    /// Length of each probe as an IP packet, bytes.
    pub bytes: u32,
    /// Time from one probe to the next, ns.
    pub interval: u64,
    /// Silence before the stream, ns, in which the path recovers from the stream before.
    pub rest: u64,
}

impl StreamPlan {
    /// Plans `packets` probes of `bytes` at `rate`, after a rest of `rests` times the length of the stream.
    pub fn at(rate: BitRate, bytes: u32, packets: u32, rests: u64) -> StreamPlan {
        let interval = rate.interval(bytes).max(1);
        StreamPlan { packets, bytes, interval, rest: interval * u64::from(packets) * rests }
    }

    /// Returns the planned rate, bits per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.bytes) * 8e9 / self.interval as f64
    }

    /// Returns the time from the first probe to the last, ns.
    pub fn duration(&self) -> u64 {
        self.interval * u64::from(self.packets.saturating_sub(1))
    }
}

/// The times of one probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Time of sending, ns of the sender's clock.
    pub sent: i64,
    /// Time of arrival, ns of the receiver's clock, which is another one; `None` if the probe was lost.
    pub received: Option<i64>,
}

/// A stream as it was sent and received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The stream as it was planned.
    pub plan: StreamPlan,
    /// All probes, in the order of sending.
    pub probes: Vec<Probe>,
    /// Number of probes that arrived before one that was sent earlier.
    pub reordered: u32,
    /// Number of lost probes that came through the path but found the receiver's buffer full: the receiver's machine is too busy.
    pub overrun: u32,
}

/// How well the sender kept to a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// The sender kept the planned rate.
    AsPlanned,
    /// Most probes were on time, but pauses in the longest stretch made that stretch slower: another program had the processor.
    Interrupted,
    /// Most probes were late: this machine cannot send at this rate.
    TooSlow,
}

/// A stretch of a stream that was sent as planned. The times of its probes count from its first probe, in seconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stretch {
    /// Times of sending and arrival of each probe, s.
    pub times: Vec<(f64, f64)>,
    /// Number of intervals from the first of these probes to the last: others may be missing between them.
    pub gaps: usize,
}

impl Stream {
    /// Returns the share of the probes that the path lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost_on_path() as f64 / self.probes.len().max(1) as f64
    }

    /// Returns the number of probes that the path lost. Those that the receiver's machine lost say nothing about the path.
    pub fn lost_on_path(&self) -> usize {
        self.lost().saturating_sub(self.overrun as usize)
    }

    /// Returns the number of probes that did not arrive.
    pub fn lost(&self) -> usize {
        self.probes.iter().filter(|probe| probe.received.is_none()).count()
    }

    /// Returns the rate at which the longest stretch was actually sent, bits per second. Only its first and its last probe count:
    /// after a short pause of the sender between them, the path recovers as after any other gap.
    pub fn rate_sent(&self) -> f64 {
        let longest = self.longest();
        let (Some(first), Some(last)) = (longest.first(), longest.last()) else { return 0.0 };
        let bits = f64::from(self.plan.bytes) * 8.0 * (longest.len() - 1) as f64;
        bits * 1e9 / (last.sent.saturating_sub(first.sent) as f64).max(1.0)
    }

    /// Returns how well the sender kept to the plan.
    pub fn sending(&self) -> Sending {
        if self.rate_sent() >= SHORTFALL_RATIO * self.plan.rate() {
            return Sending::AsPlanned;
        }
        let gaps = self.probes.windows(2).map(|pair| pair[1].sent.saturating_sub(pair[0].sent));
        let usual_gap = median(&gaps.map(|gap| gap as f64).collect::<Vec<f64>>());
        if usual_gap * SHORTFALL_RATIO > self.plan.interval as f64 {
            Sending::TooSlow
        } else {
            Sending::Interrupted
        }
    }

    /// Returns the number of probes in the longest stretch, lost ones included.
    pub fn longest_len(&self) -> usize {
        self.longest().len()
    }

    /// Returns the longest stretch in which the sender never paused longer than twice the interval, or than a millisecond if that
    /// is more (pathload's rule). Lost probes are left out, and those that were [held up](Stream::held_up): what the others show
    /// of the path is true.
    pub fn longest_stretch(&self) -> Stretch {
        Stretch::of(self.longest())
    }

    /// Returns the number of probes in the longest stretch that the path held up for a millisecond or more and delivered together.
    ///
    /// A link that a program emulates does so when another program has its processor, and so does a virtual machine whose host
    /// runs another one. The packets behind such a stall are again as late as the bottleneck's queue makes them.
    pub fn held_up(&self) -> usize {
        let arrived: Vec<Arrival> = Arrival::all(self.longest());
        clumps(&arrived).iter().map(std::ops::Range::len).sum()
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

/// A probe that arrived: its place in its stretch, and its times, ns of either clock.
#[derive(Clone, Copy)]
struct Arrival {
    place: usize,
    sent: i64,
    received: i64,
}

impl Arrival {
    fn all(probes: &[Probe]) -> Vec<Arrival> {
        let arrived = |(place, probe): (usize, &Probe)| {
            Some(Arrival { place, sent: probe.sent, received: probe.received? })
        };
        probes.iter().enumerate().filter_map(arrived).collect()
    }
}

/// Returns the places in `arrived` of probes that were held up together: three or more that arrived at once, of which the first
/// would have arrived [`MIN_HOLD`] or more before the last if they had been as far apart as the stream's probes are.
fn clumps(arrived: &[Arrival]) -> Vec<std::ops::Range<usize>> {
    let [first, .., last] = arrived else { return Vec::new() };
    let gaps = (arrived.len() - 1) as f64;
    let apart = |from: i64, to: i64| to.saturating_sub(from) as f64 / gaps;
    let usual = apart(first.sent, last.sent).max(apart(first.received, last.received));
    let mut found = Vec::new();
    let mut begin = 0;
    for end in 1..=arrived.len() {
        let goes_on = end < arrived.len() && {
            let gap = arrived[end].received.saturating_sub(arrived[end - 1].received);
            (gap as f64) < CLUMP_RATIO * usual
        };
        if !goes_on {
            let held = (end - 1 - begin) as f64 * usual;
            if end - begin >= 3 && held >= MIN_HOLD as f64 {
                found.push(begin..end);
            }
            begin = end;
        }
    }
    found
}

impl Stretch {
    fn of(probes: &[Probe]) -> Stretch {
        let mut arrived = Arrival::all(probes);
        for clump in clumps(&arrived).into_iter().rev() {
            arrived.drain(clump);
        }
        let (Some(first), Some(last)) = (arrived.first(), arrived.last()) else {
            return Stretch::default();
        };
        let (first, gaps) = (*first, last.place - first.place);
        let seconds = |later: i64, first: i64| later.saturating_sub(first) as f64 * 1e-9;
        let times = arrived
            .iter()
            .map(|one| (seconds(one.sent, first.sent), seconds(one.received, first.received)));
        Stretch { times: times.collect(), gaps }
    }

    /// Returns the one-way delays minus that of the first probe, s. The difference cancels the clocks' offset.
    pub fn delays(&self) -> Vec<f64> {
        self.times.iter().map(|(sent, received)| received - sent).collect()
    }

    /// Returns the mean interval of sending and of arrival, s; `None` for fewer than two probes.
    pub fn intervals(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.times.first()?, self.times.last()?);
        let gaps = self.gaps as f64;
        (self.gaps > 0).then(|| ((last.0 - first.0) / gaps, (last.1 - first.1) / gaps))
    }
}

/// The capabilities of a path and of the machines at its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Length of the longest IP packet that passes without fragmentation, bytes.
    pub most_bytes: u32,
    /// The highest rate that is probed.
    pub rate_max: BitRate,
    /// Largest number of probes in a stream.
    pub most_packets: u32,
}

/// The reason why a path could not be probed.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The connection, or a socket, failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other end refused the session, or broke the protocol; the text says how.
    #[error("the other end: {0}")]
    Peer(String),
}

/// A path over which streams can be sent.
pub trait Path {
    /// Returns the path's capabilities.
    fn limits(&self) -> Limits;

    /// Rests, sends a stream, and returns the report on its probes.
    ///
    /// # Errors
    ///
    /// The stream could not be sent, or its report could not be received.
    fn probe(&mut self, plan: &StreamPlan) -> Result<Stream, PathError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_was_sent_has_the_pauses_in_it() {
        // 8,000 bits every 10 us are 0.8 Gbit/s. A tenth of the gaps is 110 us, which halves that.
        let plan = StreamPlan { packets: 101, bytes: 1000, interval: 10_000, rest: 0 };
        let at = |number: i64| number * 10_000 + number / 10 * 100_000;
        let probes = (0..101).map(|number| Probe { sent: at(number), received: Some(at(number)) });
        let stream = Stream { plan, probes: probes.collect(), reordered: 0, overrun: 0 };
        assert_eq!(stream.rate_sent(), 0.4e9);
        // A pause beyond a millisecond ends the stretch.
        let mut broken = stream.clone();
        broken.probes[10..].iter_mut().for_each(|probe| probe.sent += 10_000_000);
        assert!((0.39e9..0.41e9).contains(&broken.rate_sent()), "{}", broken.rate_sent());
    }

    #[test]
    fn pauses_are_told_from_a_sender_that_is_too_slow() {
        let plan = StreamPlan { packets: 101, bytes: 1000, interval: 10_000, rest: 0 };
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

    #[test]
    fn probes_that_a_stall_held_up_are_left_out_of_a_stretch() {
        // Sent every 100 us, and delivered every 200 us but for the third part, which comes at its end.
        let at =
            |number: i64| if (30..60).contains(&number) { 60 * 200_000 } else { number * 200_000 };
        let plan = StreamPlan { packets: 90, bytes: 1000, interval: 100_000, rest: 0 };
        let stream = |at: &dyn Fn(i64) -> i64| {
            let probe = |number| Probe { sent: number * 100_000, received: Some(at(number)) };
            Stream { plan, probes: (0..90).map(probe).collect(), reordered: 0, overrun: 0 }
        };
        let stalled = stream(&at);
        // The probe that leaves the link as the stall ends is among those that it held up.
        assert_eq!(stalled.held_up(), 31);
        let stretch = stalled.longest_stretch();
        assert_eq!((stretch.times.len(), stretch.gaps), (59, 89));
        let (sent, received) = stretch.intervals().unwrap();
        assert!((sent - 100e-6).abs() < 1e-9 && (received - 200e-6).abs() < 1e-9);
        // A whole stream that comes at once says nothing.
        assert_eq!(stream(&|_| 0).longest_stretch().intervals(), None);
        // Batches of an interface that waits for eight packets are shorter than a millisecond.
        assert_eq!(stream(&|number| (number / 8 + 1) * 800_000).held_up(), 0);
    }
}
