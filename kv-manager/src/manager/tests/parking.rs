//! Parking by example: what leaves, when, where to, and how it comes back.

use super::*;
use crate::tiers::{ReadEnd, TierConfig, WriteEnd, WritePolicy};

/// Eight blocks over these tiers, to which nothing is written but what is parked. Idle is what nobody used for ten
/// seconds.
fn over(tiers: &[Tier], backlog_max: usize) -> KvManager {
    let mut kv = KvManager::new(KvConfig { park_after: Some(SECOND * 10), ..config(&[(8, None)]) });
    for &tier in tiers {
        let write = WritePolicy::SecondUse;
        kv.add_tier(tier, TierConfig { slots: vec![20], writes_max: 8, backlog_max, write }, &[]);
    }
    kv.tick(at_s(100));
    kv
}

/// Writes all that waits. How many blocks.
fn write(kv: &mut KvManager, end: WriteEnd) -> usize {
    let writes: Vec<_> = std::iter::from_fn(|| kv.next_write()).collect();
    assert!(writes.iter().all(|write| write.place.tier == Tier::Disk), "what is parked goes to the lowest tier");
    writes.iter().for_each(|write| kv.wrote(write.place, end));
    kv.check();
    writes.len()
}

#[test]
fn what_is_idle_for_long_leaves_and_the_next_turn_brings_it_back() {
    let mut kv = over(&[Tier::Host, Tier::Disk], 8);
    cache(&mut kv, 1, 3);
    kv.tick(at_s(105));
    cache(&mut kv, 2, 2);
    kv.tick(Time(at_s(110).0 - 1));
    assert_eq!(write(&mut kv, WriteEnd::Written), 0);
    kv.tick(at_s(110));
    assert_eq!(kv.cached_tokens(&chain(1, 3)), 12, "until it is written it can be used");
    assert_eq!(write(&mut kv, WriteEnd::Written), 3);
    assert_eq!((kv.cached_tokens(&chain(1, 3)), kv.cached_tokens(&chain(2, 2))), (0, 8));
    assert_eq!((kv.stats()[0].free, kv.stats()[0].parked, kv.stats()[0].evictions), (6, 3, 0));
    let reads = kv.load(key(1), TENANT, &chain(1, 3), 12).expect("all of it is on disk");
    reads.iter().for_each(|read| kv.read_ended(read, &chain(1, 3), ReadEnd::Good));
    kv.close(key(1));
    assert_eq!(kv.cached_tokens(&chain(1, 3)), 12);
    // It lies there already, so the next time nothing is written.
    kv.tick(at_s(120));
    assert_eq!((kv.stats()[0].parked, write(&mut kv, WriteEnd::Written)), (6, 2));
    assert_eq!(kv.stats()[0].free, 8);
}

#[test]
fn what_is_used_again_stays_and_what_it_is_parked_with_does_not() {
    let mut kv = over(&[Tier::Disk], 8);
    cache(&mut kv, 1, 4);
    assert_eq!(kv.park(&chain(1, 4)), 4);
    let writes: Vec<_> = std::iter::from_fn(|| kv.next_write()).collect();
    // A prompt takes the first two over while they are written.
    assert_eq!(kv.open(key(1), TENANT, &chain(1, 2), 9, 1), Admit::Ready { cached_tokens: 8 });
    kv.check();
    writes.iter().for_each(|write| kv.wrote(write.place, WriteEnd::Written));
    assert_eq!((kv.stats()[0].parked, kv.cached_tokens(&chain(1, 4))), (2, 8));
    kv.close(key(1));
    kv.check();
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 8);
    // What a pin names stays too.
    assert_eq!(kv.pin(&chain(1, 1), at_s(500)), Pinned::Until { tokens: 4 });
    assert_eq!((kv.park(&chain(1, 4)), kv.cached_tokens(&chain(1, 4))), (1, 4));
}

#[test]
fn what_cannot_be_written_stays_and_is_the_first_to_be_given_up() {
    let mut kv = over(&[Tier::Disk], 2);
    cache(&mut kv, 1, 4);
    assert_eq!(kv.park(&chain(1, 4)), 2, "two may wait");
    assert_eq!(write(&mut kv, WriteEnd::Failed), 2);
    assert_eq!((kv.cached_tokens(&chain(1, 4)), kv.stats()[0].parked), (16, 0));
    cache(&mut kv, 2, 4);
    cache(&mut kv, 3, 2);
    assert_eq!((kv.cached_tokens(&chain(1, 4)), kv.cached_tokens(&chain(2, 4))), (8, 16));
    kv.close_tier(Tier::Disk);
    assert_eq!(kv.park(&chain(2, 4)), 0, "there is nowhere to park");
    kv.tick(at_s(1000));
    assert_eq!(write(&mut kv, WriteEnd::Written), 0);
}
