use super::*;
use crate::clock::now;
use crate::lanes::rails::{Rails, Trial};
use std::sync::Mutex;

const MILLISECOND: Duration = Duration::from_millis(1);
/// Longer than a lane is calibrated.
const LONG: u32 = 2000;

fn probe(gigabytes_per_s: f64, microseconds: f64) -> Probe {
    Probe { bytes_per_s: gigabytes_per_s * 1e9, latency_s: microseconds * 1e-6 }
}

/// Links of one lane.
struct World {
    now: Instant,
    links: Vec<LinkSpeed>,
}

impl World {
    fn new(links: usize) -> Self {
        let fair_share = Arc::<FairShare>::default();
        Self { now: now(), links: (0..links).map(|_| LinkSpeed::among(fair_share.clone())).collect() }
    }

    /// Links bring so many gigabytes a second at once, for some milliseconds; those of 0 are not read. How often
    /// each is said to have become slow.
    fn read(&mut self, speeds: &[f64], milliseconds: u32) -> Vec<usize> {
        let mut slow = vec![0; speeds.len()];
        let is_read = |speed: f64| speed > 0.0;
        for (link, &speed) in self.links.iter_mut().zip(speeds) {
            link.pending(if is_read(speed) { u64::MAX } else { 0 }, self.now);
        }
        for _ in 0..milliseconds {
            self.now += MILLISECOND;
            for (link, (&speed, slow)) in self.links.iter_mut().zip(speeds.iter().zip(&mut slow)) {
                link.delivered((speed * 1e6) as u64, self.now);
                *slow += usize::from(link.take_slow().is_some());
            }
        }
        self.links.iter_mut().for_each(|link| link.pending(0, self.now));
        slow
    }
}

#[test]
fn a_fall_is_said_once_and_again_after_a_recovery() {
    let mut world = World::new(1);
    assert_eq!(world.read(&[8.0], LONG), [0]);
    assert_eq!(world.read(&[3.0], LONG), [0], "above the floor");
    assert_eq!(world.read(&[1.0], LONG), [1]);
    assert_eq!(world.read(&[3.0], LONG), [0]);
    assert!(world.links[0].is_slow());
    assert_eq!(world.read(&[1.0], LONG), [0], "it had not recovered, and is no less slow for having been so for long");
    assert_eq!(world.read(&[8.0], LONG), [0]);
    assert!(!world.links[0].is_slow());
    assert_eq!(world.read(&[0.8], LONG), [1]);
}

#[test]
fn a_pause_and_what_is_small_say_nothing() {
    let mut world = World::new(1);
    assert_eq!(world.read(&[8.0], LONG), [0]);
    let link = &mut world.links[0];
    // Nothing comes for a second.
    link.pending(u64::MAX, world.now);
    world.now += 1000 * MILLISECOND;
    link.delivered(SAMPLE_BYTES, world.now);
    assert_eq!(link.take_slow(), None);
    for _ in 0..LONG {
        link.pending(BULK_BYTES - 1, world.now);
        world.now += 100 * MILLISECOND;
        link.delivered(BULK_BYTES - 1, world.now);
        link.pending(0, world.now);
    }
    assert_eq!(world.read(&[8.0], LONG), [0]);
}

#[test]
fn transfers_that_take_turns_are_no_fall() {
    const PIECE: u64 = 1 << 20;
    let speed = Arc::new(Mutex::new(LinkSpeed::default()));
    let mut now = now();
    let mut rails = Rails::new(&[Trial::Works], now);
    rails.report_to(speed.clone());
    let mut rounds = |at_once: usize| {
        for _ in 0..LONG {
            (0..at_once).for_each(|_| rails.ask(0, PIECE, true, now));
            for _ in 0..at_once {
                now += MILLISECOND;
                rails.delivered(0, PIECE, now);
            }
        }
        speed.lock().expect("nobody panics").take_slow()
    };
    assert_eq!(rounds(1), None);
    assert_eq!(rounds(8), None);
    let bytes_per_s = speed.lock().expect("nobody panics").lately().bytes_per_s;
    assert!((PIECE as f64 * 999.0..PIECE as f64 * 1001.0).contains(&bytes_per_s), "{bytes_per_s}");
}

#[test]
fn many_peers_at_once_are_no_fall_of_any() {
    // A network that one fills, and eight share.
    let mut world = World::new(8);
    for link in 0..8 {
        let mut alone = [0.0; 8];
        alone[link] = 8.0;
        assert_eq!(world.read(&alone, LONG), [0; 8]);
    }
    assert_eq!(world.read(&[1.0; 8], LONG), [0; 8]);
    assert_eq!(world.read(&[8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], LONG), [0; 8]);
    // Peers that do not fill it, alone or at once, whichever came first.
    for alone_first in [true, false] {
        let mut world = World::new(8);
        let (alone, at_once) = ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0; 8]);
        let order = if alone_first { [alone, at_once] } else { [at_once, alone] };
        for speeds in order {
            assert_eq!(world.read(&speeds, LONG), [0; 8], "alone first: {alone_first}");
        }
    }
}

