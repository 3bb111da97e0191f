//! What is measured: a prompt, or decode steps.

use crate::{CHUNK, DECODED};
use std::fmt;

/// Work of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A prompt of so many tokens, of one sequence.
    Prompt(u32),
    /// [`DECODED`] tokens of each of so many sequences.
    Decode {
        /// Sequences.
        batch: u32,
        /// Tokens of each before.
        context: u32,
    },
}

/// One step: `rows` tokens of each of `sequences` after `start` tokens of context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) sequences: u32,
    pub(crate) start: u32,
    pub(crate) rows: u32,
    /// Whether each sequence has a token sampled.
    pub(crate) samples: bool,
}

impl Work {
    /// Returns the number of tokens that a sample is about.
    pub(crate) fn tokens(self) -> u32 {
        match self {
            Self::Prompt(tokens) => tokens,
            Self::Decode { batch, .. } => batch * DECODED,
        }
    }

    /// Returns the number of sequences.
    pub(crate) fn sequences(self) -> u32 {
        match self {
            Self::Prompt(_) => 1,
            Self::Decode { batch, .. } => batch,
        }
    }

    /// Returns the longest that a sequence becomes.
    pub(crate) fn length(self) -> u32 {
        match self {
            Self::Prompt(tokens) => tokens,
            Self::Decode { context, .. } => context.saturating_add(DECODED),
        }
    }

    /// Returns the steps, in order.
    pub(crate) fn steps(self) -> Vec<Run> {
        match self {
            Self::Prompt(tokens) => prompt(tokens),
            Self::Decode { batch, context } => (context..context + DECODED)
                .map(|start| Run { sequences: batch, start, rows: 1, samples: true })
                .collect(),
        }
    }
}

/// Returns the steps of a prompt, which samples where it ends.
pub(crate) fn prompt(tokens: u32) -> Vec<Run> {
    let chunk = |start: u32| {
        let rows = CHUNK.min(tokens - start);
        Run { sequences: 1, start, rows, samples: start + rows == tokens }
    };
    (0..tokens).step_by(CHUNK as usize).map(chunk).collect()
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt(tokens) => write!(f, "prompt of {tokens}"),
            Self::Decode { batch, context: 0 } => write!(f, "decode, batch {batch}, empty context"),
            Self::Decode { batch, context } => write!(f, "decode, batch {batch} after {context}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_goes_chunk_by_chunk_and_samples_at_its_end() {
        let run = |start, rows, samples| Run { sequences: 1, start, rows, samples };
        assert_eq!(Work::Prompt(100).steps(), [run(0, 100, true)]);
        assert_eq!(Work::Prompt(2 * CHUNK).steps(), [run(0, CHUNK, false), run(CHUNK, CHUNK, true)]);
        assert_eq!(Work::Prompt(CHUNK + 1).steps(), [run(0, CHUNK, false), run(CHUNK, 1, true)]);
    }

    #[test]
    fn decoding_grows_by_a_token_a_step() {
        let steps = Work::Decode { batch: 3, context: 5 }.steps();
        assert_eq!(steps.len(), DECODED as usize);
        assert_eq!(steps[1], Run { sequences: 3, start: 6, rows: 1, samples: true });
    }
}
