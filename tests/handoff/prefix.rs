//! The beginning of a prompt comes from a worker that has it cached, and is computed where that comes to nothing.

use crate::peer::Peer;
use crate::{Cluster, check, finish, options, settle_cancelled};
use domain::handoff::{Ask, Offer, PeerBody};
use domain::session::{Assignment, Holder};
use domain::{Epoch, Incarnation, LeaseId, SamplingParams, WorkerId};
use std::time::Duration;
use tests::cluster::{Asked, DECODE, Options, PREFILL, prompt};

/// A peer that the test plays.
const STRANGER: WorkerId = WorkerId(9);
const LEASE: LeaseId = LeaseId(1);

fn held_by(worker: WorkerId, tokens: u32) -> Option<Holder> {
    Some(Holder { worker, incarnation: Incarnation(1), tokens })
}

/// Prompt tokens of a request that its first worker did not have to compute.
fn cached(cluster: &Cluster, request: &Asked) -> u32 {
    cluster.rows[&request.key(0)].iter().map(|(_, row)| row.cached_tokens).max().unwrap_or(0)
}

#[test]
fn the_next_turn_takes_what_the_last_one_generated_from_its_decode_worker() {
    for window in [None, Some(6)] {
        let mut cluster = Cluster::new(&options(window));
        let first = Asked::new(1, prompt(61, 1), 10);
        check(&mut cluster, std::slice::from_ref(&first));
        // Of the 71 tokens the last was never computed with; P has the first 60.
        let turn = [first.prompt.clone(), cluster.expected(&first, 0), prompt(11, 3)].concat();
        let second = Asked { holder: held_by(DECODE, 68), ..Asked::new(2, turn, 10) };
        check(&mut cluster, std::slice::from_ref(&second));
        assert_eq!(cached(&cluster, &second), 68);
    }
}

/// The first turn of a conversation at D alone, whose KV left D's device for its lowest tier since; and the next
/// turn, for P.
fn parked_at_decode(cluster: &mut Cluster) -> Asked {
    // They have heard of each other; P has not measured how long prompts take, so that nothing seems faster to it
    // than what is known.
    check(cluster, &[Asked::new(1, prompt(10, 8), 5)]);
    let first = Asked::new(2, prompt(61, 1), 10);
    cluster.submit(DECODE, &first, Assignment::Whole);
    finish(cluster, std::slice::from_ref(&first));
    let said = [first.prompt.clone(), cluster.expected(&first, 0)].concat();
    assert_eq!(cluster.park(DECODE, "", &said), 17);
    cluster.until("all of it to be parked", |cluster| cluster.park(DECODE, "", &said) == 0);
    let turn = [said, prompt(11, 3)].concat();
    Asked { holder: held_by(DECODE, 68), ..Asked::new(3, turn, 10) }
}

/// A cluster whose workers have tiers: in memory, or on disk in this folder.
fn with_tiers(folder: Option<&std::path::Path>) -> Cluster {
    let host_bytes = if folder.is_none() { 1 << 20 } else { 0 };
    Cluster::new(&Options { host_bytes, disk: folder.map(std::path::Path::to_owned), ..options(None) })
}

#[test]
fn the_next_turn_takes_from_its_decode_worker_what_left_the_device_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for disk in [None, Some(folder.path())] {
        let mut cluster = with_tiers(disk);
        let second = parked_at_decode(&mut cluster);
        check(&mut cluster, std::slice::from_ref(&second));
        assert_eq!(cached(&cluster, &second), 68);
    }
}

#[test]
fn whoever_is_gone_while_a_holder_loads_costs_no_text() {
    let folder = tempfile::tempdir().expect("a folder");
    // The attempt is cancelled, and asked for again.
    let mut cluster = with_tiers(Some(folder.path()));
    let second = parked_at_decode(&mut cluster);
    for epoch in 1..20 {
        let attempt = Asked { epoch: Epoch(epoch), ..second.clone() };
        cluster.hand_off(&attempt);
        cluster.during(Duration::from_micros(u64::from(epoch) * 300));
        cluster.cancel(&attempt);
    }
    settle_cancelled(&mut cluster);
    let attempt = Asked { epoch: Epoch(20), ..second.clone() };
    check(&mut cluster, std::slice::from_ref(&attempt));
    // The holder ends. With one token to say, nobody takes anything over.
    for ms in [0, 1, 5] {
        let mut cluster = with_tiers(None);
        let second = parked_at_decode(&mut cluster);
        let second = Asked { params: SamplingParams { max_tokens: 1, ..second.params.clone() }, ..second };
        cluster.submit(PREFILL, &second, Assignment::Prefill { decode: DECODE });
        cluster.during(Duration::from_millis(ms));
        cluster.end(DECODE);
        finish(&mut cluster, std::slice::from_ref(&second));
    }
}

