use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Links to test with, whose rails bring what they are asked for at given speeds, in steps of virtual time.
struct World {
    rails: Rails,
    now: Instant,
    begin: Instant,
    /// Bytes a second of each; 0: nothing comes. Changed by tests.
    speeds: Vec<f64>,
    /// What each has to bring, bucket by bucket.
    asked: Vec<VecDeque<u64>>,
    /// Bytes that each may bring by now.
    credit: Vec<f64>,
    brought: u64,
    aside: Vec<(usize, RailFault, Duration)>,
    returned: Vec<(usize, Duration)>,
}

const STEP: Duration = Duration::from_millis(1);
const BUCKET: u64 = 1 << 20;

#[expect(clippy::disallowed_methods, reason = "virtual time begins somewhere")]
fn world(speeds: &[f64]) -> World {
    let now = Instant::now();
    let trials: Vec<_> = speeds.iter().map(|&speed| Trial::Measured(speed)).collect();
    World {
        rails: Rails::new(&trials, now),
        now,
        begin: now,
        speeds: speeds.to_vec(),
        asked: vec![VecDeque::new(); speeds.len()],
        credit: vec![0.0; speeds.len()],
        brought: 0,
        aside: Vec::new(),
        returned: Vec::new(),
    }
}

impl World {
    fn ask(&mut self, bytes: u64) -> bool {
        let Some(rail) = self.rails.pick(bytes, |_| true) else { return false };
        assert!(self.rails.is_up(rail));
        self.rails.ask(rail, bytes, true, self.now);
        self.asked[rail].push_back(bytes);
        true
    }

    /// Bytes that are asked for and not there.
    fn outstanding(&self) -> u64 {
        self.asked.iter().flatten().sum()
    }

    fn put_aside(&mut self, rail: usize, fault: RailFault) {
        self.rails.put_aside(rail, self.now);
        self.aside.push((rail, fault, self.now - self.begin));
        self.credit[rail] = 0.0;
        // What was outstanding is asked of the others.
        for bytes in std::mem::take(&mut self.asked[rail]) {
            self.ask(bytes);
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        for rail in 0..self.speeds.len() {
            self.credit[rail] += self.speeds[rail] * STEP.as_secs_f64();
            while let Some(&bytes) = self.asked[rail].front()
                && self.credit[rail] >= bytes as f64
            {
                self.credit[rail] -= bytes as f64;
                self.asked[rail].pop_front();
                self.brought += bytes;
                self.rails.delivered(rail, bytes, self.now);
            }
            if self.asked[rail].is_empty() {
                self.credit[rail] = 0.0;
            }
        }
        while let Some((rail, fault)) = self.rails.judge(self.now) {
            self.put_aside(rail, fault);
        }
        while let Some(rail) = self.rails.next_trial(self.now, |_| true) {
            let outcome = if self.speeds[rail] > 0.0 { Trial::Measured(self.speeds[rail]) } else { Trial::Failed };
            if self.rails.tried(rail, outcome, self.now) {
                self.returned.push((rail, self.now - self.begin));
            }
        }
    }

    /// Reads without a pause for so long.
    fn load(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            while self.outstanding() < 16 * BUCKET && self.ask(BUCKET) {}
            self.step();
        }
    }
}

const FAST: f64 = 1e9;

#[test]
fn bytes_come_by_the_rail_that_has_them_first() {
    let mut world = world(&[FAST, FAST / 2.0]);
    world.load(Duration::from_secs(1));
    assert!(world.aside.is_empty());
    // Both rails together, but for what was on its way at the end.
    assert!(world.brought as f64 > 1.4 * FAST, "{}", world.brought);
}

#[test]
fn a_rail_that_slows_is_found_within_a_second_and_taken_back_when_it_heals() {
    let mut world = world(&[FAST, FAST]);
    world.load(Duration::from_secs(2));
    assert!(world.aside.is_empty());
    world.speeds[1] = FAST / 10.0;
    world.load(Duration::from_secs(3));
    let [(1, RailFault::Slow, at)] = world.aside[..] else { panic!("{:?}", world.aside) };
    assert!(at < Duration::from_secs(3), "{at:?}");
    assert!(world.returned.is_empty());
    world.speeds[1] = FAST;
    world.load(PAUSE_MAX + Duration::from_secs(1));
    assert_eq!(world.returned.len(), 1);
    assert_eq!((world.rails.up(), world.aside.len()), (2, 1));
}

