//! Reading a request's body within its limits.

use super::app::App;
use super::bodies::{Bodies, Full, Share};
use crate::config::RouterConfig;
use crate::error::ApiError;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use futures_util::StreamExt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time before a body has to come at the least rate.
const SLOW_START: Duration = Duration::from_secs(5);
/// Bytes that are taken for a body at first.
const FIRST_BYTES: usize = 4 << 10;

/// A whole body. Its bytes count among those of all bodies until it is dropped.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    _share: Share,
}

impl Deref for Whole {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why there is no whole body.
#[derive(Debug)]
enum Broken {
    TooLarge,
    TooSlow,
    Full,
    Error(axum::Error),
}

impl From<Full> for Broken {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Reads the whole body, which must be declared as JSON. Errors: it is not, is too large, comes too slowly, or
/// breaks, or there is no room for it.
pub(super) async fn read(headers: &HeaderMap, body: Body, app: &App) -> Result<Whole, ApiError> {
    check_type(headers)?;
    let config = &app.config;
    let broken = match collect(headers, body, config, &app.bodies).await {
        Ok(whole) => return Ok(whole),
        Err(broken) => broken,
    };
    Err(match broken {
        Broken::TooLarge => ApiError::body_too_large(config.body_bytes_max),
        Broken::TooSlow => ApiError::body_too_slow(config.body_wait, config.body_min_bytes_per_s),
        Broken::Error(error) => ApiError::body(format!("The body could not be read: {error}.")),
        Broken::Full => {
            let most = app.bodies.bytes_max();
            app.overloaded(format!("The bodies of open requests have {most} bytes, the most that this service holds."))
                .await
        }
    })
}

async fn collect(
    headers: &HeaderMap,
    body: Body,
    config: &RouterConfig,
    bodies: &Arc<Bodies>,
) -> Result<Whole, Broken> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let most = declared.unwrap_or(config.body_bytes_max);
    if most > config.body_bytes_max {
        return Err(Broken::TooLarge);
    }
    let (mut share, mut bytes, mut stream) = (bodies.begin(), Vec::new(), body.into_data_stream());
    let began = Instant::now();
    loop {
        let due = began + time_for(bytes.len(), config.body_min_bytes_per_s).min(config.body_wait);
        let part = tokio::select! {
            part = timeout_at(due, stream.next()) => part.map_err(|_| Broken::TooSlow)?,
            () = share.given_up() => return Err(Broken::Full),
        };
        let Some(part) = part else { break };
        let part = part.map_err(Broken::Error)?;
        let needed = bytes.len() + part.len();
        if needed > most {
            return Err(Broken::TooLarge);
        }
        if needed > bytes.capacity() {
            let capacity = needed.max(2 * bytes.capacity()).max(FIRST_BYTES).min(most);
            share.take(capacity - bytes.capacity())?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&part);
    }
    share.complete();
    Ok(Whole { bytes, _share: share })
}

/// Returns the time within which a body must have more than `bytes` bytes.
fn time_for(bytes: usize, bytes_per_s: u64) -> Duration {
    SLOW_START.saturating_add(Duration::from_secs(bytes as u64 / bytes_per_s))
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let declared = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let kind = declared.as_deref().map(|declared| declared.split(';').next().unwrap_or_default().trim());
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(ApiError::content_type(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::stream;
    use std::convert::Infallible;
    use tokio::time::sleep;

    const KIB: usize = 1 << 10;

    fn config() -> RouterConfig {
        RouterConfig {
            body_bytes_max: 64 * KIB,
            body_wait: Duration::from_secs(30),
            body_min_bytes_per_s: 100,
            ..crate::tests::world::config()
        }
    }

    /// Returns a body of so many parts, each of so many bytes and that much later than the one before.
    fn parts(count: usize, bytes: usize, every: Duration) -> Body {
        Body::from_stream(stream::unfold(0, move |sent| async move {
            if sent == count {
                return None;
            }
            sleep(every).await;
            Some((Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes])), sent + 1))
        }))
    }

    /// Returns how long it takes to read a body, and what comes of it.
    async fn timed(body: Body) -> (Duration, Result<usize, Broken>) {
        let began = Instant::now();
        let read = collect(&HeaderMap::new(), body, &config(), &Bodies::new(64 * KIB)).await;
        (began.elapsed(), read.map(|whole| whole.len()))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_body_comes_at_the_least_rate_or_is_given_up() {
        // Nothing, and a byte each second.
        let (took, read) = timed(parts(1, 1, Duration::from_secs(3600))).await;
        assert!(matches!(read, Err(Broken::TooSlow)) && took == SLOW_START, "{took:?} {read:?}");
        let (took, read) = timed(parts(1000, 1, SECOND)).await;
        assert!(matches!(read, Err(Broken::TooSlow)) && took == SLOW_START, "{took:?} {read:?}");
        // As slow as is allowed.
        let (took, read) = timed(parts(20, 100, SECOND)).await;
        assert!(matches!(read, Ok(2000)) && took == 20 * SECOND, "{took:?} {read:?}");
        // Fast enough, and too long in all.
        let (took, read) = timed(parts(1000, 200, SECOND)).await;
        assert!(matches!(read, Err(Broken::TooSlow)) && took == 30 * SECOND, "{took:?} {read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_together_have_no_more_bytes_than_allowed() {
        let (config, bodies, headers) = (config(), Bodies::new(64 * KIB), HeaderMap::new());
        let endless =
            || parts(1, KIB, Duration::ZERO).into_data_stream().chain(parts(1, 1, 20 * SECOND).into_data_stream());
        let large = parts(40, KIB, Duration::ZERO).into_data_stream().chain(endless());
        let read = |body| collect(&headers, body, &config, &bodies);
        // The large one does not end before the other needs its room.
        let small = async {
            sleep(SECOND).await;
            read(parts(30, KIB, Duration::ZERO)).await
        };
        let (large, small) = tokio::join!(read(Body::from_stream(large)), small);
        assert!(matches!(large, Err(Broken::Full)), "{large:?}");
        let small = small.expect("there is room for it");
        assert_eq!(small.len(), 30 * KIB);
        // What is complete keeps its room until it is dropped.
        let (more, _) = tokio::join!(read(parts(40, KIB, Duration::ZERO)), async {});
        assert!(matches!(more, Err(Broken::Full)), "{more:?}");
        drop(small);
        assert_eq!(read(parts(40, KIB, Duration::ZERO)).await.expect("there is room").len(), 40 * KIB);
    }
}
