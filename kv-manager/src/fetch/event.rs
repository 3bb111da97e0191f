//! What a fetch is told: the owner's messages, and what became of room and reads.

use domain::handoff::Offer;
use domain::plan::BlockTable;
use domain::{Choice, StepId, Token};

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent {
    /// The owner's [`PeerBody::Queued`] for this attempt.
    Queued,
    /// The owner's offer for this attempt.
    Offer(Offer),
    /// The owner's [`PeerBody::Written`] for the lease.
    Written {
        /// The step that writes the positions.
        step: StepId,
        /// Positions below this are covered.
        tokens: u32,
    },
    /// The owner's [`PeerBody::Complete`] for the lease. Empty: the first token ended every choice.
    Complete {
        /// First token of each choice that goes on.
        first: Vec<(Choice, Token)>,
    },
    /// The owner's [`PeerBody::Withdraw`] for the lease.
    Withdraw,
    /// The room asked for is there: the destination was opened, with nothing left out.
    Room {
        /// The destination's blocks, one entry per group.
        tables: Vec<BlockTable>,
        /// Positions below this were held here already and need no reading; a multiple of the block size.
        held_tokens: u32,
    },
    /// Reads asked for have ended.
    ReadsEnded {
        /// How many of the pieces.
        pieces: u32,
        /// All of these arrived.
        ok: bool,
    },
    /// After [`FetchCommand::CancelReads`](super::FetchCommand::CancelReads): no read touches the destination any more.
    Quiesced,
    /// The owner's [`PeerBody::Released`] for the lease: the answer to its release, or, where it is not valid, to
    /// a renewal that came too late.
    Released {
        /// Whether what was read is valid.
        valid: bool,
    },
    /// The attempt is over for the router.
    Cancel,
    /// The owner is gone for good: it left, or came back with another incarnation.
    OwnerLost,
    /// Time went by: due at [`Fetch::next_deadline`](super::Fetch::next_deadline), harmless at any other time.
    Tick {
        /// Tick count of the reader's step loop, to go into renewals.
        ticks: u64,
    },
}
