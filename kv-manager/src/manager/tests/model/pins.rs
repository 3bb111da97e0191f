//! Pins in the world that remembers: what is named stays where it is, and nothing else does.

use super::{Time, World, prompt};
use crate::manager::Pinned;
use domain::{BlockHash, BlockId, BlockRef, Generation, GroupId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Pin { split: u32, tokens: u32, time: u64 },
    Unpin { split: u32, tokens: u32 },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..12u32, 0..20u32, 0..40u64).prop_map(|(split, tokens, time)| Op::Pin { split, tokens, time }),
        1 => (0..12u32, 0..20u32).prop_map(|(split, tokens)| Op::Unpin { split, tokens }),
    ]
}

/// An identity in a group.
type Name = (GroupId, BlockHash);

#[derive(Default)]
pub(super) struct Pins {
    /// By prefix, with the end of each.
    live: BTreeMap<Vec<BlockHash>, u64>,
    /// What was there of them when it was looked last.
    there: BTreeMap<Name, (BlockId, Generation)>,
}

impl World {
    pub(super) fn pins(&mut self, op: Op) {
        match op {
            Op::Pin { split, tokens, time } => {
                let (chain, until) = (self.chain(&prompt(split, tokens)), self.now + time);
                let named = self.names(&chain);
                let all: BTreeSet<Name> = self.named().union(&named).copied().collect();
                let fits = (0..).map(GroupId).zip(&self.config.groups).all(|(group, config)| {
                    let named = all.iter().filter(|(of, _)| *of == group).count() as u32;
                    named <= config.blocks * self.config.pinned_percent / 100
                });
                let expected = match (named.is_empty(), fits) {
                    (true, _) => Pinned::Until { tokens: 0 },
                    (false, true) => Pinned::Until { tokens: chain.len() as u32 * self.config.block_tokens },
                    (false, false) => Pinned::TooMany,
                };
                assert_eq!(self.kv.pin(&chain, Time(until)), expected);
                if fits && !named.is_empty() {
                    self.pins.live.insert(chain, until);
                }
            }
            Op::Unpin { split, tokens } => {
                let chain = self.chain(&prompt(split, tokens));
                assert_eq!(self.kv.unpin(&chain), self.pins.live.remove(&chain).is_some());
            }
        }
    }

    /// Ends what has lapsed by now.
    pub(super) fn pins_lapse(&mut self) {
        let before = self.pins.live.len();
        self.pins.live.retain(|_, until| *until > self.now);
        assert_eq!(self.kv.expire_pins(Time(self.now)), before - self.pins.live.len());
    }

    /// What is named stays where it was, and counts.
    pub(super) fn check_pins(&mut self) {
        let named = self.named();
        for (name, was) in &self.pins.there {
            assert!(!named.contains(name) || self.place(*name) == Some(*was), "{name:?} went, and is pinned");
        }
        self.pins.there = named.iter().filter_map(|&name| Some((name, self.place(name)?))).collect();
        for (group, stats) in (0..).map(GroupId).zip(self.kv.stats()) {
            let there = self.pins.there.keys().filter(|(of, _)| *of == group).count();
            assert_eq!(stats.pinned as usize, there, "pinned blocks of {group}");
        }
        assert_eq!(self.kv.next_pin_deadline(), self.pins.live.values().min().map(|&until| Time(until)));
        assert_eq!(self.kv.pins(), self.pins.live.len());
    }

    /// Returns what all pins name.
    fn named(&self) -> BTreeSet<Name> {
        self.pins.live.keys().flat_map(|chain| self.names(chain)).collect()
    }

    /// Returns what a pin of the prefix names: what a query right behind it attends to.
    fn names(&self, chain: &[BlockHash]) -> BTreeSet<Name> {
        let size = self.config.block_tokens;
        let end = chain.len() as u32 * size;
        let attends =
            |window: Option<u32>, number: u32| window.is_none_or(|window| (number + 1) * size + window > end + 1);
        let of_group = |(group, window)| {
            let needed = (0..).zip(chain).filter(move |(number, _)| attends(window, *number));
            needed.map(move |(_, &hash)| (group, hash))
        };
        (0..).map(GroupId).zip(self.config.groups.iter().map(|group| group.window)).flat_map(of_group).collect()
    }

    fn place(&self, (group, hash): Name) -> Option<(BlockId, Generation)> {
        let block = self.kv.index.get(group, hash)?;
        Some((block, self.kv.generation(BlockRef { group, block })))
    }
}
