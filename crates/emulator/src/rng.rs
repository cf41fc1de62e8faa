//! Repeatable randomness: every direction of every link draws from a generator of its own.

use lorentz_clock::Span;
use rand_pcg::rand_core::RngCore;
use rand_pcg::Pcg64;

use crate::impair::{Distribution, GilbertElliott, Jitter};
use crate::units::Probability;

/// The random generator of a direction, and its state from frame to frame.
#[derive(Clone, Debug)]
pub struct LinkRng {
    generator: Pcg64,
    /// The standard normal value behind the last jitter.
    last_normal: Option<f64>,
    is_bad: bool,
}

impl LinkRng {
    /// Makes the generator number `stream` of a network's `seed`. PCG's sequences do not overlap.
    pub fn new(seed: u64, stream: u64) -> LinkRng {
        LinkRng {
            generator: Pcg64::new(seed.into(), stream.into()),
            last_normal: None,
            is_bad: false,
        }
    }

    /// Draws whether an event of this probability happens.
    pub fn happens(&mut self, probability: Probability) -> bool {
        match probability {
            Probability::NEVER => false,
            Probability::ALWAYS => true,
            some => self.below(1_000_000_000) < u64::from(some.billionths()),
        }
    }

    /// Draws a whole number from 0 to `end` - 1; `end` must be above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a product: its bias is below end / 2^64.
        ((u128::from(self.generator.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Draws a number above 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        ((self.generator.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Draws whether the next frame is lost.
    pub fn loses(&mut self, loss: &GilbertElliott) -> bool {
        let step = if self.is_bad { loss.leave } else { loss.enter };
        if self.happens(step) {
            self.is_bad = !self.is_bad;
        }
        let here = if self.is_bad { loss.in_bad } else { loss.in_good };
        self.happens(here)
    }

    /// Draws the variation of the next frame's delay: positive for longer, negative for shorter.
    pub fn jitter(&mut self, jitter: &Jitter) -> Span {
        let spread = jitter.spread.span().0 as f64;
        if spread == 0.0 {
            return Span::ZERO;
        }
        let value = if jitter.distribution == Distribution::Uniform
            && jitter.correlation == Probability::NEVER
        {
            2.0 * self.fraction() - 1.0
        } else {
            let normal = self.correlated_normal(jitter.correlation.as_f64());
            shaped(normal, jitter.distribution)
        };
        Span((value * spread).round() as i64)
    }

    /// Draws a standard normal value that is correlated with the one before. A value computed from it keeps its distribution
    /// whatever the correlation. The usual way, a weighted mean with the value before, would make the distribution narrower.
    fn correlated_normal(&mut self, correlation: f64) -> f64 {
        let (u, v) = (self.fraction(), self.fraction());
        let fresh = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let value = match self.last_normal {
            None => fresh,
            Some(last) => correlation * last + (1.0 - correlation * correlation).sqrt() * fresh,
        };
        self.last_normal = Some(value);
        value
    }
}

/// Returns the value of `distribution` that has the same probability of being exceeded as `normal` in the standard normal one.
fn shaped(normal: f64, distribution: Distribution) -> f64 {
    /// Pareto's shape. It gives mean 3/2 and variance 3/4.
    const SHAPE: f64 = 3.0;
    let exceeded = 0.5 * libm::erfc(normal / std::f64::consts::SQRT_2);
    match distribution {
        Distribution::Normal => normal,
        Distribution::Uniform => 1.0 - 2.0 * exceeded,
        // Of rate 1, which has mean and variance 1. Clamped as below.
        Distribution::Exponential => -exceeded.max(1e-15).ln() - 1.0,
        Distribution::Pareto => {
            // Clamped where double precision ends, at a probability of 10^-15.
            let value = exceeded.max(1e-15).powf(-1.0 / SHAPE);
            (value - 1.5) / 0.75_f64.sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Delay;

    const MANY: usize = 200_000;

    fn percent(text: &str) -> Probability {
        text.parse().unwrap()
    }

    fn sample(distribution: Distribution, correlation: &str) -> Vec<f64> {
        let mut rng = LinkRng::new(1, 1);
        let spread = Delay::new(Span(1_000_000)).unwrap();
        let jitter = Jitter { spread, distribution, correlation: percent(correlation) };
        (0..MANY).map(|_| rng.jitter(&jitter).0 as f64 / 1e6).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        let squares: Vec<f64> = values.iter().map(|v| (v - mean).powi(2)).collect();
        self::mean(&squares).sqrt()
    }

    #[test]
    fn what_happens_happens_as_often_as_asked() {
        for (text, expected) in [("0.5%", 0.005), ("10%", 0.1), ("90%", 0.9)] {
            let mut rng = LinkRng::new(7, 3);
            let share =
                (0..MANY).filter(|_| rng.happens(percent(text))).count() as f64 / MANY as f64;
            // Five standard errors.
            let bound = 5.0 * (expected * (1.0_f64 - expected) / MANY as f64).sqrt();
            assert!((share - expected).abs() < bound, "{text}: {share}");
        }
    }

    #[test]
    fn jitter_keeps_its_spread_whatever_its_correlation() {
        let third = 1.0 / 3.0_f64.sqrt();
        let cases = [
            (Distribution::Uniform, third),
            (Distribution::Normal, 1.0),
            (Distribution::Exponential, 1.0),
            (Distribution::Pareto, 1.0),
        ];
        for (distribution, expected) in cases {
            for correlation in ["0%", "50%"] {
                let values = sample(distribution, correlation);
                // Pareto's fourth moment is infinite: its sample deviation converges slowly.
                let tolerance = if distribution == Distribution::Pareto { 0.15 } else { 0.01 };
                let (mean, deviation) = (mean(&values), deviation(&values));
                assert!(mean.abs() < 0.02, "{distribution:?} {correlation}: mean {mean}");
                assert!((deviation - expected).abs() < tolerance, "{distribution:?}: {deviation}");
            }
        }
        let uniform = sample(Distribution::Uniform, "50%");
        assert!(uniform.iter().all(|value| value.abs() <= 1.0));
        let exponential = sample(Distribution::Exponential, "0%");
        assert!(exponential.iter().all(|&value| value >= -1.0 - 1e-6));
        let share = exponential.iter().filter(|&&value| value > 1.0).count() as f64 / MANY as f64;
        // More than twice the mean: e^-2.
        assert!((share - 0.1353).abs() < 0.004, "{share}");
        let pareto = sample(Distribution::Pareto, "0%");
        let least = (1.0 - 1.5) / 0.75_f64.sqrt();
        assert!(pareto.iter().all(|&value| value >= least - 1e-6));
    }

    #[test]
    fn correlation_is_as_asked() {
        let values = sample(Distribution::Normal, "50%");
        let pairs: Vec<f64> = values.windows(2).map(|pair| pair[0] * pair[1]).collect();
        assert!((mean(&pairs) - 0.5).abs() < 0.02);
        let pairs: Vec<f64> =
            sample(Distribution::Normal, "0%").windows(2).map(|pair| pair[0] * pair[1]).collect();
        assert!(mean(&pairs).abs() < 0.02);
    }

    #[test]
    fn bursts_are_as_long_and_as_frequent_as_asked() {
        let loss = GilbertElliott {
            enter: percent("1%"),
            leave: percent("20%"),
            in_bad: Probability::ALWAYS,
            in_good: Probability::NEVER,
        };
        let mut rng = LinkRng::new(5, 5);
        let lost: Vec<bool> = (0..MANY).map(|_| rng.loses(&loss)).collect();
        let share = lost.iter().filter(|&&lost| lost).count() as f64 / MANY as f64;
        assert!((share - 0.01 / 0.21).abs() < 0.006, "{share}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let length = share * MANY as f64 / bursts;
        assert!((length - 5.0).abs() < 0.5, "{length}");
    }

    #[test]
    fn the_same_seed_is_the_same_chance_and_another_stream_is_not() {
        let draw = |seed, stream| {
            let mut rng = LinkRng::new(seed, stream);
            (0..8).map(|_| rng.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
