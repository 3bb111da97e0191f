//! Transfers: prepared once from lists of copies, posted, and ended exactly once.

use crate::hub::Station;
use crate::lane::Lane;
use crate::memory::{Memory, RegionId};
use domain::WorkerId;
use std::sync::Arc;

/// One contiguous read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Byte offset in the peer's region.
    pub from: u64,
    /// Byte offset in the caller's region.
    pub to: u64,
}

/// Copies of one length from one region of a peer into one of the caller's, that may begin at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBatch {
    /// The peer's region.
    pub source: RegionId,
    /// The caller's.
    pub destination: RegionId,
    /// Bytes of each copy.
    pub len: usize,
    /// The peer's progress word must have reached this; 0: at once.
    pub gate: u64,
    /// From where to where.
    pub copies: Vec<Copy>,
}

/// A [`ReadBatch`] with its regions found.
pub(crate) struct Batch {
    pub(crate) source: Arc<dyn Memory>,
    pub(crate) destination: Arc<dyn Memory>,
    /// The peer's progress word must have reached this.
    pub(crate) gate: u64,
    /// Bytes of each copy.
    pub(crate) len: usize,
    pub(crate) copies: Vec<Copy>,
}

/// A prepared transfer: checked against the bounds of its regions, holding them mapped.
pub struct Transfer {
    pub(crate) station: Arc<Station>,
    pub(crate) lane: Lane,
    pub(crate) batches: Vec<Batch>,
    pub(crate) bytes: u64,
}

impl Transfer {
    /// Bytes that it will read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lane it will take.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

/// Collects the batches of a transfer.
pub(crate) struct TransferBuilder {
    pub(crate) peer: WorkerId,
    pub(crate) station: Arc<Station>,
    pub(crate) own: Arc<Station>,
    pub(crate) lane: Lane,
    pub(crate) batches: Vec<Batch>,
}

impl TransferBuilder {
    /// Adds copies of `len` bytes each from the peer's region `source` to the caller's region `destination`, that may
    /// begin once the peer's progress word has reached `gate` (0: at once). Batches are read in order of addition.
    pub(crate) fn batch(
        &mut self,
        source: RegionId,
        destination: RegionId,
        len: usize,
        gate: u64,
        copies: Vec<Copy>,
    ) -> Result<&mut Self, PrepareError> {
        let from =
            self.station.region(source).ok_or(PrepareError::NoRegion { peer: Some(self.peer), region: source })?;
        let to = self.own.region(destination).ok_or(PrepareError::NoRegion { peer: None, region: destination })?;
        let inside = |offset: u64, memory: &Arc<dyn Memory>| {
            offset.checked_add(len as u64).is_some_and(|end| end <= memory.len() as u64)
        };
        for &copy in &copies {
            if !inside(copy.from, &from) || !inside(copy.to, &to) {
                return Err(PrepareError::OutOfBounds { copy, len });
            }
        }
        self.batches.push(Batch { source: from, destination: to, gate, len, copies });
        Ok(self)
    }

    /// The transfer.
    pub(crate) fn build(self) -> Transfer {
        let bytes = self.batches.iter().map(|batch| (batch.len * batch.copies.len()) as u64).sum();
        Transfer { station: self.station, lane: self.lane, batches: self.batches, bytes }
    }
}

/// Why a transfer could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The peer is not connected.
    #[error("worker {0} is not connected")]
    NotConnected(WorkerId),
    /// A region that was never registered.
    #[error("region {region:?} is not registered by {}", peer.map_or("this agent".to_owned(), |id| id.to_string()))]
    NoRegion {
        /// Whose; `None`: the caller's own.
        peer: Option<WorkerId>,
        /// Which.
        region: RegionId,
    },
    /// A copy that leaves its region.
    #[error("the copy of {len} bytes from offset {} to offset {} leaves its region", copy.from, copy.to)]
    OutOfBounds {
        /// The copy.
        copy: Copy,
        /// Its bytes.
        len: usize,
    },
}

/// Why a transfer was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many transfers as the agent takes are posted and not ended.
    #[error("{0} transfers are posted already; wait for one to end")]
    Full(usize),
    /// The agent was shut down.
    #[error("the agent is shut down")]
    Closed,
}
