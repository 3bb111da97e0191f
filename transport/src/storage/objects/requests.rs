//! What is asked of the store: a bounded number of requests at once, repeated where that helps, for a bounded time.

use super::client::{Connections, JOURNAL, Journal};
use super::config::ObjectConfigError;
use super::failure::Failure;
use super::plan::{ObjectPiece, ObjectPlan, Plan};
use super::{ListedObject, ObjectConfig, ObjectError, ObjectOutcome, ObjectTrouble, error};
use crate::clock::now;
use crate::random;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use kv_memory::Memory;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::client::{HttpClient, HttpConnector};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, GetOptions, GetRange, MultipartId, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutPayload, RetryConfig,
};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

/// How often a request is repeated, at most; `ObjectConfig::give_up` comes first, but where pauses are drawn short.
const REPEATS_MAX: usize = 32;
/// The pause before the first repetition; later ones are drawn between it and twice the last.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Before objects of so many bytes are sent, the store is asked whether it has them: it says so of what is sent
/// only at its end.
const LOOKED_FIRST_BYTES: usize = 1 << 20;

/// An upload that was begun and shall not be finished: its parts would lie in the store for ever.
pub(super) struct Abandoned {
    path: Path,
    upload: MultipartId,
}

/// Asks the store.
pub(super) struct Requests {
    store: AmazonS3,
    endpoint: String,
    bucket: String,
    at_once: usize,
    permits: Semaphore,
    give_up: Duration,
}

/// What a transfer needed.
#[derive(Default)]
pub(super) struct Needed {
    requests: AtomicU32,
    begun: OnceLock<Instant>,
}

impl Needed {
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns when its first request was made.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun.get().copied()
    }
}

/// Takes the connections that were made in place of the client's own.
#[derive(Debug)]
struct Made(HttpClient);

impl HttpConnector for Made {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// Returns a client of a store. Errors: settings that cannot be.
fn open(config: &ObjectConfig) -> io::Result<AmazonS3> {
    let secure = config.endpoint.starts_with("https://");
    let connections = Connections::client(secure, config.requests_max.max(1), config.silence_max)?;
    let backoff = BackoffConfig { init_backoff: PAUSE_FIRST, max_backoff: PAUSE_MAX, base: 2.0 };
    let mut builder = AmazonS3Builder::new()
        .with_http_connector(Made(connections))
        .with_endpoint(&config.endpoint)
        .with_allow_http(!secure)
        .with_region(&config.region)
        .with_bucket_name(&config.bucket)
        .with_access_key_id(&config.credentials.key_id)
        .with_secret_access_key(&config.credentials.secret)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig { backoff, max_retries: REPEATS_MAX, retry_timeout: config.give_up });
    if let Some(token) = &config.credentials.token {
        builder = builder.with_token(token);
    }
    Ok(builder.build().map_err(ObjectConfigError::Store)?)
}

/// Returns a client of a store, for objects that are small and in no registered memory. It makes no parts, and bounds
/// no requests at once: `name`, `posted_max` and `part_bytes` are of no use to it. Errors: settings that cannot be.
pub fn open_store(config: &ObjectConfig) -> io::Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(open(config)?))
}

impl Requests {
    /// Errors: settings that cannot be.
    pub(super) fn new(config: &ObjectConfig) -> io::Result<Self> {
        if config.part_bytes < ObjectConfig::PART_BYTES_MIN {
            return Err(ObjectConfigError::PartTooSmall { bytes: config.part_bytes }.into());
        }
        let (at_once, store) = (config.requests_max.max(1), open(config)?);
        let (endpoint, bucket) = (config.endpoint.clone(), config.bucket.clone());
        Ok(Self { store, endpoint, bucket, at_once, permits: Semaphore::new(at_once), give_up: config.give_up })
    }

