//! Why an end that connects is not served.

use super::hello::OTHER_SECRET;
use crate::agent::counts::Refusal;
use crate::agent::metadata::ImportError;
use crate::lanes::Lane;
use domain::{Incarnation, WorkerId};

/// Why an end that connects is not served. After its proof, the other end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// A process of another user connects, and no secret tells it from a peer.
    #[error("it is another user's process, and the cluster has no secret")]
    OtherUser,
    /// Its proof was made with another secret.
    #[error("{OTHER_SECRET}")]
    OtherSecret,
    /// It means another worker, or another life of this one.
    #[error("this is worker {} in its life {}, not {} in its life {}", own.0, own.1, meant.0, meant.1)]
    OtherWorker { own: (WorkerId, Incarnation), meant: (WorkerId, Incarnation) },
    /// It is an earlier life of a peer.
    #[error("a later life of that worker is known")]
    EarlierLife,
    /// Its regions have another layout, so the same offsets mean other things.
    #[error("{}", ImportError::Layout { theirs: *theirs, ours: *ours })]
    Layout { theirs: u64, ours: u64 },
    /// As many peers are connected as may be.
    #[error("too many peers are connected to it")]
    Full,
    /// The settings of this agent leave out the lane that it wants.
    #[error("transport.lanes forbids {0} there")]
    Forbidden(Lane),
    /// It did not prove itself in time.
    #[error("it kept silent")]
    Silent,
}

impl AdmissionError {
    /// The reason under which it is counted. `None`: it is no fault of the other end's.
    pub(super) fn refusal(self) -> Option<Refusal> {
        let refusal = match self {
            Self::OtherUser | Self::OtherSecret | Self::OtherWorker { .. } | Self::EarlierLife => Refusal::Identity,
            Self::Layout { .. } => Refusal::Layout,
            Self::Forbidden(_) => return None,
            Self::Full => Refusal::Crowd,
            Self::Silent => Refusal::Silence,
        };
        Some(refusal)
    }
}
