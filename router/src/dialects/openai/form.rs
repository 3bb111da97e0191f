//! What the answers of chats and completions have in common.

use crate::answer::{Finish, Taken};
use crate::dialects::Head;
use serde::Serialize;

/// An answer, or a chunk of one.
#[derive(Serialize)]
pub(super) struct Object<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: C,
    /// Outer `None`: no such field. Inner `None`: null.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

impl<'a, C> Object<'a, C> {
    /// Makes an `object`; see the field for `usage`.
    pub(super) fn new(object: &'static str, head: &'a Head, choices: C, usage: Option<Option<Usage>>) -> Self {
        Self { id: &head.id, object, created: head.created, model: &head.model, choices, usage }
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
            completion_tokens_details: CompletionDetails { reasoning_tokens: taken.reasoning_tokens },
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
