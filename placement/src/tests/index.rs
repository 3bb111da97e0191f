//! The prefix index.

use super::support::{D1, P1, chain};
use crate::index::{Held, Place, PrefixIndex};
use domain::{BlockHash, WorkerId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Leading blocks that the worker has anywhere.
fn held(index: &PrefixIndex, worker: WorkerId, chain: &[BlockHash]) -> u32 {
    index.held(worker, chain).all
}

#[test]
fn a_gap_in_a_chain_ends_the_prefix() {
    let mut index = PrefixIndex::new(100);
    let blocks = chain(0, 64);
    index.insert(P1, &blocks);
    assert_eq!((held(&index, P1, &blocks), held(&index, D1, &blocks)), (4, 0));
    index.remove(P1, &blocks[1..2]);
    assert_eq!(held(&index, P1, &blocks), 1);
    index.clear(P1);
    assert_eq!((held(&index, P1, &blocks), index.len()), (0, 0));
}

#[test]
fn the_least_recently_used_goes_first_and_tails_before_heads() {
    let mut index = PrefixIndex::new(6);
    let (a, b, c) = (chain(1, 48), chain(2, 48), chain(3, 32));
    index.insert(P1, &a);
    index.insert(P1, &b);
    index.refresh(P1, &a);
    index.insert(D1, &c);
    assert_eq!((held(&index, P1, &a), held(&index, P1, &b), held(&index, D1, &c)), (3, 1, 2));
}

#[test]
fn what_lies_in_tiers_takes_no_room_and_is_no_use() {
    let mut index = PrefixIndex::new(6);
    let (a, b) = (chain(1, 64), chain(2, 64));
    index.insert(P1, &a);
    index.lower(P1, &a[1..2], Place::Disk);
    index.lower(P1, &a[3..], Place::Host);
    assert_eq!(index.held(P1, &a), Held { device: 1, all: 4, host: 1, disk: 1 });
    // There is room for two more, and they are the first to go.
    index.lower(P1, &b, Place::Host);
    assert_eq!((index.held(P1, &b), index.len()), (Held { device: 0, all: 2, host: 2, disk: 0 }, 6));
    index.insert(D1, &b[..1]);
    assert_eq!((held(&index, P1, &a), held(&index, P1, &b), held(&index, D1, &b)), (4, 1, 1));
    // What is about to be used stays where it is.
    index.refresh(P1, &b);
    index.insert(D1, &b[1..2]);
    assert_eq!(index.held(P1, &b), Held { device: 0, all: 1, host: 1, disk: 0 });
    assert_eq!(held(&index, P1, &a), 3);
    index.insert(P1, &b[..1]);
    assert_eq!(index.held(P1, &b), Held { device: 1, all: 1, host: 0, disk: 0 });
}

proptest! {
    /// Below its bound the index is a set of pairs, each with the place it was last said to be in; above it, a part of that set.
    #[test]
    fn it_holds_what_was_reported(
        entries_max in 1usize..40,
        changes in prop::collection::vec((0u32..3, 0u8..30, 0u8..7), 1..80),
    ) {
        let mut index = PrefixIndex::new(entries_max);
        let mut model: BTreeMap<(WorkerId, BlockHash), Place> = BTreeMap::new();
        let mut most = 0;
        for (worker, block, what) in changes {
            let (worker, block) = (WorkerId(worker), BlockHash([block; 16]));
            match what {
                0 => {
                    index.remove(worker, &[block]);
                    model.remove(&(worker, block));
                }
                1 if block.0[0] == 0 => {
                    index.clear(worker);
                    model.retain(|entry, _| entry.0 != worker);
                }
                2 | 3 => {
                    let place = if what == 2 { Place::Host } else { Place::Disk };
                    index.lower(worker, &[block], place);
                    model.insert((worker, block), place);
                }
                4 => index.refresh(worker, &[block]),
                _ => {
                    index.insert(worker, &[block]);
                    model.insert((worker, block), Place::Device);
                    prop_assert_eq!(index.held(worker, &[block]).device, 1);
                }
            }
            most = most.max(model.len());
            prop_assert!(index.len() <= entries_max);
            for worker in (0..3).map(WorkerId) {
                for block in (0..30).map(|block| BlockHash([block; 16])) {
                    let Held { device, all, host, disk } = index.held(worker, &[block]);
                    let held = match (all, device, host, disk) {
                        (0, 0, 0, 0) => None,
                        (1, 1, 0, 0) => Some(Place::Device),
                        (1, 0, 1, 0) => Some(Place::Host),
                        (1, 0, 0, 1) => Some(Place::Disk),
                        places => panic!("it is in {places:?}"),
                    };
                    let reported = model.get(&(worker, block)).copied();
                    prop_assert!(held.is_none() || held == reported);
                    prop_assert!(held == reported || most > entries_max);
                }
            }
        }
    }
}
