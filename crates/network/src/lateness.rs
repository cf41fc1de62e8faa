//! How late frames are delivered: a histogram of eight steps to each power of two.

use crate::protocol::FrameLateness;

const STEPS: usize = 8;

/// Counts of delays of delivery.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    max: i64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; 64 * STEPS], max: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, nanos: i64) {
        let nanos = nanos.max(0);
        self.max = self.max.max(nanos);
        self.counts[slot(nanos as u64)] += 1;
    }

    pub fn summary(&self) -> FrameLateness {
        let count = self.counts.iter().sum();
        FrameLateness {
            count,
            median_ns: self.quantile(count, 50),
            p99_ns: self.quantile(count, 99),
            max_ns: self.max,
        }
    }

    /// The value that `percent` of all do not exceed.
    fn quantile(&self, count: u64, percent: u64) -> i64 {
        let wanted = (count * percent).div_ceil(100);
        let mut seen = 0;
        for (slot, number) in self.counts.iter().enumerate() {
            seen += number;
            if seen >= wanted && count > 0 {
                return (upper(slot) as i64).min(self.max);
            }
        }
        0
    }
}

fn slot(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let step = (nanos >> (power - 3)) as usize - STEPS;
    (power - 2) * STEPS + step
}

/// The greatest value of a slot.
fn upper(slot: usize) -> u64 {
    if slot < STEPS {
        return slot as u64;
    }
    let (power, step) = (slot / STEPS + 2, slot % STEPS);
    (((STEPS + step + 1) as u128) << (power - 3)).saturating_sub(1).min(i64::MAX as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_slot() {
        for nanos in (0..10_000).chain([1 << 40, (1 << 40) - 1, i64::MAX as u64]) {
            let slot = slot(nanos);
            assert!(upper(slot) >= nanos, "{nanos}");
            assert!(slot == 0 || upper(slot - 1) < nanos, "{nanos}");
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|value| histogram.add(value * 1_000));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.max_ns), (1_000, 1_000_000));
        assert!((500_000..=562_500).contains(&summary.median_ns), "{summary:?}");
        assert!((990_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
        assert_eq!(Histogram::default().summary(), FrameLateness::default());
    }
}
