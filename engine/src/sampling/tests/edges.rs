//! Rows and parameters at the ends of what there is.

use super::{params, sample_of};
use crate::sampling::{DRAW_PART, SampleContext, Sampler, cut, draw, fixed, random};
use domain::plan::Sample;
use domain::{SamplingParams, Token};

/// The tokens of the first `count` indexes.
fn tokens(logits: &[f32], change: impl FnOnce(&mut SamplingParams), count: u32) -> Vec<Token> {
    let sample = sample_of(params(change));
    let mut sampler = Sampler::new(logits.len());
    let mut token = |index| {
        sampler.sample(logits, &Sample { index, ..sample.clone() }, SampleContext::default()).expect("sound").token
    };
    (0..count).map(&mut token).collect()
}

/// The tokens of the first 100 indexes where the tokens in `of` are equally probable and no other is possible.
fn evenly(of: &[Token]) -> Vec<Token> {
    let sample = sample_of(params(|_| ()));
    let at = |index| fixed::share_below(of.len() as u64, random::uniform(sample.seed, index)) as usize;
    (0..100).map(|index| of[at(index)]).collect()
}

#[test]
fn equal_logits_are_equally_probable() {
    for logit in [0.0, -1e30, f32::MIN, f32::MAX] {
        let all: Vec<Token> = (0..1000).collect();
        assert_eq!(tokens(&[logit; 1000], |_| (), 100), evenly(&all), "all are {logit}");
        // Ties fall by token.
        assert_eq!(tokens(&[logit; 1000], |p| p.top_k = 10, 100), evenly(&all[..10]));
        assert_eq!(tokens(&[logit; 1000], |p| p.top_p = 0.25, 100), evenly(&all[..250]));
        assert_eq!(tokens(&[logit; 1000], |p| p.top_p = 0.250_1, 100), evenly(&all[..251]));
        assert_eq!(tokens(&[logit; 1000], |p| p.min_p = 1.0, 100), evenly(&all));
    }
}

#[test]
fn a_huge_logit_leaves_nothing_to_the_others() {
    let mut logits = [1.0; 1000];
    logits[700] = 1e30;
    assert_eq!(tokens(&logits, |_| (), 100), [700; 100]);
    (logits[700], logits[3]) = (29.0, 29.0);
    // 28 nats are more than 39 halvings.
    assert_eq!(tokens(&logits, |_| (), 100), evenly(&[3, 700]));
}

#[test]
fn what_is_impossible_is_never_drawn() {
    let mut logits = [f32::NEG_INFINITY; 600];
    (logits[1], logits[300], logits[599], logits[0]) = (2.0, 2.0, 2.0, f32::NAN);
    for temperature in [1.0, f32::MAX, f32::INFINITY] {
        assert_eq!(tokens(&logits, |p| p.temperature = temperature, 100), evenly(&[1, 300, 599]), "{temperature}");
    }
}

#[test]
fn temperatures_at_the_ends_take_the_maximum_or_anything() {
    let logits = [1.0, 3.0, 3.0f32.next_down(), 3.0, -50.0];
    for temperature in [f32::from_bits(1), 1e-40, f32::MIN_POSITIVE, 1e-20] {
        assert_eq!(tokens(&logits, |p| p.temperature = temperature, 100), evenly(&[1, 3]), "{temperature}");
    }
    for temperature in [1e30, f32::MAX, f32::INFINITY] {
        assert_eq!(tokens(&logits, |p| p.temperature = temperature, 100), evenly(&[0, 1, 2, 3, 4]), "{temperature}");
    }
}

#[test]
fn shares_of_nothing_and_of_all() {
    let logits = [1.0, 3.0, 2.0, 3.0, -20.0];
    let all = tokens(&logits, |_| (), 100);
    for top_p in [0.0, -1.0, f32::NEG_INFINITY, 1e-30] {
        assert_eq!(tokens(&logits, |p| p.top_p = top_p, 100), [1; 100], "{top_p}");
    }
    for top_p in [1.0, 2.0, f32::INFINITY, f32::NAN] {
        assert_eq!(tokens(&logits, |p| p.top_p = top_p, 100), all, "{top_p}");
    }
    for min_p in [1.0, 2.0, f32::INFINITY, f32::NAN] {
        assert_eq!(tokens(&logits, |p| p.min_p = min_p, 100), evenly(&[1, 3]), "{min_p}");
    }
    for min_p in [0.0, -0.0, -1.0, f32::NEG_INFINITY, 1e-30] {
        assert_eq!(tokens(&logits, |p| p.min_p = min_p, 100), all, "{min_p}");
    }
}

#[test]
fn the_least_weight_is_rounded_up() {
    let weights = [0.0, -1.0, 1e-30, 0.5, 1.0, f32::NAN].map(cut::least_kept);
    assert_eq!(weights, [0, 0, 1, fixed::WEIGHT_MAX / 2, fixed::WEIGHT_MAX, fixed::WEIGHT_MAX]);
}

#[test]
fn a_draw_is_right_at_every_border() {
    for count in [1, DRAW_PART - 1, DRAW_PART, DRAW_PART + 1, 3 * DRAW_PART] {
        // Every third token is cut. The weights are such that one in 2^64 is one of the sum.
        let mut weights: Vec<u64> = (0..count as u64).map(|token| if token % 3 == 1 { 0 } else { token + 1 }).collect();
        weights[count - 1] = 1;
        let total: u64 = weights.iter().sum();
        let mut point = 0;
        for (token, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
            for point in [point, point + weight - 1] {
                // The least number whose share of the total is the point.
                let uniform = (u128::from(point) << 64).div_ceil(u128::from(total)) as u64;
                assert_eq!(fixed::share_below(total, uniform), point);
                assert_eq!(draw(&weights, uniform), token as Token, "point {point} of {total}");
            }
            point += weight;
        }
        assert_eq!(draw(&weights, u64::MAX), count as Token - 1);
    }
}
