//! Which of the lanes to a peer is the best, and when one has become too slow: decisions over what others measured.

use crate::lane::Probe;
use std::time::Duration;

/// Lanes are ranked by the predicted time of a read of so many bytes: what a layer of some blocks has.
const TYPICAL_BYTES: f64 = (1 << 20) as f64;
/// A lane that is the faster one by nature is passed over only for one that takes less than this share of its time: probes
/// are short, and what else the machine does disturbs them.
const CLEARLY: f64 = 0.7;

/// Predicted seconds of a read of so many bytes.
fn seconds(probe: &Probe, bytes: f64) -> f64 {
    if probe.bytes_per_s > 0.0 { probe.latency_s + bytes / probe.bytes_per_s } else { 0.0 }
}

/// The place of the best of `lanes`, which are at least one, the fastest by nature first.
pub(crate) fn best(lanes: &[Probe]) -> usize {
    let mut best = 0;
    for (place, probe) in lanes.iter().enumerate() {
        if seconds(probe, TYPICAL_BYTES) < CLEARLY * seconds(&lanes[best], TYPICAL_BYTES) {
            best = place;
        }
    }
    best
}

/// Smaller reads say more of latency than of bandwidth.
const SAMPLE_BYTES_MIN: u64 = 256 << 10;
/// Weight of the newest read in the moving average.
const NEWEST: f64 = 1.0 / 16.0;
/// After so many reads, the average is what the lane is expected to do from then on.
const CALIBRATING_READS: u32 = 64;
/// A lane is too slow under this share of what it is expected to do, and is no longer above the other.
const FLOOR: f64 = 0.25;
const RECOVERED: f64 = 0.5;

/// How fast a lane to a peer is lately, by real reads, beside how fast it was when they began.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// As measured when the peer was connected.
    probe: Probe,
    bytes_per_s: f64,
    reads: u32,
    expected: f64,
    slow: bool,
}

/// A lane has fallen under its floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slow {
    /// Bytes a second, lately.
    pub(crate) bytes_per_s: f64,
    /// What they were when the reads began.
    pub(crate) expected: f64,
}

impl Pace {
    /// A read ended, whose bytes were on their way for `wire`. Said once when the lane falls under its floor, and again only
    /// after it recovered or was judged anew.
    pub(crate) fn read(&mut self, bytes: u64, wire: Duration) -> Option<Slow> {
        if bytes < SAMPLE_BYTES_MIN || wire.is_zero() {
            return None;
        }
        let newest = bytes as f64 / wire.as_secs_f64();
        let weight = NEWEST.max(1.0 / f64::from(self.reads + 1));
        self.bytes_per_s += weight * (newest - self.bytes_per_s);
        if self.reads < CALIBRATING_READS {
            self.reads += 1;
            self.expected = self.bytes_per_s;
            return None;
        }
        if self.slow {
            self.slow = self.bytes_per_s < RECOVERED * self.expected;
            return None;
        }
        self.slow = self.bytes_per_s < FLOOR * self.expected;
        self.slow.then_some(Slow { bytes_per_s: self.bytes_per_s, expected: self.expected })
    }

    /// The lane was compared with the others and is still the best: what it does now is what is expected of it.
    pub(crate) fn judge_anew(&mut self) {
        *self = Self { probe: self.probe, ..Self::default() };
    }

    /// What was measured when the peer was connected.
    pub(crate) fn probed(&mut self, probe: Probe) {
        self.probe = probe;
    }

    /// What it costs to read, by the probe and by what reads did since.
    pub(crate) fn lately(&self) -> Probe {
        let bytes_per_s = if self.reads > 0 { self.bytes_per_s } else { self.probe.bytes_per_s };
        Probe { bytes_per_s, ..self.probe }
    }

    /// How long a read of so many bytes would take. `None`: nothing was measured.
    pub(crate) fn predict(&self, bytes: u64) -> Option<Duration> {
        let lately = self.lately();
        (lately.bytes_per_s > 0.0).then(|| Duration::from_secs_f64(seconds(&lately, bytes as f64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(gigabytes_per_s: f64, microseconds: f64) -> Probe {
        Probe { bytes_per_s: gigabytes_per_s * 1e9, latency_s: microseconds * 1e-6 }
    }

    #[test]
    fn the_faster_lane_by_nature_is_taken_unless_another_clearly_is() {
        assert_eq!(best(&[probe(20.0, 1.0), probe(5.0, 20.0)]), 0);
        assert_eq!(best(&[probe(5.0, 1.0), probe(5.5, 1.0)]), 0, "a little faster is noise");
        assert_eq!(best(&[probe(1.0, 1.0), probe(5.0, 20.0)]), 1);
        assert_eq!(best(&[probe(1.0, 1.0), probe(2.0, 1.0), probe(9.0, 1.0)]), 2);
        assert_eq!(best(&[probe(5.0, 1000.0), probe(5.0, 20.0)]), 1, "latency counts");
        assert_eq!(best(&[Probe::default(), Probe::default()]), 0, "without memory nothing is measured");
    }

    /// The reads, of `pace` gigabytes a second each, by which it is said that the lane is slow.
    fn alerts(pace: &mut Pace, gigabytes_per_s: u64, reads: usize) -> usize {
        let bytes = gigabytes_per_s << 20;
        // So many bytes in a 953th of a second are so many gigabytes a second.
        (0..reads).filter(|_| pace.read(bytes, Duration::from_nanos(1_048_576)).is_some()).count()
    }

    #[test]
    fn a_fall_is_said_once_and_again_after_a_recovery() {
        let mut pace = Pace::default();
        assert_eq!(alerts(&mut pace, 8, 100), 0);
        assert_eq!(alerts(&mut pace, 3, 500), 0, "above the floor");
        assert_eq!(alerts(&mut pace, 1, 500), 1);
        assert_eq!(alerts(&mut pace, 3, 500), 0);
        assert_eq!(alerts(&mut pace, 1, 500), 0, "it had not recovered");
        assert_eq!(alerts(&mut pace, 8, 500), 0);
        assert_eq!(alerts(&mut pace, 1, 500), 1);
        pace.judge_anew();
        assert_eq!(alerts(&mut pace, 1, 500), 0, "that is what it does now");
    }

    #[test]
    fn predictions_follow_the_probe_and_then_the_reads() {
        let mut pace = Pace::default();
        assert_eq!(pace.predict(1), None, "nothing was measured");
        pace.probed(probe(1.0, 50.0));
        assert_eq!(pace.predict(1_000_000), Some(Duration::from_micros(1050)));
        alerts(&mut pace, 2, 10);
        let micros = pace.predict(1_000_000).expect("it was measured").as_micros();
        assert!((549..=551).contains(&micros), "{micros}");
        pace.judge_anew();
        assert_eq!(pace.predict(1_000_000), Some(Duration::from_micros(1050)));
    }

    #[test]
    fn one_slow_read_and_small_ones_say_nothing() {
        let mut pace = Pace::default();
        assert_eq!(alerts(&mut pace, 8, 100), 0);
        assert_eq!(pace.read(1 << 20, Duration::from_secs(1)), None);
        for _ in 0..1000 {
            assert_eq!(pace.read(SAMPLE_BYTES_MIN - 1, Duration::from_secs(1)), None);
        }
        assert_eq!(alerts(&mut pace, 8, 100), 0);
    }
}
