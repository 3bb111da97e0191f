//! The tiers below the device: which of them holds which record, and which records are worth having there.
//!
//! `host` is memory, `neighbours` that of other workers of the host, `disk` files of this host, `object` a store
//! that others share. They decide alike ([`TierSlots`]); the log of what a disk holds ([`log`]) and the bytes of
//! records ([`header`]) are read and written by a shell, which says how each move ended. What is read is verified
//! by the shell before anybody relies on it, so an entry that is wrong costs time, never tokens.

mod backlog;
pub mod header;
pub mod log;
mod recently_sealed;
mod tier_slots;

use domain::{BlockHash, BlockRef, GroupId, Tenant};
pub(crate) use tier_slots::TierSlots;

/// A tier below the device. The first that has a record is the one that it is read from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// Memory of this host.
    Host,
    /// Memory of this host that other workers write.
    Neighbours,
    /// Files of this host.
    Disk,
    /// A store that is shared with others.
    Object,
}

impl Tier {
    /// All of them, the fastest first.
    pub const ALL: [Self; 4] = [Self::Host, Self::Neighbours, Self::Disk, Self::Object];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Neighbours => "neighbours",
            Self::Disk => "disk",
            Self::Object => "object",
        }
    }
}

/// When a sealed block is written to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WritePolicy {
    /// When it is sealed.
    Through,
    /// When it is used a second time, out of the cache or because it had to be computed again. A block that is never
    /// asked for again never takes the tier's time.
    #[default]
    SecondUse,
    /// When the device gets fuller than its high watermark: those go down that would be given up first, until it
    /// is no fuller than its low one. They stay on the device too, as the first to be given up there.
    Back,
    /// By others alone.
    Never,
}

/// Size and bounds of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// Slots of each KV group.
    pub slots: Vec<u32>,
    /// Records being written at once.
    pub writes_max: usize,
    /// Blocks that wait to be written. When full, one more is not written, and counted.
    pub backlog_max: usize,
    /// What is written.
    pub write: WritePolicy,
}

/// A place for one record of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// The group, which decides the record's size.
    pub group: GroupId,
    /// Which of the group's. In a store that names records by identity it says only which of the identities that are
    /// remembered this is.
    pub slot: u32,
}

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    /// In which tier.
    pub tier: Tier,
    /// Where in that.
    pub slot: Slot,
}

/// A record that a tier holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierRecord {
    /// Its place in the tier.
    pub slot: Slot,
    /// Its identity.
    pub hash: BlockHash,
    /// Whose it is, as far as that is known. The identity does not tell.
    pub tenant: Tenant,
}

/// A record shall be written: the bytes of `block`, which stay as they are until [`crate::KvManager::wrote`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierWrite {
    /// Where to.
    pub place: Place,
    /// From where.
    pub block: BlockRef,
    /// The record's identity.
    pub hash: BlockHash,
    /// Whose it is.
    pub tenant: Tenant,
}

/// A record shall be read into `block`, which is its reader's until it said how that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierRead {
    /// From where.
    pub place: Place,
    /// Where to.
    pub block: BlockRef,
    /// The identity that it must have.
    pub hash: BlockHash,
    /// Which block of the sequence it is.
    pub number: u32,
}

/// A record shall be read from a slower tier and written to the host tier, past the device: a prompt that waits for
/// room will need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierLift {
    /// From where.
    pub from: Place,
    /// Where to.
    pub to: Place,
    /// The identity that it must have.
    pub hash: BlockHash,
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteEnd {
    /// The record is there.
    Written,
    /// It is there, for another worker had written it.
    Existed,
    /// It is not there.
    Failed,
}

/// How a read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadEnd {
    /// The record was verified, and is in its block.
    Good,
    /// What is there is not that record.
    Wrong,
    /// There is nothing.
    Missing,
    /// What keeps it could not read it: it would fail the next one as well.
    Failed,
    /// It was not read; nothing is known of it.
    Unread,
    /// It was given up while it was under way: nothing is read into its block any more, whenever its tier is done
    /// with it.
    Abandoned,
}

/// Counts of a tier, in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TierStats {
    /// Slots: always `free + writing + held`.
    pub total: u32,
    /// That hold nothing.
    pub free: u32,
    /// Being written, by lifts too.
    pub writing: u32,
    /// That hold a record.
    pub held: u32,
    /// Blocks that wait to be written.
    pub backlog: u32,
    /// That prompts looked for and found here, in no faster tier, since the start.
    pub hits: u64,
    /// That prompts looked for here, having found them in no faster tier, and did not find, since the start.
    pub misses: u64,
    /// Written, since the start.
    pub written: u64,
    /// That others had written when they were to be written, since the start.
    pub existed: u64,
    /// Read and verified, since the start.
    pub read: u64,
    /// Given up for others as the order of uses says, since the start.
    pub evictions: u64,
    /// Given up for others since a tenant's quota named them, since the start.
    pub quota_evictions: u64,
    /// Not written though they should have been (too many wait, or every slot is in use), since the start.
    pub refused: u64,
    /// Not written since their tenant has its quota and all of that is in use, since the start.
    pub quota_refused: u64,
    /// Given to another use before they were written, though they should have been, since the start.
    pub late: u64,
    /// That failed to be written, or to be read, since the start.
    pub failed: u64,
    /// Found wrong when they were read, since the start.
    pub corrupt: u64,
    /// Found gone when they were read, since the start.
    pub missing: u64,
    /// Records that were not known here, that a prompt looked for, and that are there, since the start.
    pub found: u64,
    /// Lifted here from slower tiers, since the start.
    pub lifted: u64,
    /// Lifted here and never read for their prompt: it was gone, or needed them no more, or they were given up before,
    /// since the start.
    pub lifted_in_vain: u64,
    /// Bytes of the index of what is held and of the identities that were seen lately, about.
    pub index_bytes: u64,
    /// What they may become.
    pub index_bytes_max: u64,
}
