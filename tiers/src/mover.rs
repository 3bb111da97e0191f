//! What a worker asks of a tier, and what the tier reports.

use crate::records::Record;
use domain::{BlockHash, GroupId, SeqKey};
use kv_manager::tiers::{ReadEnd, Tier, TierConfig, TierLift, TierRead, TierRecord, TierWrite, WriteEnd};
use std::sync::Arc;
use std::time::Duration;
use transport::{Failure, Memory};

/// The longest that a prompt waits for a tier that delivers no record of its load, nor of earlier loads. Then the
/// prompt is computed, and a tier that moved nothing meanwhile is off until it moves something.
pub const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);
/// Blocks that wait to be written to a tier, at most.
pub(super) const BACKLOG_MAX: usize = 4096;
/// A tier of this host with fewer slots of each group is refused.
pub(super) const SLOTS_MIN: u64 = 4;

/// The worker that tiers are opened for, as they see it.
pub struct TierOwner {
    /// The pools of its device, one for each group.
    pub pools: Vec<Arc<dyn Memory>>,
    /// Where the threads of tiers report what they cannot handle.
    pub failure: Failure,
    /// Takes each event, on the thread of a tier.
    pub events: Arc<dyn Fn(TierEvent) + Send + Sync>,
}

/// What a worker asks of a tier. No call waits. Each move ends with one [`TierEvent`] in the worker's inbox.
pub trait TierMover: Send {
    /// Begins to write a record.
    fn write(&mut self, write: TierWrite);

    /// Begins to read a record, for the load `key`.
    fn read(&mut self, key: SeqKey, read: TierRead);

    /// Begins to read a record for a prompt that waits for room. The record comes with [`TierEvent::Lifted`]. Never
    /// called on a tier that is not a lift source.
    fn lift(&mut self, _prompt: SeqKey, lift: TierLift) {
        panic!("{lift:?} is from a tier that nothing is lifted from");
    }

    /// Begins to write a record that was lifted. Never called on a tier that is not a lift target.
    fn land(&mut self, _prompt: SeqKey, lift: TierLift, _record: Record) {
        panic!("{lift:?} is to a tier that nothing is lifted to");
    }

    /// Makes the reads of a load, or of lifts for a prompt, end soon.
    fn cancel(&mut self, key: SeqKey);

    /// Looks for records of a prompt, from the first on, that no index of the worker has. A tier that other workers
    /// write to, too, reports them with [`TierEvent::Found`]. In other tiers there is nothing to find.
    fn look_up(&mut self, _prompt: SeqKey, _chain: &[BlockHash]) {}
}

/// What a tier reports: the end of a move, or a change of the tier itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierEvent {
    /// A write has ended.
    Wrote {
        /// The write, as it was asked for.
        write: TierWrite,
        /// How it ended.
        end: WriteEnd,
        /// Time since it was asked for.
        elapsed: Duration,
    },
    /// A read has ended.
    Read {
        /// The load that it is part of.
        key: SeqKey,
        /// The read, as it was asked for.
        read: TierRead,
        /// How it ended.
        end: ReadEnd,
        /// Time since it was asked for.
        elapsed: Duration,
    },
    /// The read of a lift has ended.
    Lifted {
        /// The prompt that will need the record.
        prompt: SeqKey,
        /// The lift, as it was asked for.
        lift: TierLift,
        /// How its read ended.
        end: ReadEnd,
        /// The record. `None`: the read was not good.
        record: Option<Record>,
        /// Time since it was asked for.
        elapsed: Duration,
    },
    /// The write of a lift has ended.
    Landed {
        /// The prompt that will need the record.
        prompt: SeqKey,
        /// The lift, as it was asked for.
        lift: TierLift,
        /// The record is in its place.
        there: bool,
        /// Time since the write was asked for.
        elapsed: Duration,
    },
    /// A read that was abandoned has left the tier.
    Settled {
        /// The tier that it was in.
        tier: Tier,
        /// It read something.
        moved: bool,
    },
    /// The tier fails. Nothing is read or written there until it is on again.
    Off {
        /// The tier that fails.
        tier: Tier,
        /// The cause, for the log.
        reason: String,
    },
    /// A tier that failed works again.
    On {
        /// The tier that works.
        tier: Tier,
    },
    /// Other workers wrote to the tier.
    Learned {
        /// The tier that they wrote to.
        tier: Tier,
        /// Records that are there.
        records: Vec<(GroupId, BlockHash)>,
    },
    /// Some of what a prompt [needs](TierMover::look_up) is there, or the lookup is over.
    Found {
        /// The tier that was asked.
        tier: Tier,
        /// The prompt that needs the records.
        prompt: SeqKey,
        /// Records that are there.
        records: Vec<(GroupId, BlockHash)>,
        /// The lookup is over.
        last: bool,
    },
    /// Other workers removed records from the tier.
    Forgotten {
        /// The tier that they were in.
        tier: Tier,
        /// Records that are there no longer.
        records: Vec<(GroupId, BlockHash)>,
    },
}

impl TierEvent {
    /// Returns the tier that reports it.
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

/// An open tier.
pub struct TierParts {
    /// The tier's place in the order of tiers.
    pub tier: Tier,
    /// What moves its bytes.
    pub mover: Box<dyn TierMover>,
    /// Its size and bounds.
    pub config: TierConfig,
    /// What it holds from an earlier run, the oldest first.
    pub records: Vec<TierRecord>,
}
