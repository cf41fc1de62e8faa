//! Overruns of slices: how long tasks ran on after the end of their slice.

use std::time::Duration;

use lorentz_clock::Span;

/// Number of latest samples kept for the quantiles.
const MAX_SAMPLES: usize = 4_096;

/// Overruns of slices: the latest 4,096 lengths of time.
#[derive(Clone, Debug, Default)]
pub struct Overruns {
    samples: Vec<u32>,
    next: usize,
}

impl Overruns {
    /// Adds one length. A length above `u32::MAX` ns (4.29 s) counts as that, a negative one as 0.
    pub fn note(&mut self, length: Span) {
        let nanos = u32::try_from(length.0.max(0)).unwrap_or(u32::MAX);
        match self.samples.len() < MAX_SAMPLES {
            true => self.samples.push(nanos),
            false => self.samples[self.next] = nanos,
        }
        self.next = (self.next + 1) % MAX_SAMPLES;
    }

    /// Returns the length that the share `part` (0 to 1) of the samples do not exceed; none if there are no samples.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let index = (part.clamp(0.0, 1.0) * last as f64).round() as usize;
        Some(Duration::from_nanos(sorted[index].into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_latest() {
        let mut overruns = Overruns::default();
        assert_eq!(overruns.quantile(0.5), None);
        (0..=100).for_each(|nanos| overruns.note(Span(nanos)));
        assert_eq!(overruns.quantile(0.5), Some(Duration::from_nanos(50)));
        assert_eq!(overruns.quantile(0.99), Some(Duration::from_nanos(99)));
        (0..MAX_SAMPLES).for_each(|_| overruns.note(Span(7)));
        assert_eq!(overruns.quantile(1.0), Some(Duration::from_nanos(7)));
    }
}
