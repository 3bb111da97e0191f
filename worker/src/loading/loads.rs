//! The prefixes that are being loaded, and the prompts that wait for them or are computed towards them.

use super::two_ended_load::{Pace, TwoEndedLoad};
use domain::{BlockHash, Choice, SeqKey, Time};
use kv_manager::tiers::{Tier, TierRead};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tiers::LOAD_WAIT_MAX;

/// The choice under which a prefix is loaded, before its prompt is computed.
const LOAD: Choice = Choice(u16::MAX - 1);
/// Loads in progress at most. Without a load, a prompt is computed.
const LOADS_MAX: usize = 256;

/// A prompt that a load delivers to, or a worker that asked for a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Consumer {
    /// It waits for its part. Otherwise it is computed meanwhile.
    pub(super) waits: bool,
    /// Blocks of the load that are its own too, from the beginning.
    pub(super) blocks: u32,
    /// Tokens of these blocks.
    pub(super) tokens: u32,
    /// When it became a consumer.
    pub(super) since: Time,
    /// Tiers may have more of its prefix: the load began for another prompt, or more was found since.
    pub(super) may_have_more: bool,
}

/// A load in progress that delivers to more than one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedLoad {
    pub(super) key: SeqKey,
    /// Blocks of the load that are the prompt's too, from the beginning.
    pub(super) blocks: u32,
    /// Some prompt waits for it, rather than being computed towards it.
    pub(super) is_waited_for: bool,
}

/// What a tier still has to deliver for a load.
#[derive(Clone, Copy, Debug)]
struct PendingReads {
    /// Reads that have not ended.
    reads: usize,
    /// When the tier last delivered a record of this load, or of one that began no later; at first, when this load
    /// began.
    progress_at: Time,
}

/// A load in progress.
#[derive(Debug)]
pub(super) struct Load {
    /// Identities of the prefix.
    pub(super) chain: Vec<BlockHash>,
    /// Empty: the load was given up.
    consumers: BTreeMap<SeqKey, Consumer>,
    /// What has not arrived.
    remaining: TwoEndedLoad,
    begun: Time,
    /// By the tier that is read.
    pending: BTreeMap<Tier, PendingReads>,
    /// The slowest tier of each block.
    sources: BTreeMap<u32, Tier>,
}

impl Load {
    /// A load of a prefix with these identities and reads, which is predicted to take so long.
    pub(super) fn new(chain: Vec<BlockHash>, reads: &[(TierRead, u64)], predicted_s: f32, begun: Time) -> Self {
        let (mut pending, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (TierRead { place, number, .. }, _) in reads {
            pending.entry(place.tier).or_insert(PendingReads { reads: 0, progress_at: begun }).reads += 1;
            let slowest = sources.entry(*number).or_insert(place.tier);
            *slowest = place.tier.max(*slowest);
        }
        let bytes = reads.iter().map(|(read, bytes)| (read.number, *bytes));
        let remaining = TwoEndedLoad::new(bytes, predicted_s, begun);
        Self { chain, consumers: BTreeMap::new(), remaining, begun, pending, sources }
    }

    /// Notes the end of a read of so many bytes. Returns whether it was the last one of its tier.
    pub(super) fn on_read_ended(&mut self, read: &TierRead, bytes: u64, is_good: bool) -> bool {
        self.remaining.on_read_ended(read.number, bytes, is_good);
        let pending = self.pending.get_mut(&read.place.tier).expect("the load has reads of the tier");
        pending.reads -= 1;
        pending.reads == 0
    }

    /// Returns the tiers in which reads of the load have not ended.
    pub(super) fn pending_tiers(&self) -> impl Iterator<Item = Tier> {
        self.pending.iter().filter(|(_, pending)| pending.reads > 0).map(|(&tier, _)| tier)
    }

    /// Returns until when prompts wait for it, if no tier with pending reads delivers anything.
    fn deadline(&self) -> Time {
        let pending = self.pending.values().filter(|pending| pending.reads > 0);
        pending.map(|pending| pending.progress_at).min().unwrap_or(self.begun) + LOAD_WAIT_MAX
    }

    /// Returns the consumers of a block that is complete, the slowest tier that it came from, and since when each of
    /// them is a consumer.
    pub(super) fn delivered(&self, number: u32) -> impl Iterator<Item = (SeqKey, Tier, Time)> {
        let tier = self.sources.get(&number).copied().filter(|_| !self.remaining.is_absent(number));
        let consumers = self.consumers.iter().filter(move |(_, consumer)| number < consumer.blocks);
        consumers.filter_map(move |(&prompt, consumer)| Some((prompt, tier?, consumer.since)))
    }

    /// Returns whether a prompt waits for it.
    fn is_waited_for(&self) -> bool {
        self.consumers.values().any(|consumer| consumer.waits)
    }
}

/// All loads. One that was given up stays until its reads have ended.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Each with its deadline, as it was when the deadline was last looked at.
    loads: BTreeMap<SeqKey, (Load, Time)>,
    /// The load of each consumer.
    load_of: BTreeMap<SeqKey, SeqKey>,
    /// When to check whether prompts have waited long enough for their loads.
    deadlines: BTreeSet<(Time, SeqKey)>,
}

