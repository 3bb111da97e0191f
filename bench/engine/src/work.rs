//! What is measured: a prompt, decode steps, or both at once.

use serde::Serialize;
use std::fmt;

/// Work of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A prompt of so many tokens, of one sequence.
    Prompt(u32),
    /// [`Cut::decoded`] tokens of each of so many sequences.
    Decode {
        /// Sequences.
        batch: u32,
        /// Tokens of each before.
        context: u32,
    },
    /// A prompt of another sequence, in whose steps so many sequences are decoded, too.
    Mixed {
        /// Sequences that are decoded.
        batch: u32,
        /// Tokens of each before.
        context: u32,
        /// Tokens of the prompt.
        prompt: u32,
    },
}

/// How work is cut into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Tokens of a prompt in a step, at most.
    pub chunk: u32,
    /// Tokens that a decode sample makes for each sequence.
    pub decoded: u32,
}

/// A part of a step: `rows` tokens of each of `sequences`, from number `first` on, after `start` tokens of context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) sequences: u32,
    pub(crate) start: u32,
    pub(crate) rows: u32,
    /// Whether each sequence has a token sampled.
    pub(crate) samples: bool,
}

impl Work {
    /// Returns the number of tokens that a sample is about.
    pub(crate) fn tokens(self, cut: Cut) -> u32 {
        match self {
            Self::Prompt(tokens) => tokens,
            Self::Decode { batch, .. } => batch * cut.decoded,
            Self::Mixed { batch, prompt, .. } => prompt + batch * prompt.div_ceil(cut.chunk),
        }
    }

    /// Returns the number of sequences.
    pub(crate) fn sequences(self) -> u32 {
        match self {
            Self::Prompt(_) => 1,
            Self::Decode { batch, .. } => batch,
            Self::Mixed { batch, .. } => batch + 1,
        }
    }

    /// Returns the longest that a sequence becomes.
    pub(crate) fn length(self, cut: Cut) -> u32 {
        match self {
            Self::Prompt(tokens) => tokens,
            Self::Decode { context, .. } => context.saturating_add(cut.decoded),
            Self::Mixed { context, prompt, .. } => prompt.max(context.saturating_add(prompt.div_ceil(cut.chunk))),
        }
    }

    /// Returns the most input rows of a step.
    pub(crate) fn rows_max(self, cut: Cut) -> u32 {
        match self {
            Self::Prompt(_) => cut.chunk,
            // The context before it is a prompt.
            Self::Decode { batch, .. } => batch.max(cut.chunk),
            Self::Mixed { batch, .. } => batch + cut.chunk,
        }
    }

    /// Returns the steps, in order, each with its parts.
    pub(crate) fn steps(self, cut: Cut) -> Vec<Vec<Run>> {
        let decode = |batch, start| Run { first: 0, sequences: batch, start, rows: 1, samples: true };
        match self {
            Self::Prompt(tokens) => prompt(0, tokens, cut).map(|run| vec![run]).collect(),
            Self::Decode { batch, context } => {
                (context..context + cut.decoded).map(|start| vec![decode(batch, start)]).collect()
            }
            Self::Mixed { batch, context, prompt: tokens } => {
                prompt(batch, tokens, cut).zip(context..).map(|(run, start)| vec![decode(batch, start), run]).collect()
            }
        }
    }
}

/// Returns the steps of a prompt of sequence number `first`, which samples where it ends.
pub(crate) fn prompt(first: u32, tokens: u32, cut: Cut) -> impl Iterator<Item = Run> {
    let chunk = move |start: u32| {
        let rows = cut.chunk.min(tokens - start);
        Run { first, sequences: 1, start, rows, samples: start + rows == tokens }
    };
    (0..tokens).step_by(cut.chunk as usize).map(chunk)
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt(tokens) => write!(f, "prompt of {tokens}"),
            Self::Decode { batch, context: 0 } => write!(f, "decode, batch {batch}, empty context"),
            Self::Decode { batch, context } => write!(f, "decode, batch {batch} after {context}"),
            Self::Mixed { batch, context, prompt } => {
                write!(f, "prompt of {prompt} beside batch {batch} after {context}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Cut = Cut { chunk: 512, decoded: 32 };

    #[test]
    fn a_prompt_goes_chunk_by_chunk_and_samples_at_its_end() {
        let run = |start, rows, samples| vec![Run { first: 0, sequences: 1, start, rows, samples }];
        assert_eq!(Work::Prompt(100).steps(CUT), [run(0, 100, true)]);
        assert_eq!(Work::Prompt(1024).steps(CUT), [run(0, 512, false), run(512, 512, true)]);
        assert_eq!(Work::Prompt(513).steps(CUT), [run(0, 512, false), run(512, 1, true)]);
    }

    #[test]
    fn decoding_grows_by_a_token_a_step() {
        let work = Work::Decode { batch: 3, context: 5 };
        let steps = work.steps(CUT);
        assert_eq!((steps.len(), work.tokens(CUT), work.length(CUT)), (32, 96, 37));
        assert_eq!(steps[1], [Run { first: 0, sequences: 3, start: 6, rows: 1, samples: true }]);
    }

    #[test]
    fn a_prompt_beside_decoding_has_both_in_each_step() {
        let work = Work::Mixed { batch: 3, context: 5, prompt: 600 };
        let decode = |start| Run { first: 0, sequences: 3, start, rows: 1, samples: true };
        let chunk = |start, rows, samples| Run { first: 3, sequences: 1, start, rows, samples };
        assert_eq!(work.steps(CUT), [[decode(5), chunk(0, 512, false)], [decode(6), chunk(512, 88, true)]]);
        assert_eq!((work.tokens(CUT), work.sequences(), work.length(CUT), work.rows_max(CUT)), (606, 4, 600, 515));
    }
}
