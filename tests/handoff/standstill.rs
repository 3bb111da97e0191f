//! A worker that stood still holds that against nobody, no lease against its reader and no offer against its
//! owner; and a lease that is over is no secret.

use crate::options;
use decode_worker::Decode;
use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, FromWorker, ToWorker};
use domain::{LeaseId, WorkerId};
use kv_manager::FetchState;
use prefill_worker::Prefill;
use std::time::Duration;
use tests::cluster::{Asked, prompt};
use tests::rig::{HANDOFF_WAIT, OFFER_MAX, PEER, Rig, SILENCE_MAX};
use transport::{AgentEvent, Completion, PostError, PrepareError, RegionId, TransferError, TransferId};
use worker::{Inbound, ReadError};

const LEASE: Duration = Duration::from_secs(2);
const JUST: Duration = Duration::from_millis(1);
/// So much of a pause counts: the loop may have slept so long by itself.
const TICK: Duration = Duration::from_millis(100);

/// A prefill worker that has computed a prompt, which its reader has not taken over.
fn leased(lease: Duration) -> (Rig, LeaseId) {
    let mut rig = Rig::new(Prefill, options(None).layout);
    let request = Asked { lease, deadline: Duration::from_secs(3600), ..Asked::new(1, prompt(30, 1), 10) };
    rig.submit(&request, Assignment::Prefill { decode: PEER });
    rig.turn();
    while rig.step() {}
    let offers: Vec<_> = rig
        .sent()
        .into_iter()
        .filter_map(|body| if let PeerBody::Offer(offer) = body { Some(offer) } else { None })
        .collect();
    let [offer] = &offers[..] else { panic!("{offers:?}") };
    rig.said();
    (rig, offer.lease)
}

fn released(lease: LeaseId, valid: bool) -> PeerBody {
    PeerBody::Released { lease, valid }
}

fn lapsed(rig: &mut Rig) -> bool {
    rig.said().iter().any(|said| matches!(said, FromWorker::Failed { why: Failure::HandoffLapsed, .. }))
}

#[test]
fn a_pause_of_its_owner_costs_no_reader_its_lease() {
    // Just under and over what is judged by time here, and far over all of it.
    let limits = [TICK, SILENCE_MAX / 2, SILENCE_MAX, LEASE, OFFER_MAX, OFFER_MAX * 10];
    let pauses = limits.into_iter().flat_map(|limit| [limit - JUST, limit + JUST]);
    for (pause, turn_first) in pauses.flat_map(|pause| [(pause, true), (pause, false)]) {
        let (mut rig, lease) = leased(LEASE);
        rig.pass(LEASE / 2);
        rig.stand_still(pause);
        if turn_first {
            // What its reader said lies in a socket still.
            rig.turn();
        }
        rig.hear(PeerBody::Renew { lease, ticks: 7 });
        rig.pass(LEASE - JUST);
        assert_eq!((rig.sent(), lapsed(&mut rig)), (vec![], false), "after {pause:?}, turn first: {turn_first}");
        rig.hear(PeerBody::Release { lease });
        assert_eq!(rig.sent(), [released(lease, true)], "after {pause:?}, turn first: {turn_first}");
    }
}

#[test]
fn after_its_owners_pause_a_lease_lapses_all_the_same_if_nobody_renews_it() {
    for pause in [SILENCE_MAX, OFFER_MAX * 10] {
        let (mut rig, lease) = leased(LEASE);
        rig.pass(LEASE / 2);
        rig.stand_still(pause);
        rig.turn();
        rig.pass(LEASE / 2 + JUST);
        assert!(lapsed(&mut rig), "after {pause:?}");
        rig.hear(PeerBody::Release { lease });
        assert_eq!(rig.sent(), [released(lease, false)]);
    }
}

#[test]
fn a_pause_revives_no_lease_that_was_over_before() {
    let (mut rig, lease) = leased(LEASE);
    // No turn has seen that it is over when the pause begins.
    rig.pass(LEASE - JUST);
    rig.now = rig.now + JUST;
    rig.hear(PeerBody::Renew { lease, ticks: 7 });
    assert_eq!(rig.sent(), [released(lease, false)]);
    rig.stand_still(SILENCE_MAX);
    rig.hear(PeerBody::Renew { lease, ticks: 8 });
    assert_eq!(rig.sent(), [released(lease, false)]);
    rig.turn();
    assert!(lapsed(&mut rig));
}

#[test]
fn an_offer_that_is_renewed_for_ever_ends_at_its_longest_not_counting_pauses() {
    let (mut rig, lease) = leased(LEASE);
    let mut ticks = 0;
    let mut renewed = |rig: &mut Rig, time: Duration| {
        let until = rig.now + time;
        while rig.now < until {
            ticks += 1;
            rig.tell(&ToWorker::Heartbeat);
            rig.hear(PeerBody::Renew { lease, ticks });
            rig.pass((LEASE / 3).min(until.since(rig.now)));
        }
    };
    renewed(&mut rig, OFFER_MAX / 2);
    rig.stand_still(OFFER_MAX);
    renewed(&mut rig, OFFER_MAX / 2 - TICK - JUST);
    assert!(!lapsed(&mut rig));
    renewed(&mut rig, TICK);
    assert!(lapsed(&mut rig));
}

