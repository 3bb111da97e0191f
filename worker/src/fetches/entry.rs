//! One fetch of a worker.

use domain::planted_bugs::{self, Bug};
use domain::{Epoch, RequestId, SeqKey, Time, Token, WorkerId};
use kv_manager::{Fetch, FetchError, FetchState, Piece};
use std::ops::Range;
use std::time::Duration;
use transport::TransferId;

/// The lane of a fetch that has read nothing, for metrics.
pub(super) const LANE_NONE: &str = "none";

/// What a fetch brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchKind {
    /// A prompt that its owner computes, to go on with.
    Prompt,
    /// A sequence that decodes at its owner meanwhile, which may be ahead of what is known here.
    Running,
    /// The beginning of a prompt that is to be computed here.
    Prefix,
}

/// Where a fetch stands.
#[derive(Clone, Copy, Debug)]
pub struct FetchProgress<'a> {
    /// The request.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// What it brings.
    pub kind: FetchKind,
    /// The machine's state.
    pub state: FetchState,
    /// When the owner last said that the prompt waits in its queue.
    pub queued: Option<Time>,
    /// The owner has computed all of it.
    pub complete: bool,
    /// Transfers posted and not ended.
    pub transfers: &'a [TransferId],
}

/// An open fetch: its machine, and what its worker knows of it.
pub(super) struct Entry {
    pub(super) machine: Fetch,
    /// Its entry among the deadlines.
    pub(super) due: Option<Time>,
    pub(super) owner: WorkerId,
    pub(super) key: SeqKey,
    pub(super) kind: FetchKind,
    /// Sequences that go on with it.
    pub(super) choices: u16,
    /// Output tokens that were not known here when it began.
    pub(super) missing: Vec<Token>,
    /// Pieces to be read once the owner is connected.
    pub(super) unposted: Vec<Vec<Piece>>,
    /// Transfers posted and not ended.
    pub(super) transfers: Vec<TransferId>,
    /// The machine cancelled its reads and waits for them to end.
    pub(super) cancelling: bool,
    /// The router gave the attempt up before it ended here.
    pub(super) cancelled: bool,
    /// A read failed here, and not at its owner.
    pub(super) failed_here: bool,
    pub(super) lane: &'static str,
    /// Positions of the prefix that was asked for.
    pub(super) asked: u32,
    /// Positions of the offer, once it is there.
    pub(super) tokens: Option<u32>,
    /// Positions below this were here before.
    pub(super) held: u32,
    /// Blocks of the prefix that came, and how long after the prompt.
    pub(super) came: Option<(Range<u32>, Duration)>,
    pub(super) completed: Option<Time>,
}

impl Entry {
    pub(super) fn new(machine: Fetch, key: SeqKey, owner: WorkerId, kind: FetchKind, choices: u16) -> Self {
        Self {
            machine,
            due: None,
            owner,
            key,
            kind,
            choices,
            missing: Vec::new(),
            unposted: Vec::new(),
            transfers: Vec::new(),
            cancelling: false,
            cancelled: false,
            failed_here: false,
            lane: LANE_NONE,
            asked: 0,
            tokens: None,
            held: 0,
            came: None,
            completed: None,
        }
    }

    /// Returns the worker that did not do its part, if another one did not: the owner, except where the wait was for
    /// room here, a read failed here, the lease was not renewed in time, or the client's time is over.
    pub(super) fn fault(&self, error: FetchError) -> Option<WorkerId> {
        let own = match error {
            FetchError::TimedOut { waiting_for } => waiting_for == FetchState::WaitingRoom,
            FetchError::LeaseOver | FetchError::NotValid | FetchError::Deadline => true,
            FetchError::ReadFailed => self.failed_here,
            _ => false,
        };
        (own == planted_bugs::is(Bug::WrongPeerBlamed)).then_some(self.owner)
    }

    /// Returns how far it is, for tests and metrics.
    pub(super) fn progress(&self) -> FetchProgress<'_> {
        FetchProgress {
            request: self.key.request,
            epoch: self.key.epoch,
            kind: self.kind,
            state: self.machine.state(),
            queued: self.machine.queued(),
            complete: self.machine.is_complete(),
            transfers: &self.transfers,
        }
    }
}
