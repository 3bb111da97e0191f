//! Write-back by example: which blocks go down, when, and what becomes of them on the device.

use super::*;
use crate::tiers::{TierConfig, TierWrite, WriteEnd, WritePolicy};

/// A pool of ten blocks, of which more than eight go down until six are left, over tiers that are written back.
fn written_back(tiers: &[Tier], writes_max: usize, backlog_max: usize) -> KvManager {
    let watermarks = Watermarks { high_percent: 80, low_percent: 60 };
    let mut kv = KvManager::new(KvConfig { watermarks, ..config(&[(10, None)]) });
    for &tier in tiers {
        kv.add_tier(tier, TierConfig { slots: vec![20], writes_max, backlog_max, write: WritePolicy::Back }, &[]);
    }
    kv
}

/// All writes that may begin now.
fn begun(kv: &mut KvManager) -> Vec<TierWrite> {
    let writes = std::iter::from_fn(|| kv.next_write()).collect();
    kv.check();
    writes
}

/// Returns how much of the chain is on the device or in a tier, in tokens.
fn loadable(kv: &KvManager, name: u8, blocks: u8) -> u32 {
    let chain = chain(name, blocks);
    kv.loadable_tokens(&chain, kv.cached_tokens(&chain))
}

fn hashes(writes: &[TierWrite]) -> Vec<BlockHash> {
    writes.iter().map(|write| write.hash).collect()
}

#[test]
fn the_coldest_go_down_above_the_high_watermark_until_the_low_one() {
    let mut kv = written_back(&[Tier::Host], 8, 8);
    cache(&mut kv, 1, 4);
    cache(&mut kv, 2, 4);
    assert_eq!(begun(&mut kv), [], "eight of ten are not above it");
    cache(&mut kv, 3, 1);
    let writes = begun(&mut kv);
    // The oldest prompt, from its end on.
    assert_eq!(hashes(&writes), [chain(1, 4)[3], chain(1, 4)[2], chain(1, 4)[1]]);
    assert_eq!((kv.stats()[0].cold, kv.stats()[0].evictable), (3, 6));
    writes.iter().for_each(|write| kv.wrote(write.place, WriteEnd::Written));
    assert_eq!(begun(&mut kv), [], "six are warm");
    // They stay, and are taken over from the device as ever.
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 16);
    // What went down goes first, and nothing else goes for it.
    cache(&mut kv, 4, 4);
    assert_eq!((kv.cached_tokens(&chain(1, 4)), kv.cached_tokens(&chain(2, 4))), (4, 16));
    assert_eq!(loadable(&kv, 1, 4), 16);
    assert_eq!(kv.tier_stats().map(|(_, stats)| (stats.written, stats.late)).collect::<Vec<_>>(), [(3, 0)]);
}

#[test]
fn what_is_used_again_is_as_warm_as_ever_and_need_not_be_written_twice() {
    let mut kv = written_back(&[Tier::Host], 8, 8);
    (1..=9).for_each(|name| cache(&mut kv, name, 1));
    begun(&mut kv).iter().for_each(|write| kv.wrote(write.place, WriteEnd::Written));
    assert_eq!(kv.stats()[0].cold, 3);
    // A prompt of one block and a token takes the oldest over.
    assert_eq!(kv.open(key(1), TENANT, &chain(1, 1), SIZE + 1, 1), Admit::Ready { cached_tokens: SIZE });
    kv.close(key(1));
    assert_eq!(kv.stats()[0].cold, 2);
    // It is the newest now: two others go before it, though only they have to be written.
    (10..=11).for_each(|name| cache(&mut kv, name, 1));
    assert_eq!(hashes(&begun(&mut kv)), [chain(4, 1)[0], chain(5, 1)[0], chain(6, 1)[0]]);
}

#[test]
fn what_is_needed_before_it_is_written_is_given_up_and_counted_and_what_is_being_written_is_not() {
    let mut kv = written_back(&[Tier::Host], 1, 8);
    (1..=9).for_each(|name| cache(&mut kv, name, 1));
    let [write] = begun(&mut kv)[..] else { panic!("one at a time") };
    assert_eq!(kv.stats()[0].evictable, 8);
    // Takes all but what is being written: two that wait are lost.
    assert!(matches!(kv.open(key(1), TENANT, &[], 9 * SIZE, 1), Admit::Ready { .. }));
    assert_eq!(kv.open(key(2), TENANT, &[], 1, 1), Admit::NoRoom);
    kv.wrote(write.place, WriteEnd::Written);
    assert!(matches!(kv.open(key(2), TENANT, &[], 1, 1), Admit::Ready { .. }), "its memory is to be had now");
    assert_eq!(begun(&mut kv), []);
    assert_eq!(kv.tier_stats().map(|(_, stats)| (stats.written, stats.late)).collect::<Vec<_>>(), [(1, 2)]);
    assert_eq!(loadable(&kv, 1, 1), SIZE);
}

#[test]
fn blocks_wait_on_the_device_while_too_many_wait_to_be_written() {
    let mut kv = written_back(&[Tier::Host, Tier::Disk], 1, 2);
    (1..=10).for_each(|name| cache(&mut kv, name, 1));
    let writes = begun(&mut kv);
    // Each block goes to both: one is under way in each, and two wait.
    assert_eq!(hashes(&writes), [chain(1, 1)[0], chain(1, 1)[0]]);
    assert_eq!(kv.stats()[0].cold, 3);
    writes.iter().for_each(|write| kv.wrote(write.place, WriteEnd::Failed));
    assert_eq!(hashes(&begun(&mut kv)), [chain(2, 1)[0], chain(2, 1)[0]]);
    assert_eq!(kv.stats()[0].cold, 4);
    // A tier that is off waits for nobody.
    kv.close_tier(Tier::Host);
    kv.close_tier(Tier::Disk);
    (11..=20).for_each(|name| cache(&mut kv, name, 1));
    assert!(kv.tier_stats().all(|(_, stats)| stats.refused == 0));
}
