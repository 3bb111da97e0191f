//! The prefixes that are being loaded, and the prompts that wait for them.

use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{Tier, TierRead};
use scheduler::Job;
use std::collections::{BTreeMap, BTreeSet};

/// A load under way.
#[derive(Debug)]
pub(crate) struct Load {
    /// The prompt that waits, if it still does.
    pub(crate) job: Option<Job>,
    /// Identities of the prefix.
    pub(crate) chain: Vec<BlockHash>,
    /// Blocks before the first that did not come.
    pub(crate) good: u32,
    /// Tokens of the prefix that the device had.
    pub(crate) cached: u32,
    /// When it began.
    pub(crate) begun: Time,
    parts: BTreeMap<Tier, Part>,
    /// The slowest tier that each block comes from.
    sources: BTreeMap<u32, Tier>,
}

/// What is read from one tier.
#[derive(Debug, Default)]
struct Part {
    /// Reads that have not ended.
    left: usize,
    /// Bytes that are read; 0 once one of the reads did not bring what it should.
    bytes: u64,
}

impl Load {
    /// One of a prompt with these reads, of so many bytes from each tier. `good`: blocks of the prefix.
    pub(crate) fn new(
        job: Job,
        chain: Vec<BlockHash>,
        reads: &[TierRead],
        good: u32,
        cached: u32,
        bytes: [(Tier, u64); Tier::ALL.len()],
        begun: Time,
    ) -> Self {
        let mut parts: BTreeMap<_, _> =
            bytes.into_iter().map(|(tier, bytes)| (tier, Part { left: 0, bytes })).collect();
        let mut sources = BTreeMap::new();
        for TierRead { place, number, .. } in reads {
            parts.entry(place.tier).or_default().left += 1;
            let slowest = sources.entry(*number).or_insert(place.tier);
            *slowest = place.tier.max(*slowest);
        }
        Self { job: Some(job), chain, good, cached, begun, parts, sources }
    }

    /// A read ended. The bytes of its tier, if it was the last from there and all of them came.
    pub(crate) fn ended(&mut self, read: &TierRead, good: bool) -> Option<u64> {
        let part = self.parts.get_mut(&read.place.tier)?;
        part.left -= 1;
        if !good {
            self.good = self.good.min(read.number);
            part.bytes = 0;
        }
        (part.left == 0 && part.bytes > 0).then_some(part.bytes)
    }

    /// Blocks that came from the tier, or from there and faster ones.
    pub(crate) fn came_from(&self, tier: Tier) -> u32 {
        self.sources.range(..self.good).filter(|(_, source)| **source == tier).count() as u32
    }

    fn is_ended(&self) -> bool {
        self.parts.values().all(|part| part.left == 0)
    }
}

/// All of them. A load whose prompt went on without it is still here until its reads have ended.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    loads: BTreeMap<SeqKey, (Load, Time)>,
    /// Until when prompts wait.
    deadlines: BTreeSet<(Time, SeqKey)>,
}

impl Loads {
    pub(crate) fn len(&self) -> usize {
        self.loads.len()
    }

    pub(crate) fn contains(&self, key: SeqKey) -> bool {
        self.loads.contains_key(&key)
    }

    pub(crate) fn begin(&mut self, key: SeqKey, load: Load, deadline: Time) {
        self.deadlines.insert((deadline, key));
        self.loads.insert(key, (load, deadline));
    }

    pub(crate) fn get_mut(&mut self, key: SeqKey) -> Option<&mut Load> {
        self.loads.get_mut(&key).map(|(load, _)| load)
    }

    /// Takes the load out, if all its reads have ended.
    pub(crate) fn end(&mut self, key: SeqKey) -> Option<Load> {
        if !self.loads.get(&key)?.0.is_ended() {
            return None;
        }
        let (load, deadline) = self.loads.remove(&key)?;
        self.deadlines.remove(&(deadline, key));
        Some(load)
    }

    /// The prompt `of` does not wait for the load any more. Whether it did.
    pub(crate) fn forget(&mut self, key: SeqKey, of: SeqKey) -> bool {
        let Some((load, deadline)) = self.loads.get_mut(&key) else { return false };
        let waited = load.job.take_if(|job| job.key == of).is_some();
        if waited {
            self.deadlines.remove(&(*deadline, key));
        }
        waited
    }

    /// A load whose prompt has waited long enough, once, with that prompt.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<(SeqKey, Option<Job>)> {
        let &(deadline, key) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.remove(&(deadline, key));
        Some((key, self.loads.get_mut(&key).and_then(|(load, _)| load.job.take())))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }
}
