//! What another worker or an operator asks for and lies in a tier alone.

use super::*;
use crate::config::LEASES_MAX;
use crate::inbox::Inbound;
use domain::handoff::{Ask, Offer, PeerBody};
use domain::{BlockHash, Epoch, LeaseId, RequestId, WorkerId};
use proto::admin::{Nothing, PrefixAsk, PrefixOutcome, WorkerAsk, WorkerPrefix, prefix_ask, worker_answer, worker_ask};
use std::slice;
use std::sync::mpsc::channel;
use world::{TENANT, World};

const READER: WorkerId = WorkerId(3);
const OTHER: WorkerId = WorkerId(4);
const WAIT: Duration = Duration::from_secs(3);

fn request(world: &World, request: u64, prefix: &[domain::Token], wait: Duration) -> PeerBody {
    let mut chain: Vec<BlockHash> = Vec::new();
    world.machine.core().config.scope("", None).extend_chain(&mut chain, prefix, 4);
    let (request, epoch, lease) = (RequestId(request), Epoch(1), Duration::from_secs(60));
    PeerBody::Ask(Ask { request, epoch, lease, wait, tenant: TENANT, chain })
}

fn ask(world: &mut World, from: WorkerId, id: u64, prefix: &[domain::Token]) {
    let asked = request(world, id, prefix, WAIT);
    world.hear(from, 1, asked);
}

/// The tokens that one worker was offered, and nobody else was told anything. It read them.
#[track_caller]
fn offered(world: &mut World, reader: WorkerId) -> u32 {
    let told = world.told();
    let [(to, PeerBody::Offer(Offer { lease, tokens, ready, groups, .. }))] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*to, *ready, groups[0].blocks.len() as u32), (reader, *tokens, tokens / 4));
    assert!(released(world, reader, *lease), "what was offered could be read until now");
    *tokens
}

fn released(world: &mut World, reader: WorkerId, lease: LeaseId) -> bool {
    world.hear(reader, 1, PeerBody::Release { lease });
    let told = world.told();
    let [(_, PeerBody::Released { valid, .. })] = told[..] else { panic!("{told:?}") };
    world.hear(reader, 1, PeerBody::ReleaseAck { lease });
    valid
}

fn declined(request: u64) -> (WorkerId, PeerBody) {
    (READER, PeerBody::Decline { request: RequestId(request), epoch: Epoch(1) })
}

#[test]
fn what_only_a_tier_has_is_loaded_and_then_offered() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    ask(&mut world, READER, 1, &prefix);
    let numbers: Vec<u32> = world.notes().reads.iter().map(|(_, read)| read.number).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>(), "the beginning is of use without the end");
    // A message that comes twice is answered once.
    ask(&mut world, READER, 1, &prefix);
    assert_eq!((world.told(), world.notes().reads.len()), (vec![], 10));
    assert_eq!(world.end_reads(ReadEnd::Good), 10);
    assert_eq!(offered(&mut world, READER), 40);
    world.check_idle();
    // Now the device has it. Nothing of it was ever anybody else's.
    ask(&mut world, OTHER, 2, &prefix);
    assert_eq!((world.reading(), offered(&mut world, OTHER)), (vec![], 40));
    let kv = &world.machine.core().kv;
    assert!(kv.sealed().all(|(block, ..)| kv.tenant(block) == Some(TENANT)));
    world.check_idle();
}

#[test]
fn what_came_is_offered_when_the_asker_waits_no_longer() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    ask(&mut world, READER, 1, &prefix);
    let late: Vec<_> = world.notes().reads.drain(6..).collect();
    assert_eq!(world.end_reads(ReadEnd::Good), 6);
    world.steps(2);
    assert_eq!(world.told(), []);
    world.steps(1);
    assert_eq!(offered(&mut world, READER), 24);
    assert_eq!(world.notes().cancelled.len(), 1, "the rest is not wanted any more");
    world.notes().reads = late;
    world.end_reads(ReadEnd::Abandoned);
    world.check_idle();
}

