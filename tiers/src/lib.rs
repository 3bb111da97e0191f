#![doc = include_str!("../README.md")]

mod disk;
mod file_meters;
mod framed_store;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod host;
mod mover_thread;
mod object;
mod records;
#[cfg(test)]
mod rig;

pub use disk::{DiskConfig, DiskError, open_disk_tier};
pub use handle::TierHandle;
pub use host::{FolderError, HostConfig, HostError, Shared, open_host_tier};
pub use object::{StoreConfig, open_object_tier};
pub use records::Record;

use domain::{BlockHash, GroupId, SeqKey};
use kv_manager::tiers::{ReadEnd, Tier, TierConfig, TierLift, TierRead, TierRecord, TierWrite, WriteEnd};
use std::sync::Arc;
use std::time::Duration;
use transport::{Failure, Memory};

/// The longest that a prompt waits for a tier that brings no record of its load, nor of those before it; then it
/// is computed, and a tier that moved nothing meanwhile is off until it does.
pub const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);
/// Blocks that wait to be written to a tier.
const BACKLOG_MAX: usize = 4096;
/// Fewest slots that a tier of this host is worth having with.
const SLOTS_MIN: u64 = 4;

/// The worker that tiers are opened for, as they see it.
pub struct TierOwner {
    /// The pools of its device, one for each group.
    pub pools: Vec<Arc<dyn Memory>>,
    /// Where the threads of tiers report what they cannot handle.
    pub failure: Failure,
    /// Hears of each end, on the thread of a tier.
    pub ends: Arc<dyn Fn(TierEnd) + Send + Sync>,
}

/// What a worker asks of a tier. No call waits; each move ends with one [`TierEnd`] in the worker's inbox.
pub trait TierMover: Send {
    /// Begins to write a record.
    fn write(&mut self, write: TierWrite);

    /// Begins to read a record, for the load `key`.
    fn read(&mut self, key: SeqKey, read: TierRead);

    /// Begins to read a record for a prompt that waits for room; it comes with its [end](TierEnd::Lifted). Of a tier
    /// that nothing is lifted from nobody asks it.
    fn lift(&mut self, _prompt: SeqKey, lift: TierLift) {
        panic!("{lift:?} is from a tier that nothing is lifted from");
    }

    /// Begins to write a record that came so. Of a tier that nothing is lifted to nobody asks it.
    fn land(&mut self, _prompt: SeqKey, lift: TierLift, _record: Record) {
        panic!("{lift:?} is to a tier that nothing is lifted to");
    }

    /// The reads of the load, or of lifts for the prompt, shall end soon.
    fn cancel(&mut self, key: SeqKey);

    /// The prompt needs these records, from the first on, and nobody knows them to be there. A tier that others
    /// write to too looks for them and tells what it [found](TierEnd::Found); elsewhere there is nothing to find.
    fn seek(&mut self, _prompt: SeqKey, _chain: &[BlockHash]) {}
}

/// The end of a move, or of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierEnd {
    /// A record was written, or was not.
    Wrote {
        /// Which.
        write: TierWrite,
        /// How that ended.
        end: WriteEnd,
        /// How long it took, waiting included.
        elapsed: Duration,
    },
    /// A record was read, or was not.
    Read {
        /// For which load.
        key: SeqKey,
        /// Which.
        read: TierRead,
        /// How that ended.
        end: ReadEnd,
        /// How long it took, waiting included.
        elapsed: Duration,
    },
    /// A record was read to be lifted, or was not.
    Lifted {
        /// For which prompt.
        prompt: SeqKey,
        /// Which.
        lift: TierLift,
        /// How that ended.
        end: ReadEnd,
        /// The record, if that was good.
        record: Option<Record>,
        /// How long it took, waiting included.
        elapsed: Duration,
    },
    /// A record that was lifted was written, or was not.
    Landed {
        /// For which prompt.
        prompt: SeqKey,
        /// Which.
        lift: TierLift,
        /// It is in its place.
        there: bool,
        /// How long it took, waiting included.
        elapsed: Duration,
    },
    /// A read that was abandoned has left the tier.
    Settled {
        /// Which tier.
        tier: Tier,
        /// Something was read.
        moved: bool,
    },
    /// The tier fails: nothing is read or written there until it is on again.
    Off {
        /// Which.
        tier: Tier,
        /// Why, for people.
        reason: String,
    },
    /// The tier that failed does what it should again.
    On {
        /// Which.
        tier: Tier,
    },
    /// Others wrote to the tier.
    Learned {
        /// Which.
        tier: Tier,
        /// What is there.
        records: Vec<(GroupId, BlockHash)>,
    },
    /// What a prompt [looked for](TierMover::seek) is there.
    Found {
        /// Which.
        tier: Tier,
        /// For which prompt.
        prompt: SeqKey,
        /// What is there.
        records: Vec<(GroupId, BlockHash)>,
        /// There is no more to come.
        last: bool,
    },
    /// Others gave records of the tier up.
    Forgotten {
        /// Which.
        tier: Tier,
        /// What is not there any more.
        records: Vec<(GroupId, BlockHash)>,
    },
}

impl TierEnd {
    /// Which tier it is of.
    pub fn tier(&self) -> Tier {
        match self {
            Self::Wrote { write, .. } => write.place.tier,
            Self::Read { read, .. } => read.place.tier,
            Self::Lifted { lift, .. } => lift.from.tier,
            Self::Landed { lift, .. } => lift.to.tier,
            Self::Settled { tier, .. } | Self::Off { tier, .. } | Self::On { tier } => *tier,
            Self::Learned { tier, .. } | Self::Found { tier, .. } | Self::Forgotten { tier, .. } => *tier,
        }
    }
}

/// A tier that is open.
pub struct TierParts {
    /// Which.
    pub tier: Tier,
    /// What moves its bytes.
    pub mover: Box<dyn TierMover>,
    /// Its size and bounds.
    pub config: TierConfig,
    /// What it holds from an earlier life, the oldest first.
    pub records: Vec<TierRecord>,
}
