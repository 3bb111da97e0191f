//! The role of a worker is replaced while it runs. Attempts that are open go on as if it had not been; new submits are
//! judged by the new role.

use crate::options;
use decode_worker::Decode;
use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, FromWorker, Migrate, ToWorker};
use domain::{Choice, Epoch, LeaseId, RequestId};
use prefill_worker::Prefill;
use std::time::Duration;
use tests::cluster::{Asked, prompt};
use tests::rig::{OFFER_MAX, PEER, Rig};
use transport::{AgentEvent, Completion, Lane, TransferId, TransferReport};
use worker::{Inbound, Role};

/// Everything that a worker sends: to its router, and to its peer.
type Sent = (Vec<FromWorker>, Vec<PeerBody>);

/// Takes steps until none runs, and replaces the role before the step with this number, if any.
fn run(rig: &mut Rig, role: impl Role, replaced_before: Option<usize>) {
    let mut role = Some(role);
    for step in 0.. {
        if replaced_before == Some(step)
            && let Some(role) = role.take()
        {
            rig.machine.replace_role(Box::new(role));
        }
        rig.turn();
        if !rig.step() {
            return;
        }
    }
}

/// A prompt of three chunks is computed and handed off.
fn hand_off(replaced_before: Option<usize>) -> Sent {
    let mut rig = Rig::new(Prefill, options(None).layout);
    rig.submit(&Asked::new(1, prompt(3000, 1), 10), Assignment::Prefill { decode: PEER });
    run(&mut rig, Decode, replaced_before);
    (rig.said(), rig.sent())
}

#[test]
fn a_prompt_is_handed_off_after_its_worker_became_a_decode_worker() {
    let (said, sent) = hand_off(None);
    assert!(matches!(&said[..], [FromWorker::Tokens(rows)] if rows.len() == 1), "{said:?}");
    let [PeerBody::Offer(_), PeerBody::Written { .. }, .., PeerBody::Complete { first, .. }] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(first.len(), 1);
    // Before its offer, between its chunks, and after its handoff.
    for step in 0..=3 {
        assert_eq!(hand_off(Some(step)), (said.clone(), sent.clone()), "the role was replaced before step {step}");
    }
}

/// A prompt is computed and decoded here.
fn decode(replaced_before: Option<usize>) -> Sent {
    let mut rig = Rig::new(Decode, options(None).layout);
    rig.submit(&Asked { choices: 2, ..Asked::new(1, prompt(30, 1), 6) }, Assignment::Whole);
    run(&mut rig, Prefill, replaced_before);
    (rig.said(), rig.sent())
}

#[test]
fn a_sequence_decodes_on_after_its_worker_became_a_prefill_worker() {
    let (said, sent) = decode(None);
    assert_eq!(said.iter().filter(|said| matches!(said, FromWorker::Ended { tokens: 6, .. })).count(), 2, "{said:?}");
    for step in 0..=6 {
        assert_eq!(decode(Some(step)), (said.clone(), sent.clone()), "the role was replaced before step {step}");
    }
}

/// A prompt is taken over and decoded on. The role is replaced before the offer, before the answer, or not.
fn take_over(replaced_at: Option<usize>) -> Sent {
    const TOKENS: u32 = 30;
    let (lease, id) = (LeaseId(7), TransferId(1));
    let mut rig = Rig::new(Decode, options(None).layout);
    let replace = |rig: &mut Rig, at: usize| {
        if replaced_at == Some(at) {
            rig.machine.replace_role(Box::new(Prefill));
        }
    };
    rig.on_read(Ok(id));
    rig.submit(&Asked::new(1, prompt(TOKENS, 1), 6), Assignment::Decode { prefill: PEER });
    rig.turn();
    replace(&mut rig, 0);
    rig.hear(rig.offer(lease, TOKENS));
    rig.turn();
    rig.hear(PeerBody::Complete { lease, missing: Vec::new(), first: vec![(Choice(0), 0)] });
    replace(&mut rig, 1);
    let report = TransferReport {
        lane: Lane::Tcp,
        rails: 1,
        bytes: 0,
        wire_bytes: 0,
        queued: Duration::ZERO,
        wire: Duration::ZERO,
        elapsed: Duration::ZERO,
    };
    rig.handle(Inbound::Agent(AgentEvent::Ended(Completion { id, result: Ok(report), runs: Vec::new() })));
    rig.hear(PeerBody::Released { lease, valid: true });
    run(&mut rig, Prefill, replaced_at.filter(|&at| at == 2).map(|_| 0));
    (rig.said(), rig.sent())
}

