//! Where responses are kept: an object each, in a folder or in a bucket. They leave by age, and the oldest first where
//! there are too many bytes. Several routers may share a store.
//!
//! A store that failed is tried by a small object before the next response is made. So a response that cannot be kept
//! is refused before it costs a token, except for the one that met the failure first.

use super::oldest::{Oldest, cost};
use super::record::{Record, is_id};
use crate::clock::unix_seconds;
use crate::config::ResponsesConfig;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetResult, ObjectStoreExt, PutPayload};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Operations under way at once. Above: one waits, as part of its [`OPERATION_WAIT`].
const OPERATIONS_MAX: usize = 32;
/// Time for an operation. After: it has failed.
const OPERATION_WAIT: Duration = Duration::from_secs(10);
/// Time to list the store. After: it has failed.
const LIST_WAIT: Duration = Duration::from_secs(120);
/// How often old responses are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// The part of the bound that is made free at once, so that a full store is not listed for each response.
const FREED_PART: u64 = 16;
/// The end of names of objects.
const SUFFIX: &str = ".json";
/// Name of the object that tries the store.
const PROBE: &str = "probe";

/// The responses that are kept.
#[derive(Debug)]
pub(crate) struct Store {
    config: ResponsesConfig,
    operations: Semaphore,
    /// Most bytes of an object.
    object_bytes_max: u64,
    /// Bytes of all objects: those of the last listing, and what this router has written since.
    bytes: AtomicU64,
    /// One sweep at a time.
    sweeping: Mutex<()>,
    /// The last operation worked.
    works: AtomicBool,
}

/// Why a response was not kept or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// There is none with this id.
    #[error("there is no such response")]
    Missing,
    /// It is larger than a response may be.
    #[error("the response has {bytes} bytes with its conversation; {most} are allowed")]
    TooLarge {
        /// Its bytes.
        bytes: u64,
        /// The bound.
        most: u64,
    },
    /// The store did not do it.
    #[error("the store of responses ({place}) failed to {action}: {why}")]
    Failed {
        /// Where the store is.
        place: String,
        /// What it was asked.
        action: &'static str,
        /// What it said.
        why: String,
    },
}

/// A response that is there and not read yet.
pub(crate) struct Found {
    object: GetResult,
}

impl Found {
    /// Returns how many bytes it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.object.meta.size
    }
}

impl Store {
    /// Makes one that was not tried yet. Each response has at most `object_bytes_max` with its conversation.
    pub(crate) fn new(config: ResponsesConfig, object_bytes_max: u64) -> Self {
        Self {
            object_bytes_max: object_bytes_max.min(config.bytes_max),
            config,
            operations: Semaphore::new(OPERATIONS_MAX),
            bytes: AtomicU64::new(0),
            sweeping: Mutex::default(),
            works: AtomicBool::new(false),
        }
    }

