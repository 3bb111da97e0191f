//! What every device offers: it takes a plan and, later, has an output.

use domain::plan::{Mask, StepOutput, StepPlan};
use domain::{Adapter, BlockId, GroupId, KvLayout, ProgressWord, SeqKey, SlotId, StepId, Token};
use kv_memory::Memory;
use std::ops::Range;
use std::sync::Arc;

/// Plans that may be submitted and not yet polled: one that runs and one that waits.
pub const STEPS_IN_FLIGHT_MAX: usize = 2;

/// Limits that a device plans its arena by. A plan beyond them is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Input rows of a step.
    pub rows_max: usize,
    /// Samples, scores and sums of hidden states of a step, all together.
    pub outputs_max: usize,
    /// Longest sequence in tokens.
    pub context_max: usize,
    /// Blocks in each KV group's pool.
    pub blocks: Vec<u32>,
    /// Sequences that it keeps the block tables of, and spans of a step.
    pub slots_max: usize,
}

/// An engine that executes plans, one after the other, in the order of submission.
pub trait Device: Send {
    /// Layout of its KV pools.
    fn layout(&self) -> &KvLayout;

    /// Returns its limits.
    fn limits(&self) -> &DeviceLimits;

    /// Size of its model's vocabulary: input tokens are below it.
    fn vocab(&self) -> usize;

    /// Queues a plan without waiting for it. If a step fails as a whole, so does one that is queued behind it by then:
    /// it does not run, and raises no progress; its slots change all the same. Errors: [`SubmitError`]. Whatever the
    /// error is, all slots are closed then: the next plan opens those that it needs.
    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError>;

    /// Gives masks of samples of a step in flight, some or all. A sample that is masked by the plan is not taken before
    /// its mask is there; the step waits, for a bounded time. A sequence that ended meanwhile needs a mask too, and any
    /// will do. Errors: [`MaskError`]; then none of them is taken.
    fn masks(&mut self, step: StepId, _masks: Vec<Mask>) -> Result<(), MaskError> {
        Err(MaskError::NotExpected { step })
    }

    /// The output of the oldest submitted step if it has ended. Ended steps also call the waker.
    fn poll(&mut self) -> Option<StepOutput>;

    /// Why it takes no more steps, once that is so for good. It calls the waker then.
    fn lost(&self) -> Option<&str>;

    /// Called by the device, from a thread of its own, whenever a step has ended.
    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>);

    /// The word that this device raises as layers are written.
    fn progress(&self) -> ProgressWord;

    /// Memory of the pool of KV group `group`, which is made of [`KvLayout::part`]s: the record of block `b` begins at
    /// `b * layout.record_bytes(group)`.
    fn pool(&self, group: usize) -> Arc<dyn Memory>;

    /// Returns the adapters that it computes with, beside the model alone; rising.
    fn adapters(&self) -> &[Adapter] {
        &[]
    }

    /// Returns whether it is batch-invariant: the bits of a row depend on the tokens of its own sequence alone, not on
    /// the other rows of a step, nor on how a prompt is cut into chunks. Where it is not, a request that is replayed or
    /// asked again may get logits that differ in some bits. Tokens of equal logits are equal in any case
    /// ([`sampling`](crate::sampling)), and a sequence that moves keeps the tokens that it has.
    fn batch_invariant(&self) -> bool;

    /// Returns the device in words, for logs: what it runs on and which kernels it chose.
    fn describe(&self) -> String;
}

/// Memory of a KV pool as its engine has it.
///
/// # Safety
/// Engines read and write it by address. For as long as the value lives, [`PoolMemory::as_ptr`] always answers the
/// same, [`Memory::len`] bytes from there on are mapped, readable and writable, and no reference to any is alive
/// while other code may write it.
pub unsafe trait PoolMemory: Memory {
    /// Returns the first byte, for the engine alone. Everybody else asks for [`Memory::place`].
    fn as_ptr(&self) -> *mut u8;
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
        /// The rule that it breaks.
        #[source]
        reason: PlanError,
    },
    /// The device is lost.
    #[error("the device is lost: {0}")]
    Lost(String),
}

/// Why masks were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The step is not in flight, none of its samples is masked, or it has taken its samples.
    #[error("step {step} waits for no masks")]
    NotExpected {
        /// The step.
        step: StepId,
    },
    /// The sample is not there, is not masked, or has its mask.
    #[error("sample {sample} of step {step} waits for no mask")]
    UnknownSample {
        /// The step.
        step: StepId,
        /// The number of the sample, from 0.
        sample: u32,
    },
    /// The mask is of another vocabulary.
    #[error("a mask of {tokens} tokens for a vocabulary of {vocab}")]
    Vocabulary {
        /// Tokens of the mask.
        tokens: usize,
        /// Size of the model's vocabulary.
        vocab: usize,
    },
}

