//! The disk tier: prompts whose prefix lies there wait for it instead of being computed, where that is predicted to be faster,
//! and blocks are written as `kv-manager` wants them to be.
//!
//! [`FileTier`] moves the bytes. What is deliberately absent: which blocks are worth keeping, which is the core's.

mod loads;
mod log;
mod shelves;
mod thread;
mod tier;

pub(crate) use loads::{Load, Loads};
pub use tier::{FileTier, TierConfig, TierError};

use crate::core::Core;
use domain::{BlockHash, Choice, SeqKey, Time};
use kv_manager::disk::{DiskConfig, DiskRead, DiskWrite, Slot};
use scheduler::Job;
use std::time::Duration;

/// The choice under which a prefix is loaded, before its prompt is queued.
const LOAD: Choice = Choice(u16::MAX - 1);
/// Prompts that wait for the disk at once; one more is computed.
const LOADS_MAX: usize = 256;
/// The longest that a prompt waits for the disk; then it is computed.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);

/// What a worker asks of its disk. [`FileTier`] is one; a simulation brings its own. No call waits; each move ends with one
/// [`DiskEnd`] in the worker's inbox.
pub trait Disk: Send {
    /// Begins to write a record.
    fn write(&mut self, write: DiskWrite);

    /// Begins to read a record, for the load `key`.
    fn read(&mut self, key: SeqKey, read: DiskRead);

    /// The reads of the load shall end soon.
    fn cancel(&mut self, key: SeqKey);
}

/// The end of a move, or of the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEnd {
    /// A record was written, or was not.
    Wrote {
        /// Where to.
        slot: Slot,
        /// Whether it is there.
        good: bool,
    },
    /// A record was read, or was not.
    Read {
        /// For which load.
        key: SeqKey,
        /// Which.
        read: DiskRead,
        /// `Some(true)`: it was verified and is in its block. `Some(false)`: what is there is not that record. `None`: it was not
        /// read.
        good: Option<bool>,
    },
    /// The disk fails: nothing is read or written any more.
    Off {
        /// Why, for people.
        reason: String,
    },
}

/// A disk tier that is open.
pub struct DiskParts {
    /// What moves its bytes.
    pub disk: Box<dyn Disk>,
    /// Its size and bounds.
    pub config: DiskConfig,
    /// What it holds from an earlier life, the oldest first.
    pub records: Vec<(Slot, BlockHash)>,
}

impl Core {
    /// Gives the worker a disk tier.
    pub(crate) fn add_disk(&mut self, parts: DiskParts) {
        self.kv.add_disk(parts.config, &parts.records);
        self.disk = Some(parts.disk);
        self.meters.disk.show();
    }

    /// Begins to write what is to be written.
    pub(crate) fn write_to_disk(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        while let Some(write) = self.kv.next_write() {
            disk.write(write);
        }
    }

    /// Begins to load the prefix of a prompt, where the disk has more of it than the device and reading that is predicted to take
    /// less time than computing it. Whether it did: then the prompt is queued when it is there.
    pub(crate) fn load(&mut self, now: Time, job: &Job) -> bool {
        let key = SeqKey { choice: LOAD, ..job.key };
        let Some(disk) = &mut self.disk else { return false };
        let Some(sequence) = self.sequences.get(&job.key) else { return false };
        if self.loads.len() == LOADS_MAX || self.loads.contains(key) {
            return false;
        }
        // The last token is computed in any case: the first one that is sampled depends on it.
        let blocks = (job.tokens.saturating_sub(1) / self.config.layout.block_tokens) as usize;
        let chain = &sequence.chain[..blocks.min(sequence.chain.len())];
        let (cached, loadable) = (self.kv.cached_tokens(chain), self.kv.loadable_tokens(chain));
        let missing = loadable - cached;
        let bytes = u64::from(missing) * self.config.layout.token_bytes() as u64;
        if missing == 0 || !self.rates.loads_faster(missing, bytes) {
            return false;
        }
        let Some(reads) = self.kv.load(key, chain, loadable) else { return false };
        let good = loadable / self.config.layout.block_tokens;
        let load = Load { job: Some(*job), chain: chain.to_vec(), left: reads.len(), good, cached, bytes, begun: now };
        reads.iter().for_each(|&read| disk.read(key, read));
        self.loads.begin(key, load, now + LOAD_WAIT_MAX);
        self.end_load(now, key);
        true
    }

    /// A move ended, or the tier did.
    pub(crate) fn disk_ended(&mut self, now: Time, end: DiskEnd) {
        match end {
            DiskEnd::Wrote { slot, good } => self.kv.wrote(slot, good),
            DiskEnd::Read { key, read, good } => {
                let load = self.loads.get_mut(key).expect("a load is there until its reads have ended");
                self.kv.read_ended(&read, &load.chain, good);
                load.left -= 1;
                if good != Some(true) {
                    load.good = load.good.min(read.number);
                }
                self.end_load(now, key);
            }
            DiskEnd::Off { reason } => {
                tracing::error!(
                    worker = self.config.name,
                    reason,
                    "the disk tier is off: the service goes on without it"
                );
                self.kv.give_up_disk();
            }
        }
        self.write_to_disk();
    }

    /// Ends the load, if all its reads have ended: what came was cached one by one, and the prompt is queued.
    fn end_load(&mut self, now: Time, key: SeqKey) {
        let Some(load) = self.loads.end(key) else { return };
        let tokens = load.good * self.config.layout.block_tokens;
        self.kv.close(key);
        if tokens > load.cached {
            self.rates.load(load.bytes, now.since(load.begun));
            self.meters.disk.loaded(tokens - load.cached, now.since(load.begun));
        }
        if let Some(job) = load.job {
            self.add_job(job);
        }
    }

    /// Queues prompts that have waited too long for the disk.
    pub(crate) fn tick_loads(&mut self, now: Time) {
        while let Some((key, job)) = self.loads.overdue(now) {
            tracing::warn!(worker = self.config.name, request = %key.request, "the disk takes too long; the prompt is computed");
            if let Some(disk) = &mut self.disk {
                disk.cancel(key);
            }
            if let Some(job) = job {
                self.add_job(job);
            }
        }
    }

    /// The prompt of a load is not wanted any more.
    pub(crate) fn drop_load(&mut self, key: SeqKey) {
        let load = SeqKey { choice: LOAD, ..key };
        if self.loads.forget(load, key)
            && let Some(disk) = &mut self.disk
        {
            disk.cancel(load);
        }
    }
}
