//! What an agent tells its owner: messages of peers, who is connected, and the one end of each transfer.

use crate::lanes::{Lane, LaneStatus};
use crate::transfer::run_times::RunTime;
use domain::WorkerId;
use std::time::Duration;

/// What an agent tells its owner.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// A message of a peer.
    Message {
        /// The peer that sent it.
        from: WorkerId,
        /// As the peer gave them to [`Agent::send`](crate::Agent::send).
        bytes: Vec<u8>,
    },
    /// A posted transfer ended.
    Ended(Completion),
    /// A peer is connected: it may be read. Said again when another lane is taken to it.
    Connected {
        /// The peer's id.
        peer: WorkerId,
        /// The lane taken.
        status: LaneStatus,
    },
    /// A peer could not be connected, or its connection broke. It is tried again when it is used again.
    Lost {
        /// The peer's id.
        peer: WorkerId,
        /// Why, for people.
        reason: String,
    },
}

/// A posted transfer of one agent. Never reused by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// The one end of a posted transfer: after it, the destination is not touched any more (it is quiesced).
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// As [`Agent::post`](crate::Agent::post) returned it.
    pub id: TransferId,
    /// All bytes are there, or why not.
    pub result: Result<TransferReport, TransferError>,
    /// When its parts came, in the order of their gates: at most [`RUN_TIMES_MAX`](crate::RUN_TIMES_MAX). Empty where
    /// it was not [`timed`](crate::Prepared::timed).
    pub runs: Vec<RunTime>,
}

/// What a transfer did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferReport {
    /// The lane taken.
    pub lane: Lane,
    /// What its bytes came over side by side: devices of `rdma`, connections of `tcp`; elsewhere 1.
    pub rails: u16,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes that came over the lane for them: fewer where KV came encoded, more where a rail failed and its part
    /// was read again.
    pub wire_bytes: u64,
    /// From post to the first byte: gates and other transfers.
    pub queued: Duration,
    /// Time inside copies, or in which its bytes arrived and were decoded.
    pub wire: Duration,
    /// From post to end.
    pub elapsed: Duration,
}

/// Why a transfer did not bring all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The caller cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The owner of the source left, or the connection to it broke.
    #[error("the owner of the source is gone")]
    PeerGone,
    /// Its owner deregistered the region that it reads.
    #[error("the owner of the source has withdrawn the region")]
    Withdrawn,
    /// A thread of the agent, or of the worker whose agent it is, failed ([`crate::Failure`]), and nothing is read
    /// any more.
    #[error("the worker has failed, as its log says")]
    Failed,
    /// A copier of an end's device copies nothing any more, as the log says.
    #[error("a device is lost, as the log says")]
    DeviceLost,
    /// Bytes that arrived did not match their checksum.
    #[error("the bytes do not match their checksum")]
    Corrupted,
}
