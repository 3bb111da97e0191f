//! Text of a growing sequence of tokens.

use super::Tokenizer;
use domain::Token;

/// Turns the tokens of one sequence into text as they come.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    _tokenizer: Tokenizer,
}

impl Detokenizer {
    /// For the text that follows `prompt`; an empty `prompt` means that the text begins here (a chat's answer).
    pub fn new(tokenizer: Tokenizer, _prompt: &[Token]) -> Self {
        Self { _tokenizer: tokenizer }
    }

    /// The text that `token` completes: whole characters only, possibly none.
    pub fn push(&mut self, _token: Token) -> String {
        String::new()
    }

    /// The end: U+FFFD if half a character is left, else nothing.
    pub fn finish(&mut self) -> String {
        String::new()
    }
}
