//! The tiers in the world that remembers: what each place holds, and moves that take their time, fail, and find
//! bytes that somebody flipped; a store that others write to and take from; and tiers that are closed for a while.

mod lifts;

use super::{KvManager, TENANT, Tag, Watermarks, World, key, prompt, tags};
use crate::tiers::{Place, ReadEnd, Tier, TierLift, TierRead, TierSlots, TierWrite, WriteEnd};
use domain::{BlockHash, BlockRef, Choice, Epoch, Generation, GroupId, SeqKey, Time};
use proptest::prelude::*;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write,
    Wrote {
        good: bool,
    },
    Load {
        split: u32,
        tokens: u32,
    },
    Read {
        lost: Option<ReadEnd>,
    },
    Flip {
        record: prop::sample::Index,
    },
    /// Another worker writes a block where others look.
    Share {
        tier: Tier,
        split: u32,
        tokens: u32,
        block: prop::sample::Index,
        told: bool,
        /// A prompt looks for it.
        wanted: bool,
    },
    /// Somebody takes away what was shared.
    Vanish {
        record: prop::sample::Index,
        told: bool,
    },
    Switch {
        tier: Tier,
        open: bool,
    },
    Park {
        split: u32,
        tokens: u32,
    },
    /// A prompt waits for room.
    Lift {
        split: u32,
        tokens: u32,
    },
    Lifted {
        lost: Option<ReadEnd>,
    },
    Landed {
        there: bool,
    },
    /// It waits no more.
    ForgetLifts {
        split: u32,
        tokens: u32,
    },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let lost = || {
        let ends = vec![ReadEnd::Unread, ReadEnd::Abandoned, ReadEnd::Failed];
        prop::option::weighted(0.2, prop::sample::select(ends))
    };
    prop_oneof![
        6 => Just(Op::Write),
        6 => prop::bool::weighted(0.9).prop_map(|good| Op::Wrote { good }),
        3 => (0..12u32, 1..30u32).prop_map(|(split, tokens)| Op::Load { split, tokens }),
        6 => lost().prop_map(|lost| Op::Read { lost }),
        1 => index().prop_map(|record| Op::Flip { record }),
        2 => (prop::sample::select(SHARED.to_vec()), 0..12u32, 1..30u32, index(), any::<(bool, bool)>())
            .prop_map(|(tier, split, tokens, block, (told, wanted))| Op::Share { tier, split, tokens, block, told, wanted }),
        1 => (index(), any::<bool>()).prop_map(|(record, told)| Op::Vanish { record, told }),
        1 => (prop::sample::select(Tier::ALL.to_vec()), prop::bool::weighted(0.7))
            .prop_map(|(tier, open)| Op::Switch { tier, open }),
        1 => (0..12u32, 1..30u32).prop_map(|(split, tokens)| Op::Park { split, tokens }),
        4 => (0..12u32, 1..30u32).prop_map(|(split, tokens)| Op::Lift { split, tokens }),
        3 => lost().prop_map(|lost| Op::Lifted { lost }),
        3 => prop::bool::weighted(0.9).prop_map(|there| Op::Landed { there }),
        1 => (0..12u32, 1..30u32).prop_map(|(split, tokens)| Op::ForgetLifts { split, tokens }),
    ]
}

/// The tiers that others write to.
const SHARED: [Tier; 2] = [Tier::Neighbours, Tier::Object];

/// Where bytes lie: in a slot, or where identities name them.
type Spot = (Tier, GroupId, u128);

fn spot(place: Place, hash: BlockHash) -> Spot {
    let Place { tier, slot } = place;
    let inside = if SHARED.contains(&tier) { u128::from_le_bytes(hash.0) } else { slot.slot.into() };
    (tier, slot.group, inside)
}

/// A load under way.
struct Load {
    key: SeqKey,
    chain: Vec<BlockHash>,
    reads: VecDeque<TierRead>,
}

/// What lies in the tiers, and what moves.
#[derive(Default)]
pub(super) struct Below {
    records: BTreeMap<Spot, (BlockHash, Vec<Tag>)>,
    flipped: BTreeSet<Spot>,
    writes: VecDeque<(TierWrite, Vec<Tag>)>,
    loads: VecDeque<Load>,
    lifts: VecDeque<TierLift>,
    /// Lifts whose records were read, and these.
    landing: VecDeque<(TierLift, Vec<Tag>)>,
    /// What was lifted and not read, and how much was in all, and in vain.
    unread: BTreeMap<Spot, BlockHash>,
    lifted: [u64; 2],
    /// Whether each group's pool had more blocks than its high watermark allows, and has more than the low one does.
    cooling: Vec<bool>,
    /// Since when each block could be given up, and of which generation it is.
    idle: BTreeMap<BlockRef, (Generation, u64)>,
}

