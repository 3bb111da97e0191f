//! What each policy of eviction is for, seen from where it counts: which prefixes are still cached.

use super::*;

const POLICIES: [EvictionPolicy; 3] = [EvictionPolicy::Lru, EvictionPolicy::S3Fifo, EvictionPolicy::Tree];

fn policy(eviction: EvictionPolicy, groups: &[(u32, Option<u32>)]) -> KvManager {
    KvManager::new(KvConfig { eviction, ..config(groups) })
}

/// A prefix of two blocks that is used three times, then prompts of three blocks that nobody sends again: five
/// times the pool. How much of the prefix is cached at the end, in tokens.
fn cached_after_a_scan(eviction: EvictionPolicy) -> u32 {
    let mut kv = policy(eviction, &[(12, None)]);
    (0..3).for_each(|_| cache(&mut kv, 0, 2));
    (1..=20).for_each(|name| cache(&mut kv, name, 3));
    assert!(kv.stats()[0].evictions >= 50);
    kv.cached_tokens(&chain(0, 2))
}

#[test]
fn a_scan_pushes_a_hot_prefix_out_of_lru_and_not_out_of_s3_fifo() {
    // The second of three uses takes the first block and computes the last one again, beside the one that is cached.
    assert_eq!(cached_after_a_scan(EvictionPolicy::Lru), 0);
    assert_eq!(cached_after_a_scan(EvictionPolicy::Tree), 0);
    assert_eq!(cached_after_a_scan(EvictionPolicy::S3Fifo), 8);
}

#[test]
fn what_is_computed_again_soon_after_it_went_stays_with_s3_fifo() {
    let mut kv = policy(EvictionPolicy::S3Fifo, &[(8, None)]);
    // The pool is too small for both: the second one pushes the end of the first one out, which comes again.
    for name in [1, 2, 1] {
        cache(&mut kv, name, 5);
    }
    (3..=20).for_each(|name| cache(&mut kv, name, 1));
    assert_eq!(kv.cached_tokens(&chain(1, 5)), 20);
}

#[test]
fn a_windowed_group_loses_heads_first_under_every_policy() {
    for eviction in POLICIES {
        let mut kv = policy(eviction, &[(8, None), (6, Some(5))]);
        cache(&mut kv, 1, 5);
        // Takes three blocks of each group; one of the windowed group was free.
        assert_eq!(kv.open(key(1), TENANT, &[], 12, 1), Admit::Ready { cached_tokens: 0 });
        assert_eq!((kv.stats()[0].evictions, kv.stats()[1].evictions), (0, 2));
        assert_eq!(kv.cached_tokens(&chain(1, 5)), 20, "{eviction:?}");
    }
}

/// Three prompts of three blocks that are cached one after the other and then, where a tier is there, written.
/// What is left of each when a fourth one comes that needs as much room, in tokens.
fn left_of_three(eviction: EvictionPolicy, is_written: bool) -> Vec<u32> {
    let mut kv = policy(eviction, &[(9, None)]);
    if is_written {
        let tier = TierConfig { slots: vec![20], writes_max: 9, backlog_max: 9, write: WritePolicy::Through };
        kv.add_tier(Tier::Host, tier, &[]);
    }
    (1..=3).for_each(|name| cache(&mut kv, name, 3));
    let mut writes: Vec<_> = std::iter::from_fn(|| kv.next_write()).collect();
    assert_eq!(writes.len(), if is_written { 9 } else { 0 });
    kv.check();
    // The newest first: how long a write takes says nothing about its block either.
    while let Some(write) = writes.pop() {
        kv.wrote(write.place, WriteEnd::Written);
    }
    kv.check();
    cache(&mut kv, 4, 4);
    (1..=3).map(|name| kv.cached_tokens(&chain(name, 3))).collect()
}

#[test]
fn what_a_tier_writes_goes_when_it_would_have_gone() {
    for eviction in POLICIES {
        assert_eq!(left_of_three(eviction, true), left_of_three(eviction, false), "{eviction:?}");
    }
}

#[test]
fn what_is_given_up_while_it_is_written_is_free_when_it_is() {
    let mut kv = policy(EvictionPolicy::Lru, &[(3, None)]);
    let tier = TierConfig { slots: vec![9], writes_max: 1, backlog_max: 9, write: WritePolicy::Through };
    kv.add_tier(Tier::Host, tier, &[]);
    cache(&mut kv, 1, 3);
    let write = kv.next_write().expect("three blocks wait");
    assert_eq!(write.hash, chain(1, 3)[0]);
    assert_eq!((kv.stats()[0].evictable, kv.stats()[0].cached), (2, 3));
    assert_eq!(kv.open(key(1), TENANT, &[], 3 * SIZE, 1), Admit::NoRoom, "the tier still reads one");
    assert!(matches!(kv.open(key(1), TENANT, &[], 2 * SIZE, 1), Admit::Ready { .. }));
    kv.check();
    // The other two went first; this one follows when its turn comes, and its memory when it is written.
    kv.flush();
    kv.check();
    assert_eq!((kv.cached_tokens(&chain(1, 1)), kv.stats()[0].in_use, kv.stats()[0].free), (0, 1, 0));
    kv.wrote(write.place, WriteEnd::Written);
    kv.check();
    assert_eq!((kv.stats()[0].in_use, kv.stats()[0].free), (0, 1));
    assert_eq!(kv.loadable_tokens(&chain(1, 1), 0), SIZE);
}
