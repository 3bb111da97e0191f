//! OpenAI's API: chats, completions and responses.

mod chat;
mod chat_writer;
mod completion;
mod completion_writer;
mod form;
mod generate;
mod logprobs;
mod messages;
mod options;
mod responses;
mod structure;
mod tools;

pub(crate) use chat::{Chat, conversation};
pub(crate) use completion::Completion;
pub(crate) use generate::{Generate, render};
pub(crate) use messages::MESSAGES;
pub(crate) use responses::{Responses, Turn, check_include};
pub(crate) use tools::{TOOLS, schema, tools};

use crate::error::ApiError;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, BytesMut};
use serde::Serialize;

/// The last event of a stream that succeeds.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The body of an error response, and of the event that ends a broken stream.
#[derive(Serialize)]
struct Body<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// Returns the body of an error: `{"error":{...}}`.
pub(crate) fn error(error: &ApiError) -> Vec<u8> {
    let inner = Inner { message: error.message(), kind: error.kind().name(), param: error.param(), code: error.code() };
    serde_json::to_vec(&Body { error: inner }).expect("strings are JSON")
}

/// Returns a whole answer as JSON.
fn whole(object: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(object).expect("an answer has string keys and finite numbers")
}

/// OpenAI's form is also that of the paths that belong to no dialect.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(error(&self))
    }
}

/// Appends an event.
fn event(out: &mut BytesMut, object: &impl Serialize) {
    out.put_slice(b"data: ");
    serde_json::to_writer(out.writer(), object).expect("a chunk has string keys, and the buffer grows");
    out.put_slice(b"\n\n");
}

/// Ends a stream with an error, and without `[DONE]`.
fn error_event(out: &mut BytesMut, failed: &ApiError) {
    out.put_slice(b"data: ");
    out.put_slice(&error(failed));
    out.put_slice(b"\n\n");
}

#[cfg(test)]
mod tests;
