//! `top_k`, `top_p` and `min_p` without sorting the vocabulary. The first two keep the tokens up to some last one in
//! the order "more probable first, ties by lower token", so such a cut is one key. The third is a least weight.
//!
//! `top_p` keeps the shortest beginning of that order whose weights have at least this share of the sum of all, rounded
//! up. Weights are integers, so it does not matter in which order they are added.

use super::fixed::{WEIGHT_MAX, share, share_above};
use domain::Token;

/// Candidates that are sorted rather than halved again.
const SORTED_MAX: usize = 64;

/// A token with its logit, ordered: more probable first, ties by lower token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(pub(super) u64);

impl Key {
    /// Returns the key of `token`; a logit that is no number counts as minus infinity.
    pub(super) fn new(logit: f32, token: Token) -> Self {
        let number = if logit.is_nan() { f32::NEG_INFINITY } else { logit };
        // Adding zero makes minus zero plus zero: they tie.
        let bits = (number + 0.0).to_bits();
        // IEEE 754 numbers order as integers once negative ones are flipped; the larger comes first here.
        let falling = if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits };
        Self(u64::from(falling) << 32 | u64::from(token))
    }

    /// Returns the token.
    pub(super) fn token(self) -> Token {
        self.0 as Token
    }
}

/// Leaves in `keys` those of the `count` most probable tokens of `row`, in no order.
pub(super) fn keep_most_probable(keys: &mut Vec<Key>, row: &[f32], count: usize) {
    keys.clear();
    keys.extend(row.iter().enumerate().map(|(token, &logit)| Key::new(logit, token as Token)));
    if count < keys.len() {
        keys.select_nth_unstable(count);
        keys.truncate(count);
    }
}

/// Returns the least weight that `min_p` keeps. What is no number counts as 1.
pub(super) fn least_kept(min_p: f32) -> u64 {
    (f64::from(min_p.min(1.0)) * WEIGHT_MAX as f64).ceil() as u64
}

/// Returns the last token that `top_k` (0: off) and then `top_p` (1 or more, or no number: off) keep; `None`: both are
/// off. `weights` are those of the tokens of `row`. `keys` is scratch.
pub(super) fn last_kept(keys: &mut Vec<Key>, row: &[f32], weights: &[u64], top_k: usize, top_p: f32) -> Option<Key> {
    let with_k = top_k > 0 && top_k < row.len();
    let with_p = top_p < 1.0;
    if !with_k && !with_p {
        return None;
    }
    let top_k = if with_k { top_k } else { row.len() };
    if with_p {
        let total = if with_k {
            keep_most_probable(keys, row, top_k);
            weight_of(keys, weights)
        } else {
            weights.iter().sum()
        };
        let mass = share_above(total, share(top_p));
        // All tokens lighter than this together weigh less than what may be left out: the nucleus has none of them.
        // That spares most of the vocabulary the search.
        let light = (total - mass) / top_k as u64;
        let heavy = |token: Token| weights[token as usize] >= light;
        if with_k {
            keys.retain(|key| heavy(key.token()));
        } else {
            keys.clear();
            let tokens = (0..row.len() as Token).filter(|&token| heavy(token));
            keys.extend(tokens.map(|token| Key::new(row[token as usize], token)));
        }
        nucleus(keys, weights, mass)
    } else {
        keep_most_probable(keys, row, top_k);
        keys.iter().max().copied()
    }
}

/// Returns the last key of the shortest beginning of `keys`, in order, that weighs at least `mass`; at least one key.
/// Halves the range that holds it, so that the work is linear.
fn nucleus(keys: &mut [Key], weights: &[u64], mass: u64) -> Option<Key> {
    let mut before = 0;
    let mut range = keys;
    while range.len() > SORTED_MAX {
        let middle = range.len() / 2;
        range.select_nth_unstable(middle);
        let (left, right) = range.split_at_mut(middle);
        let left_weight = weight_of(left, weights);
        if before + left_weight >= mass {
            range = left;
        } else {
            before += left_weight;
            range = right;
        }
    }
    range.sort_unstable();
    let enough = |key: &&Key| {
        before += weights[key.token() as usize];
        before >= mass
    };
    range.iter().find(enough).copied()
}

/// Returns what `keys` weigh together.
fn weight_of(keys: &[Key], weights: &[u64]) -> u64 {
    keys.iter().map(|key| weights[key.token() as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_nucleus_ends_at_the_very_token(
            weights in prop::collection::vec(1..=WEIGHT_MAX, 1..300),
            last: prop::sample::Index,
        ) {
            // The heavier, the more probable.
            let row: Vec<f32> = weights.iter().map(|&weight| weight as f32).collect();
            let keys: Vec<Key> = (0..).zip(&row).map(|(token, &logit)| Key::new(logit, token)).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            let at = last.index(sorted.len());
            let (before, last) = (weight_of(&sorted[..at], &weights), sorted[at]);
            for mass in [before + 1, before + weights[last.token() as usize]] {
                prop_assert_eq!(nucleus(&mut keys.clone(), &weights, mass), Some(last), "{} of the sum", mass);
            }
        }
    }
}
