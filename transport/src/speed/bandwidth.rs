//! How many bytes a second something delivers, by samples and their moving average: one estimator for links and for
//! their rails, which differ in how long a sample is and in the weight of the newest.
//!
//! What is deliberately absent: what waits for the bytes, and whether a bandwidth is too low. That is decided by
//! `link_speed` and `lanes::rails`. Storage has an estimator of its own: see `storage_speed` for the reason.

use std::time::Duration;

/// Only something that is to deliver so many bytes shows its bandwidth: fewer say more of latency.
pub(crate) const BULK_BYTES: u64 = 256 << 10;
/// Bytes of a sample.
pub(crate) const SAMPLE_BYTES: u64 = 1 << 20;

/// Bytes that came while bulk was on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    /// The time in which they came.
    pub(crate) time: Duration,
}

impl Sample {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(f64::EPSILON)
    }

    /// Takes another sample in.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.time += other.time;
    }
}

/// A moving average of samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bandwidth {
    bytes_per_s: f64,
    samples: u32,
}

impl Bandwidth {
    /// Begins with a guess, which the first sample replaces.
    pub(crate) fn guessed(bytes_per_s: f64) -> Self {
        Self { bytes_per_s, samples: 0 }
    }

    /// Takes a sample in. `newest`: its weight, once there are enough for it to be less than an equal part.
    pub(crate) fn add(&mut self, sample: &Sample, newest: f64) {
        let weight = newest.max(1.0 / (f64::from(self.samples) + 1.0));
        self.bytes_per_s += weight * (sample.bytes_per_s() - self.bytes_per_s);
        self.samples = self.samples.saturating_add(1);
    }

    /// Keeps the average as a guess.
    pub(crate) fn forget_samples(&mut self) {
        self.samples = 0;
    }

    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Returns how many samples it is the average of.
    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(guess: f64, newest: f64, samples: &[u64], expect: f64) {
        let mut bandwidth = Bandwidth::guessed(guess);
        for &bytes in samples {
            bandwidth.add(&Sample { bytes, time: Duration::from_secs(1) }, newest);
        }
        assert!((bandwidth.bytes_per_s() - expect).abs() < 1e-9, "{} is not {expect}", bandwidth.bytes_per_s());
    }

    #[test]
    fn the_first_samples_count_alike_and_later_ones_by_their_weight() {
        check(7.0, 0.5, &[], 7.0);
        check(7.0, 0.5, &[100], 100.0);
        check(7.0, 0.5, &[100, 200, 400], 275.0);
        check(7.0, 1.0 / 16.0, &[100, 200, 300], 200.0);
    }
}
