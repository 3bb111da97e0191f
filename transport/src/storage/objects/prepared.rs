//! A prepared object transfer as its caller holds it.

use super::plan::ObjectPlan;
use super::{ObjectError, ObjectReport, lock};
use crate::speed::storage_speed::{Both, StorageSpeeds};
use crate::transfer::plan_slot::{PlanSlot, TransferState};
use std::sync::Arc;
use std::time::Duration;

/// The plan is shared with the task that carries it out.
pub(super) type ObjectSlot = PlanSlot<Arc<ObjectPlan>, Result<ObjectReport, ObjectError>>;

/// A prepared object transfer: checked against the bounds of its memory, which it keeps mapped. It is posted as
/// often as its caller likes, one time after the other. Who drops it while it is under way hears of its end all
/// the same.
pub struct ObjectTransfer {
    pub(super) slot: Arc<ObjectSlot>,
    /// Those of the mover that prepared it.
    pub(super) speeds: Arc<StorageSpeeds>,
    bytes: Option<Both<u64>>,
}

impl ObjectTransfer {
    pub(super) fn new(plan: ObjectPlan, speeds: Arc<StorageSpeeds>) -> Self {
        let bytes = plan.bytes();
        Self { slot: Arc::new(PlanSlot::new(Arc::new(plan))), speeds, bytes }
    }

    /// Bytes that it reads or writes. Shown at [`cancel`](super::ObjectMover::cancel).
    pub fn bytes(&self) -> u64 {
        self.bytes.map_or(0, |bytes| bytes.sum())
    }

    /// Returns how long it would take if it were posted now and alone, by what the mover's reads or writes did lately.
    /// Transfers that are much smaller than those took longer than that for each byte. `None`: there was none, or it
    /// moves no bytes. Shown at [`post`](super::ObjectMover::post).
    pub fn estimate(&self) -> Option<Duration> {
        let bytes = self.bytes?;
        lock(&self.speeds).predict(bytes)
    }

    /// Returns how far it is. Shown at [`cancel`](super::ObjectMover::cancel).
    pub fn state(&self) -> TransferState<Result<ObjectReport, ObjectError>> {
        self.slot.state()
    }

    /// Waits until it is not under way, for `at_most`. How far it is then. Shown at [`post`](super::ObjectMover::post).
    pub fn wait(&self, at_most: Duration) -> TransferState<Result<ObjectReport, ObjectError>> {
        self.slot.wait(at_most)
    }

    /// Ready once it is not under way, with how far it is then, as [`ended`](crate::FileTransfer::ended) of a
    /// transfer of files.
    pub async fn ended(&self) -> TransferState<Result<ObjectReport, ObjectError>> {
        self.slot.ended().await
    }
}
