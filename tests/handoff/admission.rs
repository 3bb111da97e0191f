//! Who gets memory and running room, in which order, and for how long a handoff waits for the queue of another worker.

use super::*;
use crate::peer::Peer;
use decode_worker::Decode;
use domain::handoff::{Ask, PeerBody};
use domain::{Tenant, WorkerId};
use prefill_worker::Prefill;
use tests::rig::{BLOCKS, OFFER_MAX, PEER, Rig, SILENCE_MAX};
use transport::{AgentEvent, Lane, LaneStatus, Probe, Staging};
use worker::Inbound;

/// Sequences that run at once.
const RUNNING: u32 = 16;
/// Requests that end before the handoff has begun, of which those are that were there before it.
const OVERTAKEN_MAX: u64 = 120;

/// Each of the others would fit at any time, so there is never room for all of these unless somebody waits for them.
#[test]
fn a_handoff_of_many_choices_gets_its_room_among_requests_that_come_all_the_time() {
    let mut cluster = Cluster::new(&Options { running_max: RUNNING, ..options(None) });
    cluster.decode_knobs.layer_us.store(200, Ordering::Relaxed);
    let one = |id: u64| Asked::new(id, prompt(5, id as u32), 12 + (id % 7) as u32 * 4);
    let mut last = 100 + u64::from(RUNNING) + 4;
    (100..last).for_each(|id| cluster.submit(DECODE, &one(id), Assignment::Whole));
    let many = Asked { choices: RUNNING as u16, ..Asked::new(2, prompt(22, 1), 6) };
    cluster.hand_off(&many);
    let begun = |cluster: &tests::cluster::Cluster| {
        cluster.rows.get(&many.key(0)).is_some_and(|rows| rows.iter().any(|(from, _)| *from == DECODE))
    };
    while !begun(&cluster) {
        let ended = cluster.ends.len();
        cluster.until("an end, or the handoff", |cluster| begun(cluster) || cluster.ends.len() > ended);
        assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
        assert!((ended as u64) < OVERTAKEN_MAX, "it is starved");
        for _ in ended..cluster.ends.len() {
            cluster.submit(DECODE, &one(last), Assignment::Whole);
            last += 1;
        }
    }
    let all: Vec<_> = (100..last).map(one).chain([many]).collect();
    finish(&mut cluster, &all);
}

/// Who waits in the queue of the worker that computes prompts is not sent elsewhere, where computing it would only
/// move the overload.
#[test]
fn a_queue_that_is_longer_than_a_handoff_waits_fails_none() {
    let wait = Duration::from_secs(2);
    let mut cluster = Cluster::new(&Options { running_max: 1, chunk: 8, handoff_wait: wait, ..options(None) });
    cluster.prefill_knobs.layer_us.store(200_000, Ordering::Relaxed);
    // Six steps, of three layers each.
    let (first, next) = (Asked::new(2, prompt(48, 1), 3), Asked::new(4, prompt(5, 2), 3));
    check(&mut cluster, &[first, next]);
}

