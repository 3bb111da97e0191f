//! Which records a worker reads for which prompts, and when.

mod lifts;
mod prefix_loads;
mod world;

use crate::inbox::Inbound;
use crate::sequence::PROMPT;
use domain::session::Failure;
use domain::{Epoch, RequestId, SeqKey};
use kv_manager::tiers::{ReadEnd, Tier};
use std::time::Duration;
use tiers::TierEvent;
use world::{ELAPSED, tokens, world, world_of};

/// Twelve seconds, of 16 blocks: long answers hold eleven to fourteen, and each prompt needs eleven.
#[test]
fn however_long_a_prompt_waits_for_room_it_is_loaded_then() {
    let held: Vec<_> = (2..5).map(|name| tokens(name, 41)).collect();
    let mut world = world(16, &held);
    world.submit(1, &tokens(1, 43), 13);
    world.step();
    (2..5).for_each(|request| world.submit(request, &held[request as usize - 2], 1));
    world.steps(11);
    assert_eq!((world.reading(), world.ended()), (vec![], vec![]), "there is no room yet");
    world.steps(2);
    for request in 2..5 {
        assert_eq!(world.reading(), [request], "each in its turn");
        assert_eq!(world.end_reads(ReadEnd::Good), 10);
        world.steps(2);
        assert_eq!(world.computed(request), Some(1));
    }
    assert_eq!(world.ended(), [1, 2, 3, 4]);
    world.check_idle();
}

#[test]
fn a_prompt_waits_for_the_room_that_a_handoff_has() {
    let held = [tokens(2, 41)];
    let mut world = world(16, &held);
    world.take_room(40);
    world.step();
    world.submit(2, &held[0], 1);
    world.steps(10);
    assert_eq!((world.reading(), world.computed(2)), (vec![], None), "there is room for six blocks");
    world.give_room_back();
    world.steps(2);
    assert_eq!(world.reading(), [2]);
    world.end_reads(ReadEnd::Good);
    world.step();
    assert_eq!(world.computed(2), Some(1));
    world.check_idle();
}

/// It takes over what is cached of it, which is not given up for the rest.
#[test]
fn a_prompt_waits_for_room_beside_what_is_cached_of_it() {
    let held = [tokens(2, 41)];
    let mut world = world(16, &held);
    world.submit(2, &held[0], 1);
    assert_eq!(world.end_reads(ReadEnd::Good), 10);
    world.steps(2);
    // It holds ten blocks, and six of the other one's are idle.
    world.submit(1, &tokens(1, 37), 3);
    world.step();
    world.submit(3, &held[0], 1);
    world.step();
    assert_eq!((world.reading(), world.computed(3)), (vec![], None), "there is no room for eleven");
    assert_eq!(world.ended(), [2]);
    world.steps(2);
    assert_eq!(world.reading(), [3]);
    assert_eq!(world.end_reads(ReadEnd::Good), 4);
    world.steps(2);
    assert_eq!((world.computed(3), world.ended()), (Some(1), vec![2, 1, 3]));
    world.check_idle();
}

/// Small prompts that would fit at any time do not keep one waiting that is to be loaded, nor does that one
/// overtake those that came before it.
#[test]
fn prompts_that_need_no_tier_and_prompts_that_do_keep_their_places() {
    let held = [tokens(5, 41)];
    let mut world = world(16, &held);
    world.submit(1, &tokens(1, 43), 8);
    world.submit(2, &tokens(2, 9), 1);
    world.step();
    assert_eq!(world.ended(), [2]);
    world.submit(5, &held[0], 1);
    for request in 10..14 {
        world.submit(request, &tokens(request as u32, 9), 1);
        world.step();
    }
    assert!((10..14).all(|request| world.computed(request).is_none()), "they came later");
    world.steps(5);
    assert_eq!(world.reading(), [5]);
    world.end_reads(ReadEnd::Good);
    world.steps(3);
    assert_eq!((world.computed(5), world.computed(10)), (Some(1), Some(9)));
    assert_eq!(world.ended().len(), 7);
    world.check_idle();
}

