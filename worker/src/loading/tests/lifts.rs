//! What is lifted for prompts that wait for room, and what becomes of it.

use super::*;
use world::{World, world_with_host};

/// A prompt that keeps 11 of 16 blocks and more until it ends, and so many others of ten full blocks each that wait
/// meanwhile, as 2, 3 and so on.
fn waiting(slots: u32, outputs: u32, prompts: u32) -> World {
    let held: Vec<_> = (2..2 + prompts).map(|name| tokens(name, 41)).collect();
    let mut world = world_with_host(16, slots, &held);
    world.submit(1, &tokens(1, 43), outputs);
    world.step();
    (2..).zip(&held).for_each(|(request, prompt)| world.submit(request, prompt, 1));
    world.step();
    world
}

#[test]
fn what_a_prompt_will_need_is_lifted_while_it_waits_and_the_first_comes_first() {
    let mut world = waiting(80, 12, 2);
    assert_eq!(world.lifting(), [(2, 8)].into());
    world.end_lifts(ReadEnd::Good);
    assert_eq!((world.lifting(), world.notes().landing.len()), ([].into(), 8), "it is under way until it landed");
    world.land();
    assert_eq!(world.lifting(), [(2, 2), (3, 6)].into());
    world.end_lifts(ReadEnd::Good);
    world.land();
    world.end_lifts(ReadEnd::Good);
    world.land();
    assert_eq!((world.lifting(), world.host().held), ([].into(), 20));
    assert!(world.reading().is_empty(), "there is no room yet");
    world.steps(12);
    for request in [2, 3] {
        assert_eq!(world.reading(), [request]);
        assert!(world.notes().reads.iter().all(|(_, read)| read.place.tier == Tier::Host));
        assert_eq!(world.end_reads(ReadEnd::Good), 10);
        world.steps(2);
        assert_eq!(world.computed(request), Some(1));
    }
    assert_eq!((world.host().lifted, world.host().lifted_in_vain), (20, 0));
    world.check_idle();
}

/// A quarter of the tier is all that prompts which wait may take of it.
#[test]
fn what_was_lifted_and_not_read_is_bounded() {
    let mut world = waiting(24, 12, 2);
    assert_eq!(world.lifting(), [(2, 6)].into());
    world.end_lifts(ReadEnd::Good);
    world.land();
    assert_eq!((world.lifting(), world.host().held), ([].into(), 6));
    world.steps(12);
    let of = |world: &World, tier| world.notes().reads.iter().filter(|(_, read)| read.place.tier == tier).count();
    assert_eq!((world.reading(), of(&world, Tier::Host), of(&world, Tier::Disk)), (vec![2], 6, 4));
    // The others' turn, but not before the disk has nothing to read for the one that has room.
    assert_eq!(world.lifting(), [].into());
    world.end_reads(ReadEnd::Good);
    world.machine.turn(world.now);
    assert_eq!(world.lifting(), [(3, 6)].into());
    world.cancel(2);
    world.cancel(3);
    world.end_lifts(ReadEnd::Abandoned);
    world.end_reads(ReadEnd::Good);
    world.steps(3);
    world.check_idle();
}

#[test]
fn what_is_lifted_for_a_prompt_that_is_gone_frees_its_slots() {
    let mut world = waiting(80, 12, 2);
    world.end_lifts(ReadEnd::Good);
    world.land();
    assert_eq!(world.lifting(), [(2, 2), (3, 6)].into());
    // One is on its way to its slot, the others are read still.
    let last = world.notes().lifts.split_off(1);
    world.end_lifts(ReadEnd::Good);
    world.notes().lifts = last;
    world.cancel(2);
    assert_eq!(world.notes().cancelled.len(), 2, "of each tier");
    world.land();
    assert_eq!((world.host().held, world.host().lifted_in_vain), (9, 9));
    let of_it = |world: &World| world.notes().lifts.iter().position(|(key, _)| key.request.0 == 2);
    let at = of_it(&world).expect("it is under way still");
    let rest = world.notes().lifts.split_off(at + 1);
    world.end_lifts(ReadEnd::Good);
    assert!(world.notes().landing.is_empty(), "what comes after that is thrown away");
    world.notes().lifts.extend(rest);
    world.cancel(3);
    world.end_lifts(ReadEnd::Abandoned);
    let host = world.host();
    assert_eq!((host.writing, host.held, host.free), (0, 9, 71));
    world.steps(13);
    world.check_idle();
}

