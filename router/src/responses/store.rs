//! Where responses are kept: an object each, in a folder or in a bucket. They leave by age, and the oldest first where
//! there are too many bytes. Several routers may share a store.
//!
//! A store that failed is tried by a small object before the next response is made. So a response that cannot be kept
//! is refused before it costs a token, except for the one that met the failure first.

use super::record::{Record, is_id};
use crate::clock::unix_seconds;
use crate::config::ResponsesConfig;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutPayload};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

/// Operations under way at once. Above: one waits, as part of its [`OPERATION_WAIT`].
const OPERATIONS_MAX: usize = 32;
/// Time for an operation. After: it has failed.
const OPERATION_WAIT: Duration = Duration::from_secs(10);
/// Time to list the store. After: it has failed.
const LIST_WAIT: Duration = Duration::from_secs(120);
/// How often old responses are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// What a small object counts, as most file systems have it. So the bound on bytes bounds the number of objects, too.
const OBJECT_BYTES_MIN: u64 = 4096;
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
    /// Bytes of all objects, as the last listing and what was kept and deleted since say.
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
    /// It is larger than all of the store may be.
    #[error("the response has {bytes} bytes; router.responses.bytes_max is {most}")]
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

impl Store {
    /// Makes one that was not tried yet.
    pub(crate) fn new(config: ResponsesConfig) -> Self {
        Self {
            config,
            operations: Semaphore::new(OPERATIONS_MAX),
            bytes: AtomicU64::new(0),
            sweeping: Mutex::default(),
            works: AtomicBool::new(false),
        }
    }

    /// Tries the store, unless its last operation worked. Errors: it takes nothing.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        if self.works.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = Path::from(PROBE);
        let put = self.config.store.put(&path, PutPayload::new());
        self.operate("write", OPERATION_WAIT, put).await.map(|_| ())
    }

    /// Keeps a response. Others leave where there are too many. Errors: it is not kept.
    pub(crate) async fn keep(&self, record: &Record) -> Result<(), StoreError> {
        let json = serde_json::to_vec(record).expect("a record has string keys");
        let (bytes, most) = (cost(json.len() as u64), self.config.bytes_max);
        if bytes > most {
            return Err(StoreError::TooLarge { bytes, most });
        }
        let path = path(record.id());
        let put = self.config.store.put(&path, json.into());
        self.operate("write", OPERATION_WAIT, put).await?;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Returns the response `id` of `owner`. Errors: there is none, or not of this owner; or the store failed.
    pub(crate) async fn load(&self, id: &str, owner: &str) -> Result<Record, StoreError> {
        if !is_id(id) {
            return Err(StoreError::Missing);
        }
        let path = path(id);
        let get = async { self.config.store.get(&path).await?.bytes().await };
        let json = self.operate("read", OPERATION_WAIT, get).await?;
        let record: Record = serde_json::from_slice(&json).map_err(|error| self.failed("read", &error))?;
        let is_old = unix_seconds().saturating_sub(record.created()) > self.config.age_max.as_secs();
        if record.owner == owner && !is_old { Ok(record) } else { Err(StoreError::Missing) }
    }

    /// Deletes the response `id` of `owner`. Errors: as of [`Self::load`].
    pub(crate) async fn delete(&self, id: &str, owner: &str) -> Result<(), StoreError> {
        self.load(id, owner).await?;
        let path = path(id);
        self.operate("delete", OPERATION_WAIT, self.config.store.delete(&path)).await
    }

    /// Looks for old responses now and then, until dropped.
    pub(crate) async fn follow(&self) -> Infallible {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "responses that are too old or too many stay for now");
            }
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    /// Deletes responses that are too old, and the oldest ones where all of them are too large.
    async fn sweep(&self) -> Result<(), StoreError> {
        let _alone = self.sweeping.lock().await;
        let listed = self.config.store.list(None).try_collect::<Vec<ObjectMeta>>();
        let mut objects = self.operate("list", LIST_WAIT, listed).await?;
        objects.retain(|object| is_response(&object.location));
        objects.sort_by_key(|object| object.last_modified);
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        let age_max = i64::try_from(self.config.age_max.as_secs()).unwrap_or(i64::MAX);
        let most = self.config.bytes_max;
        let mut bytes: u64 = objects.iter().map(|object| cost(object.size)).sum();
        let least = if bytes > most { most - most / FREED_PART } else { most };
        let mut deleted = 0;
        for object in &objects {
            let is_old = now.saturating_sub(object.last_modified.timestamp()) > age_max;
            if bytes <= least && !is_old {
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
        self.bytes.store(bytes, Ordering::Relaxed);
        if deleted > 0 {
            tracing::info!(deleted, left_bytes = bytes, "old responses are deleted");
        }
        Ok(())
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

/// Returns what an object of so many bytes counts.
fn cost(bytes: u64) -> u64 {
    bytes.max(OBJECT_BYTES_MIN)
}
