//! The service for browsers: each call is a `POST` of its request in JSON to `/admin/v1/CALL`. What a call streams
//! comes as server-sent events, the last of which is named `error` where it broke.

use crate::CALL_BYTES_MAX;
use crate::browsers::Browsers;
use crate::cluster::Cluster;
use crate::refusal::{described, refusal};
use crate::service::Service;
use crate::snapshots::until_revoked;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::StreamExt;
use keys::Key;
use proto::admin::{JsonAnswer, call_in_json};
use std::convert::Infallible;
use std::sync::Arc;
use tonic::Status;

/// Returns the paths of the service in JSON, for pages that `browsers` lets ask.
pub fn json_routes(cluster: Arc<impl Cluster>, browsers: &Browsers) -> Router {
    let service = Arc::new(Service::new(cluster));
    let call = post(move |Path(call): Path<String>, key: Option<Extension<Key>>, body: Bytes| {
        let service = service.clone();
        async move {
            match call_in_json(&*service, &call, &body).await {
                Ok(answer) => answered(answer, key.map(|Extension(key)| key)),
                Err(status) => refusal(&status),
            }
        }
    });
    browsers.guard(Router::new().route("/admin/v1/{call}", call.layer(DefaultBodyLimit::max(CALL_BYTES_MAX))))
}

fn answered(answer: JsonAnswer, key: Option<Key>) -> Response {
    let (kind, body) = match answer {
        JsonAnswer::One(message) => ("application/json", Body::from(message)),
        JsonAnswer::Many(messages) => {
            let messages = match key {
                Some(key) => until_revoked(messages, key),
                None => messages,
            };
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
