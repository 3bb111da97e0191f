//! Refusals in JSON.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tonic::{Code, Status};

/// Answers that a call is refused.
pub(crate) fn refusal(status: &Status) -> Response {
    let http = match status.code() {
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (http, [(CONTENT_TYPE, "application/json")], described(status)).into_response()
}

/// Returns a status in JSON: its name in gRPC, and what it says.
pub(crate) fn described(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    serde_json::json!({ "code": code, "message": status.message() }).to_string()
}
