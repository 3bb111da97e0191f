//! Prompts that catch up with the cache, by example.

use super::*;

/// Opens a prompt of `blocks` full blocks and one token, of which nothing is cached, and computes the first block.
fn begun(kv: &mut KvManager, request: u64, blocks: u8) -> SeqKey {
    let key = key(request);
    let tokens = u32::from(blocks) * SIZE + 1;
    assert_eq!(kv.open(key, TENANT, &chain(1, blocks), tokens, 1), Admit::Ready { cached_tokens: 0 });
    kv.written(key, SIZE, &chain(1, blocks));
    key
}

#[test]
fn what_another_computed_meanwhile_is_shared_and_own_blocks_are_given_back() {
    let mut kv = full(12);
    let late = begun(&mut kv, 1, 4);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17), None, "nobody computed more");
    cache(&mut kv, 1, 3);
    let held = kv.stats()[0].filling;
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17), Some(CaughtUp { tokens: 12, copies: Vec::new() }));
    assert_eq!(kv.stats()[0].filling, held - 2);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17), None, "it has everything");
    kv.check();
    // The last token is computed in any case.
    let mut kv = full(12);
    let late = begun(&mut kv, 1, 4);
    cache(&mut kv, 1, 4);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 16).map(|caught| caught.tokens), Some(12));
}

#[test]
fn what_was_promised_is_filled_in_its_place_and_ready_when_the_step_with_the_copies_ended() {
    let mut kv = full(12);
    let late = begun(&mut kv, 1, 3);
    let parts = offer(&mut kv, late, 13);
    cache(&mut kv, 1, 3);
    let before = kv.tables(late);
    let CaughtUp { tokens, copies } = kv.catch_up(late, &chain(1, 3), 13).expect("two blocks are cached");
    assert_eq!((tokens, kv.tables(late)), (12, before), "block ids are promised");
    let to: Vec<BlockId> = copies.iter().map(|copy| copy.to).collect();
    assert_eq!(to, kv.tables(late)[0].blocks[1..3]);
    // The sources stay until the copies are made, whatever else needs room.
    kv.flush();
    assert_eq!(offer(&mut kv, late, 13).ready, 4);
    kv.check();
    kv.written(late, 13, &chain(1, 3));
    assert!(kv.release(Time::ZERO, parts.lease));
    kv.check();
}

#[test]
fn copies_add_up_until_a_step_makes_them() {
    let mut kv = full(20);
    let late = begun(&mut kv, 1, 4);
    let parts = offer(&mut kv, late, 17);
    cache(&mut kv, 1, 2);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17).map(|caught| (caught.tokens, caught.copies.len())), Some((8, 1)));
    cache(&mut kv, 1, 4);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17).map(|caught| (caught.tokens, caught.copies.len())), Some((16, 2)));
    assert_eq!(offer(&mut kv, late, 17).ready, 4);
    kv.written(late, 17, &chain(1, 4));
    assert!(kv.release(Time::ZERO, parts.lease));
    kv.check();
}

#[test]
fn a_promised_block_that_another_sequence_shares_is_computed() {
    let mut kv = full(12);
    let late = begun(&mut kv, 1, 3);
    offer(&mut kv, late, 13);
    kv.fork(late, key(2));
    cache(&mut kv, 1, 3);
    assert_eq!(kv.catch_up(late, &chain(1, 3), 13), None);
    // The fork promised nothing.
    assert_eq!(kv.catch_up(key(2), &chain(1, 3), 13), Some(CaughtUp { tokens: 12, copies: Vec::new() }));
    kv.check();
}

#[test]
fn a_windowed_group_drops_what_nobody_will_attend_to() {
    let mut kv = KvManager::new(config(&[(20, None), (20, Some(5))]));
    let late = begun(&mut kv, 1, 4);
    cache(&mut kv, 1, 4);
    assert_eq!(kv.catch_up(late, &chain(1, 4), 17).map(|caught| caught.tokens), Some(16));
    let firsts: Vec<u32> = kv.tables(late).iter().map(|table| table.first).collect();
    assert_eq!(firsts, [0, 3]);
    kv.check();
}
