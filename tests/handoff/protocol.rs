//! Peers that are late, gone, restarted, or wrong: whatever they say, nothing leaks, nothing waits for ever, and
//! no text is made of what they did not vouch for.

use crate::device::device;
use crate::peer::Peer;
use crate::{Cluster, check, finish, options};
use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, ToWorker};
use domain::{Choice, Incarnation, LeaseId, RequestId, WorkerId};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tests::cluster::{Asked, DECODE, Options, PREFILL, prompt};

/// A worker of neither kind: a peer that the test plays.
const STRANGER: WorkerId = WorkerId(9);
const LEASE: LeaseId = LeaseId(1);

/// Waits for the next failure.
fn failure(cluster: &mut Cluster) -> Failure {
    blame(cluster).0
}

/// Waits for the next failure, and whose fault it was.
fn blame(cluster: &mut Cluster) -> (Failure, Option<WorkerId>) {
    cluster.until("a failure", |cluster| !cluster.failures.is_empty());
    let (request, epoch, why, _) = cluster.failures.remove(0);
    (why, cluster.faults[&(request, epoch)])
}

fn expecting(cluster: &Cluster, id: u64) -> Asked {
    let request = Asked::new(id, prompt(20, id as u32), 5);
    cluster.submit(DECODE, &request, Assignment::Decode { prefill: STRANGER });
    request
}

fn complete() -> PeerBody {
    PeerBody::Complete { lease: LEASE, missing: vec![], first: vec![(Choice(0), 3)] }
}

fn released(valid: bool) -> PeerBody {
    PeerBody::Released { lease: LEASE, valid }
}

#[test]
fn two_prefill_and_two_decode_workers_serve_each_other() {
    let mut cluster = Cluster::new(&Options { pairs: 2, chunk: 8, ..options(None) });
    let requests: Vec<_> = (0..24).map(|i| Asked::new(i, prompt(11 + 5 * i as u32, i as u32 / 3), 12)).collect();
    for request in &requests {
        let (prefill, decode) = (WorkerId(request.id as u32 % 2 * 2), WorkerId(request.id as u32 / 2 % 2 * 2 + 1));
        cluster.hand_off_between(request, prefill, decode);
    }
    finish(&mut cluster, &requests);
}

/// Who computes for a reader that it cannot reach says so at once: the reader hears of nothing, and would wait for
/// all of it.
#[test]
fn a_reader_that_cannot_be_reached_fails_the_handoff() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(20_000, Ordering::Relaxed);
    let request = Asked::new(1, prompt(60, 1), 10);
    cluster.submit(PREFILL, &request, Assignment::Prefill { decode: STRANGER });
    assert_eq!(blame(&mut cluster), (Failure::HandoffLapsed, Some(STRANGER)));
    assert!(cluster.rows.is_empty(), "it computes on");
    cluster.prefill_knobs.layer_us.store(0, Ordering::Relaxed);
    cluster.wait_idle();
    check(&mut cluster, &[Asked::new(2, prompt(30, 2), 10)]);
}

#[test]
fn an_offer_that_comes_before_its_submit_is_taken() {
    let mut cluster = Cluster::new(&options(None));
    let request = Asked::new(1, prompt(30, 1), 10);
    cluster.submit(PREFILL, &request, Assignment::Prefill { decode: DECODE });
    cluster.until("the first token", |cluster| cluster.rows.contains_key(&request.key(0)));
    cluster.during(Duration::from_millis(20));
    cluster.submit(DECODE, &request, Assignment::Decode { prefill: PREFILL });
    finish(&mut cluster, &[request]);
}

