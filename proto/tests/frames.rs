//! Messages as the release before wrote them. This release reads each of them as it was meant, and writes the same
//! bytes where it says the same, so the release before reads it as well. A field that is renumbered or has another type
//! fails here.
//!
//! At a release, its own frames take the place of those before: `RECORD_FRAMES=1 cargo test -p proto --test frames`
//! writes them to the file that [`RECORDED`] is, which is named after the release. Those of 0.2.0 were written by its
//! own code.

use domain::handoff::{Ask, Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::plan::TokenLogprobs;
use domain::session::{
    Assignment, Challenge, Failure, FromWorker, Hello, Holder, Migrate, ModelShape, PeerAddress, PeerInfo, Report,
    Role, RouterHello, Served, Submit, ToWorker, TokenRow,
};
use domain::{
    BlockHash, BlockId, BlockLink, Choice, End, Ender, Epoch, Finish, Generation, Incarnation, LeaseId, RequestId,
    SamplingParams, SeqKey, StepId, Tenant, Versions, WorkerId,
};
use proto::WireError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A line for each frame: its name, a colon, its bytes in hexadecimal.
const RECORDED: &str = include_str!("frames/0.2.0.txt");
/// Where that is, from the folder of the crate.
const FILE: &str = "tests/frames/0.2.0.txt";
/// Versions of the session that the release has which wrote them.
const VERSIONS: Versions = Versions { oldest: 5, newest: 5 };

#[derive(Debug, PartialEq)]
enum Frame {
    ToWorker(ToWorker),
    FromWorker(FromWorker),
    Peer(PeerMessage),
}

impl Frame {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::ToWorker(message) => proto::session::encode_to_worker(message),
            Self::FromWorker(message) => proto::session::encode_from_worker(message),
            Self::Peer(message) => proto::handoff::encode(message),
        }
    }

    /// Reads bytes as a message in the direction of this one.
    fn decode_like(&self, bytes: &[u8]) -> Result<Self, WireError> {
        match self {
            Self::ToWorker(_) => proto::session::decode_to_worker(bytes).map(Self::ToWorker),
            Self::FromWorker(_) => proto::session::decode_from_worker(bytes).map(Self::FromWorker),
            Self::Peer(_) => proto::handoff::decode(bytes).map(Self::Peer),
        }
    }
}

const REQUEST: RequestId = RequestId(0x1122_3344_5566_7788);
const EPOCH: Epoch = Epoch(3);
const KEY: SeqKey = SeqKey { request: REQUEST, epoch: EPOCH, choice: Choice(2) };
const LEASE: LeaseId = LeaseId(77);
const LIFE: Incarnation = Incarnation(0x0102_0304_0506_0708);
const SECONDS: Duration = Duration::from_secs(5);

fn peer(role: Role) -> PeerInfo {
    let address = PeerAddress { process: 99, unix: "@baton-7".to_owned(), tcp: "10.0.0.1:7000".to_owned() };
    PeerInfo { id: WorkerId(7), incarnation: LIFE, name: "decode-1".to_owned(), role, address }
}

fn submit(assignment: Assignment) -> ToWorker {
    let params = SamplingParams {
        temperature: 0.5,
        top_p: 0.9,
        top_k: 40,
        min_p: 0.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.3,
        repetition_penalty: 1.1,
        logit_bias: vec![(5, -1.5), (6, 2.0)],
        logprobs: Some(4),
        stop_tokens: vec![1, 2],
        min_tokens: 3,
        max_tokens: 64,
        // The release knew none.
        grammar: None,
    };
    ToWorker::Submit(Submit {
        request: REQUEST,
        epoch: EPOCH,
        assignment,
        choices: vec![(Choice(0), [10, 11].into()), (Choice(1), [].into())],
        prompt: [1, 300, 70_000].into(),
        params: Arc::new(params),
        seed: 42,
        deadline: Duration::from_secs(600),
        lease: SECONDS,
        tenant: "team".to_owned(),
        adapter: None,
        holder: Some(Holder { worker: WorkerId(9), incarnation: LIFE, tokens: 128 }),
        // The release knew no traces, and no phases.
        trace: None,
        timed: false,
    })
}

