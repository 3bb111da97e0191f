//! What a step can be asked for beside tokens, and what limits the tokens that it samples.

use crate::ids::Token;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenRows {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// The tokens that a sample may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The sample, counted over all spans of its step in order.
    pub sample: u32,
    /// The tokens.
    pub allowed: Arc<TokenSet>,
}

/// A set of tokens of a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSet {
    /// One bit for each token, from the lowest bit of the first word on: what libraries for grammars write.
    words: Vec<u32>,
    vocab: usize,
}

/// The sum of the hidden states of some rows, behind the model's last norm. In fixed point, so that it does not depend
/// on the order of the rows: the sum of a prompt is the same however it was cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenSum {
    /// Rows that were added.
    pub rows: u32,
    /// `[hidden]`, in units of 2^-[`HIDDEN_BITS`].
    pub sums: Vec<i64>,
}

/// Fraction bits of a [`HiddenSum`]. A norm keeps values below some thousands, so that 2^17 rows and more are added
/// without an overflow; beyond that, sums stay at the largest number.
pub const HIDDEN_BITS: u32 = 32;

impl TokenSet {
    /// Makes the set of no token.
    pub fn none(vocab: usize) -> Self {
        Self { words: vec![0; vocab.div_ceil(u32::BITS as usize)], vocab }
    }

    /// Makes a set of these tokens. Tokens outside of the vocabulary are left out.
    pub fn of(vocab: usize, tokens: impl IntoIterator<Item = Token>) -> Self {
        let mut set = Self::none(vocab);
        for token in tokens.into_iter().filter(|&token| (token as usize) < vocab) {
            set.words[token as usize / u32::BITS as usize] |= 1 << (token % u32::BITS);
        }
        set
    }

    /// Makes a set of words of bits. `None`: they are not as many as the vocabulary takes. Bits behind the vocabulary's
    /// end mean nothing.
    pub fn from_words(vocab: usize, mut words: Vec<u32>) -> Option<Self> {
        let unused = (vocab as u32).wrapping_neg() % u32::BITS;
        if let Some(last) = words.last_mut() {
            *last &= u32::MAX >> unused;
        }
        (words.len() == vocab.div_ceil(u32::BITS as usize)).then_some(Self { words, vocab })
    }

    /// Returns its words: one bit for each token, from the lowest bit of the first word on.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Returns the size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Returns whether a token is in it.
    pub fn contains(&self, token: Token) -> bool {
        let word = self.words.get(token as usize / u32::BITS as usize);
        (token as usize) < self.vocab && word.is_some_and(|word| word >> (token % u32::BITS) & 1 == 1)
    }
}

impl HiddenRows {
    /// Returns the rows, of a span that has `rows`.
    pub fn of(self, rows: usize) -> Range<usize> {
        match self {
            Self::First => 0..1.min(rows),
            Self::Last => rows.saturating_sub(1)..rows,
            Self::All => 0..rows,
        }
    }
}

impl HiddenSum {
    /// Makes the sum of no rows of a model that is `width` wide.
    pub fn new(width: usize) -> Self {
        Self { rows: 0, sums: vec![0; width] }
    }

    /// Adds the sum of other rows.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, other)| *sum = sum.saturating_add(*other));
    }

    /// Returns the mean of the rows; `normalised`: scaled to a length of one, as embeddings are compared. Zeros if
    /// there are no rows.
    pub fn mean(&self, normalised: bool) -> Vec<f32> {
        let unit = 1.0 / (f64::from(self.rows.max(1)) * (1_u64 << HIDDEN_BITS) as f64);
        let mean = self.sums.iter().map(|&sum| sum as f64 * unit);
        let length = if normalised { mean.clone().map(|x| x * x).sum::<f64>().sqrt() } else { 1.0 };
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        mean.map(|x| (x * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_tokens_and_no_others() {
        let set = TokenSet::of(70, [0, 31, 32, 69, 70, 1000]);
        assert_eq!((0..1100).filter(|&token| set.contains(token)).collect::<Vec<_>>(), [0, 31, 32, 69]);
        assert_eq!(TokenSet::from_words(70, vec![u32::MAX; 2]), None);
        let all = TokenSet::from_words(70, vec![u32::MAX; 3]).expect("96 bits");
        assert!(all.contains(69) && !all.contains(70), "bits behind the vocabulary mean nothing");
        assert_eq!(all, TokenSet::of(70, 0..70));
        assert_eq!((TokenSet::none(70).contains(0), all.vocab()), (false, 70));
    }

    #[test]
    fn a_sum_is_the_same_in_any_order_and_its_mean_is_what_was_added() {
        let unit = (1_i64 << HIDDEN_BITS) as f64;
        let row = |values: [f64; 3]| HiddenSum { rows: 1, sums: values.map(|x| (x * unit) as i64).to_vec() };
        let rows = [row([3.0, 0.0, -1.5]), row([5.0, 0.0, 0.5]), row([1.0, 0.0, -2.0])];
        let sum = |order: [usize; 3]| {
            let mut sum = HiddenSum::new(3);
            order.into_iter().for_each(|i| sum.add(&rows[i]));
            sum
        };
        assert_eq!(sum([0, 1, 2]), sum([2, 0, 1]));
        assert_eq!(sum([0, 1, 2]).mean(false), [3.0, 0.0, -1.0]);
        let mean = sum([0, 1, 2]).mean(true);
        assert!((mean.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-6, "{mean:?}");
        // No rows, and rows without length.
        assert_eq!((HiddenSum::new(2).mean(true), HiddenSum::new(1).mean(false)), (vec![0.0; 2], vec![0.0]));
        // Too much stays at the largest number.
        let mut large = HiddenSum { rows: 1, sums: vec![i64::MAX - 1] };
        large.add(&HiddenSum { rows: 1, sums: vec![5] });
        assert_eq!(large.sums, [i64::MAX]);
    }

    #[test]
    fn rows_are_those_of_the_span() {
        let all = [HiddenRows::First, HiddenRows::Last, HiddenRows::All];
        assert_eq!(all.map(|rows| rows.of(5)), [0..1, 4..5, 0..5]);
        assert_eq!(all.map(|rows| rows.of(0)), [0..0, 0..0, 0..0]);
    }
}
