//! What the owner of blocks and their reader tell each other. Plain data; `proto` gives it bytes.
//!
//! The owner never writes into the reader's memory: it offers, says what is written, and answers a release. The
//! reader reads, releases, and learns from the answer whether what it read is valid.

use crate::block::{BlockHash, Tenant};
use crate::ids::{BlockId, Choice, Epoch, Generation, Incarnation, LeaseId, RequestId, StepId, Token, WorkerId};
use std::time::Duration;

/// A message between two workers, with the lives of both ends: a message to or from an earlier life is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// Who sends.
    pub from: WorkerId,
    /// Which life of the sender.
    pub from_incarnation: Incarnation,
    /// Which life of the receiver the sender means; `None` before it knows one.
    pub to_incarnation: Option<Incarnation>,
    /// The message itself.
    pub body: PeerBody,
}

/// The messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerBody {
    /// Reader to holder: offer me what you have of this prefix.
    Ask(Ask),
    /// Holder to reader: there is nothing of it to offer, or no lease to be had.
    Decline {
        /// The request that was asked for.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
    },
    /// Reader to owner: I expect your offer of this attempt's prompt, for long already. Do you have it still?
    Expect {
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
    },
    /// Owner to reader: I have it, and it waits for its turn. Who has it not, or offered it, says nothing.
    Queued {
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
    },
    /// Owner to reader: these blocks will hold those tokens.
    Offer(Offer),
    /// Owner to reader: positions below `tokens` are written once step `step` passed the layer asked for.
    Written {
        /// The lease.
        lease: LeaseId,
        /// The step that writes the positions from the last `Written`'s (or the offer's) up to here.
        step: StepId,
        /// Positions below this are covered. A multiple of the block size, or the offer's `tokens`.
        tokens: u32,
    },
    /// Owner to reader: the prompt is computed; this is what was sampled.
    Complete {
        /// The lease.
        lease: LeaseId,
        /// Output tokens that the offer covers and the reader was not told of by its router, in order: those that
        /// a migrating sequence got meanwhile. Empty for a prompt.
        missing: Vec<Token>,
        /// The next token of each choice; a choice that it ended already is not among them.
        first: Vec<(Choice, Token)>,
    },
    /// Owner to reader: the offer is void (a step failed, the attempt was cancelled).
    Withdraw {
        /// The lease.
        lease: LeaseId,
    },
    /// Reader to owner: keep the lease alive. Revives nothing: where it is over, the owner answers as to a release.
    Renew {
        /// The lease.
        lease: LeaseId,
        /// Ticks of the reader's step loop; a renewal whose count stands still renews nothing.
        ticks: u64,
    },
    /// Reader to owner: my reads have ended. Repeated until answered.
    Release {
        /// The lease.
        lease: LeaseId,
    },
    /// Owner to reader: whether what was read under the lease is valid. Unasked for, that it is not: a renewal
    /// came too late.
    Released {
        /// The lease.
        lease: LeaseId,
        /// The lease was alive at the release, no block of the offer changed its generation, and the steps that wrote
        /// them succeeded. A lease that this life of the owner never gave is answered `false`.
        valid: bool,
    },
    /// Reader to owner: the answer arrived and may be forgotten.
    ReleaseAck {
        /// The lease.
        lease: LeaseId,
    },
}

impl PeerBody {
    /// The message's name, for logs and tests.
    pub fn name(&self) -> &'static str {
        match self {
            PeerBody::Ask(_) => "ask",
            PeerBody::Decline { .. } => "decline",
            PeerBody::Expect { .. } => "expect",
            PeerBody::Queued { .. } => "queued",
            PeerBody::Offer(_) => "offer",
            PeerBody::Written { .. } => "written",
            PeerBody::Complete { .. } => "complete",
            PeerBody::Withdraw { .. } => "withdraw",
            PeerBody::Renew { .. } => "renew",
            PeerBody::Release { .. } => "release",
            PeerBody::Released { .. } => "released",
            PeerBody::ReleaseAck { .. } => "release_ack",
        }
    }
}

/// What a reader wants of a worker that is said to hold the prefix of its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The request whose prompt begins so.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// How long the lease shall live without renewal.
    pub lease: Duration,
    /// How long it is worth waiting for what the holder has to load before it can offer it.
    pub wait: Duration,
    /// Whose prompt it is: what is loaded for it counts as this tenant's.
    pub tenant: Tenant,
    /// Identities of the prefix's blocks; the offer is of as many of the first as are cached, or were loaded in time.
    pub chain: Vec<BlockHash>,
}

/// The owner's promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The request.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// The lease on all the blocks below.
    pub lease: LeaseId,
    /// How long the lease lives without renewal.
    pub duration: Duration,
    /// Layout fingerprint; a reader with another refuses.
    pub layout: u64,
    /// Positions that the blocks will hold in the end: the length of the attempt's prompt, or of the part of it
    /// that was asked for and is cached.
    pub tokens: u32,
    /// Positions below this are written and validated already.
    pub ready: u32,
    /// One entry per KV group.
    pub groups: Vec<OfferedGroup>,
}

/// Blocks of one KV group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OfferedGroup {
    /// Which block of the sequence `blocks[0]` is: larger than zero where earlier ones are out of the window.
    pub first: u32,
    /// The owner's blocks and their generations.
    pub blocks: Vec<(BlockId, Generation)>,
}
