//! What a client asked for, after parsing: ids, numbers within their limits, no strings.

use crate::adapter::Adapter;
use crate::grammar::Grammar;
use crate::ids::{RequestId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How the tokens of a request are chosen and when they end. Stop strings are not here: the router, which alone
/// detokenizes, watches for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// 0: greedy (ties by lower token).
    pub temperature: f32,
    /// Smallest set of most probable tokens whose probability reaches this; 1: off.
    pub top_p: f32,
    /// Number of most probable tokens; 0: off.
    pub top_k: u32,
    /// Tokens at least this probable relative to the most probable; 0: off.
    pub min_p: f32,
    /// Subtracted once from each token already in the output.
    pub presence_penalty: f32,
    /// Subtracted for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output; 1: off.
    pub repetition_penalty: f32,
    /// Added to logits, by token.
    pub logit_bias: Vec<(Token, f32)>,
    /// Report log probabilities, and of how many alternatives.
    pub logprobs: Option<u32>,
    /// Tokens that end the sequence: those of the request and, unless `ignore_eos`, the model's own.
    pub stop_tokens: Vec<Token>,
    /// Stop tokens are not sampled before this many output tokens.
    pub min_tokens: u32,
    /// Most output tokens; at least 1.
    pub max_tokens: u32,
    /// What the output has to be a text of. `None`: it may be any.
    pub grammar: Option<Grammar>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            logprobs: None,
            stop_tokens: Vec::new(),
            min_tokens: 0,
            max_tokens: 16,
            grammar: None,
        }
    }
}

impl SamplingParams {
    /// Returns whether sampling looks at the tokens before.
    pub fn needs_history(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0 || self.repetition_penalty != 1.0
    }
}

/// A request as the router hands it to its brain and to workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// Prompt tokens, never empty; `prompt.len() + max_tokens` fits the context.
    pub prompt: Arc<[Token]>,
    /// How many sequences, at least 1.
    pub choices: u16,
    /// How to sample; shared by all choices.
    pub params: Arc<SamplingParams>,
    /// Seed of choice 0, given by the client or drawn by the router; see [`Request::seed`].
    pub seed: u64,
    /// The client must have its end within this time of arrival.
    pub deadline: Duration,
    /// Tenant scope of its blocks; empty when tenants share.
    pub tenant: String,
    /// What it is computed with. `None`: the model alone.
    pub adapter: Option<Adapter>,
}

impl Request {
    /// Returns the seed of the sequence `choice`.
    pub fn seed(seed: u64, choice: u16) -> u64 {
        seed.wrapping_add(u64::from(choice).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}
