//! What every device offers: it takes a plan and, later, has an output.

use domain::plan::{StepOutput, StepPlan};
use domain::{KvLayout, ProgressWord, StepId};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Plans that may be submitted and not yet polled: one that runs and one that waits.
pub const STEPS_IN_FLIGHT_MAX: usize = 2;

/// Limits that a device plans its arena by. A plan beyond them is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Input rows of a step.
    pub rows_max: usize,
    /// Samples of a step.
    pub samples_max: usize,
    /// Longest sequence in tokens.
    pub context_max: usize,
    /// Blocks in each KV group's pool.
    pub blocks: Vec<u32>,
}

/// An engine that executes plans, one after the other, in the order of submission.
pub trait Device: Send {
    /// Layout of its KV pools.
    fn layout(&self) -> &KvLayout;

    /// Its limits.
    fn limits(&self) -> &DeviceLimits;

    /// Size of its model's vocabulary: input tokens are below it.
    fn vocab(&self) -> usize;

    /// Queues a plan without waiting for it. Errors: [`SubmitError`].
    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError>;

    /// The output of the oldest submitted step if it has ended. Ended steps also call the waker.
    fn poll(&mut self) -> Option<StepOutput>;

    /// Why it takes no more steps, once that is so for good. It calls the waker then.
    fn lost(&self) -> Option<&str>;

    /// Called by the device, from a thread of its own, whenever a step has ended.
    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>);

    /// The word that this device raises as layers are written.
    fn progress(&self) -> ProgressWord;

    /// Memory of the pool of KV group `group`: the record of block `b` begins at `b * layout.record_bytes(group)`.
    fn pool(&self, group: usize) -> Arc<dyn PoolMemory>;

    /// The device in words, for logs: what it runs on and which kernels it chose.
    fn describe(&self) -> String;
}

/// Host memory of a KV pool.
///
/// # Safety
/// Others copy out of it and into it by address. For as long as the value lives, [`PoolMemory::as_ptr`] and
/// [`PoolMemory::len`] always answer the same, so many bytes from there on are mapped, readable and writable, and
/// no reference to any is alive while somebody else may write it. What [`PoolMemory::file`] tells of has as many
/// bytes from there on, and cannot shrink.
pub unsafe trait PoolMemory: Send + Sync {
    /// First byte.
    fn as_ptr(&self) -> *mut u8;
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The sealed memfd behind it, and where in that it begins: what other processes of the host can be given to read.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)>;
}

/// Why a plan was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too many steps in flight.
    #[error("{STEPS_IN_FLIGHT_MAX} steps are in flight already")]
    Busy,
    /// The plan breaks a limit or refers to what is not there.
    #[error("step {step} cannot run: {reason}")]
    Invalid {
        /// The step.
        step: StepId,
        /// The number in the plan of the span that is at fault: without it the plan may be sound. `None`: the plan
        /// as a whole.
        span: Option<usize>,
        /// Why.
        reason: String,
    },
    /// The device is lost.
    #[error("the device is lost: {0}")]
    Lost(String),
}