#[test]
fn who_waits_for_room_can_be_cancelled_and_ends_at_its_deadline_and_the_queue_has_an_end() {
    let held: Vec<_> = (0..14).map(|name| tokens(name + 2, 41)).collect();
    let mut world = world(16, &held);
    world.submit(1, &tokens(1, 43), 12);
    world.step();
    world.submit_until(2, &held[0], 1, Duration::from_secs(3));
    (3..15).for_each(|request| world.submit(request, &held[request as usize - 2], 1));
    let full = |request| (request, Failure::QueueFull);
    assert_eq!(world.failed(), [full(14)], "twelve may wait");
    (4..14).for_each(|request| world.cancel(request));
    world.steps(4);
    assert_eq!(world.failed(), [full(14), (2, Failure::Deadline)]);
    world.steps(10);
    assert_eq!(world.reading(), [3]);
    world.end_reads(ReadEnd::Good);
    world.steps(2);
    assert_eq!((world.computed(3), world.ended()), (Some(1), vec![1, 3]));
    world.check_idle();
}

#[test]
fn a_tier_that_was_slow_once_is_tried_again_by_prompts_of_more_than_half_the_device() {
    let held: Vec<_> = (0..3).map(|name| tokens(name, 41)).collect();
    let mut world = world(16, &held);
    // What computing takes.
    world.submit(100, &tokens(100, 41), 1);
    world.steps(2);
    world.submit(1, &held[1], 1);
    assert_eq!(world.reading(), [1], "nobody knows how fast it is");
    world.now = world.now + 3 * ELAPSED;
    world.end_reads(ReadEnd::Good);
    world.steps(2);
    for request in 2..20 {
        world.submit(request, &held[request as usize % 3], 1);
        // It takes eleven of the sixteen blocks, and lacks ten.
        let reads = match request {
            ..17 => 0,
            17 => 5,
            _ => 10,
        };
        assert_eq!(world.end_reads(ReadEnd::Good), reads, "request {request}");
        world.steps(2);
        assert_eq!(world.computed(request), Some(41 - reads as u32 * 4));
    }
    world.check_idle();
}

#[test]
fn a_prefix_that_many_want_is_read_once() {
    let prefix = tokens(1, 40);
    let own = [prefix.clone(), tokens(7, 20)].concat();
    let mut world = world(128, &[prefix.clone(), own.clone()]);
    for request in 1..7 {
        world.submit(request, &[prefix.clone(), tokens(10 + request as u32, 5)].concat(), 1);
    }
    // Its tier has more of this one.
    world.submit(7, &[own, tokens(17, 5)].concat(), 1);
    world.step();
    assert_eq!((world.reading(), world.notes().reads.len()), (vec![1], 10));
    // The others want it still.
    world.cancel(1);
    assert_eq!(world.notes().cancelled, []);
    assert_eq!(world.end_reads(ReadEnd::Good), 10);
    assert_eq!((world.reading(), world.notes().reads.len()), (vec![7], 5), "what is left of its own");
    world.step();
    assert!((2..7).all(|request| world.computed(request) == Some(5)));
    world.end_reads(ReadEnd::Good);
    world.step();
    assert_eq!((world.computed(1), world.computed(7)), (None, Some(5)));
    assert_eq!(world.ended(), [2, 3, 4, 5, 6, 7]);
    world.check_idle();
}

#[test]
fn a_part_that_came_is_waited_for_no_longer() {
    let (prefix, long) = (tokens(1, 8), tokens(1, 60));
    let mut world = world(128, std::slice::from_ref(&long));
    world.submit(1, &long, 1);
    world.submit(2, &[prefix, tokens(2, 5)].concat(), 1);
    // From the end on; the tier takes them the other way round.
    let tail: Vec<_> = world.notes().reads.drain(..12).collect();
    assert_eq!(world.end_reads(ReadEnd::Good), 2);
    world.step();
    assert_eq!((world.computed(1), world.computed(2)), (None, Some(5)));
    world.notes().reads = tail;
    assert_eq!(world.end_reads(ReadEnd::Good), 12);
    world.step();
    assert_eq!(world.computed(1), Some(4));
    world.check_idle();
}

/// In so little room that no prompt runs before the blocks of the load are free.
#[test]
fn all_who_wait_for_a_tier_that_hangs_are_computed_and_none_after_them_waits() {
    let held: Vec<_> = (1..3).map(|name| tokens(name, 41)).collect();
    let mut world = world(16, &held);
    let prompt = |request: u32| [tokens(1, 40), tokens(request, 2)].concat();
    (1..4).for_each(|request| world.submit(request, &prompt(request as u32), 1));
    world.steps(7);
    assert_eq!(world.reading(), [1], "it hangs");
    assert_eq!(world.notes().cancelled.len(), 1);
    assert_eq!(world.computed(1), None);
    assert_eq!(world.end_reads(ReadEnd::Abandoned), 10);
    world.steps(4);
    assert_eq!(world.ended(), [1, 2, 3]);
    // The first was computed, and the others found that cached.
    assert_eq!((world.computed(1), world.computed(2), world.computed(3)), (Some(42), Some(2), Some(2)));
    world.submit(4, &held[1], 1);
    world.step();
    assert_eq!(world.computed(4), Some(41), "nobody waits for a tier that hangs");
    (0..10).for_each(|_| world.settle());
    world.submit(5, &prompt(5), 1);
    assert_eq!(world.reading(), [5], "it hangs no more");
    world.end_reads(ReadEnd::Good);
    world.step();
    assert_eq!(world.computed(5), Some(2));
    world.check_idle();
}

