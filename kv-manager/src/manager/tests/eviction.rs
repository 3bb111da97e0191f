//! What each policy of eviction is for, seen from where it counts: which prefixes are still cached.

use super::*;

fn policy(eviction: EvictionPolicy, groups: &[(u32, Option<u32>)]) -> KvManager {
    KvManager::new(KvConfig { eviction, ..config(groups) })
}

/// A prefix of two blocks that is used three times, then prompts of three blocks that nobody sends again: five times the
/// pool. How much of the prefix is cached at the end, in tokens.
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
    for eviction in [EvictionPolicy::Lru, EvictionPolicy::S3Fifo, EvictionPolicy::Tree] {
        let mut kv = policy(eviction, &[(8, None), (6, Some(5))]);
        cache(&mut kv, 1, 5);
        // Takes three blocks of each group; one of the windowed group was free.
        assert_eq!(kv.open(key(1), TENANT, &[], 12, 1), Admit::Ready { cached_tokens: 0 });
        assert_eq!((kv.stats()[0].evictions, kv.stats()[1].evictions), (0, 2));
        assert_eq!(kv.cached_tokens(&chain(1, 5)), 20, "{eviction:?}");
    }
}
