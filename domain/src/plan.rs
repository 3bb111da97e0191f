//! The step plan: what one engine step computes, as plain data. The scheduler's side makes it, a device executes it,
//! and neither knows the other.

use crate::ids::{BlockId, GroupId, SeqKey, StepId, Token};
use crate::request::SamplingParams;
use crate::tokens::Tokens;
use std::sync::Arc;
use std::time::Duration;

/// One engine step. Copies come first, then all spans together.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StepPlan {
    /// Number of the step; one more than the last plan's.
    pub step: StepId,
    /// Whole-record copies (copy on write) that happen before any span is computed.
    pub copies: Vec<BlockCopy>,
    /// What to compute; at most one span per sequence.
    pub spans: Vec<Span>,
}

/// Copy of a record inside one worker's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Group of both blocks.
    pub group: GroupId,
    /// Source.
    pub from: BlockId,
    /// Destination.
    pub to: BlockId,
}

/// Consecutive input tokens of one sequence: a chunk of its prompt, or the one token of a decode step.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The sequence.
    pub key: SeqKey,
    /// Absolute position of the first input token. KV of all positions before it that any layer attends to is in
    /// the blocks of `tables` already.
    pub start: u32,
    /// The input tokens; never empty. Their KV is written to positions `start ..`.
    pub inputs: Vec<Input>,
    /// One table per KV group, in group order.
    pub tables: Vec<BlockTable>,
    /// Tokens to sample from the logits of the span's last row: none for a chunk that does not end the prompt, one
    /// for a decode step, `n` when a prompt with `n` choices ends.
    pub samples: Vec<Sample>,
}

/// An input token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Known to the host.
    Token(Token),
    /// The token that the previous step sampled as its `n`-th sample, counted over all its spans in order. The host did
    /// not know it when it planned the step.
    Sampled(u32),
}

/// Blocks of one sequence in one group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BlockTable {
    /// Which block of the sequence `blocks[0]` is: larger than zero where earlier ones fell out of the window. Position
    /// `p` is in `blocks[p / block_tokens - first]`.
    pub first: u32,
    /// The blocks, gapless; they cover every position that the span reads or writes.
    pub blocks: Vec<BlockId>,
}

/// A token to sample. A function of the logits and of what stands here, nothing else: the same sample on another
/// worker gives the same token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The sequence that the token is for.
    pub key: SeqKey,
    /// How to sample.
    pub params: Arc<SamplingParams>,
    /// Seed of this sequence.
    pub seed: u64,
    /// Index of the token among the sequence's output tokens; with the seed it gives the randomness.
    pub index: u32,
    /// Prompt and output tokens so far, where the penalties need them ([`SamplingParams::needs_history`]).
    pub history: Option<Tokens>,
    /// One more token behind the history, which the host does not know yet: what the step before sampled as its `n`-th.
    pub pending: Option<u32>,
}

/// What a device says of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutput {
    /// The step.
    pub step: StepId,
    /// One entry per sample of the plan, in plan order, but for those of spans that failed alone; or why the step
    /// failed (then none of its KV counts as written and the progress word was not raised beyond the layer that
    /// failed).
    pub sampled: Result<Vec<Sampled>, String>,
    /// Spans that failed alone, in plan order: what they wrote does not count, what the others did does.
    pub failed: Vec<FailedSpan>,
    /// From begin to end on the device: without the time that the step waited for the one before.
    pub elapsed: Duration,
    /// The part of `elapsed` spent inside kernels.
    pub in_kernels: Duration,
}

/// A span that failed in a step whose other spans did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSpan {
    /// Its number in the plan.
    pub span: usize,
    /// Why, for people.
    pub reason: String,
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The sequence.
    pub key: SeqKey,
    /// The token.
    pub token: Token,
    /// Where asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// Log probabilities (natural logarithm) of the model's own distribution, before temperature, penalties and biases:
/// what the OpenAI API reports.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct TokenLogprobs {
    /// Of the sampled token.
    pub logprob: f32,
    /// The most probable tokens, best first, ties by lower token.
    pub top: Vec<(Token, f32)>,
}

impl StepPlan {
    /// Returns the number of input rows of the step.
    pub fn rows(&self) -> usize {
        self.spans.iter().map(|span| span.inputs.len()).sum()
    }

    /// Samples of the step.
    pub fn samples(&self) -> usize {
        self.spans.iter().map(|span| span.samples.len()).sum()
    }
}
