//! A request after parsing: prompts in tokens, options within their limits, everything inside the context.

use super::limits::Limits;
use super::options::Options;
use crate::error::ApiError;
use domain::{SamplingParams, Token};
use std::sync::Arc;

/// A prompt with the sampling that its length allows.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Prompt {
    /// Its tokens.
    pub(crate) tokens: Arc<[Token]>,
    /// How to sample.
    pub(crate) params: Arc<SamplingParams>,
}

/// A request after parsing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ParsedRequest {
    /// The prompts; each makes `options.choices` sequences. None: there is nothing to compute.
    pub(crate) prompts: Vec<Prompt>,
    /// The rest.
    pub(crate) options: Options,
}

impl ParsedRequest {
    /// Makes a request of `prompts`, which the client gave in `field`. Errors: one is empty, or longer than `limits`
    /// allow with what is to be generated.
    pub(crate) fn new(
        prompts: Vec<Vec<Token>>,
        options: Options,
        field: &str,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        let prompts = prompts
            .into_iter()
            .map(|tokens| {
                let params = Arc::new(params(&tokens, &options, field, limits)?);
                Ok(Prompt { tokens: tokens.into(), params })
            })
            .collect::<Result<_, ApiError>>()?;
        Ok(Self { prompts, options })
    }

    /// Returns the number of sequences, over all prompts.
    pub(crate) fn sequences(&self) -> usize {
        self.prompts.len() * usize::from(self.options.choices)
    }

    /// Returns the most updates of an answer, next to the ends of prompts: each sequence's tokens, and its end.
    pub(crate) fn updates_max(&self) -> usize {
        let sequence = |prompt: &Prompt| prompt.params.max_tokens as usize + 1;
        usize::from(self.options.choices) * self.prompts.iter().map(sequence).sum::<usize>()
    }
}

/// Returns the sampling of a prompt: as asked, with as many `max_tokens` as the context has room for.
fn params(tokens: &[Token], options: &Options, field: &str, limits: &Limits) -> Result<SamplingParams, ApiError> {
    let (prompt, context) = (tokens.len() as u64, u64::from(limits.context_tokens));
    if prompt == 0 {
        return Err(ApiError::field(field, format!("'{field}' makes an empty prompt; there must be a token.")));
    }
    // A worker computes no prompt without a token behind it.
    let most = options.max_tokens.map(|most| most.max(1));
    let asked = u64::from(most.unwrap_or(1).max(options.params.min_tokens));
    if prompt + asked > context {
        let message = format!(
            "This model's maximum context length is {context} tokens. However, you requested {} tokens ({prompt} in \
             the {field}, {asked} in the completion). Please reduce the length of the {field} or the completion.",
            prompt + asked
        );
        return Err(ApiError::context(field, message));
    }
    if prompt > u64::from(limits.prompt_tokens_max) {
        let most = limits.prompt_tokens_max;
        return Err(ApiError::field(field, format!("The {field} has {prompt} tokens; this service takes {most}.")));
    }
    let common = u64::from(limits.common_context);
    let reach = if prompt + asked <= common { common } else { context };
    let max_tokens = most.unwrap_or((reach - prompt) as u32);
    Ok(SamplingParams { max_tokens, ..options.params.clone() })
}
