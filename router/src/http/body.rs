//! Reading a request's body within its limits.

use super::app::App;
use super::bodies::{Bodies, Full, Share};
use super::lenient;
use crate::config::RouterConfig;
use crate::error::ApiError;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt;
use std::io::{self, Write};
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
    Gzip(io::Error),
}

/// What of a body was taken, within its limits.
struct Taken {
    bytes: Vec<u8>,
    share: Share,
    most: usize,
    /// Why no more was taken.
    refused: Option<Broken>,
}

/// How a body comes.
enum Coded {
    Plain(Taken),
    Gzip(Box<MultiGzDecoder<Taken>>),
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
    let gzip = is_gzip(headers)?;
    let broken = match collect(headers, body, config, &app.bodies, gzip).await {
        Ok(whole) => return Ok(whole),
        Err(broken) => broken,
    };
    Err(match broken {
        Broken::TooLarge => ApiError::body_too_large(config.body_bytes_max),
        Broken::TooSlow => ApiError::body_too_slow(config.body_wait, config.body_min_bytes_per_s),
        Broken::Error(error) => ApiError::body(format!("The body could not be read: {error}.")),
        Broken::Gzip(error) => ApiError::body(format!("The body is not valid gzip: {error}.")),
        Broken::Full => full(app).await,
    })
}

/// Makes the error for a body that there is no room for.
pub(super) async fn full(app: &App) -> ApiError {
    let most = app.bodies.bytes_max();
    app.overloaded(format!("The bodies of open requests have {most} bytes, the most that this service holds.")).await
}

/// Reads a body, and decodes it if it is `gzip`. Its limit holds for what it is decoded to, too.
async fn collect(
    headers: &HeaderMap,
    body: Body,
    config: &RouterConfig,
    bodies: &Arc<Bodies>,
    gzip: bool,
) -> Result<Whole, Broken> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|declared| declared > config.body_bytes_max) {
        return Err(Broken::TooLarge);
    }
    let most = declared.filter(|_| !gzip).unwrap_or(config.body_bytes_max);
    let taken = Taken { bytes: Vec::new(), share: bodies.begin(), most, refused: None };
    let mut coded = if gzip { Coded::Gzip(Box::new(MultiGzDecoder::new(taken))) } else { Coded::Plain(taken) };
    let mut stream = body.into_data_stream();
    let began = Instant::now();
    loop {
        let taken = coded.taken();
        let due = began + time_for(taken.bytes.len(), config.body_min_bytes_per_s).min(config.body_wait);
        let part = tokio::select! {
            part = timeout_at(due, stream.next()) => part.map_err(|_| Broken::TooSlow)?,
            () = taken.share.given_up() => return Err(Broken::Full),
        };
        let Some(part) = part else { break };
        coded.take(&part.map_err(Broken::Error)?)?;
    }
    let Taken { mut bytes, share, .. } = coded.finish()?;
    share.complete();
    lenient::repair(&mut bytes);
    Ok(Whole { bytes, _share: share })
}

impl Coded {
    fn taken(&self) -> &Taken {
        match self {
            Self::Plain(taken) => taken,
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn take(&mut self, part: &[u8]) -> Result<(), Broken> {
        match self {
            Self::Plain(taken) => taken.take(part),
            Self::Gzip(decoder) => {
                let decoded = decoder.write_all(part);
                decoded.map_err(|error| decoder.get_mut().refused.take().unwrap_or(Broken::Gzip(error)))
            }
        }
    }

    fn finish(self) -> Result<Taken, Broken> {
        match self {
            Self::Plain(taken) => Ok(taken),
            Self::Gzip(mut decoder) => match decoder.try_finish() {
                Ok(()) => decoder.finish().map_err(Broken::Gzip),
                Err(error) => Err(decoder.get_mut().refused.take().unwrap_or(Broken::Gzip(error))),
            },
        }
    }
}

impl Taken {
    fn take(&mut self, part: &[u8]) -> Result<(), Broken> {
        let needed = self.bytes.len() + part.len();
        if needed > self.most {
            return Err(Broken::TooLarge);
        }
        if needed > self.bytes.capacity() {
            let capacity = needed.max(2 * self.bytes.capacity()).max(FIRST_BYTES).min(self.most);
            self.share.take(capacity - self.bytes.capacity())?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }
}

impl Write for Taken {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.take(part).map(|()| part.len()).map_err(|why| {
            self.refused = Some(why);
            io::Error::other("the body is refused")
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a body is gzip. Errors: it is encoded in another way.
fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    let Some(declared) = headers.get(CONTENT_ENCODING) else { return Ok(false) };
    let coding = String::from_utf8_lossy(declared.as_bytes()).trim().to_ascii_lowercase();
    match coding.as_str() {
        "gzip" | "x-gzip" => Ok(true),
        "identity" | "" => Ok(false),
        _ => Err(ApiError::content_encoding(&coding)),
    }
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
        let read = collect(&HeaderMap::new(), body, &config(), &Bodies::new(64 * KIB), false).await;
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
        let read = |body| collect(&headers, body, &config, &bodies, false);
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

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut small = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        small.write_all(bytes).expect("a Vec takes all");
        small.finish().expect("a Vec takes all")
    }

    #[tokio::test]
    async fn what_gzip_decodes_to_has_the_limits_of_a_body() {
        let (config, bodies, headers) = (config(), Bodies::new(64 * KIB), HeaderMap::new());
        let read = async |sent: Vec<u8>| collect(&headers, Body::from(sent), &config, &bodies, true).await;
        let most = vec![b' '; 64 * KIB];
        let whole = read(gzipped(&most)).await.expect("it is within the limit");
        assert_eq!(whole.len(), 64 * KIB);
        drop(whole);
        // A thousandth of it is sent, and no more than the limit is ever held.
        let bomb = gzipped(&vec![0; 64 << 20]);
        assert!(bomb.len() < 128 * KIB);
        assert!(matches!(read(bomb[..60 * KIB].to_vec()).await, Err(Broken::TooLarge)));
        let two = [gzipped(b"{"), gzipped(b"}")].concat();
        assert_eq!(&*read(two).await.expect("members follow each other"), b"{}");
        let (cut, plain) = (gzipped(b"{}"), b"{}".to_vec());
        assert!(matches!(read(cut[..cut.len() - 3].to_vec()).await, Err(Broken::Gzip(_))));
        assert!(matches!(read(plain).await, Err(Broken::Gzip(_))));
    }
}
