//! The prefixes that are being loaded, and the prompts that wait for them.

use domain::{BlockHash, SeqKey, Time};
use scheduler::Job;
use std::collections::{BTreeMap, BTreeSet};

/// A load under way.
#[derive(Debug)]
pub(crate) struct Load {
    /// The prompt that waits, if it still does.
    pub(crate) job: Option<Job>,
    /// Identities of the prefix.
    pub(crate) chain: Vec<BlockHash>,
    /// Reads that have not ended.
    pub(crate) left: usize,
    /// Blocks before the first that did not come.
    pub(crate) good: u32,
    /// Tokens of the prefix that the device had.
    pub(crate) cached: u32,
    /// Bytes that are read.
    pub(crate) bytes: u64,
    /// When it began.
    pub(crate) begun: Time,
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
        if self.loads.get(&key)?.0.left > 0 {
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
