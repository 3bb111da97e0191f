//! The bytes that transfers under way write: two that would write the same ones are never under way together, over
//! whatever lanes.
//!
//! What is deliberately absent: who may write a region at all. That is its owner's matter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of this process, by their addresses. One memory may be registered twice, so regions would not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// What is written now.
#[derive(Default)]
pub(crate) struct Claims(Mutex<State>);

#[derive(Default)]
struct State {
    /// The ranges of all claims that are held, in their order. No two of them overlap.
    held: Vec<Range>,
    /// Ranges of all claims that there are: so many may be held.
    made: usize,
}

/// What one transfer writes. It is held from its post to its end.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    /// In their order, apart.
    ranges: Box<[Range]>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Makes a claim to these ranges, with room to hold it. Errors: a range that another one overlaps.
    pub(crate) fn new(claims: &Arc<Claims>, mut ranges: Vec<Range>) -> Result<Self, Range> {
        ranges.retain(|range| range.begin < range.end);
        ranges.sort_unstable();
        if let Some(pair) = ranges.array_windows().find(|[first, second]| second.begin < first.end) {
            return Err(pair[1]);
        }
        // Neighbours are one: a record has as many slices as layers.
        ranges.dedup_by(|next, range| {
            let neighbours = range.end == next.begin;
            if neighbours {
                range.end = next.end;
            }
            neighbours
        });
        let mut state = claims.lock();
        state.made += ranges.len();
        let room = state.made - state.held.len();
        state.held.reserve(room);
        drop(state);
        Ok(Self { claims: claims.clone(), ranges: ranges.into() })
    }

    /// Holds it. `false`: another one that is held has some of its bytes. Allocates nothing; takes as many steps
    /// as ranges are held, and a search for each of its own.
    pub(crate) fn hold(&self) -> bool {
        let mut state = self.claims.lock();
        let held = &mut state.held;
        let is_taken = |range: &Range| {
            let first = held.partition_point(|other| other.end <= range.begin);
            held.get(first).is_some_and(|other| other.begin < range.end)
        };
        if self.ranges.iter().any(is_taken) {
            return false;
        }
        let mut from = held.len();
        let mut to = from + self.ranges.len();
        held.resize(to, Range { begin: 0, end: 0 });
        // From behind, so that each is moved once.
        for range in self.ranges.iter().rev() {
            while from > 0 && held[from - 1] > *range {
                (from, to) = (from - 1, to - 1);
                held[to] = held[from];
            }
            to -= 1;
            held[to] = *range;
        }
        true
    }

    /// Gives up what is held.
    pub(crate) fn release(&self) {
        let mut own = self.ranges.iter().peekable();
        self.claims.lock().held.retain(|range| own.next_if_eq(&range).is_none());
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().made -= self.ranges.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(begin: usize, end: usize) -> Range {
        Range { begin, end }
    }

    fn claim(claims: &Arc<Claims>, ranges: &[(usize, usize)]) -> Result<Claim, Range> {
        Claim::new(claims, ranges.iter().map(|&(begin, end)| range(begin, end)).collect())
    }

    #[test]
    fn what_overlaps_itself_cannot_be_claimed() {
        let claims = Arc::<Claims>::default();
        assert_eq!(claim(&claims, &[(8, 16), (0, 9)]).err(), Some(range(8, 16)));
        assert_eq!(claim(&claims, &[(0, 8), (0, 8)]).err(), Some(range(0, 8)));
        let whole = claim(&claims, &[(8, 16), (0, 8), (16, 16), (20, 24)]).expect("they are apart");
        assert_eq!(*whole.ranges, [range(0, 16), range(20, 24)], "neighbours are one, and nothing is none");
    }

    #[test]
    fn bytes_are_one_claims_at_a_time_and_holding_one_allocates_nothing() {
        let claims = Arc::<Claims>::default();
        let a = claim(&claims, &[(0, 4), (8, 12)]).expect("they are apart");
        let b = claim(&claims, &[(4, 8), (12, 16)]).expect("they are apart");
        let c = claim(&claims, &[(11, 13)]).expect("it is one");
        let room = claims.lock().held.capacity();
        assert!(a.hold() && b.hold(), "no byte is both's");
        assert!(!c.hold());
        a.release();
        assert!(!c.hold());
        b.release();
        assert!(c.hold());
        let state = claims.lock();
        assert_eq!((state.held.as_slice(), state.held.capacity()), (&[range(11, 13)][..], room));
        // Which the claims ask for when they are dropped.
        drop(state);
    }

    proptest! {
        #[test]
        fn whatever_is_claimed_no_byte_is_held_twice(
            wanted in proptest::collection::vec(proptest::collection::vec((0..64_usize, 1..6_usize), 1..5), 1..12),
            steps in proptest::collection::vec((0..12_usize, any::<bool>()), 1..60),
        ) {
            let claims = Arc::<Claims>::default();
            let made = |ranges: &Vec<(usize, usize)>| {
                Claim::new(&claims, ranges.iter().map(|&(begin, len)| range(begin, begin + len)).collect()).ok()
            };
            let made: Vec<_> = wanted.iter().filter_map(made).collect();
            let mut held = vec![false; made.len()];
            for (at, holds) in steps.into_iter().filter(|&(at, _)| at < made.len()) {
                if holds && !held[at] {
                    let bytes = |claim: &Claim| claim.ranges.iter().flat_map(|range| range.begin..range.end).collect();
                    let own: std::collections::BTreeSet<usize> = bytes(&made[at]);
                    let others = made.iter().zip(&held).filter(|(_, held)| **held);
                    let is_free = others.map(|(other, _)| bytes(other)).all(|other| own.is_disjoint(&other));
                    held[at] = made[at].hold();
                    prop_assert_eq!(held[at], is_free);
                } else if !holds && std::mem::take(&mut held[at]) {
                    made[at].release();
                }
                prop_assert!(claims.lock().held.is_sorted());
            }
        }
    }
}
