//! The disk in the world that remembers: what each slot holds, and moves that take their time, fail, and find bytes that somebody
//! flipped.

use super::{Tag, World, key, prompt};
use crate::disk::{DiskRead, DiskWrite, Slot};
use domain::{BlockHash, BlockRef, Choice, Epoch, SeqKey};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write,
    Wrote { good: bool },
    Load { split: u32, tokens: u32 },
    Read { lost: bool },
    Flip { slot: prop::sample::Index },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Write),
        4 => prop::bool::weighted(0.9).prop_map(|good| Op::Wrote { good }),
        3 => (0..12u32, 1..30u32).prop_map(|(split, tokens)| Op::Load { split, tokens }),
        6 => prop::bool::weighted(0.1).prop_map(|lost| Op::Read { lost }),
        1 => any::<prop::sample::Index>().prop_map(|slot| Op::Flip { slot }),
    ]
}

/// A load under way.
struct Load {
    key: SeqKey,
    chain: Vec<BlockHash>,
    reads: VecDeque<DiskRead>,
}

/// What is on disk, and what moves.
#[derive(Default)]
pub(super) struct Files {
    records: HashMap<Slot, (BlockHash, Vec<Tag>)>,
    flipped: Vec<Slot>,
    writes: VecDeque<(DiskWrite, Vec<Tag>)>,
    loads: VecDeque<Load>,
}

impl Files {
    /// Whether no load is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.loads.is_empty()
    }
}

impl World {
    pub(super) fn disk(&mut self, op: Op) {
        match op {
            Op::Write => {
                let Some(write) = self.kv.next_write() else { return };
                let read = self.disk.loads.iter().flat_map(|load| &load.reads).any(|read| read.slot == write.slot);
                assert!(!read, "{:?} is written while it is read", write.slot);
                // From now on the slot holds who knows what.
                self.disk.records.remove(&write.slot);
                self.disk.writes.push_back((write, self.bytes(write.block)));
            }
            Op::Wrote { good } => {
                let Some((write, bytes)) = self.disk.writes.pop_front() else { return };
                assert_eq!(bytes, self.bytes(write.block), "{:?} changed while it was written", write.block);
                if good {
                    self.disk.records.insert(write.slot, (write.hash, bytes));
                    self.disk.flipped.retain(|&slot| slot != write.slot);
                }
                self.kv.wrote(write.slot, good);
            }
            Op::Load { split, tokens } => self.load(split, tokens),
            Op::Read { lost } => self.read(lost),
            Op::Flip { slot } => {
                if !self.disk.records.is_empty() {
                    let mut slots: Vec<Slot> = self.disk.records.keys().copied().collect();
                    slots.sort_unstable();
                    self.disk.flipped.push(slots[slot.index(slots.len())]);
                }
            }
        }
    }

    fn bytes(&self, block: BlockRef) -> Vec<Tag> {
        self.memory[usize::from(block.group.0)][block.block.0 as usize].clone()
    }

    fn load(&mut self, split: u32, tokens: u32) {
        let chain = self.chain(&prompt(split, tokens));
        let loadable = self.kv.loadable_tokens(&chain);
        assert!(loadable >= self.kv.cached_tokens(&chain), "what is cached need not be loaded");
        self.epochs += 1;
        let key = SeqKey { epoch: Epoch(self.epochs), choice: Choice(9), ..key(99) };
        let before = self.kv.stats();
        let Some(reads) = self.kv.load(key, &chain, loadable) else {
            let after = self.kv.stats();
            let held = |stats: &[crate::GroupStats]| {
                stats.iter().map(|s| (s.free + s.evictable, s.leased)).collect::<Vec<_>>()
            };
            assert_eq!(held(&before), held(&after), "a load that is none holds something");
            return;
        };
        // From the end on: what comes is cached one by one, whether or not it has all before it.
        self.disk.loads.push_back(Load { key, chain, reads: reads.into_iter().rev().collect() });
        self.end_load();
    }

    fn read(&mut self, lost: bool) {
        let Some(load) = self.disk.loads.front_mut() else { return };
        let Some(read) = load.reads.pop_front() else { return };
        let record = self.disk.records.get(&read.slot).filter(|_| !self.disk.flipped.contains(&read.slot));
        let good = match record {
            _ if lost => None,
            Some((hash, bytes)) if *hash == read.hash => {
                self.memory[usize::from(read.block.group.0)][read.block.block.0 as usize].clone_from(bytes);
                Some(true)
            }
            _ => Some(false),
        };
        self.kv.read_ended(&read, &load.chain, good);
        self.end_load();
    }

    /// Ends the first load, if all its reads have ended.
    fn end_load(&mut self) {
        while let Some(load) = self.disk.loads.pop_front_if(|load| load.reads.is_empty()) {
            self.kv.close(load.key);
        }
    }

    pub(super) fn end_moves(&mut self) {
        while !self.disk.writes.is_empty() {
            self.disk(Op::Wrote { good: true });
        }
        while !self.disk.loads.is_empty() {
            self.disk(Op::Read { lost: false });
        }
        let Some(stats) = self.kv.disk_stats() else { return };
        assert_eq!((stats.writing, stats.free + stats.held), (0, stats.total), "{stats:?}");
    }
}