#[test]
fn an_early_offer_that_came_twice_is_read_once() {
    let mut cluster = Cluster::new(&Options { handoff_wait: Duration::from_secs(8), ..options(None) });
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let request = Asked::new(1, prompt(20, 1), 5);
    let offer = Peer::offer(&cluster.layout, &request, 1);
    owner.say(DECODE, None, PeerBody::Offer(offer.clone()));
    owner.say(DECODE, None, PeerBody::Offer(offer));
    cluster.during(Duration::from_secs(4));
    cluster.submit(DECODE, &request, Assignment::Decode { prefill: STRANGER });
    // The copy's time ends while the fetch still waits for its prompt.
    assert!(owner.hears_nothing(Duration::from_secs(5)));
    owner.say(DECODE, None, complete());
    assert_eq!(owner.hear(), PeerBody::Release { lease: LEASE });
    owner.say(DECODE, None, released(false));
    assert_eq!(blame(&mut cluster), (Failure::HandoffLapsed, None), "it was for the reader to renew the lease");
    cluster.wait_idle();
}

#[test]
fn an_offer_that_nobody_expects_is_released_after_a_while() {
    let cluster = Cluster::new(&Options { handoff_wait: Duration::from_millis(100), ..options(None) });
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let unexpected = Asked::new(1, prompt(20, 1), 5);
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &unexpected, 1)));
    assert_eq!(owner.hear(), PeerBody::Release { lease: LEASE });
    owner.say(DECODE, None, released(false));
    assert_eq!(owner.hear(), PeerBody::ReleaseAck { lease: LEASE });
}

#[test]
fn an_offer_that_does_not_fit_is_refused() {
    let mut cluster = Cluster::new(&options(None));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    for (id, spoil) in [(1, "layout"), (2, "tokens"), (3, "blocks"), (4, "place")] {
        let request = expecting(&cluster, id);
        let mut offer = Peer::offer(&cluster.layout, &request, id);
        match spoil {
            "layout" => offer.layout += 1,
            "tokens" => (offer.tokens, offer.ready) = (17, 17),
            "blocks" => drop(offer.groups[0].blocks.pop()),
            _ => offer.groups[0].blocks[2].0.0 = 1_000_000,
        }
        owner.say(DECODE, None, PeerBody::Offer(offer));
        assert_eq!(owner.hear(), PeerBody::Release { lease: LeaseId(id) }, "another {spoil}");
        assert_eq!(failure(&mut cluster), Failure::HandoffLapsed, "another {spoil}");
    }
    cluster.wait_idle();
    check(&mut cluster, &[Asked::new(10, prompt(30, 1), 10)]);
}

#[test]
fn a_release_is_repeated_until_it_is_answered_and_then_acknowledged() {
    let mut cluster = Cluster::new(&options(None));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let request = expecting(&cluster, 1);
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &request, 1)));
    owner.say(DECODE, None, complete());
    (0..3).for_each(|_| assert_eq!(owner.hear(), PeerBody::Release { lease: LEASE }));
    assert!(cluster.rows.is_empty(), "nothing is decoded before the answer");
    owner.say(DECODE, None, released(true));
    let mut heard = owner.hear();
    while heard == (PeerBody::Release { lease: LEASE }) {
        heard = owner.hear();
    }
    assert_eq!(heard, PeerBody::ReleaseAck { lease: LEASE });
    cluster.wait_end(&request);
    assert_eq!(cluster.rows[&request.key(0)].len(), 4, "all but the first token");
    // An answer that comes twice is acknowledged twice.
    owner.say(DECODE, None, released(true));
    assert_eq!(owner.hear(), PeerBody::ReleaseAck { lease: LEASE });
    cluster.wait_idle();
}

#[test]
fn an_owner_that_says_nothing_is_waited_for_so_long() {
    let wait = Duration::from_millis(200);
    let mut cluster = Cluster::new(&Options { handoff_wait: wait, answer_wait: wait, ..options(None) });
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    // No offer; an offer and no end of it; an end and no answer.
    for (id, says) in [(1, 0), (2, 1), (3, 2)] {
        let request = expecting(&cluster, id);
        if says > 0 {
            owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &request, id)));
        }
        if says > 1 {
            let (lease, first) = (LeaseId(id), vec![(Choice(0), 3)]);
            owner.say(DECODE, None, PeerBody::Complete { lease, missing: vec![], first });
        }
        assert_eq!(blame(&mut cluster), (Failure::HandoffTimeout, Some(STRANGER)));
        if says > 0 {
            assert_eq!(owner.hear(), PeerBody::Release { lease: LeaseId(id) });
        }
        cluster.wait_idle();
    }
}

