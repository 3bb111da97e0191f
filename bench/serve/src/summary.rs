//! What many samples come to: exact percentiles, no buckets.

use serde::Serialize;

/// Mean, extremes and percentiles of samples, in their unit. A percentile is the smallest sample that at least this
/// share of all samples does not exceed (nearest rank), so it is always something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many samples there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// Half of the samples are no larger.
    pub p50: f64,
    /// 90% are no larger.
    pub p90: f64,
    /// 99% are no larger.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises samples in any order, and sorts them. `None`: there are none.
    pub fn of(samples: &mut [f64]) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (samples.first()?, samples.last()?);
        Some(Self {
            count: samples.len(),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
            min,
            p50: quantile(samples, 0.5),
            p90: quantile(samples, 0.9),
            p99: quantile(samples, 0.99),
            max,
        })
    }
}

/// Returns the smallest sample that at least the share `q` of all does not exceed. `sorted` is not empty and ascends.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    // The product may lie above the whole number that it stands for by a rounding error: 0.07 * 100.
    let rank = (q * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        assert_eq!(Summary::of(&mut []), None);
        let one = Summary::of(&mut [3.0]).expect("a sample");
        assert_eq!((one.count, one.mean, one.min, one.p50, one.p99, one.max), (1, 3.0, 3.0, 3.0, 3.0, 3.0));
        let two = Summary::of(&mut [9.0, 1.0]).expect("samples");
        assert_eq!((two.mean, two.p50, two.p90, two.max), (5.0, 1.0, 9.0, 9.0));
        let mut hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let all = Summary::of(&mut hundred).expect("samples");
        assert_eq!((all.mean, all.min, all.p50, all.p90, all.p99, all.max), (50.5, 1.0, 50.0, 90.0, 99.0, 100.0));
        for percent in 1..=100 {
            assert_eq!(quantile(&hundred, f64::from(percent) / 100.0), f64::from(percent));
        }
    }

    #[test]
    fn parts_that_are_put_together_count_as_one() {
        let (mut left, mut right) = (vec![5.0, 1.0, 2.0], vec![4.0, 3.0]);
        let mut whole = [left.clone(), right.clone()].concat();
        let whole = Summary::of(&mut whole);
        left.append(&mut right);
        assert_eq!(Summary::of(&mut left), whole);
    }
}
