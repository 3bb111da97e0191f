use super::*;
use domain::session::{Challenge, Hello, Holder, ModelShape, PeerAddress, PeerInfo, Role, RouterHello, Served};
use domain::{Adapter, BlockHash, GRAMMAR_BYTES_MAX, Phase, PhaseKind, TraceContext, Versions};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key() -> impl Strategy<Value = SeqKey> {
    (any::<u64>(), any::<u32>(), any::<u16>()).prop_map(|(request, epoch, choice)| SeqKey {
        request: RequestId(request),
        epoch: Epoch(epoch),
        choice: Choice(choice),
    })
}

fn float() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0), Just(1.0), -1e9f32..1e9]
}

fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn hashes() -> impl Strategy<Value = Vec<BlockHash>> {
    vec(any::<[u8; 16]>().prop_map(BlockHash), 0..5)
}

/// Blocks some of which continue the one before them.
fn links() -> impl Strategy<Value = Vec<BlockLink>> {
    let hash = || any::<[u8; 16]>().prop_map(BlockHash);
    vec((hash(), option::of(option::of(hash()))), 0..5).prop_map(|blocks| {
        let mut before = None;
        let link = |(hash, parent): (BlockHash, Option<Option<BlockHash>>)| {
            let parent = parent.unwrap_or(before);
            before = Some(hash);
            BlockLink { parent, hash }
        };
        blocks.into_iter().map(link).collect()
    })
}

prop_compose! {
    fn sampling()(
        floats in [float(), float(), float(), float(), float(), float()],
        top_k: u32,
        logit_bias in vec((any::<u32>(), float()), 0..4),
        logprobs in option::of(any::<u32>()),
        stop_tokens in vec(any::<u32>(), 0..4),
        min_tokens: u32,
        max_tokens in 1..=u32::MAX,
        grammar in option::of("start: .{0,40}"),
    ) -> SamplingParams {
        let [temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty] = floats;
        SamplingParams {
            temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, logit_bias,
            logprobs, stop_tokens, min_tokens, max_tokens,
            grammar: grammar.map(|text| Grammar::new(text).expect("it is short")),
        }
    }
}

prop_compose! {
    fn submits()(
        key in key(),
        assignment in prop_oneof![
            any::<u32>().prop_map(|id| Assignment::Prefill { decode: WorkerId(id) }),
            any::<u32>().prop_map(|id| Assignment::Decode { prefill: WorkerId(id) }),
            any::<u32>().prop_map(|id| Assignment::TakeOver { from: WorkerId(id) }),
            Just(Assignment::Whole),
        ],
        choices in vec((any::<u16>(), vec(any::<u32>(), 0..4)), 1..4),
        prompt in vec(any::<u32>(), 1..40),
        params in sampling(),
        seed: u64,
        deadline in duration(),
        lease in duration(),
        [tenant, adapter] in [".{0,8}", ".{0,8}"],
        holder in option::of(any::<(u32, u64, u32)>()),
        trace in option::of(any::<(u128, u64)>()),
        timed: bool,
    ) -> ToWorker {
        ToWorker::Submit(Submit {
            request: key.request, epoch: key.epoch, assignment,
            choices: choices.into_iter().map(|(choice, committed)| (Choice(choice), committed.into())).collect(),
            prompt: prompt.into(), params: Arc::new(params), seed, deadline, lease, tenant,
            adapter: Adapter::named(&adapter),
            holder: holder.map(|(worker, incarnation, tokens)| Holder {
                worker: WorkerId(worker), incarnation: Incarnation(incarnation), tokens,
            }),
            trace: trace.map(|(trace, span)| TraceContext { trace, span }),
            timed,
        })
    }
}

prop_compose! {
    fn peer()(id: u32, incarnation: u64, prefill: bool, process: u64, texts in ["[a-z]{0,8}", "[a-z]{0,8}", "[a-z]{0,8}"]) -> PeerInfo {
        let [name, unix, tcp] = texts;
        let role = if prefill { Role::Prefill } else { Role::Decode };
        let address = PeerAddress { process, unix, tcp };
        PeerInfo { id: WorkerId(id), incarnation: Incarnation(incarnation), name, role, address }
    }
}