#[test]
fn an_owner_that_is_gone_before_its_prompt_is_computed_is_not_waited_for() {
    let mut cluster = Cluster::new(&options(None));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let request = expecting(&cluster, 1);
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &request, 1)));
    // D has heard the offer when it answers this.
    owner.say(DECODE, None, PeerBody::Released { lease: LeaseId(77), valid: false });
    assert_eq!(owner.hear(), PeerBody::ReleaseAck { lease: LeaseId(77) });
    drop(owner);
    assert_eq!(blame(&mut cluster), (Failure::HandoffLapsed, Some(STRANGER)), "and no timeout");
    cluster.wait_idle();
}

#[test]
fn an_owner_that_restarts_voids_what_it_promised_and_messages_of_earlier_lives_are_refused() {
    let mut cluster = Cluster::new(&options(None));
    let mut old = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let request = expecting(&cluster, 1);
    old.say(DECODE, Some(1), PeerBody::Offer(Peer::offer(&cluster.layout, &request, 1)));
    old.say(DECODE, Some(1), complete());
    assert_eq!(old.hear(), PeerBody::Release { lease: LEASE });
    drop(old);
    let mut new = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 2);
    let other = expecting(&cluster, 2);
    // The new life's first lease has the number of the old one's.
    new.say(DECODE, Some(1), PeerBody::Offer(Peer::offer(&cluster.layout, &other, 1)));
    assert_eq!(failure(&mut cluster), Failure::HandoffLapsed);
    // What the old life still says, and what is meant for another life of the reader, changes nothing.
    new.life = Incarnation(1);
    new.say(DECODE, Some(1), complete());
    new.life = Incarnation(2);
    new.say(DECODE, Some(7), complete());
    assert!(new.hears_nothing(Duration::from_millis(300)));
    assert!(cluster.rows.is_empty());
    new.say(DECODE, Some(1), complete());
    while new.hear() != (PeerBody::Release { lease: LEASE }) {}
    new.say(DECODE, Some(1), released(true));
    cluster.wait_end(&other);
    assert!(cluster.failures.is_empty() && !cluster.rows.contains_key(&request.key(0)));
    cluster.wait_idle();
}

#[test]
fn a_release_of_an_earlier_life_is_answered_invalid() {
    let cluster = Cluster::new(&options(None));
    let mut reader = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    reader.say(PREFILL, Some(7), PeerBody::Release { lease: LEASE });
    assert_eq!(reader.hear(), released(false));
}

#[test]
fn a_lease_that_nobody_renews_frees_the_blocks() {
    let mut cluster = Cluster::new(&options(None));
    let reader = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let lease = Duration::from_secs(3);
    let request = Asked { lease, ..Asked::new(1, prompt(30, 1), 10) };
    cluster.submit(PREFILL, &request, Assignment::Prefill { decode: STRANGER });
    let PeerBody::Offer(offer) = reader.hear() else { panic!("the offer comes first") };
    cluster.until("the first token", |cluster| cluster.rows.contains_key(&request.key(0)));
    let held = |cluster: &tests::cluster::Cluster| {
        cluster.reports.get(&PREFILL).is_some_and(|report| report.blocks_available < report.blocks_total)
    };
    cluster.until("a report of the lease", held);
    // The reader may never have heard of it: nobody else can tell the router.
    assert_eq!(blame(&mut cluster), (Failure::HandoffLapsed, Some(STRANGER)));
    cluster.wait_idle();
    let mut reader = reader;
    reader.say(PREFILL, Some(1), PeerBody::Release { lease: offer.lease });
    loop {
        match reader.hear() {
            PeerBody::Written { .. } | PeerBody::Complete { .. } => {}
            answer => {
                assert_eq!(answer, PeerBody::Released { lease: offer.lease, valid: false });
                break;
            }
        }
    }
}

