//! Why a fetch comes to nothing.

use super::FetchState;
use domain::session::Failure;

/// Why a fetch ended without a valid copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The fingerprint of the offer is that of another layout.
    #[error("the owner's KV has another layout")]
    LayoutDiffers,
    /// Blocks at the end are missing, or what was asked for is not all computed.
    #[error("the offer lacks blocks")]
    OfferIncomplete,
    /// The destination needs blocks that are neither held nor offered.
    #[error("the room that was found does not match the offer")]
    RoomDiffers,
    /// The owner gave the attempt up, or could not reach this worker.
    #[error("the owner withdrew its offer")]
    Withdrawn,
    /// The owner answered a renewal: the lease had ended before it came.
    #[error("the lease ended before everything was read")]
    LeaseOver,
    /// The owner left, or returned as another incarnation.
    #[error("the owner is gone")]
    OwnerLost,
    /// At least one transfer ended without all its bytes.
    #[error("a read failed")]
    ReadFailed,
    /// The owner's answer to the release: a lease that ended, a step that failed, or a block that was reused.
    #[error("the owner answered that the copy is not valid")]
    NotValid,
    /// A wait of the protocol reached its limit.
    #[error("the wait for {} took too long", awaited(*waiting_for))]
    TimedOut {
        /// Where the fetch stood.
        waiting_for: FetchState,
    },
    /// The request's own deadline passed.
    #[error("the request's deadline passed")]
    Deadline,
}

impl FetchError {
    /// Returns what the router is told: the one place where causes become codes of the wire format.
    pub fn failure(self) -> Failure {
        match self {
            Self::TimedOut { .. } => Failure::HandoffTimeout,
            Self::Deadline => Failure::Deadline,
            Self::LayoutDiffers
            | Self::OfferIncomplete
            | Self::RoomDiffers
            | Self::Withdrawn
            | Self::LeaseOver
            | Self::OwnerLost
            | Self::ReadFailed
            | Self::NotValid => Failure::HandoffLapsed,
        }
    }
}

fn awaited(state: FetchState) -> &'static str {
    match state {
        FetchState::Expecting => "the owner's offer",
        FetchState::WaitingRoom => "memory of this worker",
        FetchState::Reading => "the owner to compute, or for reads to end",
        FetchState::Answering => "the owner's answer to the release",
        FetchState::Quiescing | FetchState::Done => "nothing",
    }
}
