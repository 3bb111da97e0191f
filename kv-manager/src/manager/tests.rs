//! Single rules by example; `model` runs everything against a world that remembers what each block should hold.

mod back;
mod catch_up;
mod eviction;
mod model;
mod parking;
mod pins;
mod reads;
mod room;
mod tenants;

use super::*;
use crate::config::{EvictionPolicy, GroupConfig, Quotas, Watermarks};
use crate::tiers::{Slot, TierConfig, TierRecord, WriteEnd, WritePolicy};
use domain::{BlockId, BlockLink, Choice, Epoch, RequestId};

const SIZE: u32 = 4;
/// Whose everything is, where nobody else is there.
const TENANT: Tenant = Tenant(1);
const SECOND: Duration = Duration::from_secs(1);

fn config(groups: &[(u32, Option<u32>)]) -> KvConfig {
    KvConfig {
        block_tokens: SIZE,
        chunk_tokens: 100 * SIZE,
        groups: groups.iter().map(|&(blocks, window)| GroupConfig { blocks, reserve_blocks: 0, window }).collect(),
        eviction: EvictionPolicy::Lru,
        watermarks: Watermarks::default(),
        pinned_percent: 50,
        quotas: Quotas::default(),
        park_after: None,
        answers_max: 2,
        leases_max: 2,
    }
}

fn full(blocks: u32) -> KvManager {
    KvManager::new(config(&[(blocks, None)]))
}

fn key(request: u64) -> SeqKey {
    SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) }
}