    /// Does what a transfer is for. When the future has ended or was dropped, its memory is not touched any more.
    pub(super) async fn carry_out(
        &self,
        transfer: &ObjectPlan,
        needed: &Needed,
        abandoned: &UnboundedSender<Abandoned>,
    ) -> Result<ObjectOutcome, ObjectError> {
        let key = &transfer.key;
        let outcome = match &transfer.plan {
            Plan::Read(memory, pieces) => {
                let reads = pieces.iter().copied().map(|piece| self.ask(needed, self.read(key, &**memory, piece)));
                let all: Result<(), _> = stream::iter(reads).buffer_unordered(self.at_once).try_collect().await;
                all.map(|()| ObjectOutcome::Read)
            }
            Plan::Write(memory, parts) => match parts.as_slice() {
                [whole] => self.put(key, needed, &**memory, *whole).await,
                parts => self.put_in_parts(key, needed, &**memory, parts, abandoned).await,
            },
            Plan::Delete => self.ask(needed, self.store.delete(key)).await.map(|()| ObjectOutcome::Deleted),
            Plan::Look => self.look(key, needed).await,
            Plan::List(after, keys_max) => {
                self.ask(needed, self.list(key, after.as_ref(), *keys_max)).await.map(ObjectOutcome::Listed)
            }
        };
        match outcome {
            Err(Failure::Missing) => match transfer.plan {
                Plan::Delete => Ok(ObjectOutcome::Deleted),
                Plan::Read(..) | Plan::Look | Plan::List(..) => Ok(ObjectOutcome::Missing),
                Plan::Write(..) => Err(self.failed(key, ObjectTrouble::Store, "the upload that was begun is gone")),
            },
            Err(Failure::Existed) => Ok(ObjectOutcome::Existed),
            Err(Failure::Conflict(said)) => Err(self.failed(key, ObjectTrouble::Busy, &said)),
            Err(Failure::Trouble(trouble, said)) => Err(self.failed(key, trouble, &said)),
            Ok(outcome) => Ok(outcome),
        }
    }

    fn failed(&self, key: &Path, trouble: ObjectTrouble, said: &str) -> ObjectError {
        let (endpoint, bucket) = (self.endpoint.clone(), self.bucket.clone());
        ObjectError::Failed { endpoint, bucket, key: key.to_string(), trouble, detail: error::detail(said) }
    }

    /// Has the store delete the parts of an upload.
    pub(super) async fn abandon(&self, Abandoned { path, upload }: &Abandoned) -> Result<(), ObjectError> {
        let aborted = self.store.abort_multipart(path, upload).await;
        aborted.map_err(|error| self.failed(path, ObjectTrouble::Store, &error.to_string()))
    }