/// Neither is a record read twice at once.
#[test]
fn a_prompt_that_has_room_reads_what_has_not_landed_itself() {
    let mut world = waiting(80, 3, 1);
    world.steps(2);
    assert_eq!((world.ended(), world.reading()), (vec![1], vec![]), "its lifts have not ended");
    assert!(!world.notes().cancelled.is_empty(), "they are to end soon");
    let rest = world.notes().lifts.split_off(3);
    world.end_lifts(ReadEnd::Good);
    world.land();
    assert_eq!(world.reading(), Vec::<u64>::new());
    world.notes().lifts = rest;
    world.end_lifts(ReadEnd::Abandoned);
    assert_eq!(world.reading(), [2]);
    let tiers = |world: &World, tier| world.notes().reads.iter().filter(|(_, read)| read.place.tier == tier).count();
    assert_eq!((tiers(&world, Tier::Host), tiers(&world, Tier::Disk)), (3, 7));
    world.end_reads(ReadEnd::Good);
    (0..5).for_each(|_| world.handle(settled()));
    world.steps(2);
    assert_eq!((world.computed(2), world.host().lifted_in_vain), (Some(1), 0));
    world.check_idle();
}

fn settled() -> Inbound {
    Inbound::Tier(TierEvent::Settled { tier: Tier::Disk, moved: true })
}

#[test]
fn a_tier_that_hangs_keeps_no_prompt_from_the_room_that_it_has() {
    let mut world = waiting(80, 3, 1);
    world.steps(6);
    assert_eq!((world.ended(), world.computed(2)), (vec![1], None), "its lifts could still end");
    world.steps(2);
    assert_eq!((world.ended(), world.computed(2)), (vec![1, 2], Some(41)), "the tier is off");
    world.end_lifts(ReadEnd::Abandoned);
    let host = world.host();
    assert_eq!((host.writing, host.held), (0, 0));
    world.check_idle();
}

/// What was read has left the tier that it came from.
#[test]
fn a_host_tier_that_hangs_is_off_and_not_the_one_that_was_lifted_from() {
    let mut world = waiting(80, 3, 1);
    world.end_lifts(ReadEnd::Good);
    assert_eq!((world.lifting(), world.notes().landing.len()), ([].into(), 8));
    world.steps(6);
    assert_eq!((world.ended(), world.reading()), (vec![1], vec![]), "they could still land");
    world.steps(2);
    assert_eq!(world.reading(), [2]);
    assert!(world.notes().reads.iter().all(|(_, read)| read.place.tier == Tier::Disk));
    let off =
        |world: &World| world.machine.core().tiers.iter().find(|(_, below)| !below.is_relied_on()).map(|(&t, _)| t);
    assert_eq!(off(&world), Some(Tier::Host));
    world.end_reads(ReadEnd::Good);
    world.steps(2);
    assert_eq!(world.computed(2), Some(1));
    world.land();
    assert_eq!(off(&world), None);
    world.check_idle();
}

#[test]
fn what_would_come_too_late_is_not_begun() {
    for (decode, lifts) in [(Duration::from_nanos(1), 0), (Duration::from_secs(1000), 8)] {
        let held: Vec<_> = (2..4).map(|name| tokens(name, 41)).collect();
        let mut world = world_with_host(16, 80, &held);
        world.notes().decode = Some(decode);
        // The disk's speed is known, and that of a step.
        world.submit(3, &[held[1].clone(), tokens(8, 3)].concat(), 3);
        world.end_reads(ReadEnd::Good);
        world.steps(4);
        assert_eq!(world.ended(), [3]);
        world.submit(1, &tokens(1, 43), 12);
        world.step();
        world.submit(2, &held[0], 1);
        world.step();
        assert_eq!(world.lifting().values().sum::<usize>(), lifts, "steps of {decode:?}");
    }
}