impl Below {
    pub(super) fn new(groups: usize) -> Self {
        Self { cooling: vec![false; groups], ..Self::default() }
    }

    /// The record, as whoever reads it there finds it, unless it is lost so. Errors: how its read ends.
    fn bytes(&self, place: Place, hash: BlockHash, lost: Option<ReadEnd>) -> Result<Vec<Tag>, ReadEnd> {
        let spot = spot(place, hash);
        match self.records.get(&spot) {
            _ if let Some(lost) = lost => Err(lost),
            None => Err(ReadEnd::Missing),
            Some((of, bytes)) if *of == hash && !self.flipped.contains(&spot) => Ok(bytes.clone()),
            Some(_) => Err(ReadEnd::Wrong),
        }
    }

    /// Returns whether no load is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.loads.is_empty()
    }
}

impl World {
    pub(super) fn tier(&mut self, op: Op) {
        match op {
            Op::Write => {
                let (expected, config) = (self.expected_cold(), self.config.watermarks);
                let next = self.kv.next_write();
                // What is being written is cold still, or not at all where another policy wrote it.
                for (group, stats) in self.kv.stats().iter().enumerate() {
                    assert_eq!(stats.cold, expected[group], "cold blocks of group {group} with {config:?}");
                }
                let Some(write) = next else { return };
                let twice = self.below.writes.iter().any(|(other, _)| {
                    (other.place.tier, other.block.group, other.hash)
                        == (write.place.tier, write.block.group, write.hash)
                });
                assert!(!twice, "{write:?} is under way already");
                let read = self.below.loads.iter().flat_map(|load| &load.reads).any(|read| read.place == write.place);
                assert!(!read, "{:?} is written while it is read", write.place);
                assert_ne!(write.place.tier, Tier::Neighbours, "others alone write there");
                self.expect_not_lifted(write.place, write.hash);
                if write.place.tier != Tier::Object {
                    // From now on the slot holds who knows what.
                    self.overwrite(spot(write.place, write.hash));
                }
                self.below.writes.push_back((write, self.bytes(write.block)));
            }
            Op::Wrote { good } => {
                let Some((write, bytes)) = self.below.writes.pop_front() else { return };
                assert_eq!(bytes, self.bytes(write.block), "{:?} changed while it was written", write.block);
                let spot = spot(write.place, write.hash);
                let end = match self.below.records.entry(spot) {
                    Entry::Occupied(_) => WriteEnd::Existed,
                    Entry::Vacant(_) if !good => WriteEnd::Failed,
                    Entry::Vacant(vacant) => {
                        vacant.insert((write.hash, bytes));
                        self.below.flipped.remove(&spot);
                        WriteEnd::Written
                    }
                };
                let before = self.idle_now();
                let is_there = |kv: &KvManager| kv.index.get(write.block.group, write.hash) == Some(write.block.block);
                // It may have been given up while it was written.
                let was_there = is_there(&self.kv);
                self.kv.wrote(write.place, end);
                // Parked, it leaves with the end of its write, and no other does.
                self.expect_parked(&before, |block, _| block == write.block);
                let lowest = self.lowest().filter(|tier| self.kv.tiers[tier].holds(write.block.group, write.hash));
                assert!(!was_there || is_there(&self.kv) || lowest.is_some(), "{:?} is lost", write.block);
            }
            Op::Load { split, tokens } => self.load(split, tokens),
            Op::Read { lost } => self.read(lost),
            Op::Flip { record } => {
                let spots: Vec<Spot> = self.below.records.keys().copied().collect();
                if !spots.is_empty() {
                    self.below.flipped.insert(*record.get(&spots));
                }
            }
            Op::Share { tier, split, tokens, block, told, wanted } => {
                let tokens = prompt(split, tokens);
                let chain = self.chain(&tokens);
                if chain.is_empty() {
                    return;
                }
                let number = block.index(chain.len());
                let (hash, size) = (chain[number], self.config.block_tokens as usize);
                let bytes = tags(&tokens)[number * size..(number + 1) * size].to_vec();
                for group in (0..self.config.groups.len()).map(|group| GroupId(group as u16)) {
                    let spot = (tier, group, u128::from_le_bytes(hash.0));
                    self.below.records.entry(spot).or_insert((hash, bytes.clone()));
                    if wanted {
                        self.kv.find(tier, &[(group, hash)]);
                    } else if told {
                        self.kv.learn(tier, &[(group, hash)]);
                    }
                }
            }
            Op::Vanish { record, told } => {
                let spots: Vec<Spot> =
                    self.below.records.keys().filter(|(tier, ..)| SHARED.contains(tier)).copied().collect();
                if !spots.is_empty() {
                    let spot = *record.get(&spots);
                    let (tier, group, hash) = spot;
                    self.below.records.remove(&spot);
                    self.below.flipped.remove(&spot);
                    let hash = BlockHash(hash.to_le_bytes());
                    if told {
                        self.kv.forget(tier, &[(group, hash)]);
                        let found = self.kv.tiers.get(&tier).is_some_and(|tier| tier.holds(group, hash));
                        assert!(!found, "it is found though it is gone");
                    }
                }
            }
            Op::Switch { tier, open } => {
                if open {
                    self.kv.open_tier(tier);
                } else {
                    self.kv.close_tier(tier);
                }
                self.hear_all();
            }
            Op::Park { split, tokens } => self.park(&self.chain(&prompt(split, tokens))),
            Op::Lift { split, tokens } => self.lift(&self.chain(&prompt(split, tokens))),
            Op::Lifted { lost } => self.lifted(lost),
            Op::Landed { there } => self.landed(there),
            Op::ForgetLifts { split, tokens } => self.forget_lifts(&self.chain(&prompt(split, tokens))),
        }
    }

