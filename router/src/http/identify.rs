//! The name of each request, in its answer and in the log.
//!
//! A request has an id of the router's, by which workers and operators know it. A client may give it a name of its own
//! by `x-request-id`; then its answer has that one, and the log has both.

use super::app::App;
use crate::access::ClientName;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use domain::RequestId;
use std::sync::Arc;

/// Names the request in answers, and in requests of clients that name them.
pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The same in answers to Anthropic's clients.
pub(super) static ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");
/// Milliseconds from the request's head to its answer's.
pub(super) static PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");

/// Longest name that a client may give, in bytes. A longer one is replaced.
const NAME_BYTES_MAX: usize = 128;
/// Begins the paths of Anthropic's API.
const ANTHROPIC_PATHS: &str = "/v1/messages";

/// Returns the name that a client gives its request. `None`: none, or none that a log could have as it is.
fn client_name(request: &Request) -> Option<ClientName> {
    let name = request.headers().get(&REQUEST_ID)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain);
    is_name.then(|| ClientName(name.into()))
}

/// Gives every request its id, and tells the client its name and how long it took to answer.
pub(super) async fn identify(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let arrived = app.clock.now();
    let id = RequestId(app.draw.unique());
    request.extensions_mut().insert(id);
    let client = client_name(&request);
    let name = client.as_ref().map_or_else(|| id.to_string(), |client| client.0.to_string());
    if let Some(client) = client {
        request.extensions_mut().insert(client);
    }
    let is_anthropic = request.uri().path().starts_with(ANTHROPIC_PATHS);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let name = HeaderValue::from_str(&name).expect("letters, digits and signs are ASCII");
    if is_anthropic {
        headers.insert(&ANTHROPIC_ID, name.clone());
    }
    headers.insert(&REQUEST_ID, name);
    let took_ms = app.clock.now().since(arrived).as_millis() as u64;
    headers.insert(&PROCESSING_MS, HeaderValue::from(took_ms));
    response
}
