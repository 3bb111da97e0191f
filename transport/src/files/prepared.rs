//! A prepared file transfer as its caller holds it.

use super::plan::FilePlan;
use super::{FileError, FileReport, lock};
use crate::slot::{Slot, TransferState};
use crate::storage_pace::{Both, Paces};
use std::sync::Arc;
use std::time::Duration;

pub(super) type FileSlot = Slot<FilePlan, Result<FileReport, FileError>>;

/// A prepared file transfer: checked against the bounds of its regions, which it holds open and mapped. It is posted as often as
/// its caller likes, one time after the other. Who drops it while it is under way hears of its end all the same.
pub struct FileTransfer {
    pub(super) slot: Arc<FileSlot>,
    /// Those of the mover that prepared it.
    pub(super) paces: Arc<Paces>,
    bytes: Both<u64>,
}

impl FileTransfer {
    pub(super) fn new(plan: FilePlan, paces: Arc<Paces>) -> Self {
        let bytes = plan.bytes;
        Self { slot: Arc::new(Slot::new(plan)), paces, bytes }
    }

    /// Bytes that it reads and writes.
    pub fn bytes(&self) -> u64 {
        self.bytes.sum()
    }

    /// How long it would take if it were posted now and alone, by what the mover's transfers did lately. Transfers that are much
    /// smaller than those took longer than that for each byte. `None`: there was none.
    pub fn estimate(&self) -> Option<Duration> {
        lock(&self.paces).predict(self.bytes)
    }

    /// How far it is.
    pub fn state(&self) -> TransferState<Result<FileReport, FileError>> {
        self.slot.state()
    }

    /// Waits until it is not under way, for `at_most`. How far it is then.
    pub fn wait(&self, at_most: Duration) -> TransferState<Result<FileReport, FileError>> {
        self.slot.wait(at_most)
    }

    /// Ready once it is not under way, with how far it is then.
    pub async fn ended(&self) -> TransferState<Result<FileReport, FileError>> {
        self.slot.ended().await
    }
}
