//! Pins: prefixes whose blocks stay on the device until a deadline.
//!
//! A pin names identities, so a block counts from when it is cached, whether before the pin or after. This table
//! knows the prefixes, their deadlines and how many blocks they may name; the pools know which of their blocks are
//! pinned.

use domain::{BlockHash, ByIdentity, GroupId, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The identities of a prefix that each group keeps: what a prompt that goes on behind it needs.
pub(crate) type Named = Vec<Vec<BlockHash>>;

/// How many pins name each identity.
type Counts = HashMap<BlockHash, u32, ByIdentity>;

/// A pinned prefix.
#[derive(Clone, Debug)]
struct Pin {
    until: Time,
    named: Named,
}

/// All pins, each under the last identity of its prefix.
#[derive(Clone, Debug)]
pub(crate) struct PinTable {
    pins: BTreeMap<BlockHash, Pin>,
    /// `(until, last)` of every pin.
    deadlines: BTreeSet<(Time, BlockHash)>,
    counts: Vec<Counts>,
    /// Identities that each group may have in `counts`.
    blocks_max: Vec<usize>,
}

impl PinTable {
    /// Makes an empty table, with the given bound for each group.
    pub(crate) fn new(blocks_max: Vec<usize>) -> Self {
        let counts = vec![Counts::default(); blocks_max.len()];
        Self { pins: BTreeMap::new(), deadlines: BTreeSet::new(), counts, blocks_max }
    }

    /// Pins the prefix that ends with `last`, or gives its pin another deadline. `false`: too many blocks would be
    /// named, and nothing changed. What no pin named before is passed to `begin`.
    pub(crate) fn pin(
        &mut self,
        last: BlockHash,
        named: Named,
        until: Time,
        mut begin: impl FnMut(GroupId, BlockHash),
    ) -> bool {
        if let Some(pin) = self.pins.get_mut(&last) {
            self.deadlines.remove(&(pin.until, last));
            pin.until = until;
            self.deadlines.insert((until, last));
            return true;
        }
        let fits = self.counts.iter().zip(&named).zip(&self.blocks_max).all(|((counts, named), &max)| {
            counts.len() + named.iter().filter(|&hash| !counts.contains_key(hash)).count() <= max
        });
        if !fits {
            return false;
        }
        for (group, (counts, named)) in (0..).map(GroupId).zip(self.counts.iter_mut().zip(&named)) {
            for &hash in named {
                let pins = counts.entry(hash).or_default();
                *pins += 1;
                if *pins == 1 {
                    begin(group, hash);
                }
            }
        }
        self.deadlines.insert((until, last));
        self.pins.insert(last, Pin { until, named });
        true
    }

    /// Ends the pin of the prefix that ends with `last`. What no pin names any more is told to `end`. Whether
    /// there was one.
    pub(crate) fn unpin(&mut self, last: BlockHash, mut end: impl FnMut(GroupId, BlockHash)) -> bool {
        let Some(Pin { until, named }) = self.pins.remove(&last) else { return false };
        self.deadlines.remove(&(until, last));
        for (group, (counts, named)) in (0..).map(GroupId).zip(self.counts.iter_mut().zip(named)) {
            // The tail first, as when a sequence closes.
            for hash in named.into_iter().rev() {
                let pins = counts.get_mut(&hash).expect("the pin named it");
                *pins -= 1;
                if *pins == 0 {
                    counts.remove(&hash);
                    end(group, hash);
                }
            }
        }
        true
    }

    /// Returns a pin that has lapsed by `now`.
    pub(crate) fn lapsed(&self, now: Time) -> Option<BlockHash> {
        self.deadlines.first().filter(|(until, _)| *until <= now).map(|&(_, last)| last)
    }

    /// Returns when the next pin lapses.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(until, _)| until)
    }

    /// Returns whether a pin names the identity.
    pub(crate) fn names(&self, group: GroupId, hash: BlockHash) -> bool {
        self.counts[usize::from(group.0)].contains_key(&hash)
    }

    /// Returns whether the prefix that ends with `last` is pinned.
    pub(crate) fn has(&self, last: BlockHash) -> bool {
        self.pins.contains_key(&last)
    }

    /// Returns the number of pins.
    pub(crate) fn len(&self) -> usize {
        self.pins.len()
    }

    /// Asserts that deadlines, counts and pins match and that the bounds hold.
    pub(crate) fn check(&self) {
        let expected: BTreeSet<_> = self.pins.iter().map(|(&last, pin)| (pin.until, last)).collect();
        assert_eq!(self.deadlines, expected, "every pin has its one deadline");
        for (group, counts) in self.counts.iter().enumerate() {
            let mut named = Counts::default();
            self.pins.values().flat_map(|pin| &pin.named[group]).for_each(|&hash| *named.entry(hash).or_default() += 1);
            assert_eq!(counts, &named, "group {group} counts what pins name");
            assert!(counts.len() <= self.blocks_max[group], "a bound is exceeded");
        }
    }
}
