//! A prepared file transfer as its caller holds it.

use super::plan::FilePlan;
use super::{FileError, FileReport, lock};
use crate::speed::storage_speed::{Both, StorageSpeeds};
use crate::transfer::plan_slot::{PlanSlot, TransferState};
use std::sync::Arc;
use std::time::Duration;

pub(super) type FileSlot = PlanSlot<FilePlan, Result<FileReport, FileError>>;

/// A prepared file transfer: checked against the bounds of its regions, which it holds open and mapped. It is
/// posted as often as its caller likes, one time after the other. Who drops it while it is under way hears of its
/// end all the same.
pub struct FileTransfer {
    pub(super) slot: Arc<FileSlot>,
    /// Those of the mover that prepared it.
    pub(super) speeds: Arc<StorageSpeeds>,
    bytes: Both<u64>,
}

impl FileTransfer {
    pub(super) fn new(plan: FilePlan, speeds: Arc<StorageSpeeds>) -> Self {
        let bytes = plan.bytes;
        Self { slot: Arc::new(PlanSlot::new(plan)), speeds, bytes }
    }

    /// Bytes that it reads and writes. Shown at [`prepare`](super::FileMover::prepare).
    pub fn bytes(&self) -> u64 {
        self.bytes.sum()
    }

    /// Returns how long it would take if it were posted now and alone, by what the mover's transfers did lately.
    /// Transfers that are much smaller than those took longer than that for each byte. `None`: there was none. Shown at
    /// [`post`](super::FileMover::post).
    pub fn estimate(&self) -> Option<Duration> {
        lock(&self.speeds).predict(self.bytes)
    }

    /// Returns how far it is.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use transport::*;
    /// # let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: true };
    /// # let mover = FileMover::start(config, &Failure::new(), Box::new(|_| {}))?;
    /// # let memory = mover.register(Arc::new(SealedMemory::new("example", 1 << 20)?));
    /// # let path = std::env::temp_dir().join(format!("baton-example-state-{}", std::process::id()));
    /// # let file = mover.open(&FileSpec { paths: vec![path.clone()], bytes: 1 << 20, stripe_bytes: 1 << 20 })?;
    /// # let copies = vec![FileCopy { file: 0, memory: 0 }];
    /// # let write = FileBatch { direction: Direction::Write, file, memory, len: 1 << 20, copies };
    /// let transfer = mover.prepare(vec![write])?;
    /// assert_eq!(transfer.state(), TransferState::Unposted);
    /// mover.post(&transfer)?;
    /// while transfer.state() == TransferState::UnderWay {
    ///     std::thread::yield_now();
    /// }
    /// assert!(matches!(transfer.state(), TransferState::Ended(Ok(_))));
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> TransferState<Result<FileReport, FileError>> {
        self.slot.state()
    }

    /// Waits until it is not under way, for `at_most`. How far it is then. Shown at [`post`](super::FileMover::post).
    pub fn wait(&self, at_most: Duration) -> TransferState<Result<FileReport, FileError>> {
        self.slot.wait(at_most)
    }

    /// Ready once it is not under way, with how far it is then.
    ///
    /// ```
    /// # use transport::{FileMover, FileTransfer, TransferState};
    /// async fn moved(mover: &FileMover, transfer: &FileTransfer) -> Result<u64, Box<dyn std::error::Error>> {
    ///     mover.post(transfer)?;
    ///     match transfer.ended().await {
    ///         TransferState::Ended(result) => Ok(result?.bytes),
    ///         other => unreachable!("{other:?}"),
    ///     }
    /// }
    /// ```
    pub async fn ended(&self) -> TransferState<Result<FileReport, FileError>> {
        self.slot.ended().await
    }
}
