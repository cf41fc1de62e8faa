//! Whether the one-way delays of a stream grow: pathload's two tests.
//!
//! Jain and Dovrolis, *End-to-end available bandwidth: measurement methodology, dynamics, and relation with TCP throughput*,
//! SIGCOMM 2002, section 4.2. The delays are divided into groups, as many as the root of their number. Here there are hardly more
//! than ten groups: otherwise single groups of a longer stream would say no more than those of a short one. For the medians
//! D_1..D_m of the groups:
//!
//! ```text
//!     PCT = #{ D_k > D_(k-1) } / (m - 1)                     pairwise comparison, 0.5 without a trend
//!     PDT = (D_m - D_1) / sum |D_k - D_(k-1)|                pairwise difference, 0 without a trend
//! ```

use crate::statistics::median;

/// The trend of a stream's delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trend {
    /// The delays grow: the rate is more than is available.
    Increasing,
    /// The delays do not grow.
    None,
    /// The tests disagree, or cannot decide.
    Unclear,
}

/// The results of the two tests for a stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tests {
    /// Pairwise comparison, 0 to 1.
    pub pct: f64,
    /// Pairwise difference, -1 to 1.
    pub pdt: f64,
}

/// The thresholds of the tool pathload 1.3.2, and the margin to either side (a tenth) within which a test does not decide.
const PCT: f64 = 0.55;
const PDT: f64 = 0.40;
const UNDECIDED_MARGIN: f64 = 0.1;
/// Number of groups of 100 packets, for which pathload's thresholds are made.
const DEFAULT_GROUPS: usize = 10;
/// Least number of groups.
const MIN_GROUPS: usize = 5;

impl Tests {
    /// Computes the tests of these delays, in the order of sending; `None` for too few.
    pub fn of(delays: &[f64]) -> Option<Tests> {
        let root = (delays.len() as f64).sqrt().floor() as usize;
        let group = root.max(delays.len() / DEFAULT_GROUPS).max(1);
        let medians: Vec<f64> = delays.chunks_exact(group).map(median).collect();
        if medians.len() < MIN_GROUPS {
            return None;
        }
        let steps: Vec<f64> = medians.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let rises = steps.iter().filter(|step| **step > 0.0).count();
        let path: f64 = steps.iter().map(|step| step.abs()).sum();
        let gain = medians[medians.len() - 1] - medians[0];
        Some(Tests {
            pct: rises as f64 / steps.len() as f64,
            pdt: if path > 0.0 { gain / path } else { 0.0 },
        })
    }

    /// Combines the two tests. One of them may be undecided, but not both, and they must not contradict each other.
    pub fn trend(self) -> Trend {
        let one = |value: f64, threshold: f64| match value {
            v if v > threshold * (1.0 + UNDECIDED_MARGIN) => Trend::Increasing,
            v if v < threshold * (1.0 - UNDECIDED_MARGIN) => Trend::None,
            _ => Trend::Unclear,
        };
        match (one(self.pct, PCT), one(self.pdt, PDT)) {
            (a, b) if a == b => a,
            (a, Trend::Unclear) | (Trend::Unclear, a) => a,
            _ => Trend::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes 25 delays in 5 groups with these medians.
    fn groups(medians: [f64; 5]) -> Vec<f64> {
        medians.iter().flat_map(|m| [m - 2.0, m + 2.0, *m, m - 1.0, m + 1.0]).collect()
    }

    #[test]
    fn worked_by_hand() {
        // Medians 1 2 3 4 5: 4 rises of 4; 4 gained on a path of 4.
        let tests = Tests::of(&groups([1.0, 2.0, 3.0, 4.0, 5.0])).unwrap();
        assert_eq!((tests.pct, tests.pdt, tests.trend()), (1.0, 1.0, Trend::Increasing));
        // 5 5 5 5 5: no rise, no path.
        let tests = Tests::of(&groups([5.0; 5])).unwrap();
        assert_eq!((tests.pct, tests.pdt, tests.trend()), (0.0, 0.0, Trend::None));
        // 1 3 2 4 3: 2 rises of 4 (0.5, undecided); 2 gained on 6 (0.333, none): none.
        let tests = Tests::of(&groups([1.0, 3.0, 2.0, 4.0, 3.0])).unwrap();
        assert_eq!((tests.pct, tests.pdt), (0.5, 2.0 / 6.0));
        assert_eq!(tests.trend(), Trend::None);
        // 0 1 2 3 -10: 3 rises of 4 (0.75, increasing); -10 gained on 16 (none): they contradict.
        let tests = Tests::of(&groups([0.0, 1.0, 2.0, 3.0, -10.0])).unwrap();
        assert_eq!((tests.pct, tests.pdt), (0.75, -10.0 / 16.0));
        assert_eq!(tests.trend(), Trend::Unclear);
        // 0 -1 9 8 7: 1 rise of 4 (none); 7 gained on 13 (0.538, increasing): they contradict.
        let tests = Tests::of(&groups([0.0, -1.0, 9.0, 8.0, 7.0])).unwrap();
        assert_eq!((tests.pct, tests.trend()), (0.25, Trend::Unclear));
    }

    #[test]
    fn a_late_packet_in_each_group_changes_nothing() {
        let mut delays = groups([1.0, 2.0, 3.0, 4.0, 5.0]);
        for group in delays.chunks_exact_mut(5) {
            group[1] += 1000.0;
        }
        assert_eq!(Tests::of(&delays).unwrap().trend(), Trend::Increasing);
    }

    #[test]
    fn the_undecided_bands_are_the_published_ones() {
        let tests = |pct, pdt| Tests { pct, pdt }.trend();
        assert_eq!(tests(0.61, 0.40), Trend::Increasing);
        assert_eq!(tests(0.60, 0.40), Trend::Unclear);
        assert_eq!(tests(0.55, 0.45), Trend::Increasing);
        assert_eq!(tests(0.49, 0.40), Trend::None);
        assert_eq!(tests(0.55, 0.35), Trend::None);
        assert_eq!(tests(0.61, 0.35), Trend::Unclear);
    }

    #[test]
    fn too_few_tell_nothing() {
        assert_eq!(Tests::of(&[1.0; 24]).map(|_| ()), Some(()));
        assert_eq!(Tests::of(&[1.0; 4]), None);
        assert_eq!(Tests::of(&[]), None);
    }
}