#[test]
fn a_record_that_is_wrong_ends_what_is_offered() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    ask(&mut world, READER, 1, &prefix);
    let rest: Vec<_> = world.notes().reads.drain(2..).collect();
    world.end_reads(ReadEnd::Good);
    world.notes().reads = rest[1..].to_vec();
    world.end_reads(ReadEnd::Good);
    world.notes().reads = rest[..1].to_vec();
    world.end_reads(ReadEnd::Wrong);
    assert_eq!(offered(&mut world, READER), 8);
    // Nothing at all is there of another one.
    ask(&mut world, READER, 2, &tokens(2, 40));
    assert_eq!(world.told(), [declined(2)]);
    world.check_idle();
}

/// However many wait for an answer, what they may keep of memory and of this worker's time has a bound.
#[test]
fn so_many_leases_are_given_and_one_more_asker_is_declined() {
    let prefix = tokens(1, 4);
    let mut world = world(64, slice::from_ref(&prefix));
    ask(&mut world, OTHER, 0, &prefix);
    world.end_reads(ReadEnd::Good);
    offered(&mut world, OTHER);
    let mut leases = Vec::new();
    for request in 0..LEASES_MAX as u64 {
        ask(&mut world, READER, request, &prefix);
        let told = world.told();
        let [(READER, PeerBody::Offer(Offer { lease, .. }))] = told[..] else { panic!("{request}: {told:?}") };
        leases.push(lease);
    }
    let more = LEASES_MAX as u64;
    ask(&mut world, READER, more, &prefix);
    assert_eq!(world.told(), [declined(more)]);
    // Where one was given back, one is given.
    assert!(released(&mut world, READER, leases[0]));
    ask(&mut world, READER, more + 1, &prefix);
    offered(&mut world, READER);
    for &lease in &leases[1..] {
        assert!(released(&mut world, READER, lease));
    }
    world.check_idle();
}

#[test]
fn nothing_is_loaded_for_others_without_room_or_time() {
    let held = [tokens(1, 40), tokens(2, 40), tokens(3, 40)];
    let mut world = world(16, &held);
    // A long answer holds eleven blocks of sixteen.
    world.submit(1, &tokens(9, 43), 4);
    world.step();
    ask(&mut world, READER, 2, &held[0]);
    assert_eq!((world.told(), world.reading()), (vec![declined(2)], vec![]));
    world.steps(4);
    assert_eq!(world.ended(), [1]);
    ask(&mut world, READER, 3, &held[1]);
    world.end_reads(ReadEnd::Good);
    assert_eq!(offered(&mut world, READER), 40);
    // Now it is known that a load takes longer than nothing.
    let asked = request(&world, 4, &held[2], Duration::ZERO);
    world.hear(READER, 1, asked);
    assert_eq!((world.told(), world.reading()), (vec![declined(4)], vec![]));
    world.check_idle();
}

#[test]
fn nobody_waits_for_an_asker_that_is_gone() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    ask(&mut world, READER, 1, &prefix);
    // It came back, and asks for something else.
    let nothing = request(&world, 2, &tokens(2, 8), WAIT);
    world.hear(READER, 2, nothing);
    assert_eq!((world.told(), world.notes().cancelled.len()), (vec![declined(2)], 1));
    world.end_reads(ReadEnd::Unread);
    assert_eq!(world.told(), []);
    world.check_idle();
}

#[test]
fn what_comes_for_one_comes_for_all() {
    let (prefix, long) = (tokens(1, 40), [tokens(1, 40), tokens(7, 5)].concat());
    let mut world = world(64, slice::from_ref(&prefix));
    // A prompt here has it loaded, and two others ask for it.
    world.submit(1, &long, 1);
    ask(&mut world, READER, 2, &prefix);
    ask(&mut world, OTHER, 3, &prefix[..16]);
    assert_eq!((world.reading(), world.notes().reads.len()), (vec![1], 10));
    // The prompt goes; the others want it still.
    world.cancel(1);
    assert_eq!(world.notes().cancelled, []);
    let rest: Vec<_> = world.notes().reads.drain(..6).collect();
    world.end_reads(ReadEnd::Good);
    assert_eq!(offered(&mut world, OTHER), 16);
    world.notes().reads = rest;
    world.end_reads(ReadEnd::Good);
    assert_eq!(offered(&mut world, READER), 40);
    world.check_idle();
}

