//! Sampling: from a row of logits to a token.
//!
//! The order is that of Hugging Face and vLLM: log probabilities of the row as it is; `logit_bias`; the mask of a
//! grammar; stop tokens masked while `index < min_tokens`; repetition, then frequency and presence penalties;
//! temperature; `top_k`, `top_p`, `min_p`; then one draw.
//!
//! The token and its log probabilities are a function of the logits and of the [`Sample`], bit for bit. Bias and
//! penalties are operations in f32, each rounded once. Weights are integers, whose sums do not depend on an order, and
//! the randomness is a counter's. So any device makes the same token of the same logits, whatever else is in the batch
//! and however it shares the work: `fixed` defines the numbers, `cut` and [`Sampler::sample`] what is made of them.
//!
//! What is deliberately absent: stop strings and the end of a sequence (the scheduler's and the router's), and limits
//! on the parameters (the router refuses what makes no sense; here no value of them panics or fails).

mod cut;
mod fixed;
mod random;
#[cfg(test)]
mod tests;
mod weights;

use cut::Key;
use domain::plan::{Sample, Sampled, Score, TokenLogprobs, TokenSet};
use domain::{SamplingParams, SeqKey, Token};

/// In a mark: the token is in the prompt or in the output. The other bits count it in the output.
const SEEN: u32 = 1 << 31;

/// Tokens that a draw passes over at once.
const DRAW_PART: usize = 256;

/// A row of logits has no token in it. The model failed; the parameters are not at fault.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The row has another length.
    #[error("{logits} logits for a vocabulary of {vocab}")]
    Length {
        /// Logits of the row.
        logits: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// No logit is above minus infinity, or some are infinite.
    #[error("the logits of {key} cannot be sampled: their maximum is {max}")]
    Maximum {
        /// The sequence.
        key: SeqKey,
        /// The largest logit.
        max: f32,
    },
    /// The mask allows no token that the model thinks possible.
    #[error("the mask of {key} allows no token")]
    NothingAllowed {
        /// The sequence.
        key: SeqKey,
    },
}

/// What a token depends on beside its logits and its [`Sample`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleContext<'a> {
    /// The tokens of the client, where the penalties need them ([`SamplingParams::needs_history`]).
    pub prompt: &'a [Token],
    /// The tokens of the output before it, as far as the host knew them, where the penalties need them.
    pub output: &'a [Token],
    /// The tokens behind those.
    pub pending: &'a [Token],
    /// The tokens that its mask allows. `None`: it has none.
    pub allowed: Option<&'a TokenSet>,
}

/// What a device draws with, in the numbers of `fixed`: made once by the host, so that no device has to make them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawNumbers {
    /// What differences of logits are multiplied by. `None`: the most probable token is taken.
    pub scale: Option<f32>,
    /// The share of the sum of weights that `top_p` keeps, in units of 2^-64; [`Self::EVERY_SHARE`]: it is off.
    pub nucleus: u64,
    /// The least weight that `min_p` keeps.
    pub least: u64,
    /// The point of the draw, as a share of the sum of kept weights, in units of 2^-64.
    pub uniform: u64,
}

impl DrawNumbers {
    /// As [`Self::nucleus`]: `top_p` is off. No share of less than all is as large.
    pub const EVERY_SHARE: u64 = u64::MAX;

    /// Makes those of a sample.
    pub fn of(sample: &Sample) -> Self {
        let params = &*sample.params;
        Self {
            scale: (params.temperature > 0.0).then(|| fixed::scale(params.temperature)),
            nucleus: if params.top_p < 1.0 { fixed::share(params.top_p) } else { Self::EVERY_SHARE },
            least: cut::least_kept(params.min_p),
            uniform: random::uniform(sample.seed, sample.index),
        }
    }
}

/// Samples tokens. Owns the scratch for one vocabulary, so that a call allocates nothing but the log probabilities
/// that it returns.
#[derive(Debug)]
pub struct Sampler {
    vocab: usize,
    /// The row after bias, mask and penalties.
    adjusted: Vec<f32>,
    /// Probabilities relative to the most probable token, in fixed point.
    weights: Vec<u64>,
    /// Candidates of a cut, in no order.
    keys: Vec<Key>,
    /// Per token [`SEEN`] and a count; all zero between calls.
    marks: Vec<u32>,
}

