//! How far to compute, by example: blocks of 16 tokens, a byte each, computed at 1,000 tokens a second in chunks
//! of 512.

use super::*;
use std::time::Duration;

const SIZE: u32 = 16;
const CHUNK: u32 = 512;
const COST: PromptCost = PromptCost { token_s: 0.001, attended_s: 0.0 };

/// 64 blocks from number 4 on, predicted to take so long.
fn load(predicted_s: f32) -> TwoEndedLoad {
    TwoEndedLoad::new((4..68).map(|number| (number, 1)), predicted_s, Time::ZERO)
}

fn until(load: &TwoEndedLoad, ms: u64, computed: u32) -> u32 {
    let pace = Pace { block_tokens: SIZE, chunk_tokens: CHUNK, cost: COST };
    load.compute_until(Time::ZERO + Duration::from_millis(ms), computed..68 * SIZE, pace)
}

#[test]
fn as_much_is_computed_as_the_load_leaves_time_for() {
    // As fast as computing, and three times as fast.
    assert_eq!(until(&load(1.024), 0, 64), 64 + 512);
    assert_eq!(until(&load(1.024 / 3.0), 0, 64), 64 + 256);
    // Before the prefix and behind it nothing is waited for.
    assert_eq!((until(&load(1.024), 0, 0), until(&load(1.024), 0, 68 * SIZE)), (u32::MAX, u32::MAX));
}

/// A prompt that has the first blocks of the prefix in common with the one that it is loaded for.
#[test]
fn what_is_loaded_for_another_one_is_not_waited_for() {
    let pace = Pace { block_tokens: SIZE, chunk_tokens: CHUNK, cost: COST };
    let load = load(0.1);
    assert_eq!(load.compute_until(Time::ZERO, 64..128, pace), 64);
    assert_eq!(load.compute_until(Time::ZERO, 128..128, pace), u32::MAX);
    assert!(load.is_coming(0..5) && !load.is_coming(0..4) && !load.is_coming(68..99));
}

#[test]
fn a_rest_too_small_for_a_step_is_waited_for_or_computed() {
    let mut fast = load(0.512);
    (12..68).rev().for_each(|number| fast.on_read_ended(number, 1, true));
    assert_eq!(until(&fast, 448, 64), 64);
    let mut slow = load(2.048);
    (12..68).rev().for_each(|number| slow.on_read_ended(number, 1, true));
    assert_eq!(until(&slow, 1792, 64), 64 + 128);
}

#[test]
fn a_load_that_stands_still_is_waited_for_ever_less() {
    let still = load(0.1);
    assert_eq!(until(&still, 0, 64), 64);
    assert_eq!(until(&still, 5000, 64), 64 + 1008);
}

#[test]
fn what_does_not_come_is_computed_and_what_comes_behind_it_is_not() {
    let mut load = load(0.1);
    (8..68).rev().for_each(|number| load.on_read_ended(number, 1, number != 20));
    let absent: Vec<u32> = (0..80).filter(|&number| load.is_absent(number)).collect();
    assert_eq!((absent, load.is_over()), (vec![4, 5, 6, 7, 20], false));
    (4..8).for_each(|number| load.on_read_ended(number, 1, false));
    assert!(load.is_over());
    assert_eq!(until(&load, 90, 64), 128);
    assert_eq!(until(&load, 90, 128), u32::MAX);
    assert_eq!(until(&load, 90, 20 * SIZE), 21 * SIZE);
}