#[test]
fn a_rail_by_which_nothing_comes_is_silent_if_others_bring_something() {
    let mut world = world(&[FAST, FAST]);
    world.load(Duration::from_secs(1));
    world.speeds[0] = 0.0;
    world.load(Duration::from_secs(3));
    assert!(matches!(world.aside[..], [(0, RailFault::Slow | RailFault::Silent, _)]), "{:?}", world.aside);
    // Where nothing comes at all, it is not the rails.
    let mut world = self::world(&[FAST, FAST]);
    world.load(Duration::from_secs(1));
    world.speeds = vec![0.0, 0.0];
    world.load(Duration::from_secs(5));
    assert!(world.aside.is_empty(), "{:?}", world.aside);
}

#[test]
fn who_stood_still_blames_no_rail() {
    let mut world = world(&[FAST, FAST]);
    world.load(Duration::from_secs(1));
    for standstill in [SILENT_MAX / 2, SILENT_MAX, 5 * SILENT_MAX] {
        // Bytes are on their way by both, and the first to be looked at afterwards has brought some.
        while world.outstanding() < 16 * BUCKET && world.ask(BUCKET) {}
        world.now += standstill;
        let bytes = world.asked[0].pop_front().expect("it was asked for some");
        world.rails.delivered(0, bytes, world.now);
        world.load(Duration::from_millis(500));
        assert!(world.aside.is_empty(), "{standstill:?}: {:?}", world.aside);
    }
}

#[test]
fn pauses_double_and_a_link_without_rails_is_lost() {
    let mut world = world(&[FAST]);
    world.speeds[0] = 0.0;
    world.put_aside(0, RailFault::Failed);
    let mut trials = Vec::new();
    while !world.rails.is_lost(world.now) {
        world.now += STEP;
        if world.rails.next_trial(world.now, |_| true).is_some() {
            trials.push((world.now - world.begin).as_millis());
            assert!(!world.rails.tried(0, Trial::Failed, world.now));
        }
    }
    assert_eq!(trials, [100, 300, 700, 1500, 3100, 6300]);
    assert_eq!(world.now - world.begin, NONE_UP_MAX);
    assert!(world.rails.tried(0, Trial::Works, world.now) && !world.rails.is_lost(world.now));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "virtual time begins somewhere")]
fn rails_are_used_once_they_proved_to_be_there() {
    let begin = Instant::now();
    let mut rails = Rails::untried(&[true, true, false], begin);
    assert_eq!((rails.up(), rails.pick(1, |_| true)), (0, None));
    // Whatever its speed.
    assert!(rails.tried(0, Trial::Works, begin));
    assert_eq!((rails.up(), rails.pick(1, |_| true)), (1, Some(0)));
    assert!(!rails.tried(1, Trial::Failed, begin));
    // What was not there, and what proved of no use, is tried later.
    assert_eq!(rails.next_trial(begin, |_| true), None);
    let later = begin + PAUSE_MIN;
    assert_eq!([(); 3].map(|()| rails.next_trial(later, |_| true)), [Some(1), Some(2), None]);
    assert!(rails.tried(1, Trial::Measured(FAST), later) && rails.tried(2, Trial::Measured(FAST), later));
    assert_eq!((rails.up(), rails.is_lost(later + NONE_UP_MAX)), (3, false));
}

proptest! {
    /// Whatever happens to the rails: bytes are asked only of those that are up, the last one is never put aside
    /// for what it does, nothing is lost, and once all is well every rail is back.
    #[test]
    fn nothing_is_lost(
        changes in proptest::collection::vec((0_usize..3, 0_u8..4, 1_u64..1500), 1..12),
    ) {
        let mut world = world(&[FAST; 3]);
        let mut asked = 0;
        for (rail, change, time) in changes {
            match change {
                0 => world.speeds[rail] = 0.0,
                1 => world.speeds[rail] = FAST / 12.0,
                2 => world.speeds[rail] = FAST,
                _ if world.rails.is_up(rail) && world.rails.up() > 1 => world.put_aside(rail, RailFault::Failed),
                _ => {}
            }
            for _ in 0..time {
                while world.outstanding() < 8 * BUCKET && world.ask(BUCKET) {
                    asked += BUCKET;
                }
                world.step();
                prop_assert!(world.rails.up() >= 1);
                prop_assert_eq!(world.brought + world.outstanding(), asked);
            }
        }
        world.speeds = vec![FAST; 3];
        world.load(PAUSE_MAX * 2);
        prop_assert_eq!(world.rails.up(), 3, "{:?}", world.rails);
    }
}