prop_compose! {
    fn hello()(
        peer in peer(),
        [weights, proof] in any::<[[u8; 32]; 2]>(),
        layout: u64,
        block_tokens in 1..=u32::MAX,
        token_bytes: u64,
        context_tokens: u32,
        [vocab, layers, hidden] in any::<[u32; 3]>(),
        batch_invariant: bool,
        grammars: bool,
    ) -> FromWorker {
        let shape = ModelShape { vocab, layers, hidden };
        let served = Served { weights, shape, layout, block_tokens, token_bytes, context_tokens, batch_invariant, grammars };
        FromWorker::Hello(Box::new(Hello { peer, served, proof }))
    }
}

prop_compose! {
    fn phase()(
        kind in prop_oneof![
            Just(PhaseKind::Queue),
            Just(PhaseKind::Load),
            Just(PhaseKind::Chunk),
            Just(PhaseKind::Transfer),
            Just(PhaseKind::Decode),
        ],
        [begin, took] in [duration(), duration()],
        [start, tokens, parts] in any::<[u32; 3]>(),
        bytes: u64,
        layers in (0..100u16, 0..100u16),
        [via, peer] in ["[a-z]{0,8}", "[a-z]{0,8}"],
    ) -> Phase {
        let (layers, via) = (layers.0..layers.0 + layers.1, via.into());
        Phase { kind, begin, took, start, tokens, bytes, layers, via, peer, parts }
    }
}

fn versions() -> impl Strategy<Value = Versions> {
    any::<(u32, u32)>().prop_map(|(a, b)| Versions { oldest: a.min(b), newest: a.max(b) })
}

fn challenge() -> impl Strategy<Value = FromWorker> {
    (versions(), any::<[u8; 32]>()).prop_map(|(versions, nonce)| FromWorker::Challenge(Challenge { versions, nonce }))
}

fn begins() -> impl Strategy<Value = ToWorker> {
    let hello = (versions(), any::<u64>(), any::<[u8; 32]>())
        .prop_map(|(versions, router, nonce)| ToWorker::Hello(RouterHello { versions, router, nonce }));
    let refused = ".{0,20}".prop_map(|why| ToWorker::Refused { why });
    prop_oneof![hello, any::<[u8; 32]>().prop_map(ToWorker::Proof), refused, peer().prop_map(ToWorker::Peer)]
}

fn migrate() -> impl Strategy<Value = ToWorker> {
    (key(), any::<(u32, u32, u32)>(), duration()).prop_map(|(key, (to, next, known), lease)| {
        let (request, epoch) = (key.request, key.epoch);
        ToWorker::Migrate(Migrate { request, epoch, to: WorkerId(to), next: Epoch(next), known, lease })
    })
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let cancel = (key(), option::of(any::<u16>())).prop_map(|(key, choice)| ToWorker::Cancel {
        request: key.request,
        epoch: key.epoch,
        choice: choice.map(Choice),
    });
    let left = any::<(u32, u64)>()
        .prop_map(|(id, life)| ToWorker::PeerLeft { id: WorkerId(id), incarnation: Incarnation(life) });
    prop_oneof![
        4 => submits(), 2 => cancel, 2 => begins(), 2 => migrate(),
        1 => Just(ToWorker::Snapshot), 1 => Just(ToWorker::Heartbeat), 1 => left
    ]
}

prop_compose! {
    fn row()(
        key in key(),
        first_choice: bool,
        index: u32,
        token: u32,
        logprobs in option::of((float(), vec((any::<u32>(), float()), 0..4))),
        cached_tokens in prop_oneof![Just(0), any::<u32>()],
    ) -> TokenRow {
        let choice = if first_choice { Choice(0) } else { key.choice };
        let logprobs = logprobs.map(|(logprob, top)| TokenLogprobs { logprob, top });
        TokenRow { key: SeqKey { choice, ..key }, index, token, logprobs, cached_tokens }
    }
}

