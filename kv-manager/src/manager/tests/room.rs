//! Room in groups with windows: what long prompts take at once, and what is promised to them.

use super::*;
use domain::Claim;

/// A group of all tokens, and one with a window of two blocks.
fn windowed(blocks: u32) -> KvManager {
    KvManager::new(KvConfig { chunk_tokens: SIZE, pinned_percent: 0, ..config(&[(100, None), (blocks, Some(8))]) })
}

/// Blocks that a prompt of any length has of that: the window, a chunk, and the last window.
const EACH: u32 = 3 + 1 + 3;

/// Computes a prompt's next chunk. `false`: there was no room.
fn chunk(kv: &mut KvManager, key: SeqKey, text: u8, from: u32, tokens: u32) -> bool {
    let to = (from + SIZE).min(tokens);
    if kv.grow(key, to) == Grow::NoRoom {
        return false;
    }
    kv.written(key, to, &chain(text, (tokens / SIZE) as u8));
    kv.check();
    true
}

#[test]
fn a_long_prompt_has_a_window_and_a_chunk_and_its_last_window() {
    let mut kv = windowed(EACH);
    let tokens = 20 * SIZE + 1;
    assert_eq!(kv.open(key(1), TENANT, &[], tokens, 1), Admit::Ready { cached_tokens: 0 });
    let used = |kv: &KvManager| kv.stats().iter().map(|stats| stats.filling + stats.in_use).collect::<Vec<_>>();
    assert_eq!(used(&kv), [21, 1 + 3], "the first chunk, and the last window");
    let last = kv.offer(Time(0), key(1), tokens, SECOND, Time(u64::MAX)).expect("the last window has its blocks");
    assert_eq!((last.groups[1].first, last.groups[1].blocks.len()), (18, 3));
    for from in (0..tokens).step_by(SIZE as usize) {
        assert!(chunk(&mut kv, key(1), 1, from, tokens), "at {from}");
        assert!(used(&kv)[1] <= EACH, "{:?} at {from}", used(&kv));
    }
    let tables = kv.tables(key(1));
    let ids: Vec<_> = last.groups[1].blocks.iter().map(|&(block, _)| block).collect();
    assert_eq!((tables[1].first, &tables[1].blocks), (18, &ids), "what was offered is what was written");
}

#[test]
fn what_is_promised_to_a_prompt_is_given_to_no_other() {
    let mut kv = windowed(2 * EACH - 1);
    let tokens = 20 * SIZE + 1;
    assert_eq!(kv.open(key(1), TENANT, &[], tokens, 1), Admit::Ready { cached_tokens: 0 });
    assert_eq!(kv.stats()[1].free, 2 * EACH - 1 - 4);
    assert_eq!(kv.open(key(2), TENANT, &[], tokens, 1), Admit::NoRoom);
    assert!(!kv.has_room(&[], tokens, Claim::default()));
    assert!(kv.has_room(&[], (EACH - 1) * SIZE, Claim::default()));
    assert!(!kv.has_room(&[], 1, Claim::of_job((EACH - 1).into()).with_job(u64::MAX / 2)));
    // A short one takes what is left, and does not grow into the rest.
    assert_eq!(kv.open(key(3), TENANT, &[], (EACH - 1) * SIZE, 1), Admit::Ready { cached_tokens: 0 });
    kv.written(key(3), SIZE, &[]);
    assert_eq!(kv.grow(key(3), (EACH - 1) * SIZE + 1), Grow::NoRoom);
    for from in (0..tokens).step_by(SIZE as usize) {
        assert!(chunk(&mut kv, key(1), 1, from, tokens), "at {from}");
    }
    assert!(matches!(kv.grow(key(3), (EACH - 1) * SIZE + 1), Grow::Ready(_)), "the promise is over");
}