#[test]
fn who_renews_a_lease_that_is_over_is_told_so() {
    let (mut rig, lease) = leased(LEASE);
    // Alive, also where the renewal came twice.
    (0..2).for_each(|_| rig.hear(PeerBody::Renew { lease, ticks: 1 }));
    assert_eq!(rig.sent(), []);
    rig.pass(LEASE * 2);
    assert!(lapsed(&mut rig));
    for lease in [lease, lease, LeaseId(77)] {
        rig.hear(PeerBody::Renew { lease, ticks: 2 });
        assert_eq!(rig.sent(), [released(lease, false)]);
    }
    // One that a release overtook was valid, and stays so.
    let (mut rig, lease) = leased(LEASE);
    rig.hear(PeerBody::Release { lease });
    assert_eq!(rig.sent(), [released(lease, true)]);
    rig.hear(PeerBody::Renew { lease, ticks: 1 });
    assert_eq!(rig.sent(), []);
}

/// Tokens of the prompt that a reader expects.
const TOKENS: u32 = 30;

/// A decode worker that expects a prompt.
fn expecting() -> Rig {
    let mut rig = Rig::new(Decode, options(None).layout);
    let request = Asked { deadline: Duration::from_secs(3600), ..Asked::new(1, prompt(TOKENS, 1), 10) };
    rig.submit(&request, Assignment::Decode { prefill: PEER });
    rig.turn();
    rig
}

/// The whole of that prompt.
fn offer(rig: &Rig) -> PeerBody {
    rig.offer(LeaseId(7), TOKENS)
}

fn states(rig: &Rig) -> Vec<FetchState> {
    rig.machine.fetches().progress().map(|fetch| fetch.state).collect()
}

/// Why the attempt failed, and whose fault that was, if it did.
fn failure(rig: &mut Rig) -> Option<(Failure, Option<WorkerId>)> {
    rig.said().into_iter().find_map(|said| match said {
        FromWorker::Failed { why, fault, .. } => Some((why, fault)),
        _ => None,
    })
}

/// Time goes by, in which the router says that it is there.
fn wait(rig: &mut Rig, time: Duration) {
    let until = rig.now + time;
    while rig.now < until {
        rig.tell(&ToWorker::Heartbeat);
        rig.pass((SILENCE_MAX / 4).min(until.since(rig.now)));
    }
}

#[test]
fn a_pause_of_its_reader_costs_no_owner_its_handoff() {
    let limits = [TICK, SILENCE_MAX / 2, SILENCE_MAX, HANDOFF_WAIT, HANDOFF_WAIT * 10];
    let pauses = limits.into_iter().flat_map(|limit| [limit - JUST, limit + JUST]);
    for (pause, turn_first) in pauses.flat_map(|pause| [(pause, true), (pause, false)]) {
        let mut rig = expecting();
        wait(&mut rig, HANDOFF_WAIT - TICK - JUST);
        rig.stand_still(pause);
        if turn_first {
            // What its owner said lies in a socket still.
            rig.turn();
        }
        let offer = offer(&rig);
        rig.hear(offer);
        rig.turn();
        assert_eq!(states(&rig), [FetchState::Reading], "after {pause:?}, turn first: {turn_first}");
        assert_eq!(failure(&mut rig), None);
    }
}

#[test]
fn after_its_readers_pause_an_offer_is_missed_all_the_same_if_none_comes() {
    let mut rig = expecting();
    wait(&mut rig, HANDOFF_WAIT / 2);
    rig.stand_still(HANDOFF_WAIT * 10);
    rig.turn();
    wait(&mut rig, HANDOFF_WAIT / 2 - TICK - JUST);
    assert_eq!(failure(&mut rig), None);
    wait(&mut rig, TICK * 2);
    assert_eq!(failure(&mut rig), Some((Failure::HandoffTimeout, Some(PEER))));
}

#[test]
fn a_read_that_fails_here_is_not_its_owners_fault() {
    let region = RegionId(0);
    for (error, fault) in [
        (ReadError::Post(PostError::Full(1)), None),
        (ReadError::Post(PostError::Failed), None),
        (ReadError::Prepare(PrepareError::NotLent { region }), None),
        (ReadError::Prepare(PrepareError::NoRegion { peer: None, region }), None),
        (ReadError::Prepare(PrepareError::NoRegion { peer: Some(PEER), region }), Some(PEER)),
    ] {
        let mut rig = expecting();
        rig.on_read(Err(error.clone()));
        let offer = offer(&rig);
        rig.hear(offer);
        rig.turn();
        assert_eq!(failure(&mut rig), Some((Failure::HandoffLapsed, fault)), "{error}");
    }
    for (error, fault) in [(TransferError::Failed, None), (TransferError::PeerGone, Some(PEER))] {
        let mut rig = expecting();
        let id = TransferId(1);
        rig.on_read(Ok(id));
        let offer = offer(&rig);
        rig.hear(offer);
        rig.turn();
        rig.handle(Inbound::Agent(AgentEvent::Ended(Completion { id, result: Err(error), runs: Vec::new() })));
        assert_eq!(failure(&mut rig), Some((Failure::HandoffLapsed, fault)), "{error}");
    }
}
