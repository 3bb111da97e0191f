//! The step plan: what one engine step computes, as plain data. The scheduler's side makes it, a device executes it,
//! and neither knows the other.

mod outputs;
mod slots;

pub use outputs::{HIDDEN_BITS, HiddenRows, HiddenSum, Mask, TokenSet};
pub use slots::{BlockTable, SlotChange, TableChange};

use crate::adapter::Adapter;
use crate::ids::{BlockId, GroupId, SeqKey, SlotId, StepId, Token};
use crate::request::SamplingParams;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// One engine step. Changes of slots come first, in order, then copies, then all spans together.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StepPlan {
    /// Number of the step; one more than the last plan's.
    pub step: StepId,
    /// What changed of the slots since the last plan: of those of this plan's sequences and of others.
    pub changes: Vec<SlotChange>,
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
    /// The slot that it has. Its tables cover every position that the span reads or writes, and what is written is in
    /// no other table of any slot.
    pub slot: SlotId,
    /// What it is computed with, in all its spans the same. `None`: the model alone.
    pub adapter: Option<Adapter>,
    /// Absolute position of the first input token. KV of all positions before it that any layer attends to is in
    /// the blocks of the slot's tables already.
    pub start: u32,
    /// The input tokens; never empty. Their KV is written to positions `start ..`.
    pub inputs: Vec<Input>,
    /// Tokens to sample, by rising rows. A chunk that does not end the prompt has none, a decode step one, and a prompt
    /// with `n` choices `n` of its last row. Where drafts are verified, each row has one ([`Span::accepted`]).
    pub samples: Vec<Sample>,
    /// Known tokens whose probabilities are wanted, by rising rows: those of a prompt.
    pub scores: Vec<Score>,
    /// The rows whose hidden states are wanted, as one sum.
    pub hidden: Option<HiddenRows>,
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

/// A token to sample. A function of the logits, of what stands here, of the tokens up to its row where the penalties
/// need them, and of the mask that comes later, nothing else: the same sample on another worker gives the same token.
///
/// The tokens up to its row are those that the slot has, and behind them the span's inputs. So the host may plan it
/// before it knows the last of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The sequence that the token is for.
    pub key: SeqKey,
    /// The row whose logits it is taken from, counted from the span's first.
    pub row: u32,
    /// How to sample.
    pub params: Arc<SamplingParams>,
    /// Seed of this sequence.
    pub seed: u64,
    /// Index of the token among the sequence's output tokens; with the seed it gives the randomness.
    pub index: u32,
    /// Whether a [`Mask`] is given after the plan: its step samples nothing before it has all of them. A mask may
    /// depend on a token that the step before samples.
    pub masked: bool,
}

/// A known token whose probability is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The row whose logits say how probable it is, counted from the span's first: the one of the token before.
    pub row: u32,
    /// The token.
    pub token: Token,
    /// How many of the most probable tokens are wanted beside it.
    pub top: u16,
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
    /// One entry per score of the plan, in plan order, but for those of spans that failed; empty if the step failed.
    pub scored: Vec<TokenLogprobs>,
    /// One entry per span of the plan that wants hidden states, in plan order, but for those that failed; empty if the
    /// step failed.
    pub hidden: Vec<HiddenSum>,
    /// Spans that failed alone, in plan order: what they wrote does not count, what the others did does.
    pub failed: Vec<FailedSpan>,
    /// From begin to end on the device: without the time that the step waited for the one before, and with that which
    /// it waited for masks.
    pub elapsed: Duration,
    /// The part of `elapsed` spent inside kernels.
    pub in_kernels: Duration,
}

/// What a step gave, in plan order, but for spans that failed.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Outputs {
    /// One entry per sample.
    pub sampled: Vec<Sampled>,
    /// One entry per score.
    pub scored: Vec<TokenLogprobs>,
    /// One entry per span that wants hidden states.
    pub hidden: Vec<HiddenSum>,
    /// Spans that failed alone.
    pub failed: Vec<FailedSpan>,
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