#[test]
fn room_is_the_share_of_the_fullest_group() {
    let mut kv = windowed(2 * EACH);
    assert_eq!(kv.room(), Room { available: 100, total: 100 });
    kv.open(key(1), TENANT, &[], 40 * SIZE + 1, 1);
    assert_eq!(kv.room(), Room { available: 50, total: 100 });
    kv.open(key(2), TENANT, &[], 15 * SIZE + 1, 1);
    assert_eq!(kv.room().available, 0, "no prompt fits the group with the window");
}

/// A pin may name what is in use, before or after that is written: then it will take nothing else of the room.
#[test]
fn who_found_no_room_is_told_when_a_pin_names_what_is_in_use() {
    for pinned_first in [false, true] {
        let groups = config(&[(100, None), (16, Some(8))]);
        let mut kv = KvManager::new(KvConfig { chunk_tokens: SIZE, pinned_percent: 50, ..groups });
        assert!(matches!(kv.open(key(1), TENANT, &[], 2 * SIZE, 1), Admit::Ready { .. }));
        let pin = |kv: &mut KvManager| kv.pin(&chain(1, 1), at_s(5));
        let write = |kv: &mut KvManager| kv.written(key(1), SIZE, &chain(1, 1));
        if pinned_first {
            pin(&mut kv);
        } else {
            write(&mut kv);
        }
        // What it has at once and the eight blocks that pins may name are one more than there are.
        assert_eq!(kv.open(key(2), TENANT, &[], 20 * SIZE + 1, 1), Admit::NoRoom);
        let before = kv.given_back();
        if pinned_first {
            write(&mut kv);
        } else {
            pin(&mut kv);
        }
        assert_eq!(kv.stats()[1].pinned, 1);
        assert!(kv.given_back() > before, "pinned first: {pinned_first}");
        assert_eq!(kv.open(key(2), TENANT, &[], 20 * SIZE + 1, 1), Admit::Ready { cached_tokens: 0 });
        kv.check();
    }
}

/// Prompts with common beginnings run in random order, take over each other's blocks, decode and end. Whatever they
/// do, the next chunk of a prompt has room as soon as those that share its blocks and do not wait themselves are gone.
#[test]
fn prompts_in_progress_always_get_on() {
    for seed in 0..300u64 {
        let mut random = seed;
        let mut draw = |to: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % to
        };
        let mut kv = windowed(EACH * 2 + draw(12) as u32);
        // Of each, its text, its tokens, and how many are computed.
        let mut open: Vec<(SeqKey, u8, u32, u32)> = Vec::new();
        let mut epoch = 0;
        for _ in 0..200 {
            if draw(3) == 0 {
                epoch += 1;
                let (text, tokens) = (draw(3) as u8, (4 + draw(30)) as u32 * SIZE + 1);
                let key = key(epoch);
                let admit = kv.open(key, TENANT, &chain(text, (tokens / SIZE) as u8), tokens, 1);
                assert_ne!(admit, Admit::Never);
                assert!(admit != Admit::NoRoom || !open.is_empty(), "seed {seed}: nothing else is open");
                if let Admit::Ready { cached_tokens } = admit {
                    open.push((key, text, tokens, cached_tokens));
                }
                continue;
            }
            if open.is_empty() {
                continue;
            }
            let at = draw(open.len() as u64) as usize;
            let mut got_on = false;
            let running = open.len();
            for turn in 0..running {
                let (key, text, tokens, computed) = &mut open[(at + turn) % running];
                let all = chain(*text, (*tokens / SIZE) as u8);
                if let Some(CaughtUp { tokens, .. }) = kv.catch_up(*key, &all, *tokens) {
                    *computed = tokens;
                }
                if *computed == *tokens || chunk(&mut kv, *key, *text, *computed, *tokens) {
                    *computed = (*computed + SIZE).min(*tokens);
                    got_on = true;
                    break;
                }
            }
            assert!(got_on, "seed {seed}: no prompt gets on: {open:?}, {:?}", kv.stats());
            open.retain(|&(key, _, tokens, computed)| {
                let ends = computed == tokens;
                if ends {
                    kv.close(key);
                }
                !ends
            });
        }
    }
}
