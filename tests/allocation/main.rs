//! What is allocated, counted: by the thread of a worker for a step of sequences that decode and for a prompt that
//! comes, and for each worker and each key of many. What is copied is allocated first, so bytes count as well. What a
//! long context costs is counted in instructions, too.

mod counting;
mod fleet;
mod keys;
mod stepping;

use counting::count;
use decode_worker::Decode;
use domain::handoff::{Offer, OfferedGroup, PeerBody};
use domain::plan::{Sample, SlotChange, Span};
use domain::session::{Assignment, Submit, ToWorker};
use domain::{
    BlockId, Choice, Dtype, Encoding, Generation, KvGroup, KvKind, KvLayout, LeaseId, ModelLayout, SamplingParams,
    Token,
};
use prefill_worker::Prefill;
use std::time::Instant;
use tests::cluster::{Asked, prompt};
use tests::rig::{PEER, Rig};

/// Tokens of a block.
const SIZE: u32 = 16;

fn layout() -> KvLayout {
    let group = KvGroup { layers: vec![0, 1], kind: KvKind::of_heads(1, 2), window: None };
    KvLayout::whole(ModelLayout {
        block_tokens: SIZE,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![group],
    })
}

/// Sequences that decode at once.
const SEQUENCES: usize = 64;

/// Bytes of a sequence in a step beside its span and its sample, at most: its input, a block, the token, and what
/// queues note.
const OTHERS: usize = 350;

/// What one step costs of 64 sequences that know so many tokens: the least of 30 steps, in some of which a block
/// is full or a list grows.
fn decode_step(known: u32, penalty: f32, timed: bool) -> (usize, usize) {
    let mut rig = Rig::new(Decode, layout());
    for id in 0..SEQUENCES as u64 {
        let plain = Asked::new(id, prompt(known, id as u32), 1000);
        let params = SamplingParams { presence_penalty: penalty, ..plain.params };
        let submit = Asked { params, ..plain }.submit(Assignment::Whole);
        rig.tell(&ToWorker::Submit(Submit { timed, ..submit }));
    }
    rig.turn();
    while rig.running().is_some_and(|plan| plan.rows() != SEQUENCES || plan.spans[0].start < known) {
        assert!(rig.step());
    }
    let step = |_| {
        assert!(rig.finish());
        count(|| rig.see())
    };
    (0..30).map(step).min().expect("there are some")
}

/// Sequences of a step after a long context.
const MANY: u64 = 256;
/// Those of a step whose instructions are counted: the kernel stops the process after each of them.
const COUNTED: u64 = 64;