#[test]
fn a_prompt_is_said_to_be_queued_to_its_reader_alone_and_until_it_is_offered() {
    let mut cluster = Cluster::new(&Options { running_max: 1, chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(50_000, Ordering::Relaxed);
    let [mut reader, mut other] = [9, 11].map(|id| Peer::enter(&cluster.hub, &cluster.layout, WorkerId(id), 1));
    let (first, next) = (Asked::new(2, prompt(48, 1), 3), Asked::new(3, prompt(5, 2), 3));
    cluster.hand_off(&first);
    cluster.submit(PREFILL, &next, Assignment::Prefill { decode: WorkerId(9) });
    let expect = |id: u64| PeerBody::Expect { request: RequestId(id), epoch: Epoch(1) };
    // Of what is not there nothing is said, nor to anybody else.
    other.say(PREFILL, None, expect(3));
    [2, 4, 3].into_iter().for_each(|id| reader.say(PREFILL, None, expect(id)));
    assert_eq!(reader.hear(), PeerBody::Queued { request: RequestId(3), epoch: Epoch(1) });
    assert!(matches!(reader.hear(), PeerBody::Offer(_)));
    reader.say(PREFILL, None, expect(3));
    reader.say(PREFILL, None, PeerBody::Release { lease: domain::LeaseId(77) });
    loop {
        match reader.hear() {
            PeerBody::Written { .. } | PeerBody::Complete { .. } => {}
            answer => {
                assert_eq!(answer, PeerBody::Released { lease: domain::LeaseId(77), valid: false });
                break;
            }
        }
    }
    assert!(other.hears_nothing(Duration::ZERO));
    cluster.cancel(&next);
    cluster.wait_end(&first);
}

/// What a lease covers cannot be given up, so to give one takes room, too.
#[test]
fn cached_blocks_are_offered_only_beside_all_who_wait_for_room() {
    for waits in [false, true] {
        let mut rig = Rig::new(Decode, options(None).layout);
        let asks = Asked::new(1, prompt(41, 1), 1);
        rig.submit(&asks, Assignment::Whole);
        rig.turn();
        assert!(rig.step(), "ten blocks of it are cached from then on");
        // All but twenty of the others.
        let most = Asked { deadline: Duration::from_secs(3600), ..Asked::new(2, prompt((BLOCKS - 30) * 4, 2), 1000) };
        rig.submit(&most, Assignment::Whole);
        rig.turn();
        if waits {
            let next = Asked::new(3, prompt(25 * 4, 3), 10);
            rig.submit(&next, Assignment::Whole);
            // It has room as long as those ten may be given up, and waits for the step.
            rig.turn();
        }
        rig.sent();
        let core = rig.machine.core();
        let mut chain = Vec::new();
        core.config.scope("", None).extend_chain(&mut chain, &asks.prompt, core.config.layout.block_tokens);
        let (request, epoch) = (RequestId(9), Epoch(1));
        let (lease, wait, tenant) = (OFFER_MAX, Duration::ZERO, Tenant::UNKNOWN);
        rig.hear(PeerBody::Ask(Ask { request, epoch, lease, wait, tenant, chain }));
        match &rig.sent()[..] {
            [PeerBody::Offer(offer)] if !waits => assert_eq!(offer.tokens, 40),
            [PeerBody::Decline { .. }] if waits => {}
            other => panic!("{other:?}, waits: {waits}"),
        }
    }
}

/// There is no room for both, but where the one is in the cache for the other.
#[test]
fn who_waits_for_room_has_it_once_another_one_has_computed_the_same() {
    let mut rig = Rig::new(Decode, options(None).layout);
    for id in [1, 2] {
        let request =
            Asked { deadline: Duration::from_secs(3600), ..Asked::new(id, prompt(BLOCKS / 3 * 2 * 4, 1), 100) };
        rig.submit(&request, Assignment::Whole);
    }
    rig.turn();
    let computes = |rig: &Rig, id: u64| {
        rig.running().is_some_and(|plan| plan.spans.iter().any(|span| span.key.request == RequestId(id)))
    };
    assert!(computes(&rig, 1) && !computes(&rig, 2));
    while !computes(&rig, 2) {
        assert!(rig.step() && computes(&rig, 1), "the second one waits until the first one has ended");
    }
    assert!(computes(&rig, 1));
}

/// A step that takes long, and behind it a prompt for a peer from which nothing else is to come.
#[test]
fn a_peer_is_not_parted_from_while_a_prompt_for_it_waits() {
    let mut rig = Rig::new(Prefill, options(None).layout);
    let status = LaneStatus {
        peer: "decode-0".to_owned(),
        lane: Lane::Tcp,
        tls: false,
        encoding: Encoding::Exact,
        staging: Staging::default(),
        probe: Probe::default(),
        expected_bytes_per_s: None,
        passed_over: Vec::new(),
    };
    rig.handle(Inbound::Agent(AgentEvent::Connected { peer: PEER, status }));
    let asked = |id: u64, decode: WorkerId, rig: &mut Rig| {
        let request = Asked { deadline: Duration::from_secs(3600), ..Asked::new(id, prompt(10, id as u32), 1) };
        rig.submit(&request, Assignment::Prefill { decode });
        rig.turn();
    };
    // Its first token is its last, so it is offered to nobody.
    asked(1, WorkerId(7), &mut rig);
    asked(2, PEER, &mut rig);
    let pass = |rig: &mut Rig| {
        for _ in 0..800 {
            rig.tell(&ToWorker::Heartbeat);
            rig.pass(SILENCE_MAX / 8);
        }
    };
    pass(&mut rig);
    assert!(!rig.has_disconnected());
    while rig.step() {}
    pass(&mut rig);
    assert!(rig.has_disconnected(), "nothing needs it any more");
}
