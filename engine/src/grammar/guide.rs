//! A grammar along one output.

use super::{CompiledGrammar, told};
use domain::Token;
use domain::plan::TokenSet;
use llguidance::Matcher;
use llguidance::api::StopReason;
use std::fmt;
use std::sync::Arc;

/// Follows a grammar along the tokens of one output.
pub struct Guide {
    grammar: Arc<CompiledGrammar>,
    /// Behind the first `followed` tokens. `None`: at the beginning.
    matcher: Option<Matcher>,
    followed: usize,
}

/// Why an output cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuideError {
    /// The model has no token that the grammar allows next.
    #[error("the grammar allows none of the model's tokens behind the {tokens} that there are")]
    NothingAllowed {
        /// Tokens of the output.
        tokens: usize,
    },
    /// The next tokens take more work or memory than an output may have, or the output is none of the grammar.
    #[error("the grammar cannot be followed behind {tokens} tokens: {reason}")]
    Lost {
        /// Tokens of the output.
        tokens: usize,
        /// What the library says.
        reason: String,
    },
}

impl Guide {
    /// Begins an output.
    pub fn new(grammar: Arc<CompiledGrammar>) -> Self {
        Self { grammar, matcher: None, followed: 0 }
    }

    /// Follows `output` to its end: all its tokens so far, of which it may have followed some. None of them may be one
    /// that ended the output. Returns whether the output is complete: nothing can follow. Errors: [`GuideError`].
    pub fn follow(&mut self, output: &[Token]) -> Result<bool, GuideError> {
        let matcher = self.matcher.get_or_insert_with(|| self.grammar.begin());
        let new = output.get(self.followed..).unwrap_or_default();
        self.followed += new.len();
        if !new.is_empty() {
            matcher.consume_tokens(new).map_err(|error| lost(output.len(), &error))?;
        }
        match matcher.get_error() {
            Some(error) => Err(lost(output.len(), &error)),
            None => Ok(matcher.is_stopped()),
        }
    }

    /// Returns the tokens that `output` may go on with, which it [follows](Self::follow) first. Where it may end, those
    /// of `ends` are among them. Errors: [`GuideError`].
    pub fn allowed(&mut self, output: &[Token], ends: &[Token]) -> Result<TokenSet, GuideError> {
        let tokens = output.len();
        let vocab = self.grammar.vocab;
        if self.follow(output)? {
            return some(TokenSet::of(vocab, ends.iter().copied()), tokens);
        }
        let Some(matcher) = &mut self.matcher else { return Err(GuideError::NothingAllowed { tokens }) };
        let mask = match matcher.compute_mask() {
            Ok(mask) => mask,
            Err(_) if matcher.stop_reason() == StopReason::NoExtensionBias => {
                return Err(GuideError::NothingAllowed { tokens });
            }
            Err(error) => return Err(lost(tokens, &error)),
        };
        let may_end = mask.is_allowed(vocab as Token);
        let mut words = mask.as_slice().to_vec();
        words.resize(vocab.div_ceil(u32::BITS as usize), 0);
        if may_end {
            for &end in ends.iter().filter(|&&end| (end as usize) < vocab) {
                words[end as usize / u32::BITS as usize] |= 1 << (end % u32::BITS);
            }
        }
        match TokenSet::from_words(vocab, words) {
            Some(set) => some(set, tokens),
            None => Err(GuideError::NothingAllowed { tokens }),
        }
    }
}

/// Returns the set unless it is empty.
fn some(set: TokenSet, tokens: usize) -> Result<TokenSet, GuideError> {
    if set.words().iter().all(|&word| word == 0) { Err(GuideError::NothingAllowed { tokens }) } else { Ok(set) }
}

fn lost(tokens: usize, error: &impl fmt::Display) -> GuideError {
    GuideError::Lost { tokens, reason: told(&error.to_string()) }
}

/// Copies what was followed.
impl Clone for Guide {
    fn clone(&self) -> Self {
        let matcher = self.matcher.as_ref().map(Matcher::deep_clone);
        Self { grammar: self.grammar.clone(), matcher, followed: self.followed }
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guide({} tokens)", self.followed)
    }
}
