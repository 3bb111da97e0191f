//! The prefixes that are being loaded or wait for room to be, and the prompts that wait for them or come towards them.

use super::LOAD;
use super::ahead::Ahead;
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{Tier, TierRead};
use scheduler::Job;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A load under way.
#[derive(Debug)]
pub(crate) struct Load {
    /// The prompt whose prefix it is, as long as it wants it.
    pub(crate) prompt: Option<SeqKey>,
    /// That prompt, if it is queued when the load is over; otherwise it is computed meanwhile.
    pub(crate) job: Option<Job>,
    /// Identities of the prefix.
    pub(crate) chain: Vec<BlockHash>,
    /// Tokens of the prefix.
    pub(crate) tokens: u32,
    /// What is still to come of it.
    pub(crate) ahead: Ahead,
    /// When it began.
    pub(crate) begun: Time,
    parts: BTreeMap<Tier, Part>,
    /// The slowest tier that each block comes from.
    sources: BTreeMap<u32, Tier>,
}

/// What is read from one tier.
#[derive(Debug)]
struct Part {
    /// Reads that have not ended.
    left: usize,
    /// Bytes that came.
    bytes: u64,
    /// When the last of them did.
    last: Time,
}

impl Load {
    /// One of the first `tokens` tokens of a prompt, whose identities are `chain`, with these reads, predicted to take so long.
    pub(crate) fn new(
        prompt: SeqKey,
        chain: Vec<BlockHash>,
        tokens: u32,
        reads: &[(TierRead, u64)],
        predicted_s: f32,
        begun: Time,
    ) -> Self {
        let (mut parts, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (TierRead { place, number, .. }, _) in reads {
            parts.entry(place.tier).or_insert(Part { left: 0, bytes: 0, last: begun }).left += 1;
            let slowest = sources.entry(*number).or_insert(place.tier);
            *slowest = place.tier.max(*slowest);
        }
        let ahead = Ahead::new(reads.iter().map(|(read, bytes)| (read.number, *bytes)), predicted_s, begun);
        Self { prompt: Some(prompt), job: None, chain, tokens, ahead, begun, parts, sources }
    }

    /// A read of so many bytes ended. If it was the last of its tier: what came from there, and how long that took.
    pub(crate) fn ended(&mut self, now: Time, read: &TierRead, bytes: u64, good: bool) -> Option<(u64, Duration)> {
        self.ahead.ended(read.number, bytes, good);
        let part = self.parts.get_mut(&read.place.tier)?;
        part.left -= 1;
        if good {
            part.bytes += bytes;
            part.last = now;
        }
        (part.left == 0 && part.bytes > 0).then_some((part.bytes, part.last.since(self.begun)))
    }

    /// The tiers that have not ended all that was asked of them.
    pub(crate) fn owing(&self) -> impl Iterator<Item = Tier> {
        self.parts.iter().filter(|(_, part)| part.left > 0).map(|(&tier, _)| tier)
    }

    /// The slowest tier that the block came from, if all of it came.
    pub(crate) fn brought(&self, number: u32) -> Option<Tier> {
        self.sources.get(&number).copied().filter(|_| !self.ahead.is_absent(number))
    }
}

/// All of them. A load whose prompt went on without it is still here until its reads have ended.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    loads: BTreeMap<SeqKey, (Load, Time)>,
    /// Prompts whose loads wait for room, the first one first, and until when.
    waiting: VecDeque<(Job, Time)>,
    /// Until when prompts wait.
    deadlines: BTreeSet<(Time, SeqKey)>,
}

impl Loads {
    /// Loads, and those that wait for room.
    pub(crate) fn len(&self) -> usize {
        self.loads.len() + self.waiting.len()
    }

    /// Loads that have begun and not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.loads.len()
    }

    /// The load of the prompt shall begin when there is room, until the deadline at the latest: behind all that wait already.
    pub(crate) fn wait(&mut self, job: Job, deadline: Time) {
        self.waiting.push_back((job, deadline));
    }

    /// The first prompt whose load waits for room, and until when.
    pub(crate) fn first_waiting(&self) -> Option<(Job, Time)> {
        self.waiting.front().copied()
    }

    /// The first one waits no longer.
    pub(crate) fn pop_waiting(&mut self) {
        self.waiting.pop_front();
    }

    /// Prompts whose loads wait for room.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter().map(|(job, _)| job)
    }

    /// Tokens that prompts will take beside what is being loaded for them.
    pub(crate) fn behind(&self) -> u32 {
        self.loads.values().filter_map(|(load, _)| Some(load.job?.tokens - load.tokens)).sum()
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

    /// The load that the prompt wants.
    pub(crate) fn of(&self, prompt: SeqKey) -> Option<&Load> {
        let (load, _) = self.loads.get(&SeqKey { choice: LOAD, ..prompt })?;
        (load.prompt == Some(prompt)).then_some(load)
    }

    /// Takes the load out, if all its reads have ended.
    pub(crate) fn end(&mut self, key: SeqKey) -> Option<Load> {
        if !self.loads.get(&key)?.0.ahead.is_over() {
            return None;
        }
        let (load, deadline) = self.loads.remove(&key)?;
        self.deadlines.remove(&(deadline, key));
        Some(load)
    }

    /// The prompt does not want its load any more. The load, if it did and that had begun.
    pub(crate) fn forget(&mut self, prompt: SeqKey) -> Option<SeqKey> {
        self.waiting.retain(|(job, _)| job.key != prompt);
        let key = SeqKey { choice: LOAD, ..prompt };
        let (load, deadline) = self.loads.get_mut(&key)?;
        load.prompt.take_if(|wants| *wants == prompt)?;
        load.job = None;
        self.deadlines.remove(&(*deadline, key));
        Some(key)
    }

    /// A load whose prompt has waited long enough, once, with that prompt if it is to be queued.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<(SeqKey, Option<Job>)> {
        let &(deadline, key) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.remove(&(deadline, key));
        let (load, _) = self.loads.get_mut(&key)?;
        load.prompt = None;
        Some((key, load.job.take()))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|&(_, deadline)| deadline);
        self.deadlines.first().map(|&(deadline, _)| deadline).into_iter().chain(waiting).min()
    }
}
