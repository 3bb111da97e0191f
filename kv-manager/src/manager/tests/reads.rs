//! How reads from a tier end.

use super::*;
use crate::tiers::{ReadEnd, Slot, TierConfig, TierRecord, WritePolicy};

/// Loads a prefix of three blocks, of which the read of the last ends so. How much of it is loadable afterwards,
/// and what was counted to have failed.
#[track_caller]
fn check(end: ReadEnd, loadable: u32, failed: u64) {
    let mut kv = KvManager::new(config(&[(10, None)]));
    let chain = chain(1, 3);
    let record = |(slot, &hash)| TierRecord { slot: Slot { group: GroupId(0), slot }, hash, tenant: TENANT };
    let records: Vec<_> = (0..).zip(&chain).map(record).collect();
    let tier = TierConfig { slots: vec![4], writes_max: 1, backlog_max: 1, write: WritePolicy::Never };
    kv.add_tier(Tier::Disk, tier, &records);
    let reads = kv.load(key(1), TENANT, &chain, 3 * SIZE).expect("there is room, and all of it is there");
    for (number, read) in reads.iter().enumerate() {
        kv.read_ended(read, &chain, if number == 2 { end } else { ReadEnd::Good });
    }
    kv.close(key(1));
    kv.check();
    assert_eq!(kv.cached_tokens(&chain), if end == ReadEnd::Good { 3 * SIZE } else { 2 * SIZE });
    kv.flush();
    assert_eq!(kv.loadable_tokens(&chain, 0), loadable, "{end:?}");
    let stats: Vec<_> = kv.tier_stats().map(|(_, stats)| (stats.held, stats.failed)).collect();
    assert_eq!(stats, [(loadable / SIZE, failed)], "{end:?}");
}

#[test]
fn a_record_that_cannot_be_read_is_given_up_and_one_that_was_not_is_kept() {
    check(ReadEnd::Good, 3 * SIZE, 0);
    check(ReadEnd::Unread, 3 * SIZE, 0);
    check(ReadEnd::Abandoned, 3 * SIZE, 0);
    check(ReadEnd::Failed, 2 * SIZE, 1);
    check(ReadEnd::Wrong, 2 * SIZE, 0);
}
