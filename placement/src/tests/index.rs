//! The prefix index.

use super::support::{D1, P1, chain};
use crate::index::PrefixIndex;
use domain::{BlockHash, WorkerId};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn a_gap_in_a_chain_ends_the_prefix() {
    let mut index = PrefixIndex::new(100);
    let blocks = chain(0, 64);
    index.insert(P1, &blocks);
    assert_eq!((index.held(P1, &blocks), index.held(D1, &blocks)), (4, 0));
    index.remove(P1, &blocks[1..2]);
    assert_eq!(index.held(P1, &blocks), 1);
    index.clear(P1);
    assert_eq!((index.held(P1, &blocks), index.len()), (0, 0));
}

#[test]
fn the_least_recently_used_goes_first_and_tails_before_heads() {
    let mut index = PrefixIndex::new(6);
    let (a, b, c) = (chain(1, 48), chain(2, 48), chain(3, 32));
    index.insert(P1, &a);
    index.insert(P1, &b);
    index.refresh(P1, &a);
    index.insert(D1, &c);
    assert_eq!((index.held(P1, &a), index.held(P1, &b), index.held(D1, &c)), (3, 1, 2));
}

proptest! {
    /// Below its bound the index is a set of pairs; above it, a part of that set.
    #[test]
    fn it_holds_what_was_reported(
        entries_max in 1usize..40,
        changes in prop::collection::vec((0u32..3, 0u8..30, 0u8..5), 1..80),
    ) {
        let mut index = PrefixIndex::new(entries_max);
        let mut model: BTreeSet<(WorkerId, BlockHash)> = BTreeSet::new();
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
                    model.retain(|entry| entry.0 != worker);
                }
                _ => {
                    index.insert(worker, &[block]);
                    model.insert((worker, block));
                    prop_assert_eq!(index.held(worker, &[block]), 1);
                }
            }
            most = most.max(model.len());
            prop_assert!(index.len() <= entries_max);
            for worker in (0..3).map(WorkerId) {
                for block in (0..30).map(|block| BlockHash([block; 16])) {
                    let held = index.held(worker, &[block]) == 1;
                    let reported = model.contains(&(worker, block));
                    prop_assert!(reported || !held);
                    prop_assert!(held || !reported || most > entries_max);
                }
            }
        }
    }
}