    /// Makes room for a response, and tries the store unless its last operation worked. Errors: it takes nothing, or
    /// nothing can be deleted.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        if self.is_full() {
            let alone = self.sweeping.lock().await;
            // Another request may have made room meanwhile.
            if self.is_full() {
                self.sweep().await?;
            }
            drop(alone);
        }
        if self.works.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = Path::from(PROBE);
        let put = self.config.store.put(&path, PutPayload::new());
        self.operate("write", OPERATION_WAIT, put).await.map(|_| ())
    }

    /// Keeps a response. Errors: it is not kept.
    pub(crate) async fn keep(&self, record: Record) -> Result<(), StoreError> {
        let path = path(record.id());
        let json = self.off_thread("write", move || serde_json::to_vec(&record)).await?;
        let (bytes, most) = (json.len() as u64, self.object_bytes_max);
        if bytes > most {
            return Err(StoreError::TooLarge { bytes, most });
        }
        // It counts before it is written: an operation that is dropped halfway may still write it.
        self.bytes.fetch_add(cost(bytes), Ordering::Relaxed);
        let put = self.config.store.put(&path, json.into());
        self.operate("write", OPERATION_WAIT, put).await.map(|_| ())
    }

    /// Finds the response `id`, of any owner. Errors: there is none, or none of a size that is allowed; or the store
    /// failed.
    pub(crate) async fn find(&self, id: &str) -> Result<Found, StoreError> {
        if !is_id(id) {
            return Err(StoreError::Missing);
        }
        let path = path(id);
        let object = self.operate("read", OPERATION_WAIT, self.config.store.get(&path)).await?;
        if object.meta.size > self.object_bytes_max { Err(StoreError::Missing) } else { Ok(Found { object }) }
    }

    /// Reads a response of `owner`. Errors: it is not of this owner, or too old; or the store failed.
    pub(crate) async fn read(&self, found: Found, owner: &str) -> Result<Record, StoreError> {
        let json = self.operate("read", OPERATION_WAIT, found.object.bytes()).await?;
        let record: Record = self.off_thread("read", move || serde_json::from_slice(&json)).await?;
        let is_old = self.is_old(i64::try_from(record.created()).unwrap_or(i64::MAX));
        if record.owner == owner && !is_old { Ok(record) } else { Err(StoreError::Missing) }
    }

    /// Deletes the response `id`, which its owner has read.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), StoreError> {
        let path = path(id);
        self.operate("delete", OPERATION_WAIT, self.config.store.delete(&path)).await
    }

    /// Looks for old responses now and then, until dropped.
    pub(crate) async fn follow(&self) -> Infallible {
        loop {
            let alone = self.sweeping.lock().await;
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "responses that are too old or too many stay for now");
            }
            drop(alone);
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.config.bytes_max
    }

    /// Deletes responses that are too old, and the oldest ones where all of them are too large. One sweep at a time.
    async fn sweep(&self) -> Result<(), StoreError> {
        let counted = self.bytes.load(Ordering::Relaxed);
        let listing = async {
            let mut listed = self.config.store.list(None);
            let mut oldest = Oldest::default();
            while let Some(object) = listed.try_next().await? {
                if is_response(&object.location) {
                    oldest.add(object);
                }
            }
            Ok(oldest)
        };
        let (mut bytes, oldest) = self.operate("list", LIST_WAIT, listing).await?.in_order();
        let most = self.config.bytes_max;
        let least = if bytes > most { most - most / FREED_PART } else { most };
        let mut deleted = 0;
        for object in &oldest {
            if bytes <= least && !self.is_old(object.last_modified.timestamp()) {
                break;
            }
            match self.operate("delete", OPERATION_WAIT, self.config.store.delete(&object.location)).await {
                // Another router was faster.
                Ok(()) | Err(StoreError::Missing) => {}
                Err(error) => return Err(error),
            }
            bytes -= cost(object.size);
            deleted += 1;
        }
        // What was written meanwhile stays counted, listed or not.
        self.bytes.fetch_add(bytes.wrapping_sub(counted), Ordering::Relaxed);
        if deleted > 0 {
            tracing::info!(deleted, left_bytes = bytes, "old responses are deleted");
        }
        Ok(())
    }

    /// Returns whether what was made then, in seconds since the Unix epoch, is to be deleted.
    fn is_old(&self, made: i64) -> bool {
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        now.saturating_sub(made) > i64::try_from(self.config.age_max.as_secs()).unwrap_or(i64::MAX)
    }

    /// Reads or writes JSON, which takes time with its length, where nothing waits for it.
    async fn off_thread<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce() -> serde_json::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match spawn_blocking(work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.failed(action, &error)),
            Err(error) => Err(self.failed(action, &error)),
        }
    }

    /// Has the store do something within `wait`, and notes whether it works.
    async fn operate<T>(
        &self,
        action: &'static str,
        wait: Duration,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        let in_turn = async {
            let _permit = self.operations.acquire().await.expect("the semaphore is never closed");
            operation.await
        };
        let done = match timeout(wait, in_turn).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(object_store::Error::NotFound { .. })) => Err(StoreError::Missing),
            Ok(Err(error)) => Err(self.failed(action, &error)),
            Err(_) => Err(self.failed(action, &format!("it took longer than {} s", wait.as_secs()))),
        };
        // That an object is not there says nothing about the store: the folder may be gone.
        if !matches!(done, Err(StoreError::Missing)) {
            self.works.store(done.is_ok(), Ordering::Relaxed);
        }
        done
    }

    fn failed(&self, action: &'static str, why: &dyn std::fmt::Display) -> StoreError {
        StoreError::Failed { place: self.config.place.clone(), action, why: why.to_string() }
    }
}

/// Returns where the response `id` is.
fn path(id: &str) -> Path {
    Path::from(format!("{id}{SUFFIX}"))
}

/// Returns whether a response is there, and nothing else that lies in the store.
fn is_response(path: &Path) -> bool {
    path.as_ref().strip_suffix(SUFFIX).is_some_and(is_id)
}