impl Loads {
    /// Returns the number of loads that have begun and not ended.
    pub(crate) fn in_progress(&self) -> usize {
        self.loads.len()
    }

    /// Returns whether a load with this key may begin.
    pub(super) fn may_begin(&self, key: SeqKey) -> bool {
        self.loads.len() < LOADS_MAX && !self.loads.contains_key(&key)
    }

    /// Adds a load.
    pub(super) fn begin(&mut self, key: SeqKey, load: Load) {
        let deadline = load.deadline();
        self.deadlines.insert((deadline, key));
        self.loads.insert(key, (load, deadline));
    }

    /// Finds a load in progress that delivers some of these blocks of a prompt with this chain. The load that the
    /// prompt has already comes first.
    pub(super) fn find_shared(&self, prompt: SeqKey, chain: &[BlockHash], blocks: Range<u32>) -> Option<SharedLoad> {
        let own = self.load_of.get(&prompt).and_then(|key| self.loads.get_key_value(key));
        let wanted = self.loads.iter().filter(|(_, (load, _))| !load.consumers.is_empty());
        own.into_iter().chain(wanted).find_map(|(&key, (load, _))| {
            let common = chain.iter().zip(&load.chain).take_while(|(one, other)| one == other).count();
            let end = blocks.end.min(common as u32);
            let shared = SharedLoad { key, blocks: end, is_waited_for: load.is_waited_for() };
            load.remaining.is_coming(blocks.start..end).then_some(shared)
        })
    }

    /// Makes a prompt a consumer of a load, and of no other one. Returns the load that it left, if that has no other
    /// consumer.
    #[must_use]
    pub(super) fn join(&mut self, key: SeqKey, prompt: SeqKey, consumer: Consumer) -> Option<SeqKey> {
        let before = if self.load_of.get(&prompt) == Some(&key) { None } else { self.leave(prompt) };
        let (load, _) = self.loads.get_mut(&key).expect("the load is in progress");
        load.consumers.insert(prompt, consumer);
        self.load_of.insert(prompt, key);
        before
    }

    /// Notes that tiers may have more of a prompt than its load delivers.
    pub(super) fn expect_more(&mut self, prompt: SeqKey) {
        let load = self.load_of.get(&prompt).and_then(|key| self.loads.get_mut(key));
        if let Some(consumer) = load.and_then(|(load, _)| load.consumers.get_mut(&prompt)) {
            consumer.may_have_more = true;
        }
    }

    pub(super) fn get_mut(&mut self, key: SeqKey) -> Option<&mut Load> {
        self.loads.get_mut(&key).map(|(load, _)| load)
    }

    /// Returns the prompt's share in its load.
    pub(super) fn consumer(&self, prompt: SeqKey) -> Option<&Consumer> {
        self.loads.get(self.load_of.get(&prompt)?)?.0.consumers.get(&prompt)
    }

    /// Returns whether a load delivers to this consumer.
    pub(crate) fn is_loading(&self, consumer: SeqKey) -> bool {
        self.consumer(consumer).is_some()
    }

    /// Returns up to which position the prompt should be computed towards its load, as [`TwoEndedLoad::compute_until`]
    /// says. `None`: it has no load.
    pub(crate) fn compute_until(&self, prompt: SeqKey, now: Time, computed: u32, pace: Pace) -> Option<u32> {
        let (load, _) = self.loads.get(self.load_of.get(&prompt)?)?;
        let consumer = load.consumers.get(&prompt)?;
        Some(load.remaining.compute_until(now, computed..consumer.tokens, pace))
    }

    /// Notes that the tier delivered a record of a load. Loads that began later have their reads behind it, so the
    /// tier is not silent for them either.
    pub(super) fn note_progress(&mut self, now: Time, key: SeqKey, tier: Tier) {
        let Some(begun) = self.loads.get(&key).map(|(load, _)| load.begun) else { return };
        let later = self.loads.values_mut().filter(|(load, _)| load.begun >= begun);
        later.filter_map(|(load, _)| load.pending.get_mut(&tier)).for_each(|pending| pending.progress_at = now);
    }