fn to_worker() -> Vec<ToWorker> {
    let hello = RouterHello { versions: VERSIONS, router: 0xfeed, nonce: [7; 32] };
    let migrate =
        Migrate { request: REQUEST, epoch: EPOCH, to: WorkerId(8), next: Epoch(4), known: 17, lease: SECONDS };
    vec![
        ToWorker::Hello(hello),
        ToWorker::Proof([8; 32]),
        ToWorker::Refused { why: "another layout".to_owned() },
        ToWorker::Heartbeat,
        ToWorker::Peer(peer(Role::Prefill)),
        ToWorker::PeerLeft { id: WorkerId(7), incarnation: LIFE },
        ToWorker::Migrate(migrate),
        ToWorker::Snapshot,
        ToWorker::Cancel { request: REQUEST, epoch: EPOCH, choice: None },
        ToWorker::Cancel { request: REQUEST, epoch: EPOCH, choice: Some(Choice(1)) },
        submit(Assignment::Prefill { decode: WorkerId(2) }),
        submit(Assignment::Decode { prefill: WorkerId(1) }),
        submit(Assignment::TakeOver { from: WorkerId(3) }),
        submit(Assignment::Whole),
    ]
}

fn rows() -> Vec<TokenRow> {
    let logprobs = TokenLogprobs { logprob: -0.25, top: vec![(70_000, -0.25), (3, -2.5)] };
    let first = SeqKey { choice: Choice(0), ..KEY };
    vec![
        TokenRow { key: first, index: 0, token: 70_000, logprobs: Some(logprobs), cached_tokens: 64 },
        TokenRow { key: KEY, index: 9, token: 3, logprobs: None, cached_tokens: 0 },
    ]
}

fn report() -> Report {
    let hash = |byte| BlockHash([byte; 16]);
    Report {
        incarnation: LIFE,
        number: 12,
        snapshot: true,
        submits: 5,
        waiting: 1,
        waiting_tokens: 900,
        running: 2,
        running_max: 64,
        open: 4,
        blocks_wanted: 6,
        blocks_available: 100,
        blocks_total: 128,
        prefill_tokens_per_s: 1500.5,
        decode_step_s: 0.02,
        fetch_bytes_per_s: 1e9,
        host_tokens_per_s: 2e5,
        disk_tokens_per_s: 3e4,
        added: BlockLink::run(None, &[hash(1), hash(2)]).collect(),
        host: BlockLink::run(Some(hash(1)), &[hash(3)]).collect(),
        disk: BlockLink::run(None, &[hash(4)]).collect(),
        removed: vec![hash(5)],
        ..Report::default()
    }
}

fn from_worker() -> Vec<FromWorker> {
    let shape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
    let served = Served {
        weights: [1; 32],
        shape,
        layout: 0xabcd,
        block_tokens: 16,
        token_bytes: 512,
        context_tokens: 2048,
        batch_invariant: false,
        grammars: false,
    };
    let ended = |by, finish| {
        let end = End { by, finish, detail: "why".to_owned() };
        FromWorker::Ended { key: KEY, tokens: 33, end }
    };
    let failed = |why, fault| {
        let detail = "what".to_owned();
        FromWorker::Failed { request: REQUEST, epoch: EPOCH, why, fault, detail }
    };
    vec![
        FromWorker::Challenge(Challenge { versions: VERSIONS, nonce: [9; 32] }),
        FromWorker::Hello(Box::new(Hello { peer: peer(Role::Decode), served, proof: [6; 32] })),
        FromWorker::Heartbeat,
        FromWorker::Draining,
        FromWorker::Tokens(rows()),
        ended(Ender::Done, Finish::Stop),
        ended(Ender::Client, Finish::Length),
        ended(Ender::Limit, Finish::Error),
        ended(Ender::Worker, Finish::Error),
        ended(Ender::Us, Finish::Error),
        failed(Failure::HandoffLapsed, Some(WorkerId(4))),
        failed(Failure::HandoffTimeout, None),
        failed(Failure::QueueFull, None),
        failed(Failure::TooLarge, None),
        failed(Failure::Invalid, None),
        failed(Failure::Engine, None),
        failed(Failure::Draining, None),
        failed(Failure::Deadline, None),
        FromWorker::Report(report()),
    ]
}

