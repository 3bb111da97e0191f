//! The sampler against one that works as a wide device does: many parts of the vocabulary at once, whose sums meet in
//! any order, and thresholds that are found bit by bit, without a sort.

use super::{params, sample_of, uniform};
use crate::sampling::cut::Key;
use crate::sampling::{SampleContext, Sampler, cut, fixed, random, weights};
use domain::plan::Sample;
use domain::{SamplingParams, Token};
use proptest::prelude::*;
use std::ops::Range;

/// A random order of `count` things.
fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_cached_key(|&i| random::uniform(seed, i as u32));
    order
}

/// Adds numbers as a tree does whose leaves are in a random order.
fn tree(mut numbers: Vec<u64>, seed: u64) -> u64 {
    numbers = order(numbers.len(), seed).into_iter().map(|i| numbers[i]).collect();
    while numbers.len() > 1 {
        numbers = numbers.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
    numbers.first().copied().unwrap_or(0)
}

/// A device that shares a row among parts.
struct Wide<'a> {
    row: &'a [f32],
    weights: Vec<u64>,
    /// Tokens of each part, a stretch each.
    parts: Vec<Range<usize>>,
    seed: u64,
}

impl<'a> Wide<'a> {
    fn new(row: &'a [f32], temperature: f32, parts: usize, seed: u64) -> Self {
        let mut borders: Vec<usize> =
            (1..parts as u32).map(|i| (uniform(seed, i) * row.len() as f64) as usize).collect();
        borders.extend([0, row.len()]);
        borders.sort_unstable();
        let parts = borders.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let max = row.iter().copied().filter(|logit| !logit.is_nan()).fold(f32::NEG_INFINITY, f32::max);
        let scale = fixed::scale(temperature);
        let mut weights = vec![0; row.len()];
        for token in order(row.len(), seed) {
            weights[token] = fixed::weight(fixed::exponent(row[token], max, scale));
        }
        Self { row, weights, parts, seed }
    }

    /// Adds `of` for all tokens that are `kept`, part by part.
    fn sum(&self, kept: impl Fn(usize) -> bool, of: impl Fn(usize) -> u64) -> u64 {
        let of = |part: &Range<usize>| tree(part.clone().filter(|&token| kept(token)).map(&of).collect(), self.seed);
        tree(self.parts.iter().map(of).collect(), self.seed ^ 1)
    }

    /// Returns what the kept tokens of a part weigh.
    fn sum_of(&self, part: &Range<usize>, kept: impl Fn(usize) -> bool) -> u64 {
        tree(part.clone().filter(|&token| kept(token)).map(|token| self.weights[token]).collect(), self.seed)
    }

    fn key(&self, token: usize) -> Key {
        Key::new(self.row[token], token as Token)
    }

    /// Returns the smallest key up to which the `kept` tokens come to `enough`, bit by bit from above.
    fn threshold(&self, kept: impl Fn(Key) -> bool, of: impl Fn(usize) -> u64, enough: u64) -> Key {
        let mut low = 0;
        for bit in (0..64).rev() {
            let middle = Key(low | ((1 << bit) - 1));
            let sum = self.sum(|token| self.key(token) <= middle && kept(self.key(token)), &of);
            low |= if sum >= enough { 0 } else { 1 << bit };
        }
        Key(low)
    }

    /// Samples: cuts first, then the part that the point lies in, and the token in it.
    fn sample(&self, sample: &Sample) -> (Option<Key>, Token) {
        let SamplingParams { top_k, top_p, min_p, .. } = *sample.params;
        let with_k =
            (top_k > 0 && (top_k as usize) < self.row.len()).then(|| self.threshold(|_| true, |_| 1, u64::from(top_k)));
        let in_k = |key: Key| with_k.is_none_or(|last| key <= last);
        let with_p = (top_p < 1.0).then(|| {
            let total = self.sum(|token| in_k(self.key(token)), |token| self.weights[token]);
            // At least one token, whatever the mass is.
            let mass = fixed::share_above(total, fixed::share(top_p)).max(1);
            self.threshold(in_k, |token| self.weights[token], mass)
        });
        let last = with_p.or(with_k);
        let least = cut::least_kept(min_p);
        let kept = |token: usize| last.is_none_or(|last| self.key(token) <= last) && self.weights[token] >= least;
        let all = tree(self.parts.iter().map(|part| self.sum_of(part, kept)).collect(), self.seed);
        let mut left = fixed::share_below(all, random::uniform(sample.seed, sample.index));
        for part in &self.parts {
            let weight = self.sum_of(part, kept);
            if weight > left {
                let up_to = |token: usize| self.sum_of(&(part.start..token + 1), kept);
                let token = part.clone().find(|&token| up_to(token) > left).expect("the part weighs more");
                return (last, token as Token);
            }
            left -= weight;
        }
        panic!("the point lies below the sum");
    }
}

proptest! {
    #[test]
    fn any_order_of_sums_gives_the_same_cut_and_token(
        vocab in 1usize..300,
        row_seed: u64,
        seed: u64,
        // Few levels make ties, and borders that fall on them.
        levels in prop_oneof![Just(1.0), Just(3.0), Just(1e6)],
        temperature in prop_oneof![Just(std::f32::consts::LOG2_E), 0.05f32..3.0],
        top_k in prop_oneof![Just(0u32), 1u32..80],
        top_p in prop_oneof![Just(1.0f32), Just(0.5), Just(0.25), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), Just(0.5), 0.0f32..1.0],
        parts in 1usize..20,
        index in 0u32..1000,
    ) {
        let logits: Vec<f32> = (0..vocab as u32).map(|i| (uniform(row_seed, i) * levels).round() as f32 * 4.0).collect();
        let params = params(|p| (p.temperature, p.top_k, p.top_p, p.min_p) = (temperature, top_k, top_p, min_p));
        let sample = Sample { seed, index, ..sample_of(params) };
        let wide = Wide::new(&logits, temperature, parts, seed);
        let (last, token) = wide.sample(&sample);
        let mut filled = Vec::new();
        weights::fill(&mut filled, &logits, weights::max(&logits), fixed::scale(temperature));
        prop_assert_eq!(&filled, &wide.weights);
        // A threshold lies between two keys; what counts is which tokens it keeps.
        let keeps = |last: Option<Key>| {
            (0..vocab).filter(|&token| last.is_none_or(|last| wide.key(token) <= last)).collect::<Vec<_>>()
        };
        let found = cut::last_kept(&mut Vec::new(), &logits, &filled, top_k as usize, top_p);
        prop_assert_eq!(keeps(found), keeps(last));
        prop_assert_eq!(Sampler::new(vocab).sample(&logits, &sample, SampleContext::default()).expect("sound").token, token);
    }
}