/// Identities of a made-up sequence: equal names share all blocks.
fn chain(name: u8, blocks: u8) -> Vec<BlockHash> {
    (0..blocks).map(|number| BlockHash([name, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).collect()
}

fn at_s(seconds: u64) -> Time {
    Time::ZERO + SECOND * seconds as u32
}

/// Opens, computes and closes a sequence, so that its full blocks are cached.
fn cache(kv: &mut KvManager, name: u8, blocks: u8) {
    let key = key(1000 + u64::from(name));
    let tokens = u32::from(blocks) * SIZE;
    assert!(matches!(kv.open(key, TENANT, &chain(name, blocks), tokens, 1), Admit::Ready { .. }));
    kv.written(key, tokens, &chain(name, blocks));
    kv.close(key);
    kv.check();
}

fn offer(kv: &mut KvManager, key: SeqKey, tokens: u32) -> OfferParts {
    kv.offer(Time::ZERO, key, tokens, SECOND, at_s(10)).expect("a lease is left")
}

#[test]
fn a_prompt_keeps_its_last_token_to_compute_and_a_fetch_does_not() {
    let mut kv = full(8);
    cache(&mut kv, 1, 3);
    assert_eq!(kv.cached_tokens(&chain(1, 3)), 12);
    assert_eq!(kv.open(key(1), TENANT, &chain(1, 3), 12, 1), Admit::Ready { cached_tokens: 8 });
    assert_eq!(kv.open(key(2), TENANT, &chain(1, 3), 12, 0), Admit::Ready { cached_tokens: 12 });
    assert_eq!(kv.open(key(3), TENANT, &chain(1, 3), 13, 1), Admit::Ready { cached_tokens: 12 });
    assert_eq!(kv.tables(key(2))[0].blocks, kv.tables(key(3))[0].blocks[..3]);
    kv.check();
}

#[test]
fn what_can_never_fit_is_told_apart_from_what_cannot_fit_now() {
    let mut kv = full(4);
    assert_eq!(kv.open(key(1), TENANT, &[], 17, 1), Admit::Never);
    assert_eq!(kv.open(key(1), TENANT, &[], 12, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!(kv.open(key(2), TENANT, &[], 8, 1), Admit::NoRoom);
    assert_eq!(kv.grow(key(1), 17), Grow::NoRoom);
    assert_eq!(kv.stats()[0].available(), 1);
}

#[test]
fn only_what_gives_room_back_is_counted_as_given_back() {
    let mut kv = full(8);
    cache(&mut kv, 1, 3);
    assert!(matches!(kv.open(key(1), TENANT, &[], 8, 1), Admit::Ready { .. }));
    let before = kv.given_back();
    assert_eq!(kv.open(key(2), TENANT, &chain(2, 7), 28, 1), Admit::NoRoom);
    // It is computed, grows, and pushes out what is cached; another one takes the rest.
    kv.written(key(1), 8, &chain(3, 2));
    assert_eq!(kv.grow(key(1), 20), Grow::Ready(Vec::new()));
    assert!(matches!(kv.open(key(3), TENANT, &chain(1, 1), 12, 1), Admit::Ready { .. }));
    assert!(kv.stats()[0].evictions > 0);
    // Pins may take no room that is promised: the group has no window.
    assert_eq!(kv.pin(&chain(3, 1), at_s(5)), Pinned::Until { tokens: 4 });
    assert_eq!(kv.given_back(), before);
    let lease = offer(&mut kv, key(1), 8).lease;
    kv.close(key(1));
    let closed = kv.given_back();
    assert!(closed > before);
    kv.release(Time::ZERO, lease);
    assert!(kv.given_back() > closed, "the lease kept blocks");
}

#[test]
fn a_fetch_into_a_windowed_pool_needs_the_window_only() {
    let mut kv = KvManager::new(config(&[(3, Some(5))]));
    assert_eq!(kv.open(key(1), TENANT, &[], 40, 1), Admit::Never);
    assert_eq!(kv.open(key(1), TENANT, &[], 40, 0), Admit::Ready { cached_tokens: 0 });
    // The query at 40 attends from 36 on.
    assert_eq!((kv.tables(key(1))[0].first, kv.tables(key(1))[0].blocks.len()), (9, 1));
}

#[test]
fn opening_leaves_the_reserve_to_those_that_run_and_growing_uses_it() {
    let mut kv = KvManager::new(KvConfig {
        groups: vec![GroupConfig { blocks: 4, reserve_blocks: 2, window: None }],
        ..config(&[])
    });
    // Nobody runs: the whole pool may be had.
    assert_eq!(kv.open(key(1), TENANT, &[], 16, 1), Admit::Ready { cached_tokens: 0 });
    kv.close(key(1));
    assert_eq!(kv.open(key(1), TENANT, &[], 4, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!(kv.open(key(2), TENANT, &[], 8, 1), Admit::NoRoom);
    assert_eq!(kv.open(key(2), TENANT, &[], 4, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!(kv.grow(key(1), 12), Grow::Ready(Vec::new()));
    assert_eq!(kv.stats()[0].free, 0);
}

#[test]
fn the_tail_of_a_prefix_is_evicted_before_its_head() {
    let mut kv = full(4);
    cache(&mut kv, 1, 4);
    assert_eq!(kv.open(key(1), TENANT, &[], 4, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 12);
    assert_eq!(kv.grow(key(1), 8), Grow::Ready(Vec::new()));
    assert_eq!((kv.cached_tokens(&chain(1, 4)), kv.stats()[0].evictions), (8, 2));
}

#[test]
fn an_identity_has_one_indexed_block_and_its_duplicate_goes_with_its_sequence() {
    let mut kv = full(6);
    let ids = chain(1, 2);
    for request in [1, 2] {
        assert_eq!(kv.open(key(request), TENANT, &ids, 8, 1), Admit::Ready { cached_tokens: 0 });
    }
    for request in [1, 2] {
        kv.written(key(request), 8, &ids);
    }
    kv.close(key(1));
    cache(&mut kv, 2, 2);
    kv.close(key(2));
    kv.check();
    assert_eq!((kv.stats()[0].cached, kv.stats()[0].free), (4, 2));
    // The duplicates' end counted as a use of the indexed twins: the other prefix is older now.
    assert_eq!(kv.open(key(3), TENANT, &[], 12, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!((kv.cached_tokens(&ids), kv.cached_tokens(&chain(2, 2))), (8, 4));
}

#[test]
fn blocks_that_are_being_filled_are_no_prefix() {
    let mut kv = full(8);
    assert!(matches!(kv.open(key(1), TENANT, &chain(1, 2), 8, 1), Admit::Ready { .. }));
    assert_eq!(kv.cached_tokens(&chain(1, 2)), 0);
    kv.written(key(1), 7, &chain(1, 2));
    assert_eq!(kv.cached_tokens(&chain(1, 2)), 4);
}

#[test]
fn the_first_writer_of_a_shared_tail_copies_it_and_the_source_outlives_the_copy() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 6, 1);
    kv.written(key(1), 6, &[]);
    kv.fork(key(1), key(2));
    let shared = kv.tables(key(1))[0].blocks.clone();
    let Grow::Ready(copies) = kv.grow(key(2), 7) else { panic!("two blocks are free") };
    let copy = kv.tables(key(2))[0].blocks[1];
    assert_eq!(copies, [BlockCopy { group: GroupId(0), from: shared[1], to: copy }]);
    // The other is alone with the tail now.
    assert_eq!(kv.grow(key(1), 7), Grow::Ready(Vec::new()));
    // Its end frees nothing that the copy still reads.
    kv.close(key(1));
    assert_eq!(kv.stats()[0].free, 1);
    kv.written(key(2), 7, &[]);
    assert_eq!(kv.stats()[0].free, 2);
    kv.check();
}

#[test]
fn an_offered_tail_is_frozen_and_its_promised_positions_are_not() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 6, 1);
    offer(&mut kv, key(1), 6);
    assert_eq!(kv.grow(key(1), 6), Grow::Ready(Vec::new()));
    kv.written(key(1), 6, &[]);
    let tail = kv.tables(key(1))[0].blocks[1];
    let Grow::Ready(copies) = kv.grow(key(1), 7) else { panic!("two blocks are free") };
    assert_eq!(copies.iter().map(|copy| copy.from).collect::<Vec<_>>(), [tail]);
    assert_eq!(kv.grow(key(1), 8), Grow::Ready(Vec::new()));
}

#[test]
fn a_copy_that_is_still_to_be_made_is_not_ready_for_a_reader() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 6, 1);
    kv.written(key(1), 6, &[]);
    // One step is in flight when the tail is frozen; the next one, planned behind it, copies the tail.
    assert_eq!(kv.grow(key(1), 7), Grow::Ready(Vec::new()));
    offer(&mut kv, key(1), 6);
    assert!(matches!(kv.grow(key(1), 8), Grow::Ready(copies) if copies.len() == 1));
    let early = offer(&mut kv, key(1), 7);
    assert_eq!(early.ready, 4);
    kv.written(key(1), 7, &[]);
    assert!(!kv.release(Time::ZERO, early.lease));
    let late = offer(&mut kv, key(1), 7);
    kv.written(key(1), 8, &[]);
    assert!(kv.release(Time::ZERO, late.lease));
}

#[test]
fn a_lease_keeps_the_blocks_of_a_closed_sequence_and_its_end_lets_them_go() {
    let mut kv = full(3);
    kv.open(key(1), TENANT, &[], 10, 1);
    kv.written(key(1), 10, &chain(1, 2));
    let parts = offer(&mut kv, key(1), 10);
    assert_eq!((parts.lease, parts.ready), (LeaseId(1), 10));
    kv.close(key(1));
    let stats = kv.stats()[0];
    assert_eq!((stats.filling, stats.cached, stats.leased, stats.available()), (1, 2, 3, 0));
    kv.flush();
    assert_eq!(kv.open(key(2), TENANT, &[], 4, 1), Admit::NoRoom);
    assert!(kv.release(Time::ZERO, parts.lease));
    let stats = kv.stats()[0];
    assert_eq!((stats.free, stats.cached, stats.leased, stats.available()), (1, 2, 0, 3));
    kv.check();
}

#[test]
fn a_release_is_idempotent_until_it_is_acknowledged() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 4, 1);
    kv.written(key(1), 4, &[]);
    let lease = offer(&mut kv, key(1), 4).lease;
    assert!(kv.release(Time::ZERO, lease) && kv.release(at_s(100), lease));
    kv.ack(lease);
    assert!(!kv.release(Time::ZERO, lease));
    assert!(!kv.release(Time::ZERO, LeaseId(77)));
    // Two answers are kept: the third makes the first be forgotten.
    let mut release = |_| {
        let lease = offer(&mut kv, key(1), 4).lease;
        assert!(kv.release(Time::ZERO, lease));
        lease
    };
    let leases: Vec<_> = (0..3).map(&mut release).collect();
    assert_eq!(leases.iter().map(|&lease| kv.release(Time::ZERO, lease)).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn a_promise_not_kept_is_invalid() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 8, 1);
    let lease = offer(&mut kv, key(1), 8).lease;
    kv.written(key(1), 4, &[]);
    assert!(!kv.release(Time::ZERO, lease));
    let lease = offer(&mut kv, key(1), 8).lease;
    kv.written(key(1), 8, &[]);
    kv.withdraw(lease);
    assert!(!kv.release(Time::ZERO, lease));
    assert_eq!(kv.expire(at_s(100)), []);
}

#[test]
fn only_a_rising_tick_count_renews_and_nothing_revives() {
    let mut kv = full(4);
    kv.open(key(1), TENANT, &[], 4, 1);
    let lease = kv.offer(Time::ZERO, key(1), 4, SECOND * 4, at_s(7)).expect("a lease is left").lease;
    assert_eq!(kv.next_deadline(), Some(at_s(4)));
    assert!(kv.renew(at_s(1), lease, 10));
    assert_eq!(kv.next_deadline(), Some(at_s(5)));
    assert!(kv.renew(at_s(2), lease, 10) && kv.renew(at_s(2), lease, 9), "it is alive all the same");
    assert_eq!(kv.next_deadline(), Some(at_s(5)));
    // Its `until` bounds it.
    assert!(kv.renew(at_s(4), lease, 11));
    assert_eq!(kv.next_deadline(), Some(at_s(7)));
    assert!(!kv.renew(at_s(7), lease, 12) && !kv.release(at_s(7), lease));
    assert_eq!((kv.expire(at_s(7)), kv.expire(at_s(8))), (vec![lease], vec![]));
    assert!(!kv.renew(at_s(7), lease, 13));
    assert_eq!(kv.next_deadline(), None);
}

#[test]
fn a_pause_of_its_owner_takes_nothing_from_a_live_lease_and_revives_none() {
    // Each lease with what is left of it when the owner stands still, and the pause: just under it, just over it,
    // and far over.
    let (left, just) = (SECOND * 3, Duration::from_nanos(1));
    for pause in [left - just, left, left + just, left * 100] {
        let mut kv = full(4);
        kv.open(key(1), TENANT, &[], 4, 1);
        kv.written(key(1), 4, &[]);
        let mut offer = |until| kv.offer(Time::ZERO, key(1), 4, SECOND * 4, until).expect("a lease is left").lease;
        let (renewed, bounded) = (offer(at_s(100)), offer(at_s(4)));
        let before = at_s(1);
        kv.stood_still(pause);
        let after = before + pause;
        assert_eq!((kv.next_deadline(), kv.expire(after)), (Some(after + left), vec![]), "after {pause:?}");
        // What the reader said meanwhile is heard now.
        assert!(kv.renew(after, renewed, 10) && kv.renew(after, bounded, 10));
        assert_eq!(kv.expire(after + (left - just)), []);
        assert_eq!(kv.expire(after + left), [bounded], "its `until` is as far away as it was");
        assert!(kv.release(after + left, renewed));
    }
    // One whose time had passed before, seen or not, is over.
    for seen in [true, false] {
        let mut kv = full(4);
        kv.open(key(1), TENANT, &[], 4, 1);
        kv.written(key(1), 4, &[]);
        let lease = kv.offer(Time::ZERO, key(1), 4, SECOND * 4, at_s(100)).expect("a lease is left").lease;
        if seen {
            assert_eq!(kv.expire(at_s(4)), [lease]);
        }
        kv.stood_still(SECOND * 5);
        assert!(!kv.renew(at_s(9), lease, 1) && !kv.release(at_s(9), lease));
        assert_eq!(kv.expire(at_s(9)), if seen { vec![] } else { vec![lease] });
    }
    // A lease that is given later has its own time.
    let mut kv = full(4);
    kv.stood_still(SECOND * 5);
    kv.open(key(1), TENANT, &[], 4, 1);
    kv.offer(at_s(9), key(1), 4, SECOND * 4, at_s(12)).expect("a lease is left");
    assert_eq!(kv.next_deadline(), Some(at_s(12)));
    kv.check();
}

#[test]
fn leases_are_bounded_and_copies_in_flight_are_never_offered() {
    let mut kv = full(8);
    kv.open(key(1), TENANT, &[], 4, 1);
    kv.open(key(2), TENANT, &[], 8, 0);
    assert_eq!(kv.offer(Time::ZERO, key(2), 8, SECOND, at_s(10)), None);
    kv.written(key(2), 8, &[]);
    offer(&mut kv, key(2), 8);
    let first = offer(&mut kv, key(1), 4);
    assert_eq!(kv.offer(Time::ZERO, key(1), 4, SECOND, at_s(10)), None);
    kv.withdraw(first.lease);
    assert_eq!(offer(&mut kv, key(1), 4).lease, LeaseId(3));
}

#[test]
fn what_many_prompts_use_again_waits_once_to_be_written() {
    let mut kv = full(8);
    let write = WritePolicy::SecondUse;
    kv.add_tier(Tier::Disk, TierConfig { slots: vec![8], writes_max: 1, backlog_max: 3, write }, &[]);
    cache(&mut kv, 1, 3);
    let uses = |kv: &mut KvManager, times| {
        for _ in 0..times {
            assert_eq!(kv.open(key(1), TENANT, &chain(1, 3), 13, 1), Admit::Ready { cached_tokens: 12 });
            kv.close(key(1));
        }
        kv.check();
        let stats = kv.tier_stats().next().expect("there is the tier").1;
        (stats.backlog, stats.writing, stats.written, stats.refused)
    };
    assert_eq!(uses(&mut kv, 5), (3, 0, 0, 0));
    let write = kv.next_write().expect("three wait");
    assert_eq!(uses(&mut kv, 2), (2, 1, 0, 0), "one is on its way");
    kv.wrote(write.place, WriteEnd::Written);
    while let Some(write) = kv.next_write() {
        kv.wrote(write.place, WriteEnd::Failed);
    }
    assert_eq!(uses(&mut kv, 2), (2, 0, 1, 0), "what was not written waits again");
}

#[test]
fn generations_rise_with_every_use() {
    let mut kv = full(1);
    for generation in 1..4 {
        kv.open(key(1), TENANT, &[], 4, 1);
        let parts = offer(&mut kv, key(1), 4);
        assert_eq!(parts.groups[0].blocks, [(BlockId(0), domain::Generation(generation))]);
        kv.withdraw(parts.lease);
        kv.close(key(1));
    }
}

#[test]
fn changes_cancel_out_and_a_windowed_group_does_not_count_beside_a_full_one() {
    let mut kv = KvManager::new(config(&[(4, None), (4, Some(5))]));
    cache(&mut kv, 1, 2);
    let none = IndexChanges::default;
    assert_eq!(
        kv.take_index_changes(),
        IndexChanges { device: BlockLink::run(None, &chain(1, 2)).collect(), ..none() }
    );
    cache(&mut kv, 2, 1);
    kv.flush();
    assert_eq!(kv.take_index_changes(), IndexChanges { gone: chain(1, 2), ..none() });
    assert_eq!(kv.indexed(), []);
}

#[test]
fn of_what_lies_in_tiers_it_is_told_which_block_it_continues_unless_an_earlier_life_wrote_it() {
    let mut kv = full(4);
    let config = || TierConfig { slots: vec![4], writes_max: 4, backlog_max: 4, write: WritePolicy::Through };
    kv.add_tier(Tier::Host, config(), &[]);
    cache(&mut kv, 1, 3);
    while let Some(write) = kv.next_write() {
        kv.wrote(write.place, WriteEnd::Written);
    }
    kv.take_index_changes();
    kv.flush();
    let host: Vec<_> = BlockLink::run(None, &chain(1, 3)).collect();
    assert_eq!(kv.take_index_changes(), IndexChanges { host: host.clone(), ..IndexChanges::default() });
    let record =
        |(slot, &hash): (u32, &BlockHash)| TierRecord { slot: Slot { group: GroupId(0), slot }, hash, tenant: TENANT };
    let records: Vec<_> = (0..).zip(&chain(2, 2)).map(record).collect();
    kv.add_tier(Tier::Disk, config(), &records);
    let disk = chain(2, 2).into_iter().map(|hash| BlockLink { parent: None, hash }).collect();
    assert_eq!(kv.take_index_changes(), IndexChanges { disk, ..IndexChanges::default() });
    // The same when it is told again.
    kv.tell_tiers_again();
    assert_eq!(kv.take_index_changes().host, host);
}
