//! The object `response`.

use crate::answer::Taken;
use crate::dialects::Head;
use serde_json::{Map, Value, json};

/// How far a response is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status<'a> {
    /// It is being made.
    InProgress,
    /// It is complete.
    Completed,
    /// It has as many tokens as it may have.
    Incomplete,
    /// It failed, with this code and message.
    Failed(&'static str, &'a str),
}

impl Status<'_> {
    /// Returns it as the API spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed(..) => "failed",
        }
    }
}

/// Returns a response. `told`: the fields of the request that it repeats. `completed_at`: where it is complete, in
/// seconds since the Unix epoch. `taken`: where it is over.
pub(super) fn response(
    head: &Head,
    told: &Map<String, Value>,
    status: Status<'_>,
    output: &[Value],
    (completed_at, taken): (Option<u64>, Option<Taken>),
) -> Value {
    let error = match status {
        Status::Failed(code, message) => json!({ "code": code, "message": message }),
        Status::InProgress | Status::Completed | Status::Incomplete => Value::Null,
    };
    let incomplete = match status {
        Status::Incomplete => json!({ "reason": "max_output_tokens" }),
        Status::InProgress | Status::Completed | Status::Failed(..) => Value::Null,
    };
    let mut response = json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "completed_at": completed_at,
        "status": status.name(),
        "background": false,
        "conversation": null,
        "error": error,
        "incomplete_details": incomplete,
        "model": head.model,
        "output": output,
        "prompt": null,
        "usage": taken.map(usage),
    });
    response.as_object_mut().expect("it is an object").extend(told.clone());
    response
}

/// Returns the id of an item of the response `id`. `place`: its place among items of its sort.
pub(super) fn item_id(id: &str, prefix: &str, place: &str) -> String {
    format!("{prefix}_{}{place}", id.strip_prefix("resp_").unwrap_or(id))
}

fn usage(taken: Taken) -> Value {
    json!({
        "input_tokens": taken.prompt_tokens,
        // No write to the cache is billed.
        "input_tokens_details": { "cached_tokens": taken.cached_tokens, "cache_write_tokens": 0 },
        "output_tokens": taken.output_tokens,
        "output_tokens_details": { "reasoning_tokens": taken.reasoning_tokens },
        "total_tokens": taken.prompt_tokens + taken.output_tokens,
    })
}
