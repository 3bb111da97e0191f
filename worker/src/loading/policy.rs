//! Whether a prompt is computed, loaded, or both. The decision is pure, and its test is a table.

use super::loads::SharedLoad;
use super::two_ended_load::{CHUNK_PART, head_tokens};

/// A tail of a smaller part of the prefix than one in so many is not worth a load: predictions are not that exact.
const TAIL_PART: u32 = 8;

/// How far a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its turn for device memory has come. It may wait for reads.
    Waiting,
    /// It waits for a step, or has begun. It waits for nothing else.
    Queued,
}

/// What a prompt does while its prefix is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// It is queued for steps now, and computed towards its load.
    QueueNow,
    /// It waits for its part of the load.
    Wait,
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadOutlook {
    pub(super) stage: Stage,
    /// Tokens that tiers have and the device lacks; at least one block.
    pub(super) missing_tokens: u32,
    /// Tokens of a prompt that one step computes at most.
    pub(super) chunk_tokens: u32,
    /// Predicted seconds to compute the missing tokens. Infinite: no prompt was measured yet.
    pub(super) compute_s: f32,
    /// Predicted seconds to load them. 0: their tiers were not measured yet.
    pub(super) load_s: f32,
    /// The device has room for the missing tokens twice: for the whole prompt, and for the load until the two meet.
    pub(super) has_room: bool,
    /// A load in progress that delivers some of the missing tokens.
    pub(super) shared: Option<SharedLoad>,
    /// One more load may begin.
    pub(super) may_begin: bool,
    /// It is time to try tiers that were slower than computing, so that they are measured again.
    pub(super) probe_is_pending: bool,
}

/// Why a prompt is computed although tiers have a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComputeReason {
    /// Computing is predicted to be faster.
    Faster,
    /// There is no room for both, and the prompt does not wait, or waiting would take longer.
    NoRoom,
    /// No further load may begin.
    NoLoad,
}

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadPlan {
    /// Nothing is loaded.
    Compute(ComputeReason),
    /// The prompt shares a load that is in progress.
    Join(SharedLoad, Loading),
    /// Everything that tiers have is loaded.
    Begin(Loading),
    /// Computing is faster. As much as fits is loaded all the same, while the prompt is computed.
    Probe,
}

/// Decides whether a prompt is computed, loaded, or both.
pub(super) fn plan_load(outlook: &LoadOutlook) -> LoadPlan {
    let &LoadOutlook { stage, compute_s, load_s, has_room, .. } = outlook;
    let while_waiting = |loading| if stage == Stage::Waiting { loading } else { Loading::QueueNow };
    if let Some(shared) = outlook.shared {
        // A second load would read the same records again.
        let loading = if shared.is_waited_for { Loading::Wait } else { Loading::QueueNow };
        return LoadPlan::Join(shared, while_waiting(loading));
    }
    match FastestWay::of(outlook.missing_tokens, outlook.chunk_tokens, compute_s, load_s) {
        FastestWay::Compute if outlook.probe_is_pending && outlook.may_begin => LoadPlan::Probe,
        FastestWay::Compute => LoadPlan::Compute(ComputeReason::Faster),
        _ if !outlook.may_begin => LoadPlan::Compute(ComputeReason::NoLoad),
        FastestWay::Load if stage == Stage::Waiting => LoadPlan::Begin(Loading::Wait),
        _ if has_room => LoadPlan::Begin(Loading::QueueNow),
        FastestWay::Both if stage == Stage::Waiting && load_s < compute_s => LoadPlan::Begin(Loading::Wait),
        _ => LoadPlan::Compute(ComputeReason::NoRoom),
    }
}

/// How a prefix that the device lacks is there soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastestWay {
    /// It is computed.
    Compute,
    /// It is loaded, and its prompt waits.
    Load,
    /// Its head is computed while its tail is loaded.
    Both,
}

impl FastestWay {
    /// Compares the predicted seconds of computing alone and of loading alone, for a prefix of so many tokens.
    fn of(tokens: u32, chunk_tokens: u32, compute_s: f32, load_s: f32) -> Self {
        let head = head_tokens(tokens, compute_s, load_s);
        let tail = tokens - head;
        let least = chunk_tokens / CHUNK_PART;
        if head >= least && tail >= least.max(tokens / TAIL_PART) {
            Self::Both
        } else if load_s < compute_s {
            Self::Load
        } else {
            Self::Compute
        }
    }
}

#[cfg(test)]
mod tests;
