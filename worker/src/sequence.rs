//! Sequences: the tokens a worker computes with.

use crate::prompt_sources::Sources;
use domain::plan::Sample;
use domain::{Adapter, BlockHash, Choice, SamplingParams, Scope, SeqKey, Time, Token, Tokens};
use engine::grammar::Guide;
use std::sync::Arc;

/// The choice under which a prompt is computed or fetched, before it forks into its choices.
pub const PROMPT: Choice = Choice(u16::MAX);

/// A sequence of this worker.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Prompt and output so far.
    pub tokens: Tokens,
    /// Identities of its full blocks, shared with the sequences that begin as it does.
    pub chain: Arc<Vec<BlockHash>>,
    /// The scope that the identities are derived under.
    pub scope: Scope,
    /// What it is computed with. `None`: the model alone.
    pub adapter: Option<Adapter>,
    /// How to sample.
    pub params: Arc<SamplingParams>,
    /// Seed of the request.
    pub seed: u64,
    /// The choices that are sampled when the prompt ends; one for a sequence of its own.
    pub choices: Vec<Choice>,
    /// What its output has to be a text of, as far as it goes. `None`: it may be any.
    pub(crate) guide: Option<Box<Guide>>,
    /// When its attempt arrived here.
    pub arrived: Time,
    /// Prompt tokens that were in a cache, on the device or in a tier, when the prompt arrived, and were taken from
    /// there.
    pub cached_tokens: u32,
    /// Length in tokens of the prefix that a tier had when the prompt arrived, if a load of it was begun.
    pub loadable_tokens: u32,
    /// Where the tokens of its prompt come from, for metrics.
    pub(crate) sources: Sources,
    /// A fetch fills its blocks, and frees them itself.
    pub fetching: bool,
    /// It was closed while steps in flight contain it. It is removed when they have ended. What they compute of it is
    /// dropped.
    pub closing: bool,
}

impl Sequence {
    /// Returns how many output tokens there are, over all attempts.
    pub fn outputs(&self) -> u32 {
        self.tokens.output().len() as u32
    }

    /// Returns the length in tokens at which it ends at the latest.
    pub(crate) fn tokens_max(&self) -> u32 {
        (self.tokens.prompt().len() as u32).saturating_add(self.params.max_tokens)
    }

    /// Returns whether its last token ends it: one that it stops with, or one behind which its grammar allows nothing.
    pub(crate) fn stops(&mut self) -> bool {
        let stop_tokens = &self.params.stop_tokens;
        if self.tokens.output().last().is_some_and(|last| stop_tokens.contains(last)) {
            return true;
        }
        // What cannot be followed fails when its next mask is asked for.
        self.guide.as_mut().is_some_and(|guide| guide.follow(self.tokens.output()) == Ok(true))
    }

    /// Returns whether `token` would end it so.
    pub(crate) fn stops_with(&self, token: Token) -> bool {
        if self.params.stop_tokens.contains(&token) {
            return true;
        }
        let output = || [self.tokens.output(), &[token]].concat();
        self.guide.clone().is_some_and(|mut guide| guide.follow(&output()) == Ok(true))
    }

    /// Appends a token.
    pub fn push(&mut self, token: Token, block_tokens: u32) {
        self.tokens.push(token);
        self.identify(block_tokens);
    }

    /// Adds the identities of blocks that are full and have none yet.
    pub(crate) fn identify(&mut self, block_tokens: u32) {
        let size = block_tokens as usize;
        while let from = self.chain.len() * size
            && from + size <= self.tokens.len()
        {
            let hash = self.scope.block(self.chain.last().copied(), &self.tokens.at(from..from + size));
            Arc::make_mut(&mut self.chain).push(hash);
        }
    }

    /// Returns what to sample after its last token, for each of `choices`. `row`: where its span has that token;
    /// `index`: how many output tokens it has then.
    pub fn samples(&self, key: SeqKey, row: u32, index: u32) -> Vec<Sample> {
        let sample = |&choice: &Choice| Sample {
            key: SeqKey { choice, ..key },
            row,
            params: self.params.clone(),
            seed: domain::Request::seed(self.seed, choice.0),
            index,
            masked: self.guide.is_some(),
        };
        self.choices.iter().map(sample).collect()
    }
}
