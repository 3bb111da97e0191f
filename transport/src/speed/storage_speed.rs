//! How fast a mover reads and writes lately, which says how long more will take.
//!
//! It shares nothing with the estimator of links (`bandwidth`). That one closes samples of one size while bytes are
//! pending, so an average of their bandwidths is fair. A mover learns of a transfer when it has ended; transfers
//! differ in size by orders of magnitude, and an average of their bandwidths would let a small one count as much as a
//! large one. So bytes and seconds fade one by one, and their ratio is the speed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Share of what is remembered that the newest transfer replaces.
const NEWEST: f64 = 1.0 / 32.0;

/// Something of reads and of writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Both<T> {
    pub(crate) read: T,
    pub(crate) written: T,
}

impl Both<StorageSpeed> {
    /// A transfer of so many bytes ended, as in [`StorageSpeed::ended`].
    pub(crate) fn ended(&mut self, bytes: Both<u64>, begun: Instant, now: Instant) {
        match bytes {
            Both { read: 1.., written: 0 } => self.read.ended(bytes.read, begun, now),
            Both { read: 0, written: 1.. } => self.written.ended(bytes.written, begun, now),
            // Of a mixture nobody knows which part took how long.
            _ => {}
        }
    }

    /// Returns how long so many would take, as in [`StorageSpeed::predict`].
    pub(crate) fn predict(&self, bytes: Both<u64>) -> Option<Duration> {
        Some(self.read.predict(bytes.read)? + self.written.predict(bytes.written)?)
    }
}

impl Both<u64> {
    pub(crate) fn sum(&self) -> u64 {
        self.read + self.written
    }
}

/// How fast a mover is.
pub(crate) type StorageSpeeds = Mutex<Both<StorageSpeed>>;

/// How fast bytes went one way lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StorageSpeed {
    bytes: f64,
    seconds: f64,
    last: Option<Instant>,
}

impl StorageSpeed {
    /// A transfer of so many bytes ended now that began at `begun`. Several that are under way share the devices,
    /// or the store, so that the time of each begins where the one before it ended.
    fn ended(&mut self, bytes: u64, begun: Instant, now: Instant) {
        let since = self.last.map_or(begun, |last| last.max(begun));
        self.last = Some(now);
        self.bytes += bytes as f64 - self.bytes * NEWEST;
        self.seconds += now.saturating_duration_since(since).as_secs_f64() - self.seconds * NEWEST;
    }

    /// Returns how long so many bytes would take. `None`: nothing was measured.
    fn predict(&self, bytes: u64) -> Option<Duration> {
        if bytes == 0 {
            return Some(Duration::ZERO);
        }
        let known = self.bytes > 0.0 && self.seconds > 0.0;
        known.then(|| Duration::from_secs_f64(bytes as f64 / self.bytes * self.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn what_ends_together_shares_the_time() {
        const STEP: Duration = Duration::from_millis(10);
        let (mut speed, mut now) = (StorageSpeed::default(), Instant::now());
        assert_eq!(speed.predict(0), Some(Duration::ZERO));
        assert_eq!(speed.predict(1), None);
        let is_about = |speed: StorageSpeed, bytes, expected: Duration| {
            let found = speed.predict(bytes).expect("it was measured");
            assert!(found > expected.mul_f64(0.9) && found < expected.mul_f64(1.1), "{found:?}, not {expected:?}");
        };
        // Four at a time, which began together and end together.
        for _ in 0..50 {
            let begun = now;
            now += STEP;
            (0..4).for_each(|_| speed.ended(1000, begun, now));
        }
        is_about(speed, 4000, STEP);
        // One at a time with pauses in between, each four times as fast.
        for _ in 0..200 {
            let begun = now + 3 * STEP;
            now = begun + STEP;
            speed.ended(16_000, begun, now);
        }
        is_about(speed, 4000, STEP / 4);
    }
}
