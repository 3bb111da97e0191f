//! Ollama's API: chats and completions as lines of JSON, and what its clients ask about the model.

mod chat;
mod fields;
mod generate;
mod line_writer;
mod messages;
mod models;

pub(crate) use chat::Chat;
pub(crate) use generate::Generate;
pub(crate) use models::{running, show, tags, version};

use crate::error::ApiError;
use serde_json::json;

/// What all paths of this API begin with.
const REALM: &str = "/api/";
/// The media type of its streams: a line of JSON for each piece.
const LINES: &str = "application/x-ndjson";

/// Returns the body of an error: `{"error":"..."}`.
fn error(error: &ApiError) -> Vec<u8> {
    json!({ "error": error.message() }).to_string().into_bytes()
}

#[cfg(test)]
mod tests;