prop_compose! {
    fn report()(
        ids in any::<(u64, u64, bool, u64)>(),
        load in any::<(u32, u64, u32, u32, u32)>(),
        places in any::<(u32, u32, u32)>(),
        role in prop_oneof![Just(None), Just(Some(Role::Prefill)), Just(Some(Role::Decode))],
        draining in any::<bool>(),
        rates in [float(), float(), float(), float(), float()],
        [added, host, disk] in [links(), links(), links()],
        (removed, adapters) in (hashes(), vec("[a-z]{1,8}", 0..3)),
    ) -> FromWorker {
        FromWorker::Report(Report {
            incarnation: Incarnation(ids.0), number: ids.1, snapshot: ids.2, submits: ids.3, role, draining,
            waiting: load.0, waiting_tokens: load.1, running: load.2, blocks_available: load.3, blocks_total: load.4,
            running_max: places.0, open: places.1, blocks_wanted: places.2,
            prefill_tokens_per_s: rates[0], decode_step_s: rates[1], fetch_bytes_per_s: rates[2],
            host_tokens_per_s: rates[3], disk_tokens_per_s: rates[4],
            added, host, disk, removed,
            adapters: adapters.iter().filter_map(|name| Adapter::named(name)).collect(),
        })
    }
}

fn from_worker() -> impl Strategy<Value = FromWorker> {
    let by =
        prop_oneof![Just(Ender::Done), Just(Ender::Client), Just(Ender::Limit), Just(Ender::Worker), Just(Ender::Us)];
    let finish = prop_oneof![Just(Finish::Stop), Just(Finish::Length), Just(Finish::Error)];
    let why = prop_oneof![
        Just(Failure::HandoffLapsed),
        Just(Failure::HandoffTimeout),
        Just(Failure::QueueFull),
        Just(Failure::TooLarge),
        Just(Failure::Invalid),
        Just(Failure::Engine),
        Just(Failure::Draining),
        Just(Failure::Deadline),
    ];
    let ended = (key(), any::<u32>(), by, finish, ".{0,8}").prop_map(|(key, tokens, by, finish, detail)| {
        FromWorker::Ended { key, tokens, end: End { by, finish, detail } }
    });
    let fault = option::of(any::<u32>().prop_map(WorkerId));
    let failed = (key(), why, fault, ".{0,8}").prop_map(|(key, why, fault, detail)| FromWorker::Failed {
        request: key.request,
        epoch: key.epoch,
        why,
        fault,
        detail,
    });
    let phases = (key(), vec(phase(), 0..4), any::<u32>()).prop_map(|(key, phases, left_out)| FromWorker::Phases {
        request: key.request,
        epoch: key.epoch,
        phases,
        left_out,
    });
    let plain = prop_oneof![Just(FromWorker::Heartbeat), Just(FromWorker::Draining)];
    let tokens = vec(row(), 0..6).prop_map(FromWorker::Tokens);
    prop_oneof![tokens, ended, failed, phases, report(), hello(), challenge(), plain]
}

proptest! {
    #[test]
    fn to_worker_comes_back(message in to_worker()) {
        prop_assert_eq!(decode_to_worker(&encode_to_worker(&message)), Ok(message));
    }

    #[test]
    fn from_worker_comes_back(message in from_worker()) {
        prop_assert_eq!(decode_from_worker(&encode_from_worker(&message)), Ok(message));
    }

    /// What decodes at all is in canonical form after one more round.
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(message) = decode_to_worker(&bytes) {
            prop_assert_eq!(decode_to_worker(&encode_to_worker(&message)), Ok(message));
        }
        if let Ok(message) = decode_from_worker(&bytes) {
            // By bytes: a log probability may be NaN, which equals nothing.
            let canonical = encode_from_worker(&message);
            prop_assert_eq!(encode_from_worker(&decode_from_worker(&canonical).unwrap()), canonical);
        }
    }

    /// Nearly right bytes reach deeper than random ones.
    #[test]
    fn a_damaged_message_never_panics(
        to in to_worker(), from in from_worker(), at: prop::sample::Index, flip in 1u8.., cut: bool,
    ) {
        for (mut bytes, submit) in [(encode_to_worker(&to), true), (encode_from_worker(&from), false)] {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if cut {
                bytes.truncate(at);
            }
            if submit { drop(decode_to_worker(&bytes)) } else { drop(decode_from_worker(&bytes)) }
        }
    }
}

