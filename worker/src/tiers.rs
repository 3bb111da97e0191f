//! The tiers below the device: prompts whose prefix lies in them wait for it instead of being computed, where that is predicted to
//! be faster, and blocks are written as `kv-manager` wants them to be.
//!
//! [`DiskTier`] moves the bytes. What is deliberately absent: which blocks are worth keeping, which is the core's.

mod disk;
mod loads;

pub use disk::{DiskConfig, DiskError, DiskTier};
pub(crate) use loads::{Load, Loads};

use crate::core::Core;
use domain::{BlockHash, Choice, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, Slot, Tier, TierConfig, TierRead, TierWrite, WriteEnd};
use scheduler::Job;
use std::time::Duration;

/// The choice under which a prefix is loaded, before its prompt is queued.
const LOAD: Choice = Choice(u16::MAX - 1);
/// Prompts that wait for a tier at once; one more is computed.
const LOADS_MAX: usize = 256;
/// The longest that a prompt waits for a tier; then it is computed.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);

/// What a worker asks of a tier. [`DiskTier`] is one; a simulation brings its own. No call waits; each move ends with one
/// [`TierEnd`] in the worker's inbox.
pub trait TierMover: Send {
    /// Begins to write a record.
    fn write(&mut self, write: TierWrite);

    /// Begins to read a record, for the load `key`.
    fn read(&mut self, key: SeqKey, read: TierRead);

    /// The reads of the load shall end soon.
    fn cancel(&mut self, key: SeqKey);
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
    /// The tier fails: nothing is read or written any more.
    Off {
        /// Which.
        tier: Tier,
        /// Why, for people.
        reason: String,
    },
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
    pub records: Vec<(Slot, BlockHash)>,
}

impl Core {
    /// Gives the worker a tier.
    pub(crate) fn add_tier(&mut self, parts: TierParts) {
        let TierParts { tier, mover, config, records } = parts;
        self.kv.add_tier(tier, config, &records);
        self.tiers.insert(tier, mover);
        self.meters.tiers.show(tier);
    }

    /// Begins to write what is to be written.
    pub(crate) fn write_to_tiers(&mut self) {
        while let Some(write) = self.kv.next_write() {
            self.mover(write.place.tier).write(write);
        }
    }

    /// Begins to load the prefix of a prompt, where tiers have more of it than the device and reading that is predicted to take
    /// less time than computing it. Whether it did: then the prompt is queued when it is there.
    pub(crate) fn load(&mut self, now: Time, job: &Job) -> bool {
        let key = SeqKey { choice: LOAD, ..job.key };
        let Some(sequence) = self.sequences.get(&job.key) else { return false };
        if self.tiers.is_empty() || self.loads.len() == LOADS_MAX || self.loads.contains(key) {
            return false;
        }
        // The last token is computed in any case: the first one that is sampled depends on it.
        let blocks = (job.tokens.saturating_sub(1) / self.config.layout.block_tokens) as usize;
        let chain = &sequence.chain[..blocks.min(sequence.chain.len())];
        self.kv.count_lookups(chain);
        let (cached, loadable) = (self.kv.cached_tokens(chain), self.kv.loadable_tokens(chain));
        let sources = self.kv.sources(chain, loadable);
        let bytes = |tier| {
            let records = sources.iter().filter(move |(source, _)| *source == tier);
            records.map(|(_, group)| self.config.layout.record_bytes(usize::from(group.0)) as u64).sum::<u64>()
        };
        let bytes = Tier::ALL.map(|tier| (tier, bytes(tier)));
        if loadable == cached || !self.rates.loads_faster(loadable - cached, &bytes) {
            return false;
        }
        let Some(reads) = self.kv.load(key, chain, loadable) else { return false };
        let good = loadable / self.config.layout.block_tokens;
        self.loads.begin(key, Load::new(*job, chain.to_vec(), &reads, good, cached, bytes, now), now + LOAD_WAIT_MAX);
        reads.iter().for_each(|&read| self.mover(read.place.tier).read(key, read));
        self.end_load(now, key);
        true
    }

    /// A move ended, or a tier did.
    pub(crate) fn tier_ended(&mut self, now: Time, end: TierEnd) {
        match end {
            TierEnd::Wrote { write, end, elapsed } => {
                self.kv.wrote(write.place, end);
                let bytes = self.config.layout.record_bytes(usize::from(write.block.group.0));
                self.meters.tiers.wrote(write.place.tier, end, bytes as u64, elapsed);
            }
            TierEnd::Read { key, read, end, elapsed } => {
                let bytes = self.config.layout.record_bytes(usize::from(read.block.group.0));
                self.meters.tiers.read(read.place.tier, end, bytes as u64, elapsed);
                let load = self.loads.get_mut(key).expect("a load is there until its reads have ended");
                self.kv.read_ended(&read, &load.chain, end);
                if let Some(bytes) = load.ended(&read, end == ReadEnd::Good) {
                    self.rates.load(read.place.tier, bytes, now.since(load.begun));
                }
                self.end_load(now, key);
            }
            TierEnd::Off { tier, reason } => {
                let (worker, tier_name) = (&self.config.name, tier.name());
                tracing::error!(worker, tier = tier_name, reason, "a tier is off: the service goes on without it");
                self.kv.close_tier(tier);
                self.meters.tiers.open(tier, false);
            }
        }
        self.write_to_tiers();
    }

    /// Ends the load, if all its reads have ended: what came was cached one by one, and the prompt is queued.
    fn end_load(&mut self, now: Time, key: SeqKey) {
        let Some(load) = self.loads.end(key) else { return };
        let block_tokens = self.config.layout.block_tokens;
        let tokens = load.good * block_tokens;
        self.kv.close(key);
        if tokens > load.cached {
            for tier in Tier::ALL {
                self.meters.tiers.loaded_tokens(tier, load.came_from(tier) * block_tokens);
            }
            self.meters.tiers.load_time(now.since(load.begun));
        }
        if let Some(job) = load.job {
            self.add_job(job);
        }
    }

    /// Queues prompts that have waited too long for a tier.
    pub(crate) fn tick_loads(&mut self, now: Time) {
        while let Some((key, job)) = self.loads.overdue(now) {
            tracing::warn!(worker = self.config.name, request = %key.request, "a tier takes too long; the prompt is computed");
            self.tiers.values_mut().for_each(|mover| mover.cancel(key));
            if let Some(job) = job {
                self.add_job(job);
            }
        }
    }

    /// The prompt of a load is not wanted any more.
    pub(crate) fn drop_load(&mut self, key: SeqKey) {
        let load = SeqKey { choice: LOAD, ..key };
        if self.loads.forget(load, key) {
            self.tiers.values_mut().for_each(|mover| mover.cancel(load));
        }
    }

    fn mover(&mut self, tier: Tier) -> &mut dyn TierMover {
        &mut **self.tiers.get_mut(&tier).expect("the manager moves in tiers that it was given")
    }
}