    async fn read(&self, key: &Path, memory: &dyn Memory, piece: ObjectPiece) -> object_store::Result<()> {
        let range = Some(GetRange::Bounded(piece.object..piece.object + piece.len as u64));
        let got = self.store.get_opts(key, GetOptions { range, ..GetOptions::default() }).await?;
        let mut body = got.into_stream();
        let mut taken = 0;
        while let Some(bytes) = body.try_next().await? {
            if bytes.len() > piece.len - taken {
                return Err(not_as_asked("more bytes came"));
            }
            // SAFETY: the piece is inside the memory, which is mapped while the transfer holds it; it was checked.
            unsafe {
                let to = host(memory).add(piece.memory as usize + taken);
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            taken += bytes.len();
        }
        if taken == piece.len { Ok(()) } else { Err(not_as_asked("fewer bytes came")) }
    }

    /// Writes an object with one request, which the store takes only if the key is free.
    async fn put(
        &self,
        key: &Path,
        needed: &Needed,
        memory: &dyn Memory,
        whole: ObjectPiece,
    ) -> Result<ObjectOutcome, Failure> {
        if whole.len >= LOOKED_FIRST_BYTES && self.is_taken(key, needed).await? {
            return Ok(ObjectOutcome::Existed);
        }
        let (mut first, mut pause) = (None, PAUSE_FIRST);
        loop {
            // Copied once it is its turn, so that no more is held than requests are under way.
            let put = async {
                let payload = PutPayload::from(bytes(memory, whole));
                self.store.put_opts(key, payload, PutMode::Create.into()).await
            };
            let said = match self.ask(needed, put).await {
                Ok(_) => return Ok(ObjectOutcome::Written),
                // Which the client does not repeat for.
                Err(Failure::Conflict(said)) => said,
                Err(failure) => return Err(failure),
            };
            pause = drawn(pause);
            let first = *first.get_or_insert_with(now);
            if now().duration_since(first) + pause > self.give_up {
                return Err(Failure::Conflict(said));
            }
            // Others may ask meanwhile.
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns whether there is an object of that key.
    async fn is_taken(&self, key: &Path, needed: &Needed) -> Result<bool, Failure> {
        match self.look(key, needed).await {
            Ok(_) => Ok(true),
            Err(Failure::Missing) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Looks first: the store cannot be asked to finish an upload only if the key is free. Two that find it so
    /// write the same.
    async fn put_in_parts(
        &self,
        key: &Path,
        needed: &Needed,
        memory: &dyn Memory,
        parts: &[ObjectPiece],
        abandoned: &UnboundedSender<Abandoned>,
    ) -> Result<ObjectOutcome, Failure> {
        if self.is_taken(key, needed).await? {
            return Ok(ObjectOutcome::Existed);
        }
        let upload = self.ask(needed, self.store.create_multipart(key)).await?;
        let begun = Abandoned { path: key.clone(), upload: upload.clone() };
        let mut unfinished = Unfinished { abandoned, upload: Some(begun) };
        let puts = parts.iter().copied().enumerate().map(|(n, part)| {
            let upload = &upload;
            // Copied once it is its turn, so that no more is held than requests are under way.
            let put = async move { self.store.put_part(key, upload, n, bytes(memory, part).into()).await };
            self.ask(needed, put)
        });
        let parts: Vec<PartId> = stream::iter(puts).buffered(self.at_once).try_collect().await?;
        self.ask(needed, self.store.complete_multipart(key, &upload, parts)).await?;
        unfinished.upload = None;
        Ok(ObjectOutcome::Written)
    }

    async fn look(&self, key: &Path, needed: &Needed) -> Result<ObjectOutcome, Failure> {
        let found = self.ask(needed, self.store.head(key)).await?;
        Ok(ObjectOutcome::Present(found.size))
    }

    async fn list(
        &self,
        prefix: &Path,
        after: Option<&Path>,
        keys_max: usize,
    ) -> object_store::Result<Vec<ListedObject>> {
        let found = match after {
            Some(after) => self.store.list_with_offset(Some(prefix), after),
            None => self.store.list(Some(prefix)),
        };
        let listed = |object: ObjectMeta| ListedObject { key: object.location.into(), bytes: object.size };
        found.take(keys_max).map_ok(listed).try_collect().await
    }

    /// Makes a request once there is room for one more.
    async fn ask<T>(
        &self,
        needed: &Needed,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failure> {
        let Ok(_permit) = self.permits.acquire().await else { unreachable!("the semaphore is never closed") };
        needed.begun.get_or_init(now);
        let journal = Arc::new(Journal::default());
        let ended = tokio::time::timeout(self.give_up, JOURNAL.scope(journal.clone(), request)).await;
        needed.requests.fetch_add(journal.requests(), Ordering::Relaxed);
        match ended {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::of(&error, journal.last())),
            Err(_) => Err(Failure::late(self.give_up, journal.last())),
        }
    }
}

/// Returns the first byte of memory that a plan has: it takes none but the host's.
fn host(memory: &dyn Memory) -> *mut u8 {
    memory.place().host().expect("it was seen to be host memory")
}

/// A copy of memory, which may change as soon as its transfer has ended: a connection may hold what it sends for
/// longer.
fn bytes(memory: &dyn Memory, piece: ObjectPiece) -> Bytes {
    // SAFETY: the piece is inside the memory, which is mapped and does not change while its transfer is open.
    Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(host(memory).add(piece.memory as usize), piece.len) })
}

/// Returns the pause after one of so long: drawn, so that those who met each other do not meet again.
fn drawn(last: Duration) -> Duration {
    // Without randomness it is the shortest there is.
    let random = u32::from_ne_bytes(random::bytes().unwrap_or_default());
    let share = f64::from(random) / f64::from(u32::MAX);
    (PAUSE_FIRST + (2 * last).saturating_sub(PAUSE_FIRST).mul_f64(share)).min(PAUSE_MAX)
}

fn not_as_asked(what: &'static str) -> Error {
    Error::Generic { store: "S3", source: what.into() }
}

/// Tells of an upload that was not finished, when it is dropped.
struct Unfinished<'a> {
    abandoned: &'a UnboundedSender<Abandoned>,
    upload: Option<Abandoned>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            // Nobody listens any more once the mover ends, and its last words were waited for.
            let _ = self.abandoned.send(upload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_drawn_within_bounds_and_differ() {
        for last in [PAUSE_FIRST, 5 * PAUSE_FIRST, PAUSE_MAX] {
            let drawn: Vec<_> = (0..100).map(|_| drawn(last)).collect();
            assert!(drawn.iter().all(|pause| (PAUSE_FIRST..=(2 * last).min(PAUSE_MAX)).contains(pause)), "{drawn:?}");
            assert!(drawn.iter().any(|pause| *pause != drawn[0]), "{drawn:?}");
        }
    }
}