    /// Returns how many blocks of each group should be cold after the next look at the watermarks.
    fn expected_cold(&mut self) -> Vec<u32> {
        let Watermarks { high_percent, low_percent } = self.config.watermarks;
        let back: Vec<_> = self.kv.tiers.values().filter(|tier| tier.is_written_back()).cloned().collect();
        let mut cold: Vec<u32> = self.kv.stats().iter().map(|stats| stats.cold).collect();
        // Each block waits in a tier that lacks it; how many of those there are the blocks tell.
        let mut room: Vec<usize> = back.iter().map(TierSlots::room).collect();
        if back.is_empty() {
            return cold;
        }
        for (group, stats) in self.kv.stats().iter().enumerate() {
            let share = |percent: u32| stats.total * percent / 100;
            let warm = |cold: u32| stats.total - stats.free - cold;
            let mut pool = self.kv.pools[group].clone();
            let cooling = &mut self.below.cooling[group];
            loop {
                if room.contains(&0) {
                    break;
                }
                *cooling = warm(cold[group]) > share(if *cooling { low_percent } else { high_percent });
                let cooled = if *cooling { pool.cool() } else { None };
                let Some((block, generation, hash)) = cooled.or_else(|| pool.cool_by_quota()) else { break };
                cold[group] += 1;
                for (room, tier) in room.iter_mut().zip(&back) {
                    let block = BlockRef { group: GroupId(group as u16), block };
                    *room -= usize::from(tier.lacks(block, generation, hash));
                }
            }
        }
        cold
    }

    fn park(&mut self, chain: &[BlockHash]) {
        let before = self.idle_now();
        let parked = self.kv.park(chain);
        let went = self.expect_parked(&before, |_, hash| chain.contains(&hash));
        assert!(went <= parked, "{went} blocks went, and {parked} were to");
    }

    /// Time passed: what is idle for long enough is parked, and nothing else.
    pub(super) fn park_idle(&mut self) {
        let before = self.idle_now();
        self.kv.tick(Time(self.now));
        let due = |since: u64| self.config.park_after.is_some_and(|after| Time(self.now) >= Time(since) + after);
        let since = |block: &BlockRef| self.below.idle.get(block).map(|&(_, since)| since);
        let is_young = |block: &BlockRef| since(block).is_some_and(|since| !due(since));
        let young: BTreeSet<_> = before.keys().copied().filter(is_young).collect();
        self.expect_parked(&before, |block, _| !young.contains(&block));
        let lowest = self.lowest();
        let waits = |tier: &TierSlots| tier.room() == 0;
        if self.config.park_after.is_some() && lowest.is_some_and(|tier| !waits(&self.kv.tiers[&tier])) {
            for pool in &self.kv.pools {
                let old = pool.longest_idle().filter(|&(_, since)| due(since.0));
                assert_eq!(old, None, "it could be parked");
            }
        }
    }

    /// Checks that of the blocks that could be given up those that went are the lowest tier's, and are among what was
    /// to go. Returns how many went.
    fn expect_parked(
        &self,
        before: &BTreeMap<BlockRef, BlockHash>,
        may_go: impl Fn(BlockRef, BlockHash) -> bool,
    ) -> u32 {
        let gone = before.iter().filter(|(block, hash)| self.kv.index.get(block.group, **hash).is_none());
        gone.map(|(&block, &hash)| {
            let lowest = self.lowest().expect("something is parked somewhere");
            assert!(self.kv.tiers[&lowest].holds(block.group, hash), "{block:?} is lost");
            assert!(may_go(block, hash), "{block:?} went too early");
            1
        })
        .sum()
    }

