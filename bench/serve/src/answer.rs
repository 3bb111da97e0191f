//! An answer while it comes: which events carry tokens, when they came, how the stream ended.

use crate::client::{self, Client};
use crate::clock::Clock;
use crate::record::Failure;
use crate::sse::Events;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What is known of an answer so far. Times are microseconds of the run's clock.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// When the first token came.
    pub(crate) first_us: Option<u64>,
    /// When the last one came.
    last_us: u64,
    /// Times between events that carried tokens.
    pub(crate) gaps_us: Vec<u32>,
    /// Tokens, as the server counts them.
    pub(crate) usage: Option<Usage>,
    /// The text, if it is wanted.
    pub(crate) text: Option<String>,
    /// The stream said that it ends.
    ended: bool,
    /// What it said instead.
    reported: Option<Failure>,
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// An event of the stream.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<IgnoredAny>,
    #[serde(default)]
    logprobs: Option<IgnoredAny>,
}

/// What a chat's event adds. The first one often has a role and no token: it is no sign of work done.
#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default, alias = "reasoning")]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
}

impl Usage {
    pub(crate) fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details?.cached_tokens
    }
}

impl Choice {
    /// Returns whether the event carries a token: text, a thought, a call of a tool, or, for a token that has no text
    /// by itself, its probability.
    fn has_token(&self) -> bool {
        let some = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let delta = self.delta.as_ref().is_some_and(|delta| {
            let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
            some(&delta.content) || some(&delta.reasoning_content) || calls
        });
        some(&self.text) || delta || self.logprobs.is_some()
    }

    fn text(&self) -> &str {
        let content = self.delta.as_ref().and_then(|delta| delta.content.as_deref());
        self.text.as_deref().or(content).unwrap_or_default()
    }
}

impl Answer {
    /// Makes an answer of which nothing came yet. `keep`: its text is wanted.
    pub(crate) fn new(keep: bool) -> Self {
        Self { text: keep.then(String::new), ..Self::default() }
    }

    /// Sends `body` and reads the answer to its end. What was read before a failure, or before the caller stopped
    /// polling, stays. Errors: how the request failed.
    pub(crate) async fn fetch(
        &mut self,
        client: &Client,
        clock: &Clock,
        path: &str,
        body: Bytes,
        mut token: impl FnMut(u64),
    ) -> Result<(), Failure> {
        let response = client.post(path, body).await.map_err(|error| {
            let why = client::with_causes(&error);
            if error.is_connect() { Failure::Connect(why) } else { Failure::Broken(why) }
        })?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(Failure::Status(status.as_u16(), client::complaint(response.into_body()).await));
        }
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(Failure::Broken(format!("the answer is {kind:?}, no stream of events")));
        }
        let mut body = response.into_body();
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::Broken(error.to_string()))?;
            let Some(data) = frame.data_ref() else { continue };
            let now_us = clock.now_us();
            let fed = events.feed(data, |event| {
                if self.event(event, now_us) {
                    token(now_us);
                }
            });
            fed.map_err(|_| Failure::Broken("an event has no end".to_owned()))?;
            if let Some(failure) = self.reported.take() {
                return Err(failure);
            }
        }
        if self.ended { Ok(()) } else { Err(Failure::Broken("it ends before it is whole".to_owned())) }
    }

    /// Takes an event that came at `now_us`; whether it carried tokens.
    fn event(&mut self, data: &[u8], now_us: u64) -> bool {
        if data == b"[DONE]" {
            self.ended = true;
            return false;
        }
        let chunk: Chunk<'_> = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.reported = Some(Failure::Broken(format!("an event is not JSON: {error}")));
                return false;
            }
        };
        if let Some(error) = chunk.error {
            self.reported = Some(Failure::Reported(client::brief(&format!("{{\"error\":{}}}", error.get()))));
            return false;
        }
        if chunk.usage.is_some() {
            self.usage = chunk.usage;
        }
        let choices = chunk.choices.unwrap_or_default();
        if let Some(text) = &mut self.text {
            choices.iter().for_each(|choice| text.push_str(choice.text()));
        }
        let finished = choices.iter().any(|choice| choice.finish_reason.is_some());
        self.ended |= finished;
        // An answer without visible text shows that it was made by its end alone.
        let tokens = choices.iter().any(Choice::has_token) || (finished && self.first_us.is_none());
        if tokens {
            match self.first_us {
                None => self.first_us = Some(now_us),
                Some(_) => self.gaps_us.push(u32::try_from(now_us - self.last_us).unwrap_or(u32::MAX)),
            }
            self.last_us = now_us;
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(events: &[(u64, &str)]) -> Answer {
        let mut answer = Answer::new(true);
        for (now_us, event) in events {
            answer.event(event.as_bytes(), *now_us);
        }
        answer
    }

    #[test]
    fn a_role_is_no_token() {
        let chat = answer(&[
            (5, r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#),
            (10, r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null}],"usage":null}"#),
            (25, r#"{"choices":[{"index":0,"delta":{"content":"b"}}]}"#),
            (26, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#),
            (
                27,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            ),
            (28, "[DONE]"),
        ]);
        assert_eq!((chat.first_us, &chat.gaps_us[..], chat.text.as_deref()), (Some(10), &[15][..], Some("ab")));
        let usage = chat.usage.expect("it was told");
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (7, 2, Some(4)));
        assert!(chat.ended && chat.reported.is_none());
    }

    #[test]
    fn thoughts_calls_and_tokens_without_text_count() {
        let chat = answer(&[
            (1, r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#),
            (3, r#"{"choices":[{"delta":{"reasoning":"so"}}]}"#),
            (6, r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#),
            (10, r#"{"choices":[{"text":"","logprobs":{"tokens":["\\ud83d"]}}]}"#),
        ]);
        assert_eq!((chat.first_us, &chat.gaps_us[..], chat.ended), (Some(1), &[2, 3, 4][..], false));
    }

    #[test]
    fn an_answer_without_text_came_when_it_ended() {
        let silent =
            answer(&[(4, r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":1}}"#)]);
        assert_eq!((silent.first_us, silent.gaps_us.len(), silent.ended), (Some(4), 0, true));
    }

    #[test]
    fn errors_in_the_stream_are_told() {
        let reported = answer(&[(1, r#"{"error":{"message":"out of memory","code":500}}"#)]).reported;
        assert_eq!(reported, Some(Failure::Reported("out of memory".to_owned())));
        assert!(matches!(answer(&[(1, "{")]).reported, Some(Failure::Broken(why)) if why.contains("not JSON")));
    }
}