impl Sampler {
    /// Makes a sampler for rows of `vocab` logits.
    pub fn new(vocab: usize) -> Self {
        Self {
            vocab,
            adjusted: Vec::with_capacity(vocab),
            weights: Vec::with_capacity(vocab),
            keys: Vec::with_capacity(vocab),
            marks: vec![0; vocab],
        }
    }

    /// Samples one token from `logits` (`[vocab]`), which stay as they are, since several samples may share a row.
    ///
    /// A logit that is no number counts as minus infinity, and tokens outside the vocabulary in biases, stop tokens and
    /// history are passed over. Where bias, stop tokens and penalties leave no token at all, they are void; a mask is
    /// not.
    ///
    /// Errors: [`SampleError`].
    pub fn sample(
        &mut self,
        logits: &[f32],
        sample: &Sample,
        context: SampleContext<'_>,
    ) -> Result<Sampled, SampleError> {
        let max = self.max(logits, sample.key)?;
        let allowed = context.allowed;
        let token = if is_adjusted(sample) || allowed.is_some() {
            self.adjust(logits, sample, context);
            let mut row = std::mem::take(&mut self.adjusted);
            let mut max = weights::max(&row);
            if max == f32::NEG_INFINITY {
                copy_allowed(&mut row, logits, allowed);
                max = weights::max(&row);
            }
            let token = (max > f32::NEG_INFINITY).then(|| self.choose(&row, max, sample));
            self.adjusted = row;
            token.ok_or(SampleError::NothingAllowed { key: sample.key })?
        } else {
            self.choose(logits, max, sample)
        };
        let logprobs = sample.params.logprobs.map(|top| self.logprobs(logits, max, token, top as usize));
        Ok(Sampled { key: sample.key, token, logprobs })
    }

    /// Returns how probable a known token of sequence `key` is under `logits` (`[vocab]`), and the most probable tokens
    /// beside it. Errors: as for [`Self::sample`].
    pub fn score(&mut self, logits: &[f32], key: SeqKey, score: &Score) -> Result<TokenLogprobs, SampleError> {
        let max = self.max(logits, key)?;
        Ok(self.logprobs(logits, max, score.token, score.top.into()))
    }

    /// Returns the largest logit of a row. Errors: the row has none, or another length than the vocabulary.
    fn max(&self, logits: &[f32], key: SeqKey) -> Result<f32, SampleError> {
        if logits.len() != self.vocab {
            return Err(SampleError::Length { logits: logits.len(), vocab: self.vocab });
        }
        let max = weights::max(logits);
        if max.is_finite() { Ok(max) } else { Err(SampleError::Maximum { key, max }) }
    }