    fn lowest(&self) -> Option<Tier> {
        [Tier::Disk, Tier::Host].into_iter().find(|tier| self.kv.tiers.get(tier).is_some_and(TierSlots::is_open))
    }

    /// The blocks that nobody uses, those among them that tiers read.
    fn idle_now(&self) -> BTreeMap<BlockRef, BlockHash> {
        let idle = |block: &BlockRef| self.kv.pools[usize::from(block.group.0)].is_idle(block.block);
        self.kv.sealed().map(|(block, _, hash)| (block, hash)).filter(|(block, _)| idle(block)).collect()
    }

    /// Takes note of what could be given up, `now` if it could not before.
    pub(super) fn check_idle(&mut self, now: u64) {
        let mut idle = BTreeMap::new();
        for block in self.idle_now().into_keys() {
            let generation = self.kv.generation(block);
            let known = self.below.idle.get(&block).filter(|(of, _)| *of == generation);
            idle.insert(block, (generation, known.map_or(now, |&(_, since)| since)));
        }
        self.below.idle = idle;
    }

    fn bytes(&self, block: BlockRef) -> Vec<Tag> {
        self.memory[usize::from(block.group.0)][block.block.0 as usize].clone()
    }

    fn load(&mut self, split: u32, tokens: u32) {
        let chain = self.chain(&prompt(split, tokens));
        let cached = self.kv.cached_tokens(&chain);
        self.kv.count_lookups(&chain, cached);
        let loadable = self.kv.loadable_tokens(&chain, cached);
        assert!(loadable >= cached, "what is cached need not be loaded");
        let mut sources = self.kv.sources(&chain, loadable);
        self.epochs += 1;
        let key = SeqKey { epoch: Epoch(self.epochs), choice: Choice(9), ..key(99) };
        let before = self.kv.stats();
        let Some(reads) = self.kv.load(key, TENANT, &chain, loadable) else {
            let after = self.kv.stats();
            let held = |stats: &[crate::GroupStats]| {
                stats.iter().map(|s| (s.free + s.evictable, s.leased)).collect::<Vec<_>>()
            };
            assert_eq!(held(&before), held(&after), "a load that is none holds something");
            return;
        };
        for read in &reads {
            self.below.unread.remove(&spot(read.place, read.hash));
        }
        let mut read: Vec<_> = reads.iter().map(|read| (read.place.tier, read.place.slot.group, read.hash)).collect();
        read.sort_unstable();
        sources.sort_unstable();
        assert_eq!(read, sources, "it reads from elsewhere than was said");
        for read in &reads {
            let mut faster = self.kv.tiers.range(..read.place.tier);
            assert!(faster.all(|(_, tier)| !tier.holds(read.block.group, read.hash)), "a faster tier has {read:?}");
        }
        // From the end on: what comes is cached one by one, whether or not it has all before it.
        self.below.loads.push_back(Load { key, chain, reads: reads.into_iter().rev().collect() });
        self.end_load();
    }

    fn read(&mut self, lost: Option<ReadEnd>) {
        let Some(load) = self.below.loads.front_mut() else { return };
        let Some(read) = load.reads.pop_front() else { return };
        let end = match self.below.bytes(read.place, read.hash, lost) {
            Ok(bytes) => {
                self.memory[usize::from(read.block.group.0)][read.block.block.0 as usize] = bytes;
                ReadEnd::Good
            }
            Err(end) => end,
        };
        let Some(load) = self.below.loads.front() else { return };
        self.kv.read_ended(&read, &load.chain, end);
        self.end_load();
    }

    /// Ends the first load, if all its reads have ended.
    fn end_load(&mut self) {
        while let Some(load) = self.below.loads.pop_front_if(|load| load.reads.is_empty()) {
            self.kv.close(load.key);
        }
    }

    pub(super) fn end_moves(&mut self) {
        while !self.below.writes.is_empty() {
            self.tier(Op::Wrote { good: true });
        }
        while !self.below.loads.is_empty() {
            self.tier(Op::Read { lost: None });
        }
        while !self.below.lifts.is_empty() {
            self.tier(Op::Lifted { lost: None });
        }
        while !self.below.landing.is_empty() {
            self.tier(Op::Landed { there: true });
        }
        for (tier, stats) in self.kv.tier_stats() {
            assert_eq!((stats.writing, stats.free + stats.held), (0, stats.total), "{tier:?}: {stats:?}");
        }
        let held: usize = self.kv.tier_records().map(|(.., held)| held).sum();
        assert_eq!(held as u32, self.kv.tier_stats().map(|(_, stats)| stats.held).sum::<u32>());
    }
}
