//! A request after parsing: prompts in tokens, options within their limits, everything inside the context.

use super::fields::Fields;
use super::limits::Limits;
use super::options::Options;
use super::{chat, completion};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::{RequestId, SamplingParams, Token};
use std::sync::Arc;

/// Longest body whose text may be tokenized while others wait.
const QUICK_TEXT_BYTES_MAX: usize = 4096;
/// Longest body that may be parsed while others wait, where its prompts are tokens already.
const QUICK_TOKENS_BYTES_MAX: usize = 128 << 10;

/// Which API was called; it decides the form of body and answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

impl Endpoint {
    /// Returns its path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/v1/completions",
        }
    }

    /// Returns the `id` of the answer to a request.
    pub(crate) fn answer_id(self, id: RequestId) -> String {
        let prefix = match self {
            Self::Chat => "chatcmpl",
            Self::Completion => "cmpl",
        };
        format!("{prefix}-{:016x}", id.0)
    }

    /// Returns what it does, in the words of OpenTelemetry.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completion => "text_completion",
        }
    }

    /// Returns the field that holds the prompt.
    pub(super) fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completion => "prompt",
        }
    }
}

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
    /// Which API was called.
    pub(crate) endpoint: Endpoint,
    /// The prompts, at least one; each makes `options.choices` sequences.
    pub(crate) prompts: Vec<Prompt>,
    /// The rest.
    pub(crate) options: Options,
}

impl ParsedRequest {
    /// Returns the most updates of an answer, next to the ends of prompts: each sequence's tokens, and its end.
    pub(crate) fn updates_max(&self) -> usize {
        let sequence = |prompt: &Prompt| prompt.params.max_tokens as usize + 1;
        usize::from(self.options.choices) * self.prompts.iter().map(sequence).sum::<usize>()
    }
}

/// Returns whether [`ask`] takes well under a millisecond for this body, less than handing it to another thread and
/// back may.
pub(crate) fn is_quick(endpoint: Endpoint, body: &[u8]) -> bool {
    let has_tokens = || endpoint == Endpoint::Completion && completion::has_tokens(body);
    body.len() <= QUICK_TEXT_BYTES_MAX || (body.len() <= QUICK_TOKENS_BYTES_MAX && has_tokens())
}

/// Parses the body of a request to `endpoint`, tokenizes it and checks it against every limit. Takes time with the
/// length of the body. Errors: what the client has to fix.
pub(crate) fn ask(
    endpoint: Endpoint,
    body: &[u8],
    card: &ModelCard,
    limits: &Limits,
) -> Result<ParsedRequest, ApiError> {
    parse(endpoint, Fields::of_body(body)?, card, limits)
}

/// Does what [`ask`] says, with the fields of a body.
pub(super) fn parse(
    endpoint: Endpoint,
    fields: Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
) -> Result<ParsedRequest, ApiError> {
    let (prompts, options) = match endpoint {
        Endpoint::Chat => chat::parse(fields, card, limits)?,
        Endpoint::Completion => completion::parse(fields, card, limits)?,
    };
    let field = endpoint.prompt_field();
    let prompts = prompts
        .into_iter()
        .map(|tokens| {
            let params = Arc::new(params(&tokens, &options, field, limits)?);
            Ok(Prompt { tokens: tokens.into(), params })
        })
        .collect::<Result<_, ApiError>>()?;
    Ok(ParsedRequest { endpoint, prompts, options })
}

/// Returns the sampling of a prompt: as asked, with as many `max_tokens` as the context has room for.
fn params(tokens: &[Token], options: &Options, field: &str, limits: &Limits) -> Result<SamplingParams, ApiError> {
    let (prompt, context) = (tokens.len() as u64, u64::from(limits.context_tokens));
    if prompt == 0 {
        return Err(ApiError::field(field, format!("'{field}' makes an empty prompt; there must be a token.")));
    }
    let asked = u64::from(options.max_tokens.unwrap_or(1).max(options.params.min_tokens));
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
    let max_tokens = options.max_tokens.unwrap_or((reach - prompt) as u32);
    Ok(SamplingParams { max_tokens, ..options.params.clone() })
}