#[test]
fn the_rail_that_brings_nothing_for_the_longest_is_known_whatever_the_others_do() {
    let mut world = world(&[FAST, FAST]);
    assert_eq!(world.rails.mute(), None, "nothing is pending");
    let begin = world.now;
    world.rails.ask(1, BUCKET, true, begin);
    world.rails.ask(0, BUCKET, true, begin + STEP);
    assert_eq!(world.rails.mute(), Some((1, begin)));
    world.rails.delivered(1, BUCKET, begin + 2 * STEP);
    assert_eq!(world.rails.mute(), Some((0, begin + STEP)));
    world.rails.put_aside(0, begin + 3 * STEP);
    assert_eq!(world.rails.mute(), None, "it is asked for nothing");
}

/// A link, how long its lane looks after it, how often, and what it is told to do in that time.
type Row<'a> = (&'a str, fn() -> World, Duration, Duration, &'a [RailStep]);

fn aside(speeds: &[f64]) -> World {
    let mut world = world(speeds);
    world.rails.put_aside(0, world.now);
    world
}

fn asked(speeds: &[f64], mute_max: Option<Duration>) -> World {
    let mut world = world(speeds);
    world.rails.mute_max = mute_max;
    (0..speeds.len()).for_each(|rail| world.rails.ask(rail, BUCKET, true, world.now));
    world
}

#[test]
fn every_step_follows_from_what_the_rails_did() {
    const MUTE_MAX: Duration = Duration::from_secs(5);
    let second = Duration::from_secs(1);
    let silent = |rail| RailStep::PutAside {
        rail,
        fault: RailFault::Silent,
        reason: "nothing came for 5s, and no error says why".to_owned(),
    };
    const ONCE: Duration = Duration::MAX;
    const OFTEN: Duration = Duration::from_millis(50);
    let table: &[Row<'_>] = &[
        ("nothing is pending", || world(&[FAST, FAST]), 9 * second, OFTEN, &[]),
        ("one rail is compared with none", || asked(&[FAST], None), 9 * second, OFTEN, &[]),
        ("it is mute", || asked(&[FAST], Some(MUTE_MAX)), MUTE_MAX, OFTEN, &[silent(0)]),
        ("it is not mute yet", || asked(&[FAST], Some(MUTE_MAX)), MUTE_MAX - STEP, OFTEN, &[]),
        ("all are mute", || asked(&[FAST, FAST], Some(MUTE_MAX)), MUTE_MAX, OFTEN, &[silent(0), silent(1)]),
        ("the thread was stalled", || asked(&[FAST, FAST], Some(MUTE_MAX)), MUTE_MAX, ONCE, &[]),
        ("a pause is not over", || aside(&[FAST, FAST]), PAUSE_MIN - STEP, ONCE, &[]),
        ("a pause is over", || aside(&[FAST, FAST]), PAUSE_MIN, ONCE, &[RailStep::Try(0)]),
        ("the last rail is tried, too", || aside(&[FAST]), second, OFTEN, &[RailStep::Try(0)]),
        ("no rail is up for too long", || aside(&[FAST]), NONE_UP_MAX, OFTEN, &[RailStep::Try(0), RailStep::GiveUp]),
        ("both at once", || aside(&[FAST]), NONE_UP_MAX, ONCE, &[RailStep::Try(0), RailStep::GiveUp]),
    ];
    for (name, link, after, every, expect) in table {
        let mut world = link();
        let (end, mut done) = (world.now + *after, Vec::new());
        while world.now < end && !done.contains(&RailStep::GiveUp) {
            world.now = world.now.checked_add(*every).map_or(end, |next| next.min(end));
            while let Some(step) = world.rails.next_step(world.now, |_| true) {
                if let RailStep::PutAside { rail, .. } = &step {
                    world.rails.put_aside(*rail, world.now);
                }
                done.push(step);
                if done.ends_with(&[RailStep::GiveUp]) {
                    break;
                }
            }
            let is_over = done.contains(&RailStep::GiveUp);
            let deadline = world.rails.deadline(|_| true);
            assert!(is_over || deadline.is_none_or(|at| at > world.now), "{name}: it has nothing to do now");
        }
        assert_eq!(done, *expect, "{name}");
    }
}

#[test]
fn a_rail_of_which_something_has_not_ended_is_not_tried_and_waited_for() {
    let mut world = aside(&[FAST, FAST]);
    let later = world.now + 2 * PAUSE_MIN;
    assert_eq!((world.rails.next_step(later, |_| false), world.rails.deadline(|_| false)), (None, None));
    assert_eq!(world.rails.deadline(|_| true), Some(world.now + PAUSE_MIN));
    assert_eq!(world.rails.next_step(later, |_| true), Some(RailStep::Try(0)));
}