/// Log probabilities (natural logarithm) of the model's own distribution, before temperature, penalties, biases and
/// masks: what the OpenAI API reports.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct TokenLogprobs {
    /// Of the sampled or scored token.
    pub logprob: f32,
    /// The most probable tokens, best first, ties by lower token.
    pub top: Vec<(Token, f32)>,
}

impl StepOutput {
    /// Makes the output of a step that gave this, or failed as a whole.
    pub fn new(step: StepId, outputs: Result<Outputs, impl Display>, elapsed: Duration, in_kernels: Duration) -> Self {
        let (sampled, rest) = match outputs {
            Ok(mut outputs) => (Ok(std::mem::take(&mut outputs.sampled)), outputs),
            Err(reason) => (Err(reason.to_string()), Outputs::default()),
        };
        let Outputs { scored, hidden, failed, .. } = rest;
        Self { step, sampled, scored, hidden, failed, elapsed, in_kernels }
    }
}

impl StepPlan {
    /// Makes a plan that depends on no plan before it: it opens the slot of each span with these tables, one per KV
    /// group.
    pub fn opening(
        step: StepId,
        copies: Vec<BlockCopy>,
        spans: impl IntoIterator<Item = (Span, Vec<BlockTable>)>,
    ) -> Self {
        let mut plan = Self { step, copies, ..Self::default() };
        for (span, tables) in spans {
            plan.changes.extend(SlotChange::open(span.slot, span.key, tables));
            plan.spans.push(span);
        }
        plan
    }

    /// Returns the number of input rows of the step.
    pub fn rows(&self) -> usize {
        self.spans.iter().map(|span| span.inputs.len()).sum()
    }

    /// Samples of the step.
    pub fn samples(&self) -> usize {
        self.spans.iter().map(|span| span.samples.len()).sum()
    }

    /// Returns the number of scores of the step.
    pub fn scores(&self) -> usize {
        self.spans.iter().map(|span| span.scores.len()).sum()
    }

    /// Returns the number of sums of hidden states of the step.
    pub fn hidden(&self) -> usize {
        self.spans.iter().filter(|span| span.hidden.is_some()).count()
    }

    /// Returns all that is wanted of rows: samples, scores and hidden states.
    pub fn outputs(&self) -> usize {
        self.samples() + self.scores() + self.hidden()
    }
}

impl Span {
    /// Returns how many draft tokens the span confirms. Drafts are its inputs behind the first one; `sampled` are the
    /// tokens that were sampled of its rows, one of each from the first on. A draft is right if the row before it
    /// samples it and all drafts before are right. So `accepted + 1` sampled tokens count, and the KV of as many
    /// inputs; the next span begins behind those.
    ///
    /// The tokens are those of a run without drafts. Source: Leviathan et al., "Fast inference from transformers via
    /// speculative decoding", 2023. A sample is a function of the logits here, so it takes the place of their
    /// rejection.
    pub fn accepted(&self, sampled: &[Token]) -> usize {
        let drafts = self.inputs.iter().skip(1).zip(sampled);
        drafts.take_while(|&(&draft, &token)| draft == Input::Token(token)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_count_up_to_the_first_that_is_wrong() {
        let inputs = [9, 4, 5, 6].map(Input::Token).to_vec();
        let (key, slot, samples) = (SeqKey::default(), SlotId(0), Vec::new());
        let span = Span { key, slot, adapter: None, start: 7, inputs, samples, scores: Vec::new(), hidden: None };
        for (sampled, accepted) in
            [(&[4, 5, 6, 1][..], 3), (&[4, 5, 7, 1], 2), (&[4, 1, 6, 1], 1), (&[5, 5, 6, 1], 0), (&[4, 5], 2), (&[], 0)]
        {
            assert_eq!(span.accepted(sampled), accepted, "{sampled:?}");
        }
    }
}