fn peer_messages() -> Vec<PeerMessage> {
    let (request, epoch, lease) = (REQUEST, EPOCH, LEASE);
    let blocks = vec![(BlockId(3), Generation(4)), (BlockId(300), Generation(0))];
    let offer = Offer {
        request,
        epoch,
        lease,
        duration: SECONDS,
        layout: 0xabcd,
        tokens: 40,
        ready: 16,
        groups: vec![OfferedGroup { first: 1, blocks }],
    };
    let chain = vec![BlockHash([1; 16]), BlockHash([2; 16])];
    let ask = Ask { request, epoch, lease: SECONDS, wait: Duration::from_millis(20), tenant: Tenant(5), chain };
    let bodies = vec![
        PeerBody::Offer(offer),
        PeerBody::Ask(ask),
        PeerBody::Decline { request, epoch },
        PeerBody::Expect { request, epoch },
        PeerBody::Queued { request, epoch },
        PeerBody::Written { lease, step: StepId(6), tokens: 32 },
        PeerBody::Complete { lease, missing: vec![8, 9], first: vec![(Choice(0), 70_000), (Choice(1), 3)] },
        PeerBody::Withdraw { lease },
        PeerBody::Renew { lease, ticks: 1000 },
        PeerBody::Release { lease },
        PeerBody::Released { lease, valid: true },
        PeerBody::ReleaseAck { lease },
    ];
    let (from, from_incarnation) = (WorkerId(1), LIFE);
    let message = |(at, body)| {
        // The first that a worker says to another: it does not know its life.
        let to_incarnation = (at > 0).then_some(Incarnation(2));
        PeerMessage { from, from_incarnation, to_incarnation, body }
    };
    bodies.into_iter().enumerate().map(message).collect()
}

/// Returns a message of every kind that the release before has, by the names of the file.
fn frames() -> BTreeMap<String, Frame> {
    let to = to_worker().into_iter().map(|message| (format!("to_worker.{}", message.name()), Frame::ToWorker(message)));
    let from = from_worker().into_iter();
    let from = from.map(|message| (format!("from_worker.{}", message.name()), Frame::FromWorker(message)));
    let peers = peer_messages().into_iter();
    let peers = peers.map(|message| (format!("peer.{}", message.body.name()), Frame::Peer(message)));
    let numbered = |(at, (name, frame))| (format!("{at:02}.{name}"), frame);
    to.chain(from).chain(peers).enumerate().map(numbered).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recorded() -> BTreeMap<&'static str, Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
    let lines = RECORDED.lines().map(|line| line.split_once(": ").expect("a name and bytes"));
    lines.map(|(name, hex)| (name, hex.as_bytes().chunks(2).map(byte).collect())).collect()
}

#[test]
fn frames_of_the_release_before_are_read_and_written_alike() {
    let frames = frames();
    #[expect(clippy::disallowed_methods, reason = "a switch for people who make a release, and for no process")]
    if std::env::var_os("RECORD_FRAMES").is_some() {
        let lines: String = frames.iter().map(|(name, frame)| format!("{name}: {}\n", hex(&frame.encode()))).collect();
        std::fs::write(FILE, lines).expect("the folder is there");
        return;
    }
    let recorded = recorded();
    assert_eq!(recorded.keys().copied().collect::<Vec<_>>(), frames.keys().collect::<Vec<_>>(), "every kind, once");
    for (name, bytes) in recorded {
        let frame = &frames[name];
        assert_eq!(frame.decode_like(&bytes).as_ref(), Ok(frame), "{name} is read");
        assert_eq!(hex(&frame.encode()), hex(&bytes), "{name} is written");
        // A later release adds fields: number 1999, a text of one byte.
        let added = [bytes, vec![0xfa, 0x7c, 1, b'x']].concat();
        assert_eq!(frame.decode_like(&added).as_ref(), Ok(frame), "{name} with a field of the future");
    }
}

#[test]
fn a_range_of_versions_is_an_addition_that_the_release_before_skips() {
    let recorded = recorded();
    let range = Versions { newest: VERSIONS.newest + 1, ..VERSIONS };
    let hello = Frame::ToWorker(ToWorker::Hello(RouterHello { versions: range, router: 0xfeed, nonce: [7; 32] }));
    let challenge = Frame::FromWorker(FromWorker::Challenge(Challenge { versions: range, nonce: [9; 32] }));
    for (name, frame, field) in [("00.to_worker.hello", hello, 4 << 3), ("14.from_worker.challenge", challenge, 3 << 3)]
    {
        // The outer message has a tag and a length, which grows by the field's two bytes.
        let mut before = recorded[name].clone();
        before[1] += 2;
        before.extend([field, 6]);
        assert_eq!(hex(&frame.encode()), hex(&before), "{name}");
        assert_eq!(frame.decode_like(&before), Ok(frame), "{name}");
    }
}
