//! The service for browsers: each call is a `POST` of its request in JSON to `/admin/v1/CALL`. What a call streams comes
//! as server-sent events, the last of which is named `error` where it broke.

use crate::browsers::Browsers;
use crate::cluster::Cluster;
use crate::service::Service;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::StreamExt;
use proto::admin::{JsonAnswer, call_in_json};
use std::convert::Infallible;
use std::sync::Arc;
use tonic::{Code, Status};

/// Bytes of a call's body. Above: 413.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Returns the paths of the service in JSON, for pages that `browsers` lets ask.
pub fn json_routes(cluster: Arc<impl Cluster>, browsers: &Browsers) -> Router {
    let service = Arc::new(Service::new(cluster));
    let call = post(move |Path(call): Path<String>, body: Bytes| {
        let service = service.clone();
        async move {
            match call_in_json(&*service, &call, &body).await {
                Ok(answer) => answered(answer),
                Err(status) => refusal(&status),
            }
        }
    });
    browsers.guard(Router::new().route("/admin/v1/{call}", call.layer(DefaultBodyLimit::max(BODY_BYTES_MAX))))
}

fn answered(answer: JsonAnswer) -> Response {
    let (kind, body) = match answer {
        JsonAnswer::One(message) => ("application/json", Body::from(message)),
        JsonAnswer::Many(messages) => {
            let events = messages.map(|message| Ok::<_, Infallible>(event(message)));
            ("text/event-stream", Body::from_stream(events))
        }
    };
    // What a cluster is now, no cache knows.
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static(kind)), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (headers, body).into_response()
}

fn event(message: Result<Vec<u8>, Status>) -> Vec<u8> {
    match message {
        Ok(message) => [b"data: ", message.as_slice(), b"\n\n"].concat(),
        Err(status) => format!("event: error\ndata: {}\n\n", described(&status)).into_bytes(),
    }
}

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
fn described(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    serde_json::json!({ "code": code, "message": status.message() }).to_string()
}
