//! Random interleavings of whatever may happen to transfers of objects: nothing is written into memory, and
//! nothing read from it, once its transfer has ended, and an object that is read is what was written as its key.

use crate::bench::{Bench, POSTED_MAX, config, delete, look, write_from};
use crate::relay::{Day, Relay};
use crate::store::Store;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::ops::Range;
use transport::{
    ObjectConfig, ObjectEnd, ObjectError, ObjectOutcome, ObjectTransfer, PostError, TransferId, TransferState,
};

/// Blocks of memory, each of which has room for any object.
const BLOCKS: usize = POSTED_MAX - 2;
const BLOCK: usize = 200_000;
/// What is in memory that no transfer uses.
const UNTOUCHED: u8 = 0xAA;
/// Bytes of the object of each key.
const KEYS: [usize; 3] = [1, 40_000, BLOCK];

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// The object of a key is written from a block, unless there is one.
    Write {
        block: usize,
        key: usize,
    },
    /// It is read into a block.
    Read {
        block: usize,
        key: usize,
    },
    /// It is deleted, or looked for.
    Delete(usize),
    Look(usize),
    /// A transfer that ended is posted once more.
    Again(usize),
    /// One that is under way is cancelled.
    Cancel(usize),
    /// The next connections break, or are refused.
    Break(usize),
    Refuse,
    /// All that has ended is taken.
    Take,
    /// So is one more, which is waited for.
    Wait,
}

fn action() -> impl Strategy<Value = Action> {
    let (block, key) = (|| 0..BLOCKS, || 0..KEYS.len());
    prop_oneof![
        6 => (block(), key()).prop_map(|(block, key)| Action::Write { block, key }),
        6 => (block(), key()).prop_map(|(block, key)| Action::Read { block, key }),
        2 => key().prop_map(Action::Delete),
        1 => key().prop_map(Action::Look),
        2 => any::<usize>().prop_map(Action::Again),
        4 => any::<usize>().prop_map(Action::Cancel),
        1 => (0..BLOCK).prop_map(Action::Break),
        1 => Just(Action::Refuse),
        3 => Just(Action::Take),
        3 => Just(Action::Wait),
    ]
}

struct Open {
    transfer: ObjectTransfer,
    /// Of the memory that it uses.
    block: Option<usize>,
    key: usize,
    writes: bool,
}

struct World<'a> {
    bench: Bench,
    relay: &'a Relay,
    open: HashMap<TransferId, Open>,
    rest: Vec<Open>,
}

fn place(block: usize) -> Range<usize> {
    block * BLOCK..(block + 1) * BLOCK
}

fn name(key: usize) -> String {
    format!("integrity/{key}")
}

/// The byte of an object.
fn content(key: usize, at: usize) -> u8 {
    ((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(key as u64) >> 32) as u8 % UNTOUCHED
}

impl World<'_> {
    fn act(&mut self, action: Action) {
        match action {
            Action::Write { block, key } => {
                let at = place(block).start;
                self.begin(write_from(&name(key), at..at + KEYS[key]), Some(block), key, true);
            }
            Action::Read { block, key } => {
                let work = crate::bench::read(&name(key), place(block).start, KEYS[key]);
                self.begin(work, Some(block), key, false);
            }
            Action::Delete(key) => self.begin(delete(&name(key)), None, key, false),
            Action::Look(key) => self.begin(look(&name(key)), None, key, false),
            Action::Again(which) => {
                if !self.rest.is_empty() {
                    let again = self.rest.swap_remove(which % self.rest.len());
                    self.post(again);
                }
            }
            Action::Cancel(which) => {
                let mut ids: Vec<_> = self.open.keys().copied().collect();
                ids.sort_unstable();
                if let Some(id) = ids.get(which % ids.len().max(1)) {
                    self.bench.mover.cancel(*id);
                }
            }
            Action::Break(after) => self.relay.fare(&[Day::CutAfter(after)], Day::Good),
            Action::Refuse => self.relay.fare(&[Day::Status(503)], Day::Good),
            Action::Take => {
                while let Some(end) = self.bench.ended_already() {
                    self.take(end);
                }
            }
            Action::Wait => {
                if !self.open.is_empty() {
                    let end = self.bench.ended();
                    self.take(end);
                }
            }
        }
        self.check_untouched();
    }

    fn begin(&mut self, work: transport::ObjectWork, block: Option<usize>, key: usize, writes: bool) {
        let transfer = self.bench.mover.prepare(work).expect("it is sound");
        self.post(Open { transfer, block, key, writes });
    }

    /// Unless somebody has the memory.
    fn post(&mut self, next: Open) {
        if next.block.is_some() && self.open.values().any(|open| open.block == next.block) {
            return;
        }
        if let (Some(block), true) = (next.block, next.writes) {
            let at = place(block).start;
            self.bench.fill(at..at + KEYS[next.key], |byte| content(next.key, byte - at));
        }
        match self.bench.mover.post(&next.transfer) {
            Ok(id) => drop(self.open.insert(id, next)),
            Err(error) => {
                // Those count here that have ended, and were not taken.
                assert!(error == PostError::Full(POSTED_MAX) && self.open.len() >= POSTED_MAX, "{error}");
                next.block.into_iter().for_each(|block| self.bench.fill(place(block), |_| UNTOUCHED));
            }
        }
    }

    fn take(&mut self, end: ObjectEnd) {
        let open = self.open.remove(&end.id).expect("each ends once");
        assert_eq!(open.transfer.state(), TransferState::Ended(end.result.clone()));
        let key = open.key;
        match &end.result {
            Ok(report) => match report.outcome {
                ObjectOutcome::Read => {
                    let at = place(open.block.expect("it is read into one")).start;
                    let found = self.bench.bytes(at..at + KEYS[key]).iter().enumerate();
                    assert!(found.clone().all(|(n, byte)| *byte == content(key, n)), "object {key} is another");
                }
                ObjectOutcome::Present(bytes) => assert_eq!(bytes, KEYS[key] as u64),
                _ => {}
            },
            Err(ObjectError::Cancelled) => {}
            Err(error) => panic!("{error}"),
        }
        // The memory is another's now.
        open.block.into_iter().for_each(|block| self.bench.fill(place(block), |_| UNTOUCHED));
        self.rest.push(open);
    }

    /// Nothing is in memory that no transfer uses.
    fn check_untouched(&self) {
        let idle = (0..BLOCKS).filter(|block| self.open.values().all(|open| open.block != Some(*block)));
        for block in idle {
            let touched = self.bench.bytes(place(block)).iter().any(|byte| *byte != UNTOUCHED);
            assert!(!touched, "block {block} is written after its transfer ended");
        }
    }
}

#[test]
fn memory_and_objects_are_not_touched_after_the_end() {
    let store = Store::start();
    let relay = Relay::start(store.address);
    // Few, since each makes dozens of requests.
    let cases = (ProptestConfig::default().cases / 16).max(1);
    let config = ObjectConfig { requests_max: 3, ..config(relay.address) };
    let run = |actions: Vec<Action>| {
        relay.fare(&[], Day::Good);
        let bench = Bench::new(config.clone());
        bench.fill(0..BLOCKS * BLOCK, |_| UNTOUCHED);
        let mut world = World { bench, relay: &relay, open: HashMap::new(), rest: Vec::new() };
        actions.iter().for_each(|&action| world.act(action));
        while !world.open.is_empty() {
            world.act(Action::Wait);
        }
        Ok(())
    };
    let strategy = proptest::collection::vec(action(), 1..40);
    let settings = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(settings).run(&strategy, run).expect("every case holds");
}