#[test]
fn a_prompt_whose_reader_does_not_renew_is_computed_no_further() {
    let mut cluster = Cluster::new(&Options { chunk: 4, ..options(None) });
    cluster.prefill_knobs.layer_us.store(20_000, Ordering::Relaxed);
    let reader = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let lease = Duration::from_millis(300);
    let request = Asked { lease, ..Asked::new(1, prompt(400, 1), 10) };
    cluster.submit(PREFILL, &request, Assignment::Prefill { decode: STRANGER });
    let PeerBody::Offer(offer) = reader.hear() else { panic!("the offer comes first") };
    assert_eq!(blame(&mut cluster), (Failure::HandoffLapsed, Some(STRANGER)));
    while reader.hear() != (PeerBody::Withdraw { lease: offer.lease }) {}
    cluster.wait_idle();
    assert!(!cluster.rows.contains_key(&request.key(0)));
}

#[test]
fn only_its_reader_ends_a_lease_and_asking_again_gives_the_same_answer() {
    let mut cluster = Cluster::new(&options(None));
    let mut reader = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let mut other = Peer::enter(&cluster.hub, &cluster.layout, WorkerId(11), 1);
    let request = Asked::new(1, prompt(30, 1), 10);
    cluster.submit(PREFILL, &request, Assignment::Prefill { decode: STRANGER });
    let PeerBody::Offer(offer) = reader.hear() else { panic!("the offer comes first") };
    while !matches!(reader.hear(), PeerBody::Complete { .. }) {}
    let lease = offer.lease;
    other.say(PREFILL, None, PeerBody::Release { lease });
    assert!(other.hears_nothing(Duration::from_millis(100)));
    for _ in 0..2 {
        reader.say(PREFILL, None, PeerBody::Release { lease });
        assert_eq!(reader.hear(), PeerBody::Released { lease, valid: true });
    }
    reader.say(PREFILL, None, PeerBody::ReleaseAck { lease });
    reader.say(PREFILL, None, PeerBody::Release { lease });
    assert_eq!(reader.hear(), PeerBody::Released { lease, valid: false }, "the answer is forgotten");
    cluster.wait_idle();
}

#[test]
fn a_prefill_worker_that_restarts_is_used_again() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(20_000, Ordering::Relaxed);
    let request = Asked::new(2, prompt(64, 1), 10);
    cluster.hand_off(&request);
    // In the midst of its steps, and of reads that wait for them.
    cluster.during(Duration::from_millis(150));
    cluster.end(PREFILL);
    cluster.prefill_knobs.layer_us.store(0, Ordering::Relaxed);
    let (knobs, layout) = (cluster.prefill_knobs.clone(), cluster.layout.clone());
    cluster.start(PREFILL, Incarnation(2), device(layout, options(None).limits(PREFILL), knobs));
    let mut kinds = [failure(&mut cluster), failure(&mut cluster)];
    kinds.sort_by_key(|why| *why != Failure::Draining);
    assert_eq!(kinds, [Failure::Draining, Failure::HandoffLapsed]);
    let again = Asked { epoch: domain::Epoch(2), ..request };
    check(&mut cluster, &[again, Asked::new(3, prompt(40, 2), 10)]);
}

#[test]
fn a_handoff_that_can_never_fit_does_not_hold_up_the_next() {
    let mut cluster = Cluster::new(&Options { blocks: [512, 16], running_max: 1, reserve: 1, ..options(None) });
    cluster.decode_knobs.layer_us.store(2_000, Ordering::Relaxed);
    let first = Asked::new(2, prompt(20, 1), 20);
    let (large, next) = (Asked::new(4, prompt(100, 2), 5), Asked::new(6, prompt(20, 3), 5));
    cluster.hand_off(&first);
    cluster.until("it decodes", |cluster| cluster.rows.get(&first.key(0)).is_some_and(|rows| rows.len() > 1));
    // Both wait behind it, and find out in the same moment.
    [&large, &next].into_iter().for_each(|request| cluster.hand_off(request));
    assert_eq!(failure(&mut cluster), Failure::TooLarge);
    finish(&mut cluster, &[first, next]);
}

