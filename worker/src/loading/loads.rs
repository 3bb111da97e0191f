//! The prefixes that are being loaded, and the prompts that wait for them or come towards them.

use super::LOAD;
use super::ahead::{Ahead, Pace};
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{Tier, TierRead};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tiers::LOAD_WAIT_MAX;

/// A prompt that wants what is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// It goes on when its part is there; otherwise it is computed meanwhile.
    pub(crate) waits: bool,
    /// Blocks of the prefix that are its own too.
    pub(crate) blocks: u32,
    /// Tokens of them.
    pub(crate) tokens: u32,
    /// Since when.
    pub(crate) since: Time,
    /// Tiers may have more of it: the load was begun for another prompt, or more was found since.
    pub(crate) follows: bool,
}

/// What a tier owes a load.
#[derive(Clone, Copy, Debug)]
struct Owed {
    /// Reads that have not ended.
    reads: usize,
    /// When it last brought a record of this load, or of one that was begun no later; or when this one was begun.
    brought: Time,
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
    begun: Time,
    /// By the tier that its reads are of.
    owed: BTreeMap<Tier, Owed>,
    /// The slowest tier that each block comes from.
    sources: BTreeMap<u32, Tier>,
}

impl Load {
    /// One of a prefix of a prompt, whose identities are `chain`, with these reads, predicted to take so long.
    pub(crate) fn new(chain: Vec<BlockHash>, reads: &[(TierRead, u64)], predicted_s: f32, begun: Time) -> Self {
        let (mut owed, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (TierRead { place, number, .. }, _) in reads {
            owed.entry(place.tier).or_insert(Owed { reads: 0, brought: begun }).reads += 1;
            let slowest = sources.entry(*number).or_insert(place.tier);
            *slowest = place.tier.max(*slowest);
        }
        let ahead = Ahead::new(reads.iter().map(|(read, bytes)| (read.number, *bytes)), predicted_s, begun);
        Self { chain, wants: BTreeMap::new(), ahead, begun, owed, sources }
    }

    /// A read of so many bytes ended. Whether it was the last of its tier.
    pub(crate) fn ended(&mut self, read: &TierRead, bytes: u64, good: bool) -> bool {
        self.ahead.ended(read.number, bytes, good);
        let owed = self.owed.get_mut(&read.place.tier).expect("the load has reads of the tier");
        owed.reads -= 1;
        owed.reads == 0
    }

    /// The tiers that have not ended all that was asked of them.
    pub(crate) fn owing(&self) -> impl Iterator<Item = Tier> {
        self.owed.iter().filter(|(_, owed)| owed.reads > 0).map(|(&tier, _)| tier)
    }

    /// Until when prompts wait for it, if none of the tiers that owe it something brings anything.
    fn deadline(&self) -> Time {
        let owing = self.owed.values().filter(|owed| owed.reads > 0);
        owing.map(|owed| owed.brought).min().unwrap_or(self.begun) + LOAD_WAIT_MAX
    }

    /// The slowest tier that the block came from, if all of it came, and the prompts that it is for, with since
    /// when they want it.
    pub(crate) fn brought(&self, number: u32) -> impl Iterator<Item = (SeqKey, Tier, Time)> {
        let tier = self.sources.get(&number).copied().filter(|_| !self.ahead.is_absent(number));
        let wants = self.wants.iter().filter(move |(_, want)| number < want.blocks);
        wants.filter_map(move |(&prompt, want)| Some((prompt, tier?, want.since)))
    }

    /// Whether prompts wait for it, rather than come towards it.
    fn is_waited_for(&self) -> bool {
        self.wants.values().any(|want| want.waits)
    }
}

/// All of them. A load whose prompts went on without it is still here until its reads have ended.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Each with its deadline, as it was when it was looked at last.
    loads: BTreeMap<SeqKey, (Load, Time)>,
    /// The load that each prompt wants.
    wanted: BTreeMap<SeqKey, SeqKey>,
    /// When to look whether prompts have waited long enough for their loads.
    deadlines: BTreeSet<(Time, SeqKey)>,
}