#[test]
fn a_slow_tier_is_waited_for_as_long_as_it_brings_what_was_asked_of_it() {
    let held: Vec<_> = (1..3).map(|name| tokens(name, 41)).collect();
    let mut world = world(64, &held);
    (1..3).for_each(|request| world.submit(request, &held[request as usize - 1], 1));
    for _ in 0..10 {
        world.step();
        world.end_read(ReadEnd::Good);
    }
    world.step();
    assert_eq!((world.computed(1), world.reading()), (Some(1), vec![2]), "it is read behind the other one");
    world.end_read(ReadEnd::Good);
    world.steps(5);
    assert_eq!((world.computed(2), world.notes().cancelled.len()), (None, 0));
    world.step();
    assert_eq!(world.notes().cancelled.len(), 1, "nothing came for five seconds");
    assert_eq!(world.end_reads(ReadEnd::Abandoned), 9);
    world.steps(2);
    assert_eq!((world.computed(2), world.ended()), (Some(41), vec![1, 2]));
    (0..9).for_each(|_| world.settle());
    world.check_idle();
}

/// Other loads come to their end meanwhile.
#[test]
fn a_read_that_hangs_is_not_waited_for_while_those_behind_it_come() {
    let held: Vec<_> = (1..9).map(|name| tokens(name, 41)).collect();
    let mut world = world(128, &held);
    world.submit(1, &held[0], 1);
    let hangs: Vec<_> = world.notes().reads.drain(..).collect();
    for request in 2..9 {
        world.step();
        world.submit(request, &held[request as usize - 1], 1);
        world.end_reads(ReadEnd::Good);
    }
    assert_eq!(world.notes().cancelled.iter().map(|key| key.request.0).collect::<Vec<_>>(), [1]);
    world.notes().reads = hangs;
    world.end_reads(ReadEnd::Abandoned);
    world.steps(2);
    assert_eq!((world.computed(1), world.ended().len()), (Some(41), 8));
    world.check_idle();
}

#[test]
fn what_a_preempted_sequence_lost_is_loaded_while_it_is_computed_again() {
    let said = |name| [tokens(name, 21), vec![9; 40]].concat();
    let mut world = world_of(16, 16, &[said(2)]);
    world.submit(1, &tokens(1, 21), 36);
    world.step();
    world.submit(2, &tokens(2, 21), 20);
    assert_eq!(world.end_reads(ReadEnd::Good), 5);
    let mut steps = 0;
    while world.reading() != [2] {
        assert_eq!(world.end_reads(ReadEnd::Good), 0);
        world.step();
        steps += 1;
        assert!(steps < 60, "nothing was loaded: {:?}", world.ended());
    }
    assert_eq!(world.ended(), [1], "it was preempted, and has room again");
    let computed = world.notes().spans;
    world.end_reads(ReadEnd::Good);
    world.steps(12);
    assert_eq!(world.ended(), [1, 2]);
    // A chunk before the load, and what is behind the last full block.
    let again = world.notes().spans - computed;
    assert!(again < 16, "{again} tokens");
    world.check_idle();
}

/// Whether anything was found or not, the prompt waits for what is read, and goes on when it is there.
#[test]
fn what_is_found_while_a_prompt_waits_for_its_load_leaves_it_waiting_for_that() {
    let held = tokens(1, 41);
    let mut world = world(128, std::slice::from_ref(&held));
    world.submit(1, &held, 1);
    assert_eq!(world.reading(), [1]);
    let prompt = SeqKey { request: RequestId(1), epoch: Epoch(1), choice: PROMPT };
    let found = TierEvent::Found { tier: Tier::Disk, prompt, records: Vec::new(), last: true };
    world.handle(Inbound::Tier(found));
    world.step();
    assert_eq!(world.computed(1), None, "it waits for its load still");
    assert_eq!(world.end_reads(ReadEnd::Good), 10);
    world.steps(2);
    assert_eq!(world.computed(1), Some(1));
    world.check_idle();
}
