//! What went wrong, counted by an agent since its start.

use std::sync::atomic::{AtomicU64, Ordering};

/// What went wrong since the start of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Connections refused or closed for what they sent: not our protocol, another version, no or another secret, an
    /// earlier life, lengths beyond the limits, requests beyond the memory.
    pub refused: u64,
    /// Reads that ended because their bytes did not match their checksum.
    pub corrupted: u64,
    /// Messages of peers that the sink did not take.
    pub dropped_messages: u64,
    /// Connections to peers that broke or could not be made.
    pub lost: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) refused: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) lost: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> AgentCounts {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AgentCounts {
            refused: now(&self.refused),
            corrupted: now(&self.corrupted),
            dropped_messages: now(&self.dropped_messages),
            lost: now(&self.lost),
        }
    }
}