impl Loads {
    /// Loads that have begun and not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.loads.len()
    }

    pub(crate) fn contains(&self, key: SeqKey) -> bool {
        self.loads.contains_key(&key)
    }

    pub(crate) fn begin(&mut self, key: SeqKey, load: Load) {
        let deadline = load.deadline();
        self.deadlines.insert((deadline, key));
        self.loads.insert(key, (load, deadline));
    }

    /// The load that brings blocks of the prompt, which has this chain, among these: the one that it wants
    /// already, if that does. Also how many of its blocks are the prompt's too, and whether prompts wait for it.
    pub(crate) fn coming(
        &self,
        prompt: SeqKey,
        chain: &[BlockHash],
        blocks: Range<u32>,
    ) -> Option<(SeqKey, u32, bool)> {
        let own = self.wanted.get(&prompt).and_then(|key| self.loads.get_key_value(key));
        let wanted = self.loads.iter().filter(|(_, (load, _))| !load.wants.is_empty());
        own.into_iter().chain(wanted).find_map(|(&key, (load, _))| {
            let common = chain.iter().zip(&load.chain).take_while(|(one, other)| one == other).count();
            let end = blocks.end.min(common as u32);
            load.ahead.is_coming(blocks.start..end).then(|| (key, end, load.is_waited_for()))
        })
    }

    /// The prompt wants what the load brings, and no other one any more. The load that it wanted before, if nobody
    /// else does.
    #[must_use]
    pub(crate) fn want(&mut self, key: SeqKey, prompt: SeqKey, want: Want) -> Option<SeqKey> {
        let before = if self.wanted.get(&prompt) == Some(&key) { None } else { self.leave(prompt) };
        let (load, _) = self.loads.get_mut(&key).expect("the load is under way");
        load.wants.insert(prompt, want);
        self.wanted.insert(prompt, key);
        before
    }

    /// More may have been found of the prompt since its load was begun.
    pub(crate) fn look_again(&mut self, prompt: SeqKey) {
        let load = self.wanted.get(&prompt).and_then(|key| self.loads.get_mut(key));
        if let Some(want) = load.and_then(|(load, _)| load.wants.get_mut(&prompt)) {
            want.follows = true;
        }
    }

    pub(crate) fn get_mut(&mut self, key: SeqKey) -> Option<&mut Load> {
        self.loads.get_mut(&key).map(|(load, _)| load)
    }

    /// What the prompt wants of the load that it wants.
    pub(crate) fn of(&self, prompt: SeqKey) -> Option<&Want> {
        self.loads.get(self.wanted.get(&prompt)?)?.0.wants.get(&prompt)
    }

    /// How far the prompt should be computed towards the load that it wants, as [`Ahead::until`] says. `None`: it
    /// wants none.
    pub(crate) fn until(&self, prompt: SeqKey, now: Time, computed: u32, pace: Pace) -> Option<u32> {
        let (load, _) = self.loads.get(self.wanted.get(&prompt)?)?;
        let want = load.wants.get(&prompt)?;
        Some(load.ahead.until(now, computed..want.tokens, pace))
    }

    /// A record of the load came from the tier, which is not silent then for those either that were begun later:
    /// their reads come behind.
    pub(crate) fn came(&mut self, now: Time, key: SeqKey, tier: Tier) {
        let Some(begun) = self.loads.get(&key).map(|(load, _)| load.begun) else { return };
        let behind = self.loads.values_mut().filter(|(load, _)| load.begun >= begun);
        behind.filter_map(|(load, _)| load.owed.get_mut(&tier)).for_each(|owed| owed.brought = now);
    }

    /// A read of the load ended. Prompts that wait for nothing more of it, and whether it is over: then it is gone.
    pub(crate) fn served(&mut self, key: SeqKey) -> (Vec<(SeqKey, Want)>, bool) {
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
        (served, over)
    }

    /// The prompt wants no load any more. The one that it wanted, if nobody else does.
    pub(crate) fn leave(&mut self, prompt: SeqKey) -> Option<SeqKey> {
        let key = self.wanted.remove(&prompt)?;
        let (load, deadline) = self.loads.get_mut(&key)?;
        load.wants.remove(&prompt);
        if !load.wants.is_empty() {
            return None;
        }
        self.deadlines.remove(&(*deadline, key));
        Some(key)
    }

    /// A load for which a tier has brought nothing for long enough, once, with those of its prompts that waited for it.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<(SeqKey, Vec<SeqKey>)> {
        while let Some(&(looked_at, key)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(looked_at, key));
            let (load, deadline) = self.loads.get_mut(&key)?;
            *deadline = load.deadline();
            if *deadline > now {
                self.deadlines.insert((*deadline, key));
                continue;
            }
            let wants = std::mem::take(&mut load.wants);
            self.wanted.retain(|_, wanted| *wanted != key);
            return Some((key, wants.into_iter().filter(|(_, want)| want.waits).map(|(prompt, _)| prompt).collect()));
        }
        None
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The key of the load that is begun for the prompt.
    pub(crate) fn key(prompt: SeqKey) -> SeqKey {
        SeqKey { choice: LOAD, ..prompt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{BlockId, BlockRef, Choice, Epoch, GroupId, RequestId};
    use kv_manager::tiers::{Place, Slot};

    fn prompt(request: u64) -> SeqKey {
        SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) }
    }

    fn hash(name: u8) -> BlockHash {
        BlockHash([name; 16])
    }

    fn read(number: u32) -> TierRead {
        let group = GroupId(0);
        let place = Place { tier: Tier::Disk, slot: Slot { group, slot: number } };
        let block = BlockRef { group, block: BlockId(number) };
        TierRead { place, block, hash: hash(number as u8), number }
    }

    /// Begins one of these two blocks for the prompt.
    fn begin(loads: &mut Loads, request: u64) -> SeqKey {
        let (key, chain) = (Loads::key(prompt(request)), vec![hash(0), hash(1)]);
        loads.begin(key, Load::new(chain, &[(read(0), 1), (read(1), 1)], 1.0, Time::ZERO));
        key
    }

    fn want() -> Want {
        Want { waits: false, blocks: 2, tokens: 8, since: Time::ZERO, follows: true }
    }

    fn end(loads: &mut Loads, key: SeqKey) -> (Vec<(SeqKey, Want)>, bool) {
        let load = loads.get_mut(key).expect("it is under way");
        for number in 0..2 {
            load.ended(&read(number), 1, true);
        }
        loads.served(key)
    }

    #[test]
    fn a_prompt_that_joins_another_load_wants_nothing_more_of_its_first() {
        let mut loads = Loads::default();
        let [one, other] = [1, 2].map(|request| begin(&mut loads, request));
        assert_eq!(loads.want(one, prompt(1), want()), None);
        assert_eq!(loads.want(one, prompt(1), want()), None, "it still wants it");
        assert_eq!(loads.want(other, prompt(2), want()), None);
        assert_eq!(loads.want(other, prompt(1), want()), Some(one), "nobody else wants it");
        let (served, over) = end(&mut loads, one);
        assert!(served.is_empty() && over);
        assert!(loads.of(prompt(1)).is_some());
        assert_eq!(loads.leave(prompt(2)), None, "the other one wants it too");
        assert_eq!(loads.leave(prompt(1)), Some(other));
        assert_eq!(loads.next_deadline(), None);
    }

    #[test]
    fn the_load_that_a_prompt_wants_is_the_first_that_brings_its_blocks() {
        let mut loads = Loads::default();
        let [one, other] = [1, 2].map(|request| begin(&mut loads, request));
        let chain = [hash(0), hash(1)];
        assert_eq!(loads.want(one, prompt(1), want()), None);
        assert_eq!(loads.want(other, prompt(2), want()), None);
        assert_eq!(loads.coming(prompt(2), &chain, 0..2), Some((other, 2, false)));
        assert_eq!(loads.coming(prompt(3), &chain, 0..2), Some((one, 2, false)));
    }
}
