//! The prefix index.

use super::support::{D1, P1, chain, links};
use crate::index::{BlockTier, Held, PrefixIndex};
use domain::{BlockHash, BlockLink, WorkerId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Leading blocks that the worker has anywhere.
fn held(index: &PrefixIndex, worker: WorkerId, chain: &[BlockHash]) -> u32 {
    index.held(worker, chain).all
}

fn insert(index: &mut PrefixIndex, worker: WorkerId, chain: &[BlockHash]) {
    index.insert(worker, &links(chain, 0..chain.len()));
}

#[test]
fn a_gap_in_a_chain_ends_the_prefix() {
    let mut index = PrefixIndex::new(100);
    let blocks = chain(0, 64);
    insert(&mut index, P1, &blocks);
    assert_eq!((held(&index, P1, &blocks), held(&index, D1, &blocks)), (4, 0));
    index.remove(P1, &blocks[1..2]);
    assert_eq!(held(&index, P1, &blocks), 1);
    index.insert(P1, &links(&blocks, 1..2));
    assert_eq!(held(&index, P1, &blocks), 4, "what continues a block waits for it");
    index.clear(P1);
    assert_eq!((held(&index, P1, &blocks), index.len(), index.bytes()), (0, 0, 0));
}

#[test]
fn the_prefix_that_was_used_longest_ago_goes_from_its_end() {
    let mut index = PrefixIndex::new(6);
    let (a, b, c) = (chain(1, 48), chain(2, 48), chain(3, 32));
    // Prompts are reported chunk by chunk, so that heads are older than tails.
    for blocks in [0..1, 1..2, 2..3] {
        index.insert(P1, &links(&a, blocks.clone()));
        index.insert(P1, &links(&b, blocks));
    }
    index.refresh(P1, &a);
    insert(&mut index, P1, &c);
    assert_eq!([&a, &b, &c].map(|chain| held(&index, P1, chain)), [3, 1, 2]);
}

#[test]
fn a_chain_that_is_too_long_keeps_its_head() {
    let mut index = PrefixIndex::new(3);
    let (long, other) = (chain(1, 160), chain(2, 16));
    insert(&mut index, P1, &other);
    insert(&mut index, P1, &long);
    assert_eq!((held(&index, P1, &long), held(&index, P1, &other)), (3, 0));
    // The same where it is told a block at a time.
    (0..10).for_each(|block| index.insert(P1, &links(&long, block..block + 1)));
    assert_eq!((held(&index, P1, &long), index.len()), (3, 3));
}

#[test]
fn a_worker_with_many_blocks_pushes_out_its_own() {
    let mut index = PrefixIndex::new(6);
    let (a, b) = (chain(1, 32), chain(2, 320));
    insert(&mut index, P1, &a);
    insert(&mut index, D1, &b);
    assert_eq!((held(&index, P1, &a), held(&index, D1, &b)), (2, 4));
    // One that gets more has room up to an equal share.
    insert(&mut index, P1, &b);
    assert_eq!((held(&index, P1, &a) + held(&index, P1, &b), held(&index, D1, &b)), (3, 3));
}

#[test]
fn what_lies_in_tiers_takes_no_room_and_is_no_use() {
    let mut index = PrefixIndex::new(6);
    let (a, b, c) = (chain(1, 64), chain(2, 64), chain(3, 16));
    insert(&mut index, P1, &a);
    index.lower(P1, &links(&a, 1..2), BlockTier::Disk);
    index.lower(P1, &links(&a, 3..4), BlockTier::Host);
    assert_eq!(index.held(P1, &a), Held { device: 1, all: 4, host: 1, disk: 1 });
    // There is room for two more, and they are the first to go.
    index.lower(P1, &links(&b, 0..4), BlockTier::Host);
    assert_eq!((index.held(P1, &b), index.len()), (Held { device: 0, all: 2, host: 2, disk: 0 }, 6));
    insert(&mut index, P1, &c);
    assert_eq!((held(&index, P1, &a), held(&index, P1, &b), held(&index, P1, &c)), (4, 1, 1));
    // What is about to be used stays where it is.
    index.refresh(P1, &b);
    insert(&mut index, D1, &c);
    assert_eq!(index.held(P1, &b), Held { device: 0, all: 1, host: 1, disk: 0 });
    assert_eq!(held(&index, P1, &a), 3);
    index.insert(P1, &links(&b, 0..1));
    assert_eq!(index.held(P1, &b), Held { device: 1, all: 1, host: 0, disk: 0 });
}

#[test]
fn whose_parent_is_not_known_learns_it_from_the_prompt_that_uses_it() {
    let mut index = PrefixIndex::new(4);
    let (a, b) = (chain(1, 48), chain(2, 32));
    let unknown = |block: &BlockHash| BlockLink { parent: None, hash: *block };
    index.lower(P1, &a.iter().map(unknown).collect::<Vec<_>>(), BlockTier::Disk);
    index.refresh(P1, &a);
    insert(&mut index, P1, &b);
    assert_eq!((held(&index, P1, &a), held(&index, P1, &b)), (2, 2), "its end went, not one of three heads");
}

#[test]
fn a_worker_whose_blocks_continue_each_other_in_a_circle_is_not_believed() {
    let mut index = PrefixIndex::new(3);
    let (a, b) = (chain(1, 48), chain(2, 32));
    let circle = |number: usize| BlockLink { parent: Some(a[(number + 1) % 3]), hash: a[number] };
    index.insert(P1, &[circle(0), circle(1), circle(2)]);
    assert_eq!(index.len(), 3);
    insert(&mut index, D1, &b);
    assert_eq!((held(&index, P1, &a), held(&index, D1, &b), index.len()), (0, 2, 2));
    // One that continues itself is no better.
    index.insert(P1, &[BlockLink { parent: Some(a[0]), hash: a[0] }]);
    index.remove(P1, &a);
    assert_eq!(index.len(), 2);
}

/// The index as it would be written without a thought of its speed.
#[derive(Default)]
struct Model {
    entries_max: usize,
    /// By worker and block: its parent, its place, and when it was used.
    entries: BTreeMap<(WorkerId, BlockHash), (Option<BlockHash>, BlockTier, i64)>,
    newest: i64,
    oldest: i64,
}

impl Model {
    fn put(&mut self, worker: WorkerId, link: BlockLink, place: BlockTier, is_use: bool) {
        let before = self.entries.get(&(worker, link.hash)).copied();
        if before.is_none() && !(self.entries.len() < self.entries_max || is_use && self.make_room(worker, link.parent))
        {
            return;
        }
        let used = match before {
            Some((.., used)) if !is_use => used,
            None if !is_use => {
                self.oldest -= 1;
                self.oldest
            }
            _ => {
                self.newest += 1;
                self.newest
            }
        };
        let parent = before.and_then(|(parent, ..)| parent).or(link.parent);
        self.entries.insert((worker, link.hash), (parent, place, used));
    }

    fn make_room(&mut self, worker: WorkerId, parent: Option<BlockHash>) -> bool {
        if parent.is_some_and(|parent| !self.entries.contains_key(&(worker, parent))) {
            return false;
        }
        let mut sizes: BTreeMap<WorkerId, usize> = BTreeMap::new();
        self.entries.keys().for_each(|(worker, _)| *sizes.entry(*worker).or_default() += 1);
        let Some(most) = sizes.values().copied().max() else { return false };
        let largest = if sizes.get(&worker) == Some(&most) {
            worker
        } else {
            *sizes.iter().rfind(|&(_, &size)| size == most).expect("one has the most").0
        };
        let continued: BTreeSet<(WorkerId, BlockHash)> =
            self.entries.iter().filter_map(|((worker, _), (parent, ..))| Some((*worker, (*parent)?))).collect();
        let may_go = self.entries.iter().filter(|&(key, _)| {
            key.0 == largest && !continued.contains(key) && (key.0 != worker || Some(key.1) != parent)
        });
        let Some(goes) = may_go.min_by_key(|&(_, &(.., used))| used).map(|(key, _)| *key) else { return false };
        self.entries.remove(&goes);
        true
    }

    fn refresh(&mut self, worker: WorkerId, chain: &[BlockHash]) {
        let held = chain.iter().take_while(|&&block| self.entries.contains_key(&(worker, block))).count();
        for link in BlockLink::run(None, &chain[..held]).rev() {
            let (_, place, _) = self.entries[&(worker, link.hash)];
            self.put(worker, link, place, true);
        }
    }
}

/// Blocks of a tree: block `n` continues block `n / 2 - 1`, and the first two begin their sequences.
fn tree_link(number: u8) -> BlockLink {
    let hash = |number: u8| BlockHash([number; 16]);
    BlockLink { parent: (number / 2).checked_sub(1).map(hash), hash: hash(number) }
}

/// The chain that ends with the block.
fn tree_chain(number: u8) -> Vec<BlockHash> {
    let mut chain: Vec<BlockHash> =
        std::iter::successors(Some(number), |number| (number / 2).checked_sub(1)).map(|n| tree_link(n).hash).collect();
    chain.reverse();
    chain
}

proptest! {
    /// The index is what the model is, after whatever changes, and never larger than its bound. What the bound
    /// took had nothing that continues it.
    #[test]
    fn it_is_what_a_plain_one_would_be(
        entries_max in 0usize..40,
        changes in prop::collection::vec((0u32..3, 0u8..30, 0u8..8, any::<bool>()), 1..200),
    ) {
        let mut index = PrefixIndex::new(entries_max);
        let mut model = Model { entries_max, ..Model::default() };
        for (worker, number, what, is_known) in changes {
            let worker = WorkerId(worker);
            let mut link = tree_link(number);
            if !is_known {
                link.parent = None;
            }
            match what {
                0 => {
                    index.remove(worker, &[link.hash]);
                    model.entries.remove(&(worker, link.hash));
                }
                1 if number == 0 => {
                    index.clear(worker);
                    model.entries.retain(|entry, _| entry.0 != worker);
                }
                2 | 3 => {
                    let place = if what == 2 { BlockTier::Host } else { BlockTier::Disk };
                    index.lower(worker, &[link], place);
                    model.put(worker, link, place, false);
                }
                4 => {
                    index.refresh(worker, &tree_chain(number));
                    model.refresh(worker, &tree_chain(number));
                }
                _ => {
                    let orphan = |model: &Model| {
                        let goes = |&(worker, hash): &(WorkerId, BlockHash)| !model.entries.contains_key(&(worker, hash));
                        let parents = model.entries.iter().filter_map(|(key, entry)| Some((key.0, entry.0?)));
                        parents.filter(goes).collect::<BTreeSet<_>>()
                    };
                    let before = orphan(&model);
                    index.insert(worker, &[link]);
                    model.put(worker, link, BlockTier::Device, true);
                    let mut new = orphan(&model);
                    new.retain(|missing| !before.contains(missing));
                    // Below the bound a worker may have what it did not say the beginning of.
                    prop_assert!(new.iter().all(|missing| link.parent == Some(missing.1)), "the bound took {new:?}");
                }
            }
            prop_assert!(index.len() <= entries_max && index.bytes() <= PrefixIndex::bytes_max(entries_max));
            prop_assert_eq!(index.len(), model.entries.len());
            for worker in (0..3).map(WorkerId) {
                for number in 0..30 {
                    let block = tree_link(number).hash;
                    let Held { device, all, host, disk } = index.held(worker, &[block]);
                    let place = match (all, device, host, disk) {
                        (0, 0, 0, 0) => None,
                        (1, 1, 0, 0) => Some(BlockTier::Device),
                        (1, 0, 1, 0) => Some(BlockTier::Host),
                        (1, 0, 0, 1) => Some(BlockTier::Disk),
                        places => panic!("it is in {places:?}"),
                    };
                    prop_assert_eq!(place, model.entries.get(&(worker, block)).map(|&(_, place, _)| place));
                }
            }
        }
    }
}

proptest! {
    /// What is searched for is what is walked to, wherever the blocks before it are.
    #[test]
    fn the_end_of_what_a_worker_has_is_found(
        changes in prop::collection::vec((0u8..30, 0u8..5, prop::bool::weighted(0.8)), 1..120),
    ) {
        let mut index = PrefixIndex::new(100);
        for (number, what, is_known) in changes {
            let mut link = tree_link(number);
            link.parent = link.parent.filter(|_| is_known);
            match what {
                0 => index.remove(P1, &[link.hash]),
                1 => index.lower(P1, &[link], BlockTier::Host),
                2 => index.lower(P1, &[link], BlockTier::Disk),
                3 => index.insert(P1, &[link]),
                // As a prompt comes: with all before it.
                _ => insert(&mut index, P1, &tree_chain(number)),
            }
            for number in 0..30 {
                let chain = tree_chain(number);
                let mut walked = Held::default();
                for block in &chain {
                    let Held { device, all, host, disk } = index.held(P1, &[*block]);
                    if all == 0 {
                        break;
                    }
                    walked.device += u32::from(device == 1 && walked.device == walked.all);
                    (walked.all, walked.host, walked.disk) = (walked.all + 1, walked.host + host, walked.disk + disk);
                }
                for guess in 0..=chain.len() as u32 + 1 {
                    prop_assert_eq!(index.held_about(P1, &chain, guess), walked);
                }
            }
        }
    }
}

#[test]
fn a_bound_that_falls_is_kept_at_once() {
    let mut index = PrefixIndex::new(20);
    let (a, b, c) = (chain(1, 128), chain(2, 48), chain(3, 48));
    insert(&mut index, P1, &a);
    insert(&mut index, D1, &b);
    insert(&mut index, D1, &c);
    index.refresh(D1, &b);
    index.limit(9);
    // The worker with the most loses, from the ends, what was used longest ago.
    assert_eq!([held(&index, P1, &a), held(&index, D1, &b), held(&index, D1, &c)].iter().sum::<u32>(), 9);
    assert!(held(&index, P1, &a) < 8 && held(&index, D1, &b) == 3, "{index:?}");
    index.limit(0);
    assert_eq!((index.len(), index.bytes()), (0, 0));
    insert(&mut index, P1, &a);
    assert_eq!(index.len(), 0);
    index.limit(3);
    insert(&mut index, P1, &a);
    assert_eq!(held(&index, P1, &a), 3);
}
