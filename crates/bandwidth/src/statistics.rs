//! Statistics for the estimators.

/// Returns the median of `values`; 0 if there are none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the `share` quantile of `values`, interpolated between neighbours; 0 if there are none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}

/// Returns the median absolute deviation from the median, scaled to the standard deviation of a normal distribution.
pub fn deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    let off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.4826 * median(&off)
}

/// Returns half the width of the 95 % confidence interval of the median of `values`. The standard error of a median is 1.2533
/// times that of a mean. For few values Student's t applies.
pub fn confidence(values: &[f64]) -> f64 {
    let count = values.len();
    if count < 2 {
        return f64::INFINITY;
    }
    const STUDENT: [f64; 11] = [0.0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    let student = STUDENT.get(count - 1).copied().unwrap_or(2.0);
    let mean = values.iter().sum::<f64>() / count as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    // With few values, the deviation from the median may be 0 by chance. With many, it is robust against outliers.
    let spread = if count < 9 { (variance / (count - 1) as f64).sqrt() } else { deviation(values) };
    1.2533 * student * spread / (count as f64).sqrt()
}

/// Returns how fast delays grow over a stretch, seconds per second, and the standard error of that.
///
/// The growth is the median delay of the last third minus that of the first, divided by the time between their middles. A few
/// late packets change neither.
pub fn growth(sent: &[f64], delays: &[f64]) -> Option<(f64, f64)> {
    let third = delays.len() / 3;
    if third < 3 {
        return None;
    }
    let (first, last) = (0..third, delays.len() - third..delays.len());
    let between = median(&sent[last.clone()]) - median(&sent[first.clone()]);
    if between <= 0.0 {
        return None;
    }
    let (early, late) = (&delays[first.clone()], &delays[last.clone()]);
    let slope = (median(late) - median(early)) / between;
    let flat = |range: std::ops::Range<usize>| -> Vec<f64> {
        range.map(|i| delays[i] - slope * sent[i]).collect()
    };
    let noise = (deviation(&flat(first)).powi(2) + deviation(&flat(last)).powi(2)).sqrt();
    Some((slope, 1.2533 * noise / (third as f64).sqrt() / between))
}

/// Trials at one value: how many there were, and how many had the outcome in question.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// The value, above 0.
    pub at: f64,
    /// Number of trials with the outcome. A trial that is neither counts a half.
    pub yes: f64,
    /// Number of trials.
    pub of: f64,
}

/// Returns the value at which the outcome occurs in half of the trials; `None` without trials.
///
/// It is the middle of the logistic curve that most likely gave the observed trials. If many middles are equally likely (no
/// outcome at any value below them, only outcomes above), it is the middle of these.
pub fn crossing(tried: &[Tried]) -> Option<f64> {
    /// Widths of the curve, in shares of its middle, and the ratio of one middle to the one before.
    const WIDTHS: [f64; 6] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32];
    const STEP: f64 = 1.002;
    /// Each trial's likelihood is at least e to minus this, so that one that is far off does not decide.
    const MAX_LOG_LOSS: f64 = 50.0;
    let likelihood = |middle: f64, width: f64| -> f64 {
        let of = |one: &Tried| {
            let x = (one.at / middle - 1.0) / width;
            let (yes, no) =
                ((-x).exp().ln_1p().min(MAX_LOG_LOSS), x.exp().ln_1p().min(MAX_LOG_LOSS));
            -(one.yes * yes + (one.of - one.yes) * no)
        };
        tried.iter().map(of).sum()
    };
    let least = tried.iter().map(|one| one.at).min_by(f64::total_cmp)?;
    let most = tried.iter().map(|one| one.at).max_by(f64::total_cmp)?;
    let steps = ((most / least).ln() / STEP.ln()) as i32;
    let mut best = (f64::NEG_INFINITY, Vec::new());
    for middle in (0..=steps).map(|step| least * STEP.powi(step)) {
        for width in WIDTHS {
            let likely = likelihood(middle, width);
            if likely > best.0 + 1e-9 {
                best = (likely, Vec::new());
            }
            if likely > best.0 - 1e-9 {
                best.1.push(middle);
            }
        }
    }
    Some(median(&best.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_quantiles() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert!((deviation(&[1.0, 2.0, 3.0, 4.0, 100.0]) - 1.4826).abs() < 1e-12);
    }

    #[test]
    fn confidence_narrows_with_more_values() {
        assert_eq!(confidence(&[5.0]), f64::INFINITY);
        let few = [9.0, 10.0, 11.0];
        let many: Vec<f64> = few.into_iter().cycle().take(30).collect();
        assert!(confidence(&many) < confidence(&few) / 4.0);
    }

    #[test]
    fn growth_is_that_of_the_line_whatever_single_packets_do() {
        let sent: Vec<f64> = (0..90).map(|i| f64::from(i) * 1e-3).collect();
        let mut delays: Vec<f64> = sent.iter().map(|t| 0.25 * t).collect();
        for late in [5, 40, 85] {
            delays[late] += 1.0;
        }
        let (slope, error) = growth(&sent, &delays).unwrap();
        assert!((slope - 0.25).abs() < 0.02 && error < 0.05, "{slope} {error}");
        assert_eq!(growth(&sent[..8], &delays[..8]), None);
    }

    #[test]
    fn crossing_is_where_it_is_as_often_as_not() {
        let tried = |of: &[(f64, f64)]| -> Vec<Tried> {
            of.iter().map(|&(at, yes)| Tried { at, yes, of: 12.0 }).collect()
        };
        let at = |of: &[(f64, f64)]| crossing(&tried(of)).unwrap();
        assert!(crossing(&[]).is_none());
        // The trials are symmetrical about 100.
        let middle = at(&[(80.0, 1.0), (90.0, 3.0), (100.0, 6.0), (110.0, 9.0), (120.0, 11.0)]);
        assert!((middle / 100.0 - 1.0).abs() < 0.005, "{middle}");
        let middle = at(&[(50.0, 0.0), (99.0, 0.0), (101.0, 12.0), (200.0, 12.0)]);
        assert!((middle / 100.0 - 1.0).abs() < 0.005, "{middle}");
        // One rate was misjudged among many that were not.
        let middle = at(&[(80.0, 0.0), (90.0, 12.0), (95.0, 1.0), (105.0, 11.0), (120.0, 12.0)]);
        assert!((90.0..105.0).contains(&middle), "{middle}");
    }
}
