//! Which web pages may use the API from a browser (CORS).
//!
//! It is about paths that clients of the API use. Metrics, lanes and the pages of the router are for pages of the same
//! origin only, and so is all of the operations listener.

use super::identify::{ANTHROPIC_ID, PROCESSING_MS, REQUEST_ID};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, Method};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The origin that stands for all.
const ALL: &str = "*";
/// How long a browser may go by the answer to a question before a request.
const ASKED_FOR: Duration = Duration::from_secs(3600);

/// Returns what answers the questions of browsers, and lets pages of `origins` read answers. Such a question shows no
/// key.
pub(super) fn cors(origins: &[String]) -> CorsLayer {
    let allowed = if origins.iter().any(|origin| origin == ALL) {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let shown = [REQUEST_ID.clone(), ANTHROPIC_ID.clone(), PROCESSING_MS.clone(), RETRY_AFTER];
    let rates = keys::RATE_HEADERS.iter().flatten().cloned();
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        // `*` would leave out `Authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(shown.into_iter().chain(rates).collect::<Vec<HeaderName>>())
        .max_age(ASKED_FOR)
}