/// The rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Its number is not above that of the last plan.
    #[error("step {last} was submitted before")]
    OldStep {
        /// The last plan that was taken.
        last: StepId,
    },
    /// It has neither spans nor copies.
    #[error("there is nothing to do")]
    Empty,
    /// It is larger than the device's arena.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A slot cannot change so.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A copy in a KV group that the model does not have.
    #[error("a copy in {group}, of {groups} groups")]
    UnknownGroup {
        /// The group of the copy.
        group: GroupId,
        /// KV groups of the model.
        groups: usize,
    },
    /// A copy whose source is its destination.
    #[error("a copy of {block} onto itself")]
    CopyOntoItself {
        /// The block.
        block: BlockId,
    },
    /// A copy of a block outside of its pool.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// One span is at fault.
    #[error("{key}: {reason}")]
    Span {
        /// The sequence of the span.
        key: SeqKey,
        /// The rule that the span breaks.
        #[source]
        reason: SpanError,
    },
}

/// The rule that a span breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It has no rows.
    #[error("a span without inputs")]
    NoInputs,
    /// It ends beyond the longest context.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A token that the model does not have.
    #[error("token {token} of a vocabulary of {vocab}")]
    UnknownToken {
        /// The token.
        token: Token,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// An adapter that the device does not have.
    #[error("{adapter}, which the device does not have")]
    UnknownAdapter {
        /// The adapter.
        adapter: Adapter,
    },
    /// Something is wanted of a row that the span does not have, or behind one of a later row.
    #[error("an output of row {row} of a span of {rows}, in which rows rise")]
    OutputRow {
        /// The row, from 0.
        row: u32,
        /// Rows of the span.
        rows: usize,
    },
    /// A sample that the step before did not take.
    #[error("sample {sample} of a step that has {samples}")]
    UnknownSample {
        /// The number of the sample, from 0.
        sample: u32,
        /// Samples of the step before.
        samples: usize,
    },
    /// Its slot is closed, or another sequence's.
    #[error("{slot} is not its own")]
    ForeignSlot {
        /// The slot.
        slot: SlotId,
    },
    /// Its slot lacks tokens that it is sampled by, or has some that come later.
    #[error("the token behind row {row}, at position {needed}, is sampled by {held} tokens")]
    History {
        /// The row of the sample.
        row: u32,
        /// Tokens before the one that is sampled.
        needed: usize,
        /// Tokens of the slot.
        held: usize,
    },
    /// The blocks do not hold all positions that the span reads and writes.
    #[error("group {group} needs positions {}..{}, its blocks hold {}..{}", needed.start, needed.end, held.start, held.end)]
    Uncovered {
        /// The number of the KV group.
        group: usize,
        /// Positions that the span reads or writes.
        needed: Range<usize>,
        /// Positions that its blocks have room for.
        held: Range<usize>,
    },
    /// Another span of the plan is of the same sequence.
    #[error("a second span of the same sequence")]
    SecondOfSequence,
    /// It writes a block that is in another table too, or twice in its own.
    #[error("{block} of group {group} is written, and is in tables {times} times")]
    WritesShared {
        /// The number of the KV group.
        group: usize,
        /// The block.
        block: BlockId,
        /// How often it is in tables.
        times: u32,
    },
}

/// Why a slot cannot change as a plan says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The device does not have the slot.
    #[error("{slot} of {slots}")]
    UnknownSlot {
        /// The slot.
        slot: SlotId,
        /// Slots of the device.
        slots: usize,
    },
    /// The slot is closed.
    #[error("a change of {slot}, which is closed")]
    Closed {
        /// The slot.
        slot: SlotId,
    },
    /// Blocks in a KV group that the model does not have.
    #[error("blocks in {group}, of {groups} groups")]
    UnknownGroup {
        /// The group of the blocks.
        group: GroupId,
        /// KV groups of the model.
        groups: usize,
    },
    /// A block outside of its pool.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A table with more blocks than its pool has, or more tokens than a sequence can have.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Blocks that shall stay are not there.
    #[error("{slot} keeps blocks {}..{} of {group}, and has {}..{}", needed.start, needed.end, held.start, held.end)]
    Gap {
        /// The slot.
        slot: SlotId,
        /// The KV group.
        group: GroupId,
        /// The blocks that shall stay, by their numbers in the sequence.
        needed: Range<u32>,
        /// Those that it has.
        held: Range<u32>,
    },
}

/// A plan or a span is larger than one of [`DeviceLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} {what}, the limit is {limit}")]
pub struct LimitError {
    /// What is counted, in plural.
    pub what: &'static str,
    /// How many there are.
    pub count: usize,
    /// How many there may be.
    pub limit: usize,
}

/// Returns `count` if it is within the limit.
pub(crate) fn at_most(what: &'static str, count: usize, limit: usize) -> Result<usize, LimitError> {
    if count <= limit { Ok(count) } else { Err(LimitError { what, count, limit }) }
}

/// A block that its pool does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{block} of group {group}, which has {blocks} blocks")]
pub struct BlockError {
    /// The number of the KV group.
    pub group: usize,
    /// The block.
    pub block: BlockId,
    /// Blocks of the group's pool.
    pub blocks: u32,
}