fn token_row(request: u64, index: u32, token: Token) -> TokenRow {
    let key = SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) };
    TokenRow { key, index, token, logprobs: None, cached_tokens: 0 }
}

#[test]
fn golden_to_worker() {
    let submit = ToWorker::Submit(Submit {
        request: RequestId(0x0102),
        epoch: Epoch(3),
        assignment: Assignment::Decode { prefill: WorkerId(4) },
        choices: vec![(Choice(1), Arc::from([300]))],
        prompt: Arc::from([5, 6]),
        params: Arc::new(SamplingParams { logprobs: Some(0), ..SamplingParams::default() }),
        seed: 7,
        deadline: Duration::from_nanos(8),
        lease: Duration::from_nanos(9),
        tenant: "t".into(),
        adapter: None,
        holder: None,
        trace: None,
        timed: false,
    });
    assert_eq!(
        hex(&encode_to_worker(&submit)),
        "0a3e09020100000000000010032004320608011202ac023a02050642130d0000803f150000803f3d0000803f5000681049070000000000000050085809620174"
    );
    assert_eq!(hex(&encode_to_worker(&ToWorker::Snapshot)), "1a00");
}

#[test]
fn golden_tokens() {
    let rows = FromWorker::Tokens(vec![token_row(1, 2, 300), token_row(2, 0, 4)]);
    assert_eq!(hex(&encode_from_worker(&rows)), "0a1f0a100100000000000000020000000000000012020101220202002a03ac0204");
}

/// Blocks that are told as chains cost their identities and little else.
#[test]
fn a_chain_costs_little_more_than_its_identities() {
    let blocks: Vec<BlockHash> = (0..100u32).map(|n| BlockHash([n as u8; 16])).collect();
    let bytes = |added: Vec<BlockLink>| {
        encode_from_worker(&FromWorker::Report(Report { added, ..Report::default() })).len() as f64 / 100.0
    };
    let chain = bytes(BlockLink::run(None, &blocks).collect());
    assert!(chain < 16.5, "{chain} bytes a block in one chain");
    let apart = bytes(blocks.iter().map(|&hash| BlockLink { parent: Some(BlockHash([200; 16])), hash }).collect());
    assert!(apart < 40.0, "{apart} bytes a block, each in a chain of its own");
}

/// Tokens are the hot path: a row without extras costs its ids and little else.
#[test]
fn a_token_row_is_lean() {
    let rows: Vec<_> = (0..100).map(|i| token_row(u64::MAX - i, 1000, 100_000)).collect();
    let per_row = encode_from_worker(&FromWorker::Tokens(rows)).len() as f64 / 100.0;
    assert!(per_row < 15.0, "{per_row} bytes");
}

#[track_caller]
fn check_refused(message: wire::FromWorker, expect: &str) {
    let error = decode_from_worker(&message.encode_to_vec()).expect_err("it is refused");
    assert_eq!(error.to_string(), expect);
}

fn frame(frame: wire::Tokens) -> wire::FromWorker {
    wire::FromWorker { body: Some(from_worker::Body::Tokens(frame)) }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    check_refused(wire::FromWorker { body: None }, "FromWorker.body is missing");
    let ended = wire::Ended { request: 1, epoch: 1, choice: 0, tokens: 1, end: None };
    check_refused(wire::FromWorker { body: Some(from_worker::Body::Ended(ended)) }, "Ended.end is missing");
    let failed = wire::Failed { request: 1, epoch: 1, why: 0, detail: String::new(), fault: None };
    check_refused(wire::FromWorker { body: Some(from_worker::Body::Failed(failed)) }, "Failed.why is missing");
    let report = |parent: usize, blocks: usize| {
        let added = vec![wire::Chain { parent: vec![0; parent], blocks: vec![0; blocks] }];
        wire::FromWorker { body: Some(from_worker::Body::Report(wire::Report { added, ..Default::default() })) }
    };
    check_refused(report(0, 17), "Report.added is invalid: 17 bytes do not divide by 16");
    check_refused(report(0, 0), "Report.added is invalid: it is empty");
    check_refused(report(15, 16), "Report.added is invalid: 15 bytes instead of 16");
}

