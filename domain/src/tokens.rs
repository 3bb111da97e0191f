//! The tokens of a sequence, which many look at and one appends to.

use crate::ids::Token;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The prompt of the client, shared by all its holders, and the output behind it. A clone copies neither. Appending to
/// the output of a clone copies the output once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tokens {
    prompt: Arc<[Token]>,
    output: Arc<Vec<Token>>,
}

impl Tokens {
    /// Joins a prompt and the output so far.
    pub fn new(prompt: Arc<[Token]>, output: &[Token]) -> Self {
        Self { prompt, output: Arc::new(output.to_vec()) }
    }

    /// Returns the number of tokens of prompt and output.
    pub fn len(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the tokens that the client sent.
    pub fn prompt(&self) -> &[Token] {
        &self.prompt
    }

    /// Returns the tokens that were generated, over all attempts.
    pub fn output(&self) -> &[Token] {
        &self.output
    }

    /// Returns all tokens, in order.
    pub fn iter(&self) -> impl Iterator<Item = Token> {
        self.prompt.iter().chain(self.output.iter()).copied()
    }

    /// Returns the tokens at these positions. They are copied only if the prompt ends among them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn at(&self, positions: Range<usize>) -> Cow<'_, [Token]> {
        let prompt = self.prompt.len();
        match positions {
            Range { start, end } if end <= prompt => Cow::Borrowed(&self.prompt[start..end]),
            Range { start, end } if start >= prompt => Cow::Borrowed(&self.output[start - prompt..end - prompt]),
            Range { start, end } => Cow::Owned([&self.prompt[start..], &self.output[..end - prompt]].concat()),
        }
    }

    /// Appends a token to the output.
    pub fn push(&mut self, token: Token) {
        Arc::make_mut(&mut self.output).push(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_positions_are_there_wherever_the_prompt_ends() {
        let all: Vec<Token> = (10..20).collect();
        for prompt in 0..=all.len() {
            let tokens = Tokens::new(all[..prompt].into(), &all[prompt..]);
            assert_eq!((tokens.len(), tokens.is_empty()), (10, false));
            assert_eq!(tokens.iter().collect::<Vec<_>>(), all);
            for start in 0..=all.len() {
                for end in start..=all.len() {
                    assert_eq!(*tokens.at(start..end), all[start..end], "{start}..{end} of a prompt of {prompt}");
                }
            }
        }
    }

    #[test]
    fn clones_go_apart_where_one_is_appended_to() {
        let mut one = Tokens::new([1, 2].into(), &[3]);
        let other = one.clone();
        one.push(4);
        assert_eq!((one.prompt(), one.output()), (&[1, 2][..], &[3, 4][..]));
        assert_eq!((other.output(), other.len()), (&[3][..], 3));
    }
}