#[test]
fn a_prompt_is_taken_over_after_its_reader_became_a_prefill_worker() {
    let (said, sent) = take_over(None);
    assert!(matches!(said.last(), Some(FromWorker::Ended { tokens: 6, .. })), "{said:?}");
    assert!(sent.contains(&PeerBody::Release { lease: LeaseId(7) }), "{sent:?}");
    for at in 0..=2 {
        assert_eq!(take_over(Some(at)), (said.clone(), sent.clone()), "the role was replaced at {at}");
    }
}

/// A sequence decodes, and is moved to the peer while it does.
fn migrate(replaced_before: Option<usize>) -> Sent {
    let mut rig = Rig::new(Decode, options(None).layout);
    rig.submit(&Asked::new(1, prompt(30, 1), 100), Assignment::Whole);
    run_steps(&mut rig, 5);
    if replaced_before == Some(0) {
        rig.machine.replace_role(Box::new(Prefill));
    }
    let (request, epoch, next) = (RequestId(1), Epoch(1), Epoch(2));
    rig.tell(&ToWorker::Migrate(Migrate { request, epoch, to: PEER, next, known: 2, lease: OFFER_MAX }));
    run(&mut rig, Prefill, replaced_before.filter(|&step| step > 0));
    (rig.said(), rig.sent())
}

fn run_steps(rig: &mut Rig, steps: usize) {
    rig.turn();
    (0..steps).for_each(|_| assert!(rig.step()));
}

#[test]
fn a_sequence_moves_after_its_worker_became_a_prefill_worker() {
    let (said, sent) = migrate(None);
    assert!(said.iter().all(|said| matches!(said, FromWorker::Tokens(_))), "{said:?}");
    assert!(matches!(sent.last(), Some(PeerBody::Complete { missing, .. }) if !missing.is_empty()), "{sent:?}");
    for step in [0, 1, 5] {
        assert_eq!(migrate(Some(step)), (said.clone(), sent.clone()), "the role was replaced before step {step}");
    }
}

/// Submits this to a worker whose role was replaced. The refusal, or how many tokens were made of it.
fn submit(before: impl Role, after: impl Role, assignment: Assignment) -> Result<usize, (Failure, String)> {
    let mut rig = Rig::new(before, options(None).layout);
    rig.machine.replace_role(Box::new(after));
    rig.submit(&Asked::new(1, prompt(30, 1), 6), assignment);
    run(&mut rig, Prefill, None);
    let mut tokens = 0;
    for said in rig.said() {
        match said {
            FromWorker::Tokens(rows) => tokens += rows.len(),
            FromWorker::Failed { why, fault: None, detail, .. } => return Err((why, detail)),
            _ => {}
        }
    }
    Ok(tokens)
}

#[test]
fn new_submits_are_judged_by_the_new_role() {
    let refused = |detail: &str| Err((Failure::QueueFull, detail.to_owned()));
    let prefill = Assignment::Prefill { decode: PEER };
    assert_eq!(submit(Prefill, Decode, Assignment::Whole), Ok(6));
    assert_eq!(submit(Prefill, Decode, prefill), refused("a decode worker does not compute prompts for others"));
    assert_eq!(submit(Decode, Prefill, prefill), Ok(1));
    for assignment in [Assignment::Whole, Assignment::Decode { prefill: PEER }, Assignment::TakeOver { from: PEER }] {
        assert_eq!(submit(Decode, Prefill, assignment), refused("a prefill worker does not decode"));
    }
}
