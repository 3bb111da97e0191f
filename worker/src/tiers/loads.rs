//! The prefixes that are being loaded or wait for room to be, and the prompts that wait for them or come towards them.

use super::LOAD;
use super::ahead::{Ahead, Pace};
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{Tier, TierRead};
use scheduler::Job;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// A prompt that wants what is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// The prompt, if it goes on when its part is there; otherwise it is computed meanwhile.
    pub(crate) job: Option<Job>,
    /// Blocks of the prefix that are its own too.
    pub(crate) blocks: u32,
    /// Tokens of them.
    pub(crate) tokens: u32,
    /// Since when.
    pub(crate) since: Time,
    /// The load was begun for another prompt.
    pub(crate) follows: bool,
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct Load {
    /// Identities of the prefix.
    pub(crate) chain: Vec<BlockHash>,
    /// The prompts that want it. None: it was given up.
    wants: BTreeMap<SeqKey, Want>,
    /// What is still to come of it.
    ahead: Ahead,
    /// Reads of each tier that have not ended.
    left: BTreeMap<Tier, usize>,
    /// The slowest tier that each block comes from.
    sources: BTreeMap<u32, Tier>,
}

impl Load {
    /// One of a prefix of a prompt, whose identities are `chain`, with these reads, predicted to take so long.
    pub(crate) fn new(chain: Vec<BlockHash>, reads: &[(TierRead, u64)], predicted_s: f32, begun: Time) -> Self {
        let (mut left, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (TierRead { place, number, .. }, _) in reads {
            *left.entry(place.tier).or_default() += 1;
            let slowest = sources.entry(*number).or_insert(place.tier);
            *slowest = place.tier.max(*slowest);
        }
        let ahead = Ahead::new(reads.iter().map(|(read, bytes)| (read.number, *bytes)), predicted_s, begun);
        Self { chain, wants: BTreeMap::new(), ahead, left, sources }
    }

    /// A read of so many bytes ended. Whether it was the last of its tier.
    pub(crate) fn ended(&mut self, read: &TierRead, bytes: u64, good: bool) -> bool {
        self.ahead.ended(read.number, bytes, good);
        let left = self.left.get_mut(&read.place.tier).expect("the load has reads of the tier");
        *left -= 1;
        *left == 0
    }

    /// The tiers that have not ended all that was asked of them.
    pub(crate) fn owing(&self) -> impl Iterator<Item = Tier> {
        self.left.iter().filter(|(_, left)| **left > 0).map(|(&tier, _)| tier)
    }

    /// The slowest tier that the block came from, if all of it came, and the prompts that it is for, with since when they want it.
    pub(crate) fn brought(&self, number: u32) -> impl Iterator<Item = (SeqKey, Tier, Time)> {
        let tier = self.sources.get(&number).copied().filter(|_| !self.ahead.is_absent(number));
        let wants = self.wants.iter().filter(move |(_, want)| number < want.blocks);
        wants.filter_map(move |(&prompt, want)| Some((prompt, tier?, want.since)))
    }

    /// Whether prompts wait for it, rather than come towards it.
    fn is_waited_for(&self) -> bool {
        self.wants.values().any(|want| want.job.is_some())
    }
}

/// All of them. A load whose prompts went on without it is still here until its reads have ended.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    loads: BTreeMap<SeqKey, (Load, Time)>,
    /// The load that each prompt wants.
    wanted: BTreeMap<SeqKey, SeqKey>,
    /// Prompts that wait for room, the first one first: those that are to be loaded, and those that came behind them.
    waiting: VecDeque<Job>,
    /// Until when prompts wait for their loads.
    deadlines: BTreeSet<(Time, SeqKey)>,
}

impl Loads {
    /// Loads, and prompts that wait for room.
    pub(crate) fn len(&self) -> usize {
        self.loads.len() + self.waiting.len()
    }

