//! What the fake model computes with: tags, and tokens drawn from them. The model, which works on memory, and the
//! oracle, which works on tokens, share these functions and nothing else.

use domain::plan::{Sample, TokenSet};
use domain::{Adapter, Token};

/// Mixed in where a slot's two words do not belong together, so that the token changes.
const TORN: u64 = 0x7465_6172_7465_6172;

/// Folds `value` into `state`.
pub(super) fn mix(state: u64, value: u64) -> u64 {
    let x = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
}

/// Returns the tag of a position in a layer. `before` is the tag of the position before it in the same layer, 0 where
/// that is outside of the window: as in a real cache, K and V depend on all that was said before, so that a block of
/// another prefix is foreign even where its tokens are the same.
pub(super) fn tag(layer: u16, position: u32, token: Token, before: u64) -> u64 {
    mix(mix(mix(before, u64::from(layer) + 1), u64::from(position)), u64::from(token))
}

/// Folds the history of a sequence into `state`: which tokens it has, and which of them are the client's.
pub(super) fn heard(state: u64, prompt: &[Token], output: impl Iterator<Item = Token>) -> u64 {
    let state = prompt.iter().fold(mix(state, prompt.len() as u64), |state, &token| mix(state, u64::from(token)));
    output.fold(state, |state, token| mix(state, u64::from(token)))
}

/// Returns the tag as it is with an adapter, which changes all that a model computes.
pub(super) fn adapted(tag: u64, adapter: Option<&Adapter>) -> u64 {
    adapter.map_or(tag, |adapter| adapter.name().bytes().fold(tag, |tag, byte| mix(tag, u64::from(byte) + 1)))
}

/// The layer that a query at `query` reads of `position`: one only, so that a sample costs no more than its context is
/// long; another one at the next query, so that after as many samples as layers every slice was read.
pub(super) fn layer_read(position: u32, query: u32, layers: usize) -> u16 {
    ((u64::from(position) + u64::from(query)) % layers as u64) as u16
}

/// Returns what the words of a slot say: the tag, or what stands for a slot whose words do not belong together.
pub(super) fn read_slot(key: u64, value: u64) -> Result<u64, u64> {
    if value == !key { Ok(key) } else { Err(mix(mix(TORN, key), value)) }
}

/// The tokens that the fake model says.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    size: u32,
    /// Rising, each once, below `size`.
    silent: Vec<Token>,
}

impl Vocabulary {
    /// Tokens `0..size` without those of `silent`, such as the ones that end a sequence. `None` where no token is left.
    pub fn new(size: u32, silent: impl IntoIterator<Item = Token>) -> Option<Self> {
        let mut silent: Vec<Token> = silent.into_iter().filter(|&token| token < size).collect();
        silent.sort_unstable();
        silent.dedup();
        ((silent.len() as u32) < size).then_some(Self { size, silent })
    }

    /// Number of token ids, those included that are never said.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The token that `state`, which was folded from tags, gives for `sample`. Stop tokens are not said before
    /// `min_tokens`, as with any model. With a mask, it is one of the `allowed` tokens, if any is.
    pub(super) fn draw(&self, state: u64, sample: &Sample, allowed: Option<&TokenSet>) -> Token {
        let hash = mix(mix(state, sample.seed), u64::from(sample.index));
        if let Some(allowed) = allowed {
            let tokens: Vec<Token> = (0..self.size).filter(|&token| allowed.contains(token)).collect();
            if !tokens.is_empty() {
                return tokens[(hash % tokens.len() as u64) as usize];
            }
        }
        let early = sample.index < sample.params.min_tokens;
        let held_back = early
            .then(|| Self::new(self.size, self.silent.iter().chain(&sample.params.stop_tokens).copied()))
            .flatten();
        let vocabulary = held_back.as_ref().unwrap_or(self);
        let said = u64::from(vocabulary.size) - vocabulary.silent.len() as u64;
        // The n-th token that may be said: silent ones below it push it up.
        vocabulary.silent.iter().fold((hash % said) as Token, |token, &silent| token + u32::from(silent <= token))
    }
}
