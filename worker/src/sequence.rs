//! Sequences: the tokens a worker computes with.

use crate::sources::Sources;
use domain::plan::Sample;
use domain::{BlockHash, Choice, SamplingParams, Scope, SeqKey, Time, Token};
use std::sync::Arc;

/// The choice under which a prompt is computed or fetched, before it forks into its choices.
pub const PROMPT: Choice = Choice(u16::MAX);

/// A sequence of this worker.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Prompt and output so far.
    pub tokens: Vec<Token>,
    /// How many of them the client sent.
    pub prompt_tokens: u32,
    /// Identities of its full blocks.
    pub chain: Vec<BlockHash>,
    /// What the identities are derived under.
    pub scope: Scope,
    /// How to sample.
    pub params: Arc<SamplingParams>,
    /// Seed of the request.
    pub seed: u64,
    /// The choices that are sampled when the prompt ends; one for a sequence of its own.
    pub choices: Vec<Choice>,
    /// When its attempt arrived here.
    pub arrived: Time,
    /// Prompt tokens that were in a cache, here or in a tier, when the prompt came, and were taken from there.
    pub cached_tokens: u32,
    /// Length in tokens of the prefix that a tier had when the prompt came, if a load of it was begun.
    pub loadable_tokens: u32,
    /// Where its prompt comes from, for those who count.
    pub(crate) sources: Sources,
    /// Its blocks are being filled by a fetch, which gives them back itself.
    pub fetching: bool,
    /// It was cancelled while a step computes with it: it is closed when the step ends.
    pub closing: bool,
}

impl Sequence {
    /// Output tokens so far, over all attempts.
    pub fn outputs(&self) -> u32 {
        self.tokens.len() as u32 - self.prompt_tokens
    }

    /// Appends a token.
    pub fn push(&mut self, token: Token, block_tokens: u32) {
        self.tokens.push(token);
        self.scope.extend_chain(&mut self.chain, &self.tokens, block_tokens);
    }

    /// What to sample after its last token, for each of `choices`.
    pub fn samples(&self, key: SeqKey) -> Vec<Sample> {
        let history = if self.params.needs_history() { self.tokens.clone() } else { Vec::new() };
        let sample = |&choice: &Choice| Sample {
            key: SeqKey { choice, ..key },
            params: self.params.clone(),
            seed: domain::Request::seed(self.seed, choice.0),
            index: self.outputs(),
            history: history.clone(),
            prompt_tokens: self.prompt_tokens,
        };
        self.choices.iter().map(sample).collect()
    }
}
