//! Which of the lanes to a peer is the best: a decision over what others measured.

use crate::lanes::Probe;

/// Lanes are ranked by the predicted time of a read of so many bytes: what a layer of some blocks has.
const TYPICAL_BYTES: f64 = (1 << 20) as f64;
/// A lane that is the faster one by nature is passed over only for one that takes less than this share of its
/// time: probes are short, and what else the machine does disturbs them.
const CLEARLY: f64 = 0.7;

/// Predicted seconds of a read of so many bytes.
pub(crate) fn seconds(probe: &Probe, bytes: f64) -> f64 {
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
}
