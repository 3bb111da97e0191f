//! What a KV manager is told at start: sizes, bounds and the policy of eviction.

use crate::tiers::Tier;
use std::time::Duration;

/// Size and window of one KV group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Blocks in the group's pool.
    pub blocks: u32,
    /// Blocks that opening a sequence leaves available, so that running sequences can grow. Waived while no sequence
    /// is open: then there is none to keep them for.
    pub reserve_blocks: u32,
    /// Sliding window in tokens, at least 1: position `p` attends to `p - window + 1 ..= p`. `None`: full attention.
    pub window: Option<u32>,
}

impl GroupConfig {
    /// Returns the number of blocks that pins may name, given the share of the pool.
    pub(crate) fn pinned_max(&self, percent: u32) -> usize {
        (u64::from(self.blocks) * u64::from(percent) / 100) as usize
    }

    /// Returns how many blocks (of `block_tokens` positions) a window covers at most, wherever it begins. `None`: it
    /// has none.
    pub(crate) fn window_blocks(&self, block_tokens: u32) -> Option<u32> {
        self.window.map(|window| window_blocks(window, block_tokens))
    }

    /// Returns the first block (of `block_tokens` positions) that a query at `position` attends to.
    pub(crate) fn first_needed(&self, position: u32, block_tokens: u32) -> u32 {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window) / block_tokens)
    }
}

/// Returns how many blocks (of `block_tokens` positions) `window` positions cover at most, wherever they begin.
pub(crate) fn window_blocks(window: u32, block_tokens: u32) -> u32 {
    (window - 1).div_ceil(block_tokens) + 1
}

/// Which of the cached blocks that no sequence uses goes first when room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// The least recently used.
    Lru,
    /// S3-FIFO: those that were used once go early, so that they do not push out what is used again and again.
    S3Fifo,
    /// The least recently used of those that no other one continues. Groups with a window go by `Lru`.
    Tree,
}

/// Between which shares of a pool write-back keeps the blocks that are neither free nor on their way to a lower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Above it blocks go down, in percent of the pool.
    pub high_percent: u32,
    /// Until no more than this are left, in percent of the pool. At most the high one.
    pub low_percent: u32,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self { high_percent: 90, low_percent: 80 }
    }
}

impl Watermarks {
    /// Returns the high and the low mark of a pool of `total` blocks, in blocks.
    pub(crate) fn blocks(self, total: u32) -> (u32, u32) {
        let share = |percent: u32| (u64::from(total) * u64::from(percent) / 100) as u32;
        (share(self.high_percent), share(self.low_percent))
    }
}

/// The share of a place that is a tenant's quota, in percent. When room is needed, a tenant that has as much as its
/// quota gives up its own blocks before those of others. It may use more as long as no other tenant wants the room.
/// 100: there are no quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Of each pool of the device, whatever state the blocks are in. Only blocks that are cached and that no sequence
    /// uses can be given up. So the quota does not bound what a tenant uses at once.
    pub device_percent: u32,
    /// Of the slots of the host tier.
    pub host_percent: u32,
    /// Of the slots of the disk tier.
    pub disk_percent: u32,
    /// Of the objects that are remembered to be there.
    pub object_percent: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { device_percent: 100, host_percent: 100, disk_percent: 100, object_percent: 100 }
    }
}

impl Quotas {
    /// Returns the quota in a tier. What other workers write has none here, because they have quotas of their own.
    pub(crate) fn of(self, tier: Tier) -> u32 {
        match tier {
            Tier::Host => self.host_percent,
            Tier::Neighbours => 100,
            Tier::Disk => self.disk_percent,
            Tier::Object => self.object_percent,
        }
    }
}

/// Sizes and bounds of a [`crate::KvManager`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvConfig {
    /// Tokens per block, in all groups.
    pub block_tokens: u32,
    /// Most positions of a prompt that one step computes. So many, and the window before them, are all that a prompt
    /// in progress has in a windowed group, next to its last window.
    pub chunk_tokens: u32,
    /// The KV groups; a [`domain::GroupId`] is an index into them.
    pub groups: Vec<GroupConfig>,
    /// Which cached blocks go first, in every group.
    pub eviction: EvictionPolicy,
    /// When blocks go to tiers that are written back.
    pub watermarks: Watermarks,
    /// Most of a group's blocks that pins may name, in percent of its pool. So much less is left to the longest
    /// sequence.
    pub pinned_percent: u32,
    /// What tenants take from each other, in every group.
    pub quotas: Quotas,
    /// A block that was not used for so long is parked: it leaves the device for the lowest tier of this host. `None`:
    /// never.
    pub park_after: Option<Duration>,
    /// Bound of the release answers kept until acknowledged. When full, the oldest is forgotten, and a repeated
    /// release of that lease is answered as invalid.
    pub answers_max: usize,
    /// Bound of live leases. When full, nothing more is offered.
    pub leases_max: usize,
}
