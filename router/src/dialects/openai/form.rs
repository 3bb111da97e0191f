//! What the answers of chats and completions have in common.

use crate::answer::{Finish, Taken};
use crate::dialects::Head;
use domain::Token;
use serde::Serialize;

/// How requests are served, as answers say it: all in the same way.
const SERVICE_TIER: &str = "default";

/// An answer, or a chunk of one.
#[derive(Serialize)]
pub(super) struct Object<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    service_tier: &'static str,
    system_fingerprint: &'a str,
    choices: C,
    /// Outer `None`: no such field. Inner `None`: null.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    /// Those of a chat's prompt, where the client asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [Token]>,
}

impl<'a, C> Object<'a, C> {
    /// Makes an `object`; see the field for `usage`.
    pub(super) fn new(object: &'static str, head: &'a Head, choices: C, usage: Option<Option<Usage>>) -> Self {
        Self {
            id: &head.id,
            object,
            created: head.created,
            model: &head.model,
            service_tier: SERVICE_TIER,
            system_fingerprint: &head.fingerprint,
            choices,
            usage,
            prompt_token_ids: None,
        }
    }

    /// Adds the tokens of the prompt.
    pub(super) fn with_prompt(self, prompt_token_ids: Option<&'a [Token]>) -> Self {
        Self { prompt_token_ids, ..self }
    }
}

/// What a request took.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
    /// No answer has sound, and none is predicted by its client.
    audio_tokens: usize,
    accepted_prediction_tokens: usize,
    rejected_prediction_tokens: usize,
}

#[derive(Clone, Copy, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
    /// No prompt has sound.
    audio_tokens: usize,
}

impl Usage {
    pub(super) fn of(taken: Taken) -> Self {
        Self {
            prompt_tokens: taken.prompt_tokens,
            completion_tokens: taken.output_tokens,
            total_tokens: taken.prompt_tokens + taken.output_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: taken.cached_tokens, audio_tokens: 0 },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: taken.reasoning_tokens,
                audio_tokens: 0,
                accepted_prediction_tokens: 0,
                rejected_prediction_tokens: 0,
            },
        }
    }
}

/// Returns `finish_reason`.
pub(super) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopString(_) => "stop",
        Finish::Length => "length",
    }
}
