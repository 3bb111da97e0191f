//! The form that an output must have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most bytes of a grammar: that of a JSON schema of some thousand properties.
pub const GRAMMAR_BYTES_MAX: usize = 128 << 10;

/// A grammar that every output of a request must be a text of. Its language is that of the crate `llguidance`: Lark's,
/// with JSON schemas and special tokens in it. Whether it is one, its compiler says.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Grammar(String);

/// A text is no grammar for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarTooLong {
    /// Its bytes.
    pub bytes: usize,
}

impl fmt::Display for GrammarTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grammar of {} bytes; {GRAMMAR_BYTES_MAX} are allowed", self.bytes)
    }
}

impl std::error::Error for GrammarTooLong {}

impl Grammar {
    /// Makes a grammar of its text. Errors: it has more than [`GRAMMAR_BYTES_MAX`] bytes.
    pub fn new(text: String) -> Result<Self, GrammarTooLong> {
        if text.len() <= GRAMMAR_BYTES_MAX { Ok(Self(text)) } else { Err(GrammarTooLong { bytes: text.len() }) }
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Grammar {
    type Error = GrammarTooLong;

    fn try_from(text: String) -> Result<Self, GrammarTooLong> {
        Self::new(text)
    }
}

impl From<Grammar> for String {
    fn from(Grammar(text): Grammar) -> Self {
        text
    }
}

/// Shows how long it is: its text is a client's, and may be long.
impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grammar({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grammar_is_bounded() {
        let grammar = |bytes| Grammar::new("a".repeat(bytes));
        assert!(grammar(GRAMMAR_BYTES_MAX).is_ok());
        assert_eq!(grammar(GRAMMAR_BYTES_MAX + 1), Err(GrammarTooLong { bytes: GRAMMAR_BYTES_MAX + 1 }));
    }
}