#[test]
fn a_reader_without_room_blames_nobody() {
    let wait = Duration::from_millis(200);
    let options = Options { running_max: 1, reserve: 1, handoff_wait: wait, ..options(None) };
    let mut cluster = Cluster::new(&options);
    cluster.decode_knobs.layer_us.store(20_000, Ordering::Relaxed);
    let (first, second) = (Asked::new(2, prompt(20, 1), 60), Asked::new(4, prompt(20, 2), 5));
    cluster.submit(DECODE, &first, Assignment::Whole);
    cluster.until("it decodes", |cluster| cluster.rows.contains_key(&first.key(0)));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    cluster.submit(DECODE, &second, Assignment::Decode { prefill: STRANGER });
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &second, 1)));
    assert_eq!(blame(&mut cluster), (Failure::HandoffTimeout, None));
    cluster.cancel(&first);
    cluster.wait_idle();
}

#[test]
fn a_choice_cancelled_during_its_handoff_is_not_decoded() {
    let mut cluster = Cluster::new(&options(None));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    let request = Asked { choices: 2, ..Asked::new(1, prompt(20, 1), 6) };
    cluster.submit(DECODE, &request, Assignment::Decode { prefill: STRANGER });
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &request, 1)));
    cluster.tell(DECODE, &ToWorker::Cancel { request: RequestId(1), epoch: request.epoch, choice: Some(Choice(1)) });
    cluster.during(Duration::from_millis(50));
    owner.say(
        DECODE,
        None,
        PeerBody::Complete { lease: LEASE, missing: vec![], first: vec![(Choice(0), 3), (Choice(1), 3)] },
    );
    assert_eq!(owner.hear(), PeerBody::Release { lease: LEASE });
    owner.say(DECODE, None, released(true));
    cluster.until("the other's end", |cluster| cluster.ends.contains_key(&request.key(0)));
    cluster.wait_idle();
    assert!(!cluster.rows.contains_key(&request.key(1)));
}

#[test]
fn attempts_end_with_their_session() {
    let mut cluster = Cluster::new(&options(None));
    cluster.decode_knobs.layer_us.store(500, Ordering::Relaxed);
    let decoding = Asked::new(2, prompt(20, 1), 1_500);
    cluster.hand_off(&decoding);
    let waiting = expecting(&cluster, 3);
    cluster.until("a report that it decodes", |cluster| {
        cluster.reports.get(&DECODE).is_some_and(|report| report.running == 1)
    });
    cluster.lose_session(DECODE);
    cluster.wait_idle();
    assert!(!cluster.ends.contains_key(&decoding.key(0)) && !cluster.rows.contains_key(&waiting.key(0)));
}

#[test]
fn a_renewal_for_an_earlier_life_is_answered_invalid() {
    let cluster = Cluster::new(&options(None));
    let mut reader = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    reader.say(PREFILL, Some(7), PeerBody::Renew { lease: LEASE, ticks: 1 });
    assert_eq!(reader.hear(), released(false));
}

#[test]
fn a_reader_whose_lease_is_over_stops_at_once() {
    let mut cluster = Cluster::new(&options(None));
    let mut owner = Peer::enter(&cluster.hub, &cluster.layout, STRANGER, 1);
    expecting(&cluster, 1);
    let request = Asked::new(1, prompt(20, 1), 5);
    owner.say(DECODE, None, PeerBody::Offer(Peer::offer(&cluster.layout, &request, 1)));
    // The answer to one of its renewals.
    owner.say(DECODE, None, released(false));
    assert_eq!(failure(&mut cluster), Failure::HandoffLapsed);
    cluster.wait_idle();
    assert!(owner.hears_nothing(Duration::from_millis(50)), "there is nothing to release");
}