    /// Loads that have begun and not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.loads.len()
    }

    /// The prompt goes on when there is room: behind all that wait already.
    pub(crate) fn wait(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// The first prompt that waits for room.
    pub(crate) fn first_waiting(&self) -> Option<Job> {
        self.waiting.front().copied()
    }

    /// The first one waits no longer.
    pub(crate) fn pop_waiting(&mut self) {
        self.waiting.pop_front();
    }

    /// Prompts that wait for room.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter()
    }

    /// Prompts that will be queued: those that wait for room, and those that wait for loads.
    pub(crate) fn prompts(&self) -> usize {
        self.waiting.len() + self.wants().filter(|want| want.job.is_some()).count()
    }

    /// Tokens that prompts will take beside what is being loaded for them.
    pub(crate) fn behind(&self) -> u32 {
        self.wants().filter_map(|want| Some(want.job?.tokens - want.tokens)).sum()
    }

    fn wants(&self) -> impl Iterator<Item = &Want> {
        self.loads.values().flat_map(|(load, _)| load.wants.values())
    }

    pub(crate) fn contains(&self, key: SeqKey) -> bool {
        self.loads.contains_key(&key)
    }

    pub(crate) fn begin(&mut self, key: SeqKey, load: Load, deadline: Time) {
        self.deadlines.insert((deadline, key));
        self.loads.insert(key, (load, deadline));
    }

    /// The load that brings blocks of a prompt with this chain among these, how many of its blocks are the prompt's too, and
    /// whether prompts wait for it.
    pub(crate) fn coming(&self, chain: &[BlockHash], blocks: Range<u32>) -> Option<(SeqKey, u32, bool)> {
        let wanted = self.loads.iter().filter(|(_, (load, _))| !load.wants.is_empty());
        wanted.into_iter().find_map(|(&key, (load, _))| {
            let common = chain.iter().zip(&load.chain).take_while(|(one, other)| one == other).count();
            let end = blocks.end.min(common as u32);
            load.ahead.is_coming(blocks.start..end).then(|| (key, end, load.is_waited_for()))
        })
    }

    /// The prompt wants what the load brings. It wants no other one.
    pub(crate) fn want(&mut self, key: SeqKey, prompt: SeqKey, want: Want) {
        let (load, _) = self.loads.get_mut(&key).expect("the load is under way");
        load.wants.insert(prompt, want);
        self.wanted.insert(prompt, key);
    }

    pub(crate) fn get_mut(&mut self, key: SeqKey) -> Option<&mut Load> {
        self.loads.get_mut(&key).map(|(load, _)| load)
    }

    /// What the prompt wants of the load that it wants.
    pub(crate) fn of(&self, prompt: SeqKey) -> Option<&Want> {
        self.loads.get(self.wanted.get(&prompt)?)?.0.wants.get(&prompt)
    }

    /// How far the prompt should be computed towards the load that it wants, as [`Ahead::until`] says. `None`: it wants none.
    pub(crate) fn until(&self, prompt: SeqKey, now: Time, computed: u32, pace: Pace) -> Option<u32> {
        let (load, _) = self.loads.get(self.wanted.get(&prompt)?)?;
        let want = load.wants.get(&prompt)?;
        Some(load.ahead.until(now, computed..want.tokens, pace))
    }

    /// A read of the load ended. Prompts that wait for nothing more of it, and whether it is over: then it is gone.
    pub(crate) fn served(&mut self, key: SeqKey) -> (Vec<Want>, bool) {
        let Some((load, deadline)) = self.loads.get_mut(&key) else { return (Vec::new(), false) };
        let over = load.ahead.is_over();
        let Load { wants, ahead, .. } = load;
        let served: Vec<(SeqKey, Want)> =
            wants.extract_if(.., |_, want| over || (want.follows && !ahead.is_coming(0..want.blocks))).collect();
        if over {
            self.deadlines.remove(&(*deadline, key));
            self.loads.remove(&key);
        }
        for (prompt, _) in &served {
            self.wanted.remove(prompt);
        }
        (served.into_iter().map(|(_, want)| want).collect(), over)
    }

    /// The prompt wants no load any more, and waits for no room. The load, if it wanted one and nobody else does.
    pub(crate) fn forget(&mut self, prompt: SeqKey) -> Option<SeqKey> {
        self.waiting.retain(|job| job.key != prompt);
        let key = self.wanted.remove(&prompt)?;
        let (load, deadline) = self.loads.get_mut(&key)?;
        load.wants.remove(&prompt);
        if !load.wants.is_empty() {
            return None;
        }
        self.deadlines.remove(&(*deadline, key));
        Some(key)
    }

    /// A load that prompts have wanted for long enough, once, with those of them that are to be queued.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<(SeqKey, Vec<Job>)> {
        let &(deadline, key) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.remove(&(deadline, key));
        let (load, _) = self.loads.get_mut(&key)?;
        let wants = std::mem::take(&mut load.wants);
        self.wanted.retain(|_, wanted| *wanted != key);
        Some((key, wants.into_values().filter_map(|want| want.job).collect()))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The key of the load that is begun for the prompt.
    pub(crate) fn key(prompt: SeqKey) -> SeqKey {
        SeqKey { choice: LOAD, ..prompt }
    }
}