/// What the worker answers an operator that wants a prefix on the device.
fn unpark(world: &mut World, prefix: &[domain::Token]) -> WorkerPrefix {
    let (reply, answer) = channel();
    let body = Some(prefix_ask::Body::Unpark(Nothing {}));
    let ask = PrefixAsk { tenant: String::new(), tokens: prefix.to_vec(), body };
    let ask = WorkerAsk { body: Some(worker_ask::Body::Prefix(ask)) };
    world.handle(Inbound::Operator { ask, reply: Box::new(move |said| reply.send(said).expect("the test waits")) });
    match answer.recv().expect("it answers at once").body {
        Some(worker_answer::Body::Prefix(prefix)) => prefix,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_an_operator_unparks_is_loaded_once() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    let begun = unpark(&mut world, &prefix);
    assert_eq!((begun.outcome(), begun.blocks, begun.device_tokens, begun.tokens), (PrefixOutcome::Done, 10, 0, 40));
    let numbers: Vec<u32> = world.notes().reads.iter().map(|(_, read)| read.number).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>(), "the beginning is of use without the end");
    // Asked again, and by another worker, it is the same load.
    assert_eq!(unpark(&mut world, &prefix).blocks, 10);
    ask(&mut world, READER, 1, &prefix);
    assert_eq!((world.told(), world.notes().reads.len()), (vec![], 10));
    assert_eq!(world.end_reads(ReadEnd::Good), 10);
    assert_eq!(offered(&mut world, READER), 40);
    let there = unpark(&mut world, &prefix);
    assert_eq!((there.outcome(), there.blocks, there.device_tokens), (PrefixOutcome::Unchanged, 0, 40));
    assert_eq!(unpark(&mut world, &tokens(2, 40)).outcome(), PrefixOutcome::Unchanged, "no tier has it");
    world.check_idle();
}

#[test]
fn what_an_operator_unparks_leaves_what_runs_its_room() {
    let held = [tokens(1, 40), tokens(2, 40)];
    let mut world = world(16, &held);
    // A long answer holds eleven blocks of sixteen.
    world.submit(1, &tokens(9, 43), 4);
    world.step();
    let begun = unpark(&mut world, &held[0]);
    assert_eq!((begun.outcome(), begun.blocks), (PrefixOutcome::Done, 5), "as much as there is room for: {begun:?}");
    // What is being loaded is in use.
    let refused = unpark(&mut world, &held[1]);
    assert_eq!((refused.outcome(), refused.blocks), (PrefixOutcome::Refused, 0));
    assert!(refused.why.contains("no room"), "{refused:?}");
    assert_eq!(world.end_reads(ReadEnd::Good), 5);
    assert_eq!(unpark(&mut world, &held[0]).device_tokens, 20);
    world.steps(6);
    assert_eq!(world.ended(), [1]);
    assert_eq!(unpark(&mut world, &held[0]).device_tokens, 16, "the answer grew, and took what nothing used");
    world.end_reads(ReadEnd::Good);
    assert_eq!(unpark(&mut world, &held[0]).device_tokens, 40);
    world.check_idle();
}

#[test]
fn what_an_operator_unparks_of_a_tier_that_stands_still_is_given_up() {
    let prefix = tokens(1, 40);
    let mut world = world(64, slice::from_ref(&prefix));
    assert_eq!(unpark(&mut world, &prefix).blocks, 10);
    world.steps(7);
    assert_eq!(world.notes().cancelled.len(), 1);
    world.end_reads(ReadEnd::Abandoned);
    assert_eq!(unpark(&mut world, &prefix).device_tokens, 0);
    world.end_reads(ReadEnd::Good);
    world.check_idle();
}
