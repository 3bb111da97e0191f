//! The tokenizer of a model directory.

use domain::Token;
use std::path::Path;
use std::sync::Arc;

/// A tokenizer; a clone is a reference to the same.
#[derive(Clone, Debug)]
pub struct Tokenizer(#[expect(dead_code)] Arc<()>);

/// Why a tokenizer cannot be opened or cannot encode.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(pub String);

impl Tokenizer {
    /// Opens the tokenizer of the model directory `dir`.
    pub fn open(dir: &Path) -> Result<Tokenizer, TokenizerError> {
        Err(TokenizerError(format!("no tokenizer in {}", dir.display())))
    }

    /// Tokens of `text`. Special tokens written in it become special tokens. `add_special`: with those that the
    /// tokenizer puts around a plain text (BOS); a chat template wrote its own.
    pub fn encode(&self, _text: &str, _add_special: bool) -> Result<Vec<Token>, TokenizerError> {
        Ok(Vec::new())
    }

    /// Text of `tokens` without special tokens.
    pub fn decode(&self, _tokens: &[Token]) -> String {
        String::new()
    }

    /// One more than the highest token.
    pub fn vocab_size(&self) -> usize {
        0
    }

    /// Bytes of `token`, in the middle of a text; those of its name where it is special; none where there is no such token.
    pub fn token_bytes(&self, _token: Token) -> &[u8] {
        &[]
    }

    /// [`Self::token_bytes`] as text; what is no UTF-8 becomes U+FFFD.
    pub fn token_text(&self, _token: Token) -> String {
        String::new()
    }

    /// Whether `token` is special: left out of text.
    pub fn is_special(&self, _token: Token) -> bool {
        false
    }

    /// The token named `text`, exactly as the vocabulary spells it.
    pub fn token_id(&self, _text: &str) -> Option<Token> {
        None
    }
}
