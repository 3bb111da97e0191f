//! Reading a request's body within its limits.

use crate::config::RouterConfig;
use crate::error::ApiError;
use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use futures_util::StreamExt;
use std::time::Duration;

/// Bytes of a body that is too large which are read and thrown away, so that a client that sends first and reads then
/// gets to read why it was refused.
const DISCARD_BYTES_MAX: usize = 64 << 20;
/// Time for that.
const DISCARD_WAIT: Duration = Duration::from_secs(2);

/// The whole body, which must be declared as JSON. Errors: it is not, is too large, does not come in time, or breaks.
pub(super) async fn read(headers: &HeaderMap, body: Body, config: &RouterConfig) -> Result<Vec<u8>, ApiError> {
    check_type(headers)?;
    let mut stream = body.into_data_stream();
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|bytes| bytes > config.body_bytes_max) {
        return Err(refuse(stream, config).await);
    }
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0));
    let collect = async {
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| ApiError::body(format!("The body could not be read: {error}.")))?;
            if bytes.len() + part.len() > config.body_bytes_max {
                return Ok(false);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(true)
    };
    match tokio::time::timeout(config.body_wait, collect).await {
        Ok(Ok(true)) => Ok(bytes),
        Ok(Ok(false)) => Err(refuse(stream, config).await),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ApiError::body_too_slow(config.body_wait)),
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let declared = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let kind = declared.as_deref().map(|declared| declared.split(';').next().unwrap_or_default().trim());
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(ApiError::content_type(kind))
}

/// Lets the client send some more, unread, before it is told that the body is too large.
async fn refuse(mut stream: BodyDataStream, config: &RouterConfig) -> ApiError {
    let mut discarded = 0;
    let discard = async {
        while let Some(Ok(part)) = stream.next().await {
            discarded += part.len();
            if discarded > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_WAIT, discard).await;
    ApiError::body_too_large(config.body_bytes_max)
}