#[test]
fn uneven_columns_are_refused() {
    let good = || wire::Tokens {
        request: vec![1, 2],
        epoch: vec![1, 1],
        index: vec![0, 0],
        token: vec![5, 6],
        ..Default::default()
    };
    assert!(decode_from_worker(&frame(good()).encode_to_vec()).is_ok());
    check_refused(
        frame(wire::Tokens { index: vec![0], ..good() }),
        "Tokens.index is invalid: 1 entries in a table of 2 rows",
    );
    check_refused(
        frame(wire::Tokens { choice: vec![0, 70_000], ..good() }),
        "Tokens.choice is invalid: 70000 is over 65535",
    );
    let logprobs = |row| wire::RowLogprobs { row, ..Default::default() };
    check_refused(
        frame(wire::Tokens { logprobs: vec![logprobs(1), logprobs(1)], ..good() }),
        "RowLogprobs.row is invalid: 1 is not in 2..2",
    );
}

#[test]
fn a_submit_without_work_is_refused() {
    let good = || wire::Submit {
        choices: vec![wire::Sequence::default()],
        prompt: vec![1],
        part: Some(submit::Part::Whole(wire::Whole {})),
        params: Some(sampling_to_wire(&SamplingParams::default())),
        ..Default::default()
    };
    let decode = |submit| {
        let message = wire::ToWorker { body: Some(to_worker::Body::Submit(submit)) };
        decode_to_worker(&message.encode_to_vec()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(decode(good()), Ok(()));
    assert_eq!(decode(wire::Submit { prompt: vec![], ..good() }), Err("Submit.prompt is invalid: it is empty".into()));
    assert_eq!(decode(wire::Submit { part: None, ..good() }), Err("Submit.part is missing".into()));
    assert_eq!(decode(wire::Submit { params: None, ..good() }), Err("Submit.params is missing".into()));
    let params = |change: fn(&mut wire::Sampling)| {
        let mut params = sampling_to_wire(&SamplingParams::default());
        change(&mut params);
        wire::Submit { params: Some(params), ..good() }
    };
    assert_eq!(
        decode(params(|params| params.temperature = f32::NAN)),
        Err("Sampling.temperature is invalid: NaN is not finite".into())
    );
    assert_eq!(
        decode(params(|params| params.max_tokens = 0)),
        Err("Sampling.max_tokens is invalid: it is zero".into())
    );
    assert_eq!(
        decode(params(|params| params.grammar = Some("a".repeat(GRAMMAR_BYTES_MAX + 1)))),
        Err("Sampling.grammar is invalid: it is too long".into())
    );
}

#[test]
fn a_kind_of_phase_of_a_later_release_is_dropped_and_a_short_column_is_an_error() {
    let phase = Phase::new(PhaseKind::Queue, Duration::ZERO, Duration::from_millis(3));
    let table = |kind: i32, parts| {
        let phases = super::phases::to_wire(RequestId(1), Epoch(2), std::slice::from_ref(&phase), 4);
        let body = from_worker::Body::Phases(wire::Phases { kind: vec![kind], parts, ..phases });
        decode_from_worker(&wire::FromWorker { body: Some(body) }.encode_to_vec())
    };
    let told = |phases| Ok(FromWorker::Phases { request: RequestId(1), epoch: Epoch(2), phases, left_out: 4 });
    assert_eq!(table(1, vec![1]), told(vec![phase.clone()]));
    assert_eq!(table(99, vec![1]), told(vec![]));
    assert!(table(0, vec![1]).is_err() && table(1, vec![]).is_err());
}