#[test]
fn a_decode_worker_takes_from_a_prefill_worker_what_it_computes_on() {
    for window in [None, Some(6)] {
        let mut cluster = Cluster::new(&options(window));
        // They have heard of each other.
        check(&mut cluster, &[Asked::new(1, prompt(10, 8), 5)]);
        // With one token to say, nobody takes anything over.
        let first = Asked::new(2, prompt(40, 1), 1);
        cluster.submit(PREFILL, &first, Assignment::Prefill { decode: DECODE });
        finish(&mut cluster, std::slice::from_ref(&first));
        let longer = [first.prompt.clone(), prompt(9, 7)].concat();
        let second = Asked { holder: held_by(PREFILL, 40), ..Asked::new(3, longer, 5) };
        cluster.submit(DECODE, &second, Assignment::Whole);
        finish(&mut cluster, std::slice::from_ref(&second));
        assert_eq!(cached(&cluster, &second), 40);
    }
}

#[test]
fn a_hint_that_is_wrong_costs_nothing_but_time() {
    let mut cluster = Cluster::new(&options(None));
    check(&mut cluster, &[Asked::new(1, prompt(30, 1), 5)]);
    let wrong = [
        // It never had it.
        held_by(DECODE, 40),
        // That was another life.
        Some(Holder { worker: DECODE, incarnation: Incarnation(2), tokens: 40 }),
        // Nobody said who that is.
        held_by(STRANGER, 40),
        // It is the worker itself.
        held_by(PREFILL, 40),
        // More than the prompt has.
        held_by(DECODE, 4000),
    ];
    for (holder, id) in wrong.into_iter().zip(2..) {
        let request = Asked { holder, ..Asked::new(id, prompt(50, id as u32), 5) };
        check(&mut cluster, std::slice::from_ref(&request));
        assert_eq!(cached(&cluster, &request), 0, "{holder:?}");
    }
    cluster.wait_idle();
}

/// What a holder does when it is asked.
type Reply = fn(&mut Peer, Offer);

#[test]
fn a_holder_that_says_what_it_likes_changes_no_text() {
    let answers: [Reply; 6] = [
        |peer, offer| {
            let (request, epoch) = (offer.request, offer.epoch);
            peer.say(PREFILL, Some(1), PeerBody::Decline { request, epoch });
        },
        // Not all of it is written.
        |peer, offer| say_and_expect_release(peer, Offer { ready: 36, ..offer }),
        // That is no whole block.
        |peer, offer| say_and_expect_release(peer, Offer { tokens: 38, ready: 38, ..offer }),
        // Nor is that a beginning of the prompt.
        |peer, offer| say_and_expect_release(peer, Offer { tokens: 52, ready: 52, ..offer }),
        // What was read is not what it should be, as it says itself.
        |peer, offer| {
            say_and_expect_release(peer, offer);
            peer.say(PREFILL, Some(1), PeerBody::Released { lease: LEASE, valid: false });
        },
        // Nothing at all.
        |_, _| {},
    ];
    let silent = answers.len() as u64;
    for (answer, id) in answers.into_iter().zip(1..) {
        let answer_wait = Duration::from_millis(if id == silent { 300 } else { 10_000 });
        let mut cluster = Cluster::new(&Options { answer_wait, ..options(None) });
        let mut peer = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
        hears_of(&mut peer);
        let request = Asked { holder: held_by(STRANGER, 40), ..Asked::new(id, prompt(50, 1), 5) };
        cluster.hand_off(&request);
        let PeerBody::Ask(Ask { chain, .. }) = peer.hear() else { panic!("the holder is asked first") };
        assert_eq!(chain.len(), 10);
        let of_it = Asked { prompt: prompt(40, 1), ..request.clone() };
        answer(&mut peer, Peer::offer(&cluster.layout, &of_it, LEASE.0));
        finish(&mut cluster, std::slice::from_ref(&request));
        assert_eq!(cached(&cluster, &request), 0, "{id}");
        cluster.wait_idle();
    }
}

#[test]
fn what_a_holder_offers_to_one_who_asks_no_more_is_given_back_at_once() {
    let mut cluster = Cluster::new(&options(None));
    let mut peer = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    hears_of(&mut peer);
    let request = Asked { holder: held_by(STRANGER, 40), ..Asked::new(1, prompt(50, 1), 5) };
    cluster.hand_off(&request);
    assert!(matches!(peer.hear(), PeerBody::Ask(_)));
    cluster.cancel(&request);
    settle_cancelled(&mut cluster);
    let of_it = Asked { prompt: prompt(40, 1), ..request };
    let offer = Peer::offer(&cluster.layout, &of_it, LEASE.0);
    peer.say(PREFILL, Some(1), PeerBody::Offer(offer));
    // Messages are answered in their order: what is said next is not answered before.
    peer.say(PREFILL, Some(1), PeerBody::Released { lease: LeaseId(77), valid: false });
    assert_eq!(peer.hear(), PeerBody::Release { lease: LEASE });
    assert_eq!(peer.hear(), PeerBody::ReleaseAck { lease: LeaseId(77) });
}

/// P hears of this life.
fn hears_of(peer: &mut Peer) {
    peer.say(PREFILL, None, PeerBody::Released { lease: LeaseId(77), valid: false });
    assert_eq!(peer.hear(), PeerBody::ReleaseAck { lease: LeaseId(77) });
}

fn say_and_expect_release(peer: &mut Peer, offer: Offer) {
    peer.say(PREFILL, Some(1), PeerBody::Offer(offer));
    assert_eq!(peer.hear(), PeerBody::Release { lease: LEASE });
}
