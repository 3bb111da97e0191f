//! Anthropic's API: messages, and how many tokens they have.

mod blocks;
mod message_writer;
mod messages;
mod models;
mod prompt;
mod tools;

pub(crate) use messages::Messages;
pub(crate) use models::{model, models};
pub(crate) use prompt::count_tokens;

use crate::error::{ApiError, Kind};
use axum::http::StatusCode;
use domain::RequestId;
use serde::Serialize;

/// The body of an error response, and of the event that ends a broken stream.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: Inner<'a>,
    request_id: String,
}

#[derive(Serialize)]
struct Inner<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

/// Returns the body of an error: `{"type":"error","error":{...}}`.
pub(crate) fn error(error: &ApiError, request: RequestId) -> Vec<u8> {
    let inner = Inner { kind: kind(error), message: error.message() };
    let body = Body { kind: "error", error: inner, request_id: request.to_string() };
    serde_json::to_vec(&body).expect("strings are JSON")
}

/// Returns the `type` of an error.
fn kind(error: &ApiError) -> &'static str {
    match error.status() {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        _ => match error.kind() {
            Kind::Request => "invalid_request_error",
            Kind::Load | Kind::Limit => "rate_limit_error",
            Kind::Service => "api_error",
        },
    }
}

#[cfg(test)]
mod tests;