    /// Writes `logits` with bias, masks and penalties to `self.adjusted`.
    fn adjust(&mut self, logits: &[f32], sample: &Sample, context: SampleContext<'_>) {
        let params = &*sample.params;
        copy_allowed(&mut self.adjusted, logits, context.allowed);
        for &(token, bias) in &params.logit_bias {
            if let Some(logit) = self.adjusted.get_mut(token as usize) {
                *logit = sane(*logit + bias);
            }
        }
        if sample.index < params.min_tokens {
            for &token in &params.stop_tokens {
                if let Some(logit) = self.adjusted.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        if params.needs_history() {
            self.penalize(params, context);
        }
    }

    /// Applies the penalties to `self.adjusted`.
    fn penalize(&mut self, params: &SamplingParams, context: SampleContext<'_>) {
        for (tokens, counts) in [(context.prompt, 0), (context.output, 1), (context.pending, 1)] {
            for &token in tokens {
                if let Some(mark) = self.marks.get_mut(token as usize) {
                    *mark = (*mark | SEEN) + counts;
                }
            }
        }
        // The walk that applies a mark also clears it, so that each token is penalized once.
        for &token in [context.prompt, context.output, context.pending].into_iter().flatten() {
            let Some(mark) = self.marks.get_mut(token as usize).map(std::mem::take) else { continue };
            if mark == 0 {
                continue;
            }
            let logit = &mut self.adjusted[token as usize];
            if params.repetition_penalty != 1.0 {
                let penalty = params.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
            let count = mark & !SEEN;
            if count > 0 {
                *logit -= count as f32 * params.frequency_penalty + params.presence_penalty;
            }
            *logit = sane(*logit);
        }
    }

    /// The token for the row `row` whose maximum is `max`.
    fn choose(&mut self, row: &[f32], max: f32, sample: &Sample) -> Token {
        let params = &*sample.params;
        if params.temperature <= 0.0 || params.temperature.is_nan() {
            return first_at(row, max);
        }
        weights::fill(&mut self.weights, row, max, fixed::scale(params.temperature));
        let last = cut::last_kept(&mut self.keys, row, &self.weights, params.top_k as usize, params.top_p);
        let least = cut::least_kept(params.min_p);
        if last.is_some() || least > 0 {
            for (token, weight) in self.weights.iter_mut().enumerate() {
                let cut = *weight < least || last.is_some_and(|last| Key::new(row[token], token as Token) > last);
                if cut {
                    *weight = 0;
                }
            }
        }
        draw(&self.weights, random::uniform(sample.seed, sample.index))
    }

    /// Log probabilities under `row`, whose maximum is `max`: of `token`, and of the `top` most probable tokens that
    /// are possible at all.
    fn logprobs(&mut self, row: &[f32], max: f32, token: Token, top: usize) -> TokenLogprobs {
        weights::fill(&mut self.weights, row, max, fixed::scale(1.0));
        let log_total = fixed::logarithm(self.weights.iter().sum());
        let logprob = |logit: f32| (f64::from(logit) - f64::from(max) - log_total) as f32;
        cut::keep_most_probable(&mut self.keys, row, top);
        self.keys.sort_unstable();
        let top = self.keys.iter().map(|key| (key.token(), row[key.token() as usize]));
        let top = top.filter(|(_, logit)| *logit > f32::NEG_INFINITY).map(|(token, logit)| (token, logprob(logit)));
        let own = row[token as usize];
        let own = if own.is_nan() { f32::NEG_INFINITY } else { own };
        TokenLogprobs { logprob: logprob(own), top: top.collect() }
    }
}

/// Writes `logits` to `row`, those that a mask does not allow as minus infinity.
fn copy_allowed(row: &mut Vec<f32>, logits: &[f32], allowed: Option<&TokenSet>) {
    row.clear();
    row.extend_from_slice(logits);
    if let Some(allowed) = allowed {
        let refused = (0..).zip(row).filter(|&(token, _)| !allowed.contains(token));
        refused.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    }
}

/// Returns whether anything but temperature, cuts and a mask changes the row.
fn is_adjusted(sample: &Sample) -> bool {
    let params = &*sample.params;
    let masks = sample.index < params.min_tokens && !params.stop_tokens.is_empty();
    masks || !params.logit_bias.is_empty() || params.needs_history()
}

/// A logit that parameters drove anywhere, in a range that can be compared: no number is minus infinity, and the
/// largest is finite.
fn sane(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }
}

/// Returns the lowest token with the logit `max`.
fn first_at(row: &[f32], max: f32) -> Token {
    row.iter().position(|&logit| logit == max).unwrap_or(0) as Token
}

/// Returns the first token, by number, up to which the tokens weigh more than the point `uniform` (in units of 2^-64)
/// of all that `weights` weigh, which is more than zero.
fn draw(weights: &[u64], uniform: u64) -> Token {
    let mut left = fixed::share_below(weights.iter().sum(), uniform);
    let mut token = 0;
    while let Some(part) = weights.get(token..token + DRAW_PART) {
        let weight: u64 = part.iter().sum();
        if weight > left {
            break;
        }
        left -= weight;
        token += DRAW_PART;
    }
    while weights[token] <= left {
        left -= weights[token];
        token += 1;
    }
    token as Token
}
