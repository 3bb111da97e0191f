//! The JSON of answers, field by field as the OpenAI API has it.

use super::run::Taken;
use super::text::LoggedToken;
use crate::api::Endpoint;
use domain::Token;
use engine::text::Tokenizer;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Smallest log probability that is told: JSON has no infinity, and this is what the API writes for it.
const LOGPROB_MIN: f32 = -9999.0;

/// What all parts of an answer begin with.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Which API was called.
    pub(crate) endpoint: Endpoint,
    /// Id of the answer.
    pub(crate) id: String,
    /// Seconds since the Unix epoch.
    pub(crate) created: u64,
    /// Name of the model.
    pub(crate) model: String,
}

/// An answer, or a chunk of one.
#[derive(Serialize)]
pub(super) struct Object<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    pub(super) choices: C,
    /// Outer `None`: no such field. Inner `None`: null.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

impl Head {
    /// Returns the whole answer.
    pub(super) fn whole<C>(&self, choices: C, taken: Taken) -> Object<'_, C> {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion",
            Endpoint::Completion => "text_completion",
        };
        self.object(object, choices, Some(Some(Usage::of(taken))))
    }

    /// Returns a chunk; see [`Object::usage`] for `usage`.
    pub(super) fn chunk<C>(&self, choices: C, usage: Option<Option<Usage>>) -> Object<'_, C> {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completion => "text_completion",
        };
        self.object(object, choices, usage)
    }

    fn object<C>(&self, object: &'static str, choices: C, usage: Option<Option<Usage>>) -> Object<'_, C> {
        Object { id: &self.id, object, created: self.created, model: &self.model, choices, usage }
    }
}

/// What a request took.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Clone, Copy, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

impl Usage {
    pub(super) fn of(taken: Taken) -> Self {
        Self {
            prompt_tokens: taken.prompt_tokens,
            completion_tokens: taken.output_tokens,
            total_tokens: taken.prompt_tokens + taken.output_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: taken.cached_tokens },
        }
    }
}

/// A sequence of a chat's answer.
#[derive(Serialize)]
pub(super) struct ChatChoice<'a> {
    pub(super) index: usize,
    pub(super) message: Message<'a>,
    pub(super) logprobs: Option<ChatLogprobs<'a>>,
    pub(super) finish_reason: &'a str,
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) content: &'a str,
    pub(super) refusal: Option<&'static str>,
}

/// A chunk of a sequence of a chat's answer.
#[derive(Serialize)]
pub(super) struct ChatChunk<'a> {
    pub(super) index: usize,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<ChatLogprobs<'a>>,
    pub(super) finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
pub(super) struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a str>,
}

/// A sequence of a completion, or a chunk of it.
#[derive(Serialize)]
pub(super) struct CompletionChoice<'a> {
    pub(super) index: usize,
    pub(super) text: &'a str,
    pub(super) logprobs: Option<CompletionLogprobs<'a>>,
    pub(super) finish_reason: Option<&'static str>,
}

/// Tokens with the tokenizer that knows their text.
#[derive(Clone, Copy)]
pub(super) struct Logged<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) tokens: &'a [LoggedToken],
}

/// Log probabilities of a chat.
#[derive(Serialize)]
pub(super) struct ChatLogprobs<'a> {
    content: Vec<ChatToken<'a>>,
    refusal: Option<&'static str>,
}

#[derive(Serialize)]
struct ChatToken<'a> {
    #[serde(flatten)]
    token: ChatAlternative<'a>,
    top_logprobs: Vec<ChatAlternative<'a>>,
}

#[derive(Serialize)]
struct ChatAlternative<'a> {
    token: String,
    logprob: f32,
    bytes: &'a [u8],
}

impl<'a> From<Logged<'a>> for ChatLogprobs<'a> {
    fn from(Logged { tokenizer, tokens }: Logged<'a>) -> Self {
        let alternative = |token: Token, logprob: f32| ChatAlternative {
            token: tokenizer.token_text(token),
            logprob: logprob.max(LOGPROB_MIN),
            bytes: tokenizer.token_bytes(token),
        };
        let content = tokens
            .iter()
            .map(|logged| ChatToken {
                token: alternative(logged.token, logged.logprobs.logprob),
                top_logprobs: logged.logprobs.top.iter().map(|&(token, logprob)| alternative(token, logprob)).collect(),
            })
            .collect();
        Self { content, refusal: None }
    }
}

/// Log probabilities of a completion: four lists of equal length.
#[derive(Serialize)]
pub(super) struct CompletionLogprobs<'a> {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<TopLogprobs<'a>>,
    text_offset: Vec<usize>,
}

impl<'a> From<Logged<'a>> for CompletionLogprobs<'a> {
    fn from(Logged { tokenizer, tokens }: Logged<'a>) -> Self {
        Self {
            tokens: tokens.iter().map(|logged| tokenizer.token_text(logged.token)).collect(),
            token_logprobs: tokens.iter().map(|logged| logged.logprobs.logprob.max(LOGPROB_MIN)).collect(),
            top_logprobs: tokens.iter().map(|logged| TopLogprobs { tokenizer, logged }).collect(),
            text_offset: tokens.iter().map(|logged| logged.offset_chars).collect(),
        }
    }
}

/// The most probable tokens, and the sampled one: `{text: logprob}`. Of tokens with equal texts the first counts.
struct TopLogprobs<'a> {
    tokenizer: &'a Tokenizer,
    logged: &'a LoggedToken,
}

impl Serialize for TopLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sampled = (self.logged.token, self.logged.logprobs.logprob);
        let mut texts: Vec<String> = Vec::new();
        let mut map = serializer.serialize_map(None)?;
        for &(token, logprob) in self.logged.logprobs.top.iter().chain([&sampled]) {
            let text = self.tokenizer.token_text(token);
            if !texts.contains(&text) {
                map.serialize_entry(&text, &logprob.max(LOGPROB_MIN))?;
                texts.push(text);
            }
        }
        map.end()
    }
}
