//! What took time in an attempt, as its router is told where it wants to know.

use crate::options;
use decode_worker::Decode;
use domain::handoff::PeerBody;
use domain::session::{Assignment, FromWorker, Submit, ToWorker};
use domain::{Choice, Epoch, LeaseId, Phase, PhaseKind, ProgressWord, RequestId, StepId};
use std::time::Duration;
use tests::cluster::{Asked, prompt};
use tests::rig::{PEER, Rig};
use transport::{AgentEvent, Completion, Lane, RunTime, TransferId, TransferReport};
use worker::Inbound;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn submit(asked: &Asked, assignment: Assignment, timed: bool) -> ToWorker {
    ToWorker::Submit(Submit { timed, ..asked.submit(assignment) })
}

/// All that was told of phases, and whether it came before the end.
fn phases(said: &[FromWorker]) -> Vec<Phase> {
    let is_told = |said: &FromWorker| matches!(said, FromWorker::Phases { .. });
    let ended = said.iter().position(|said| matches!(said, FromWorker::Ended { .. }));
    assert!(said.iter().rposition(is_told) < ended, "what took time is told before the end: {said:?}");
    let of = |said: &FromWorker| match said {
        FromWorker::Phases { request: RequestId(1), epoch: Epoch(1), phases, left_out: 0 } => phases.clone(),
        _ => Vec::new(),
    };
    said.iter().flat_map(of).collect()
}

/// A prompt of two chunks that decodes: what is said of it.
fn whole(timed: bool) -> Vec<FromWorker> {
    let mut rig = Rig::new(Decode, options(None).layout);
    rig.tell(&submit(&Asked::new(1, prompt(1500, 1), 4), Assignment::Whole, timed));
    rig.now = rig.now + ms(2);
    rig.turn();
    for _ in 0..20 {
        rig.now = rig.now + ms(3);
        rig.step();
    }
    rig.said()
}

#[test]
fn a_prompt_tells_its_queue_its_chunks_and_its_decoding() {
    let phases = phases(&whole(true));
    let kinds: Vec<_> = phases.iter().map(|phase| phase.kind).collect();
    assert_eq!(kinds, [PhaseKind::Queue, PhaseKind::Chunk, PhaseKind::Chunk, PhaseKind::Decode], "{phases:#?}");
    let [queue, first, second, decode] = phases.as_slice() else { panic!("four: {phases:?}") };
    assert_eq!((queue.begin, queue.took, first.begin, first.took), (ms(0), ms(2), ms(2), ms(3)));
    assert_eq!((first.start, first.start + first.tokens, second.start + second.tokens), (0, second.start, 1500));
    // The second chunk was planned while the first one ran, and begins when that has ended.
    assert_eq!((second.begin, second.took, decode.begin), (ms(5), ms(3), ms(8)));
    assert!(decode.took >= ms(9), "three tokens of it: {decode:?}");
}

#[test]
fn nothing_is_told_that_nobody_asked_for() {
    let said = whole(false);
    assert!(said.iter().all(|said| !matches!(said, FromWorker::Phases { .. })), "{said:?}");
    let rest: Vec<_> = whole(true).into_iter().filter(|said| !matches!(said, FromWorker::Phases { .. })).collect();
    assert_eq!(rest, said, "nothing else changes by it");
}

#[test]
fn a_prompt_that_is_taken_over_tells_each_layer_and_its_lane() {
    const TOKENS: u32 = 30;
    let (lease, id, step) = (LeaseId(7), TransferId(1), StepId(5));
    let mut rig = Rig::new(Decode, options(None).layout);
    rig.on_read(Ok(id));
    rig.tell(&submit(&Asked::new(1, prompt(TOKENS, 1), 3), Assignment::Decode { prefill: PEER }, true));
    rig.turn();
    rig.now = rig.now + ms(4);
    rig.hear(rig.offer(lease, TOKENS));
    rig.turn();
    rig.hear(PeerBody::Complete { lease, missing: Vec::new(), first: vec![(Choice(0), 0)] });
    rig.now = rig.now + ms(9);
    let report = TransferReport {
        lane: Lane::Tcp,
        rails: 1,
        bytes: 30,
        wire_bytes: 30,
        queued: ms(1),
        wire: ms(2),
        elapsed: ms(7),
    };
    let run = |layer, begun, ended, bytes| {
        let gate = ProgressWord::mark(step, layer);
        RunTime { first: gate, last: gate, begun: ms(begun), ended: ms(ended), bytes }
    };
    let runs = vec![run(0, 1, 2, 10), run(1, 3, 7, 20)];
    rig.handle(Inbound::Agent(AgentEvent::Ended(Completion { id, result: Ok(report), runs })));
    rig.hear(PeerBody::Released { lease, valid: true });
    rig.turn();
    while rig.step() {
        rig.now = rig.now + ms(3);
    }
    let phases = phases(&rig.said());
    let [first, second, decode] = phases.as_slice() else { panic!("two layers, and the rest: {phases:#?}") };
    let read = |phase: &Phase| (phase.kind, phase.begin, phase.took, phase.bytes, phase.layers.clone());
    assert_eq!(read(first), (PhaseKind::Transfer, ms(5), ms(1), 10, 0..1));
    assert_eq!(
        read(second),
        (PhaseKind::Transfer, ms(7), ms(4), 20, 1..rig.machine.core().config.layout.layers() as u16)
    );
    assert!(phases[..2].iter().all(|phase| phase.via == "tcp" && phase.peer == "w2"), "{phases:#?}");
    assert_eq!((decode.kind, decode.begin), (PhaseKind::Decode, ms(13)));
}