#[test]
fn a_fault_is_found_alone_and_in_a_crowd() {
    // Of a link that was alone, and then reads beside one that is well.
    let mut world = World::new(2);
    assert_eq!(world.read(&[8.0, 0.0], LONG), [0, 0]);
    assert_eq!(world.read(&[0.8, 7.2], LONG), [1, 0]);
    // Of one that was never alone.
    let mut world = World::new(8);
    assert_eq!(world.read(&[1.0; 8], LONG), [0; 8]);
    let mut speeds = [1.0; 8];
    speeds[3] = 0.1;
    assert_eq!(world.read(&speeds, LONG), [0, 0, 0, 1, 0, 0, 0, 0]);
    // Of the whole network.
    let mut world = World::new(2);
    assert_eq!(world.read(&[4.0, 4.0], LONG), [0, 0]);
    assert_eq!(world.read(&[0.4, 0.4], LONG), [1, 1]);
}

#[test]
fn a_link_that_is_gone_has_no_part_of_the_lane() {
    let mut world = World::new(2);
    assert_eq!(world.read(&[8.0, 0.0], LONG), [0, 0]);
    world.links[1].pending(u64::MAX, world.now);
    world.links[1].end();
    world.links[1].pending(u64::MAX, world.now);
    // It would be more than a quarter of what the lane does if the other one had a half of it.
    world.links[0].pending(u64::MAX, world.now);
    let mut slow = 0;
    for _ in 0..LONG {
        world.now += MILLISECOND;
        world.links[0].delivered(1_200_000, world.now);
        slow += usize::from(world.links[0].take_slow().is_some());
    }
    assert_eq!(slow, 1);
}

#[test]
fn latency_is_no_slowness() {
    let (mut now, mut speed) = (now(), LinkSpeed::default());
    speed.probed(probe(1.0, 1000.0));
    let mut round = |bytes: u64| {
        speed.asked(bytes, now);
        now += MILLISECOND + Duration::from_nanos(bytes);
        speed.delivered(bytes, now);
        speed.pending(0, now);
        speed.take_slow()
    };
    for bytes in [64 << 20, BULK_BYTES] {
        assert!((0..LONG).all(|_| round(bytes).is_none()), "{bytes} bytes at a time");
    }
}

#[test]
fn predictions_follow_the_probe_and_then_the_reads() {
    let mut world = World::new(1);
    assert_eq!(world.links[0].predict(1), None, "nothing was measured");
    world.links[0].probed(probe(1.0, 50.0));
    assert_eq!(world.links[0].predict(1_000_000), Some(Duration::from_micros(1050)));
    world.read(&[2.0], 100);
    let micros = world.links[0].predict(1_000_000).expect("it was measured").as_micros();
    assert!((549..=551).contains(&micros), "{micros}");
    // Probes are read over the link itself, before it is used.
    world.links[0].probed(probe(1.0, 50.0));
    assert_eq!(world.links[0].predict(1_000_000), Some(Duration::from_micros(1050)));
}

/// It is slow from its first minute, so nothing of its own tells.
#[test]
fn a_lane_that_never_did_what_was_promised_is_said_once() {
    let mut world = World::new(2);
    world.links[0].promise(Some(50e9));
    assert_eq!(world.read(&[5.0, 0.0], LONG), [0, 0], "it has not become slow");
    let short = world.links[0].take_short().expect("it brings a tenth");
    assert_eq!(short.expected, 50e9);
    assert!((4.9e9..5.1e9).contains(&short.bytes_per_s), "{short:?}");
    assert_eq!(world.read(&[5.0, 0.0], LONG), [0, 0]);
    assert_eq!(world.links[0].take_short(), None, "it is said once");
    world.read(&[40.0, 0.0], LONG);
    world.read(&[5.0, 0.0], LONG);
    assert!(world.links[0].take_short().is_some(), "it had recovered");
}

#[test]
fn a_lane_that_others_share_or_that_is_promised_nothing_is_not_short() {
    let mut world = World::new(2);
    world.links[0].promise(Some(16e9));
    // Alone it would bring twice as much.
    world.read(&[3.0, 3.0], LONG);
    assert_eq!(world.links[0].take_short(), None);
    for nothing in [None, Some(0.0)] {
        world.links[1].promise(nothing);
        world.read(&[0.0, 0.001], LONG);
        assert_eq!(world.links[1].take_short(), None);
    }
    // What was promised outlives the probe.
    world.links[0].probed(probe(1.0, 1.0));
    world.read(&[0.5, 0.0], LONG);
    assert!(world.links[0].take_short().is_some());
}
