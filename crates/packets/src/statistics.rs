//! Statistics of all packets of a namespace.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::record::{Direction, Packet, PacketOutcome, Protocol};

/// Precision of latencies: three decimal digits.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Greatest latency, ns (one hour). Longer ones count as this.
const MAX_LATENCY: u64 = 3_600_000_000_000;

/// Latencies of one protocol in one direction, ns, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Option<Latencies> {
        Histogram::new_with_bounds(1, MAX_LATENCY, SIGNIFICANT_DIGITS).ok().map(Latencies)
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency, ns, that the share `share` (0 to 1) of the packets do not exceed; none if there are no packets.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(share))
    }

    /// Returns, for 1, 2, 4, 8 ... ns, the limit and the number of latencies not above it, up to the first limit that all keep.
    pub fn powers_of_two(&self) -> Vec<(u64, u64)> {
        let limits = (0..u64::BITS - 1).map(|power| 1_u64 << power);
        let mut counts = Vec::new();
        for limit in limits {
            let within = if self.count() == 0 { 0 } else { self.0.count_between(0, limit) };
            counts.push((limit, within));
            if within == self.count() {
                break;
            }
        }
        counts
    }

    /// Returns the sum of all latencies, ns.
    pub fn sum(&self) -> u64 {
        (self.0.mean() * self.0.len() as f64) as u64
    }
}

/// Statistics of one namespace's packets.
#[derive(Clone, Debug, Default)]
pub struct LatencyStatistics {
    latencies: BTreeMap<(Protocol, Direction), Latencies>,
    outcomes: BTreeMap<(Protocol, Direction, PacketOutcome), u64>,
}

impl LatencyStatistics {
    /// Adds a packet.
    pub fn add(&mut self, packet: &Packet) {
        let key = (packet.protocol, packet.direction);
        *self.outcomes.entry((key.0, key.1, packet.outcome)).or_default() += 1;
        let Some(latency) = packet.latency_ns.filter(|_| packet.outcome == PacketOutcome::Matched)
        else {
            return;
        };
        if !self.latencies.contains_key(&key) {
            self.latencies.extend(Latencies::new().map(|new| (key, new)));
        }
        if let Some(Latencies(histogram)) = self.latencies.get_mut(&key) {
            histogram.saturating_record(latency);
        }
    }

    /// Returns the latencies of `protocol` in `direction`, if there are any.
    pub fn latencies(&self, protocol: Protocol, direction: Direction) -> Option<&Latencies> {
        self.latencies.get(&(protocol, direction))
    }

    /// Returns the number of packets with `outcome`.
    pub fn count(&self, protocol: Protocol, direction: Direction, outcome: PacketOutcome) -> u64 {
        self.outcomes.get(&(protocol, direction, outcome)).copied().unwrap_or(0)
    }

    /// Iterates over the number of packets of each outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = (Protocol, Direction, PacketOutcome, u64)> + '_ {
        self.outcomes
            .iter()
            .map(|(&(protocol, direction, outcome), &count)| (protocol, direction, outcome, count))
    }

    /// Returns the number of misses.
    pub fn misses(&self, protocol: Protocol, direction: Direction) -> u64 {
        let of =
            |key: &(Protocol, Direction, PacketOutcome)| (key.0, key.1) == (protocol, direction);
        let misses = self.outcomes.iter().filter(|(key, _)| of(key) && key.2.is_miss());
        misses.map(|(_, count)| count).sum()
    }

    /// Returns the protocols and directions of which any packet was seen.
    pub fn seen(&self) -> Vec<(Protocol, Direction)> {
        let mut seen: Vec<_> = self.outcomes.keys().map(|key| (key.0, key.1)).collect();
        seen.dedup();
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RECORD_LEN;
    use proptest::prelude::*;

    fn packet(latency: u64) -> Packet {
        let mut record = [0; RECORD_LEN];
        record[0..8].copy_from_slice(&(latency + 5).to_ne_bytes());
        record[8..16].copy_from_slice(&5_u64.to_ne_bytes());
        record[38] = 1;
        Packet::parse(&record).unwrap()
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_three_digits(mut all in prop::collection::vec(1_u64..1_000_000_000, 1..200)) {
            let mut statistics = LatencyStatistics::default();
            all.iter().for_each(|latency| statistics.add(&packet(*latency)));
            all.sort_unstable();
            let latencies = statistics.latencies(Protocol::Icmp, Direction::Egress).unwrap();
            prop_assert_eq!(latencies.count(), all.len() as u64);
            for share in [0.5, 0.95, 0.99] {
                let rank = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len());
                let (estimate, exact) = (latencies.quantile(share).unwrap(), all[rank - 1]);
                prop_assert!(estimate.abs_diff(exact) <= exact / 500 + 1, "{} {}", estimate, exact);
            }
            let (_, within) = latencies.powers_of_two().last().copied().unwrap();
            prop_assert_eq!(within, all.len() as u64);
        }
    }

    #[test]
    fn misses_are_counted_apart() {
        let mut statistics = LatencyStatistics::default();
        statistics.add(&packet(10));
        statistics.add(&Packet { outcome: PacketOutcome::Lost, latency_ns: None, ..packet(10) });
        statistics.add(&Packet { outcome: PacketOutcome::Kernel, latency_ns: None, ..packet(10) });
        let egress = |outcome| statistics.count(Protocol::Icmp, Direction::Egress, outcome);
        assert_eq!((egress(PacketOutcome::Matched), egress(PacketOutcome::Kernel)), (1, 1));
        assert_eq!(statistics.misses(Protocol::Icmp, Direction::Egress), 1);
        assert_eq!(statistics.seen(), [(Protocol::Icmp, Direction::Egress)]);
    }
}