/// Makes a rig whose next step is of so many `sequences` that know so many tokens, nearly all of which they share. They
/// are sampled by them.
fn long_steps(sequences: u64, known: u32) -> Rig {
    let mut rig = Rig::new(Decode, layout());
    let shared = prompt(known, 1);
    for id in 0..sequences {
        let plain = Asked::new(id, shared.clone(), 1000);
        let params = SamplingParams { presence_penalty: 0.5, ..plain.params };
        rig.submit(&Asked { params, ..plain }, Assignment::Whole);
    }
    rig.turn();
    while rig.running().is_some_and(|plan| plan.rows() != sequences as usize || plan.spans[0].start < known) {
        assert!(rig.step());
    }
    assert!(rig.finish());
    rig
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time is printed, and nothing is asserted of it")]
fn a_step_costs_its_host_the_same_after_a_long_context() {
    let (short, long) = (1 << 10, 128 << 10);
    let bytes = |known: u32| {
        let mut rig = long_steps(MANY, known);
        let bytes = count(|| rig.see()).1;
        let time = |_| {
            assert!(rig.finish());
            let begun = Instant::now();
            rig.see();
            begun.elapsed()
        };
        println!("{MANY} sequences: at best {:?} after {known} tokens", (0..100).map(time).min());
        bytes
    };
    let (least, most) = (bytes(short), bytes(long));
    println!("{MANY} sequences: {least} bytes after {short} tokens, {most} after {long}");
    assert!(most * 10 <= least * 11, "{least} bytes after {short} tokens, {most} after {long}");
    let instructions = |known: u32| {
        let mut rig = long_steps(COUNTED, known);
        stepping::instructions(|| rig.see())
    };
    let (least, most) = match instructions(short).and_then(|least| Ok((least, instructions(long)?))) {
        Ok(counts) => counts,
        Err(why) => return println!("skipped: instructions cannot be counted here: {why}"),
    };
    println!("{COUNTED} sequences: {least} instructions after {short} tokens, {most} after {long}");
    assert!(most * 10 <= least * 11, "{least} instructions after {short} tokens, {most} after {long}");
}

/// What it costs to take a prompt.
fn submit(mut rig: Rig, assignment: Assignment, tokens: u32, choices: u16) -> (usize, usize) {
    let request = Asked { choices, ..Asked::new(1, prompt(tokens, 1), 100) };
    let told = Rig::told(&ToWorker::Submit(request.submit(assignment)));
    count(|| rig.handle(told))
}

#[test]
fn a_step_of_decoding_sequences() {
    for known in [40, 1000] {
        let bytes_max = SEQUENCES * (size_of::<Span>() + size_of::<Sample>() + OTHERS);
        let (count, bytes) = decode_step(known, 0.0, false);
        assert!(count <= 350 && bytes <= bytes_max, "{count} allocations, {bytes} bytes of {bytes_max}");
        let (penalized, bytes_penalized) = decode_step(known, 0.5, false);
        let told = SEQUENCES * (size_of::<SlotChange>() + size_of::<Token>());
        assert!(
            penalized <= count + SEQUENCES + 8 && bytes_penalized <= bytes + 4 * told,
            "{penalized} allocations, {bytes_penalized} bytes: the device is told one more token of each"
        );
        assert_eq!(
            decode_step(known, 0.0, true),
            (count, bytes),
            "nothing is kept of a step for who asks what took time"
        );
    }
}

#[test]
fn a_prompt() {
    const TOKENS: u32 = 100_000;
    let prefill = || Rig::new(Prefill, layout());
    let decode = || Rig::new(Decode, layout());
    let submits = [
        submit(prefill(), Assignment::Prefill { decode: PEER }, TOKENS, 1),
        submit(decode(), Assignment::Decode { prefill: PEER }, TOKENS, 1),
        submit(decode(), Assignment::Decode { prefill: PEER }, TOKENS, 4),
        submit(decode(), Assignment::Whole, TOKENS, 1),
    ];
    for (count, bytes) in submits {
        // The list that its tokens are decoded into, which grows; what all share from then on; and an identity for
        // each block.
        assert!(count <= 40 && bytes <= 16 * TOKENS as usize, "{count} allocations, {bytes} bytes");
    }
    // Each choice has a block table, and shares the tokens and identities.
    let (choices, blocks) = (4, TOKENS.div_ceil(SIZE) as usize);
    let (count, bytes) = taken_over(TOKENS, choices);
    let tables = usize::from(choices) * blocks * size_of::<BlockId>();
    assert!(count <= 45 && bytes <= tables + 4096, "{count} allocations, {bytes} bytes");
}

/// What it costs to go on from a prompt that was fetched.
fn taken_over(tokens: u32, choices: u16) -> (usize, usize) {
    let mut rig = Rig::new(Decode, layout());
    let request = Asked { choices, ..Asked::new(1, prompt(tokens, 1), 100) };
    // All of it is here already: nothing is read.
    let whole = Asked { id: 2, choices: 1, ..request.clone() };
    rig.submit(&whole, Assignment::Whole);
    rig.turn();
    while rig.step() {}
    rig.submit(&request, Assignment::Decode { prefill: PEER });
    let blocks: Vec<_> = (0..tokens.div_ceil(SIZE)).map(|n| (BlockId(n), Generation(1))).collect();
    let lease = LeaseId(1);
    rig.hear(PeerBody::Offer(Offer {
        request: request.key(0).request,
        epoch: request.epoch,
        lease,
        duration: request.lease,
        layout: layout().fingerprint(),
        tokens,
        ready: tokens,
        groups: vec![OfferedGroup { first: 0, blocks }],
    }));
    rig.turn();
    let first = (0..choices).map(|choice| (Choice(choice), 3)).collect();
    rig.hear(PeerBody::Complete { lease, missing: vec![], first });
    let sent = rig.sent();
    assert!(sent.contains(&PeerBody::Release { lease }), "{sent:?}");
    let counted = count(|| rig.hear(PeerBody::Released { lease, valid: true }));
    rig.turn();
    assert_eq!(rig.running().map(|plan| plan.spans.len()), Some(usize::from(choices)));
    counted
}
