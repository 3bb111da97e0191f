//! `top_k` and `top_p` without sorting the vocabulary: both keep the tokens up to some last one in the order "more
//! probable first, ties by lower token", so a cut is one key.

use domain::Token;

/// Candidates that are sorted rather than halved again.
const SORTED_MAX: usize = 64;

/// A token with its logit, ordered: more probable first, ties by lower token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(u64);

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

/// Returns the last token that `top_k` (0: off) and then `top_p` (1 or more: off) keep; `None`: both are off. `weights`
/// are the probabilities of `row` up to a common factor. `keys` is scratch.
pub(super) fn last_kept(keys: &mut Vec<Key>, row: &[f32], weights: &[f32], top_k: usize, top_p: f32) -> Option<Key> {
    let with_k = top_k > 0 && top_k < row.len();
    // Also where `top_p` is no number.
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
            super::weights::sum(weights)
        };
        // All tokens lighter than this together weigh less than what `top_p` may leave out: the nucleus has none of
        // them. That spares most of the vocabulary the search.
        let top_p = f64::from(top_p.max(0.0));
        let light = (1.0 - top_p) * total / top_k as f64;
        let heavy = |token: Token| f64::from(weights[token as usize]) >= light;
        if with_k {
            keys.retain(|key| heavy(key.token()));
        } else {
            keys.clear();
            let tokens = (0..row.len() as Token).filter(|&token| heavy(token));
            keys.extend(tokens.map(|token| Key::new(row[token as usize], token)));
        }
        nucleus(keys, weights, top_p * total)
    } else {
        keep_most_probable(keys, row, top_k);
        keys.iter().max().copied()
    }
}

/// Returns the last key of the shortest beginning of `keys`, in order, that weighs at least `mass`; at least one key.
/// Halves the range that holds it, so that the work is linear.
fn nucleus(keys: &mut [Key], weights: &[f32], mass: f64) -> Option<Key> {
    let mut before = 0.0;
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
    let enough = range.iter().find(|key| {
        before += f64::from(weights[key.token() as usize]);
        before >= mass
    });
    enough.or(range.last()).copied()
}

/// Returns what `keys` weigh together.
fn weight_of(keys: &[Key], weights: &[f32]) -> f64 {
    keys.iter().map(|key| f64::from(weights[key.token() as usize])).sum()
}
