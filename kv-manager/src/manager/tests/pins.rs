//! Pins by example: what stays, from when, until when, and how much of it.

use super::*;

fn until_s(kv: &mut KvManager, name: u8, blocks: u8, seconds: u64) -> Option<u32> {
    let pinned = kv.pin(&chain(name, blocks), at_s(seconds));
    kv.check();
    match pinned {
        Pinned::Until { tokens } => Some(tokens),
        Pinned::TooMany => None,
    }
}

/// Prompts that nobody sends again, several times what the pool has.
fn scan(kv: &mut KvManager) {
    (100..110).for_each(|name| cache(kv, name, 4));
}

#[test]
fn a_pinned_prefix_outlives_any_scan_until_its_deadline_and_not_longer() {
    let mut kv = full(8);
    cache(&mut kv, 1, 4);
    // The last block of what is cached is not of the prefix.
    assert_eq!(until_s(&mut kv, 1, 3, 5), Some(12));
    assert_eq!((kv.stats()[0].pinned, kv.stats()[0].evictable, kv.next_pin_deadline()), (3, 1, Some(at_s(5))));
    scan(&mut kv);
    assert_eq!(kv.expire_pins(Time(at_s(5).0 - 1)), 0);
    scan(&mut kv);
    kv.flush();
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 12);
    assert_eq!(kv.expire_pins(at_s(5)), 1);
    assert_eq!((kv.stats()[0].pinned, kv.next_pin_deadline()), (0, None));
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 12, "it goes when the room is needed");
    scan(&mut kv);
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 0);
}

#[test]
fn what_is_cached_later_stays_from_then_on() {
    let mut kv = full(8);
    assert_eq!(until_s(&mut kv, 1, 3, 5), Some(12));
    assert_eq!(kv.stats()[0].pinned, 0);
    cache(&mut kv, 1, 2);
    assert_eq!(kv.stats()[0].pinned, 2);
    scan(&mut kv);
    assert_eq!(kv.cached_tokens(&chain(1, 3)), 8);
    cache(&mut kv, 1, 4);
    assert!(kv.unpin(&chain(1, 3)) && !kv.unpin(&chain(1, 3)));
    scan(&mut kv);
    assert_eq!(kv.cached_tokens(&chain(1, 3)), 0);
}

#[test]
fn pins_are_bounded_together_and_what_they_share_counts_once() {
    let mut kv = full(8);
    assert_eq!(until_s(&mut kv, 1, 3, 5), Some(12));
    assert_eq!(until_s(&mut kv, 1, 4, 9), Some(16));
    assert_eq!(until_s(&mut kv, 2, 1, 9), None, "half of the pool is pinned");
    assert_eq!(until_s(&mut kv, 1, 3, 7), Some(12), "the same prefix, for longer");
    assert_eq!((kv.pins(), kv.expire_pins(at_s(6)), kv.expire_pins(at_s(7))), (2, 0, 1));
    assert_eq!(until_s(&mut kv, 2, 1, 9), None, "the longer prefix has them all");
    assert!(kv.unpin(&chain(1, 4)));
    assert_eq!(until_s(&mut kv, 2, 1, 9), Some(4));
    assert_eq!(until_s(&mut kv, 3, 0, 9), Some(0), "there is nothing to pin");
    assert_eq!(kv.pins(), 1);
}

#[test]
fn of_a_windowed_group_only_what_the_next_prompt_needs_is_pinned() {
    let mut kv = KvManager::new(config(&[(8, None), (8, Some(5))]));
    assert_eq!(until_s(&mut kv, 1, 4, 5), Some(16));
    cache(&mut kv, 1, 4);
    assert_eq!(kv.stats().iter().map(|stats| stats.pinned).collect::<Vec<_>>(), [4, 1]);
    (2..10).for_each(|name| cache(&mut kv, name, 3));
    assert_eq!(kv.cached_tokens(&chain(1, 4)), 16);
}