    /// Removes the consumers that wait for nothing more of a load, and the load itself after its last read. Returns
    /// these consumers, and whether the load is over.
    pub(super) fn take_satisfied(&mut self, key: SeqKey) -> (Vec<(SeqKey, Consumer)>, bool) {
        let Some((load, deadline)) = self.loads.get_mut(&key) else { return (Vec::new(), false) };
        let is_over = load.remaining.is_over();
        let Load { consumers, remaining, .. } = load;
        let is_satisfied = |one: &mut Consumer| is_over || (one.may_have_more && !remaining.is_coming(0..one.blocks));
        let satisfied: Vec<_> = consumers.extract_if(.., |_, one| is_satisfied(one)).collect();
        if is_over {
            self.deadlines.remove(&(*deadline, key));
            self.loads.remove(&key);
        }
        for (prompt, _) in &satisfied {
            self.load_of.remove(prompt);
        }
        (satisfied, is_over)
    }

    /// Ends a prompt's share in its load. Returns the load, if it has no other consumer.
    pub(super) fn leave(&mut self, prompt: SeqKey) -> Option<SeqKey> {
        let key = self.load_of.remove(&prompt)?;
        let (load, deadline) = self.loads.get_mut(&key)?;
        load.consumers.remove(&prompt);
        if !load.consumers.is_empty() {
            return None;
        }
        self.deadlines.remove(&(*deadline, key));
        Some(key)
    }

    /// Removes the consumers of a load for which a tier has delivered nothing for long enough. Returns the load, once,
    /// and those of its prompts that waited for it.
    pub(super) fn take_overdue(&mut self, now: Time) -> Option<(SeqKey, Vec<SeqKey>)> {
        while let Some(&(looked_at, key)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(looked_at, key));
            let (load, deadline) = self.loads.get_mut(&key)?;
            *deadline = load.deadline();
            if *deadline > now {
                self.deadlines.insert((*deadline, key));
                continue;
            }
            let consumers = std::mem::take(&mut load.consumers);
            self.load_of.retain(|_, load| *load != key);
            let waited = consumers.into_iter().filter(|(_, consumer)| consumer.waits).map(|(prompt, _)| prompt);
            return Some((key, waited.collect()));
        }
        None
    }

    /// Returns when [`Self::take_overdue`] may find something.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Returns the key of the load that begins for the prompt.
    pub(super) fn key(prompt: SeqKey) -> SeqKey {
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

    fn consumer() -> Consumer {
        Consumer { waits: false, blocks: 2, tokens: 8, since: Time::ZERO, may_have_more: true }
    }

    fn end(loads: &mut Loads, key: SeqKey) -> (Vec<(SeqKey, Consumer)>, bool) {
        let load = loads.get_mut(key).expect("it is in progress");
        for number in 0..2 {
            load.on_read_ended(&read(number), 1, true);
        }
        loads.take_satisfied(key)
    }

    #[test]
    fn a_prompt_that_joins_another_load_wants_nothing_more_of_its_first() {
        let mut loads = Loads::default();
        let [one, other] = [1, 2].map(|request| begin(&mut loads, request));
        assert_eq!(loads.join(one, prompt(1), consumer()), None);
        assert_eq!(loads.join(one, prompt(1), consumer()), None, "it still wants it");
        assert_eq!(loads.join(other, prompt(2), consumer()), None);
        assert_eq!(loads.join(other, prompt(1), consumer()), Some(one), "nobody else wants it");
        let (satisfied, over) = end(&mut loads, one);
        assert!(satisfied.is_empty() && over);
        assert!(loads.is_loading(prompt(1)));
        assert_eq!(loads.leave(prompt(2)), None, "the other one wants it too");
        assert_eq!(loads.leave(prompt(1)), Some(other));
        assert_eq!(loads.next_deadline(), None);
    }

    #[test]
    fn the_load_that_a_prompt_wants_is_the_first_that_brings_its_blocks() {
        let mut loads = Loads::default();
        let [one, other] = [1, 2].map(|request| begin(&mut loads, request));
        let chain = [hash(0), hash(1)];
        assert_eq!(loads.join(one, prompt(1), consumer()), None);
        assert_eq!(loads.join(other, prompt(2), consumer()), None);
        assert_eq!(
            loads.find_shared(prompt(2), &chain, 0..2),
            Some(SharedLoad { key: other, blocks: 2, is_waited_for: false })
        );
        assert_eq!(
            loads.find_shared(prompt(3), &chain, 0..2),
            Some(SharedLoad { key: one, blocks: 2, is_waited_for: false })
        );
    }
}
