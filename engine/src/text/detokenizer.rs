//! Text of a growing sequence of tokens.
//!
//! The text is the concatenation of the tokens' bytes; only whole characters are given out. (The usual other way,
//! decoding a window of tokens twice and taking the difference, costs more per token, and holds back a run of broken
//! characters without end.)

#[cfg(test)]
mod tests;

use super::token_bytes::Beginning;
use super::tokenizer::Tokenizer;
use domain::Token;
use std::sync::Arc;

/// The longest beginning of a character that is not a whole one, in bytes.
const PARTIAL_BYTES_MAX: usize = 3;

/// Whether special tokens are part of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpecialTokens {
    /// They have no text.
    Hidden,
    /// These are shown by their names, and no others.
    Some(Arc<[Token]>),
    /// Each is shown by its name.
    Shown,
}

/// Turns the tokens of one sequence into text as they come. All that was given out is the same as
/// [`Tokenizer::decode`] of all tokens, whatever the tokens are, where special tokens are hidden.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    special: SpecialTokens,
    /// The beginning of a character; at most [`PARTIAL_BYTES_MAX`] bytes between calls.
    partial: Vec<u8>,
    /// Whether a byte of `partial` is the sequence's, not the prompt's.
    is_own: bool,
    /// What is still to happen at the beginning of the text.
    beginning: Beginning,
}

impl SpecialTokens {
    /// Returns whether `token` is part of a text.
    fn shows(&self, tokenizer: &Tokenizer, token: Token) -> bool {
        match self {
            Self::Shown => true,
            Self::Some(shown) => !tokenizer.is_special(token) || shown.contains(&token),
            Self::Hidden => !tokenizer.is_special(token),
        }
    }
}

impl Detokenizer {
    /// For the text that follows that of `prompt`, whose spaces and half characters it continues. An empty `prompt`
    /// means that a text begins here: so with the answer in a chat, where SentencePiece's leading space is no part of
    /// it.
    pub fn new(tokenizer: Tokenizer, prompt: &[Token], special: SpecialTokens) -> Self {
        let is_shown = |token: &Token| special.shows(&tokenizer, *token);
        let mut tail = Vec::new();
        for &token in prompt.iter().rev().filter(|token| is_shown(token)) {
            tail.splice(0..0, tokenizer.token_bytes(token).iter().copied());
            if tail.len() > PARTIAL_BYTES_MAX {
                break;
            }
        }
        let goes_on = prompt.iter().any(is_shown);
        let beginning = if goes_on { Beginning::AsIs } else { tokenizer.beginning() };
        let partial = partial_character(&tail).to_vec();
        Self { tokenizer, special, partial, is_own: false, beginning }
    }

    /// Returns the text that `token` completes; possibly none. Work and memory do not grow with the sequence.
    pub fn push(&mut self, token: Token) -> String {
        if !self.special.shows(&self.tokenizer, token) {
            return String::new();
        }
        let mut bytes = self.tokenizer.token_bytes(token);
        self.is_own |= !bytes.is_empty();
        match &mut self.beginning {
            Beginning::AsIs => {}
            Beginning::Strip { byte, count } => {
                while *count > 0 && bytes.first() == Some(byte) {
                    bytes = &bytes[1..];
                    *count -= 1;
                }
                if !bytes.is_empty() {
                    self.beginning = Beginning::AsIs;
                }
            }
            Beginning::NoSpaceInFirst => {
                self.partial.extend(bytes.iter().filter(|&&byte| byte != b' '));
                self.beginning = Beginning::AsIs;
                bytes = &[];
            }
        }
        self.partial.extend_from_slice(bytes);
        take_text(&mut self.partial)
    }

    /// The end of the sequence: U+FFFD if it ends in half a character, else nothing.
    pub fn finish(&mut self) -> String {
        let text = if self.is_own { String::from_utf8_lossy(&self.partial).into_owned() } else { String::new() };
        self.partial.clear();
        text
    }
}

impl Tokenizer {
    /// Returns the text of `tokens`. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[Token], special: SpecialTokens) -> String {
        let mut detokenizer = Detokenizer::new(self.clone(), &[], special);
        let mut text: String = tokens.iter().map(|&token| detokenizer.push(token)).collect();
        text += &detokenizer.finish();
        text
    }
}

/// Takes from `bytes` all but the beginning of a character at their end. What is no UTF-8 becomes U+FFFD, by the same
/// rule as in [`String::from_utf8_lossy`], which does not depend on where the bytes are cut.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let whole = bytes.len() - partial_character(bytes).len();
    let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
    bytes.drain(..whole);
    text
}

/// The end of `bytes` that is the beginning of a character and not a whole one.
fn partial_character(bytes: &[u8]) -> &[u8] {
    let ends = (1..=PARTIAL_BYTES_MAX.min(bytes.len())).map(|length| &bytes[bytes.len() - length..]);
    let mut partial = ends.filter(|end| {
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    partial.next().unwrap_or(&[])
}
