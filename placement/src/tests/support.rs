//! Short words for the tests.

use crate::{Command, Event, FetchPolicy, HandoffPolicy, Placement, PlacementConfig, Rates};
use domain::session::{Assignment, Failure, FromWorker, PeerAddress, PeerInfo, Report, Role, ToWorker, TokenRow};
use domain::{
    BlockHash, BlockLink, Choice, End, Epoch, Incarnation, Request, RequestId, SamplingParams, SeqKey, Time, Token,
    WorkerId,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Prefill workers.
pub(crate) const P1: WorkerId = WorkerId(1);
pub(crate) const P2: WorkerId = WorkerId(2);
/// Decode workers.
pub(crate) const D1: WorkerId = WorkerId(11);
pub(crate) const D2: WorkerId = WorkerId(12);
pub(crate) const D3: WorkerId = WorkerId(13);

/// Ends a sequence in tests.
pub(crate) const STOP: Token = 99;

/// A millisecond of compute per token, a hundredth of that to move it, a twentieth to load it from memory and a
/// fifth from disk, and 20 to hand off.
pub(crate) fn config() -> PlacementConfig {
    PlacementConfig {
        block_tokens: 16,
        token_bytes: 1_000,
        attempts_max: 3,
        lease: Duration::from_secs(1),
        requests_max: 8,
        index_blocks_max: 1_000,
        handoff: HandoffPolicy::Auto,
        fetch: FetchPolicy::Auto,
        // Tests that are not about it say nothing for as long as they like.
        heartbeat: Duration::from_secs(3600),
        silence_max: Duration::from_secs(7200),
        defaults: Rates {
            prefill_tokens_per_s: 1_000.0,
            decode_step_s: 0.01,
            fetch_bytes_per_s: 1e8,
            host_tokens_per_s: 20_000.0,
            disk_tokens_per_s: 5_000.0,
            handoff_s: 0.02,
        },
    }
}

pub(crate) fn request(id: u64, prompt: u32, choices: u16, max_tokens: u32) -> Arc<Request> {
    let params = SamplingParams { max_tokens, stop_tokens: vec![STOP], ..SamplingParams::default() };
    Arc::new(Request {
        id: RequestId(id),
        prompt: (0..prompt).collect(),
        choices,
        params: Arc::new(params),
        seed: id,
        deadline: Duration::from_secs(10),
        tenant: String::new(),
        adapter: None,
    })
}

/// Identities of the full blocks of a prompt; prompts of one `family` share their head.
pub(crate) fn chain(family: u8, prompt: u32) -> Vec<BlockHash> {
    (0..prompt / 16)
        .map(|block| {
            let mut hash = [family; 16];
            hash[..4].copy_from_slice(&block.to_le_bytes());
            BlockHash(hash)
        })
        .collect()
}

/// Some of the blocks of a chain, each with the one before it, as reports have them.
pub(crate) fn links(chain: &[BlockHash], blocks: Range<usize>) -> Vec<BlockLink> {
    BlockLink::run(None, chain).skip(blocks.start).take(blocks.len()).collect()
}

/// A placement, its clock and the commands of the last event.
pub(crate) struct Bench {
    pub(crate) placement: Placement,
    pub(crate) now: Time,
    pub(crate) out: Vec<Command>,
}

impl Bench {
    /// With these workers up: ids below 10 prefill, the others decode.
    pub(crate) fn new(config: PlacementConfig, workers: &[WorkerId]) -> Self {
        let mut bench = Self { placement: Placement::new(config), now: Time::ZERO, out: Vec::new() };
        workers.iter().for_each(|&id| bench.up(id));
        bench
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.clear();
        self.placement.handle(self.now, event, &mut self.out);
    }

    pub(crate) fn up(&mut self, id: WorkerId) {
        self.up_with(id, u32::MAX);
    }

    /// A worker whose longest sequence has so many tokens is up.
    pub(crate) fn up_with(&mut self, id: WorkerId, context_tokens: u32) {
        let role = if id.0 < 10 { Role::Prefill } else { Role::Decode };
        self.event(Event::WorkerUp { peer: peer(id, role, Incarnation(1)), context_tokens });
    }

    pub(crate) fn arrive(&mut self, request: Arc<Request>) {
        let chain = chain(0, request.prompt.len() as u32);
        self.event(Event::Arrive { request, chain });
    }

    pub(crate) fn said(&mut self, id: WorkerId, message: FromWorker) {
        self.event(Event::Worker { id, message });
    }

    /// Of a worker that has seen all that it was given.
    pub(crate) fn report(&mut self, id: WorkerId, report: Report) {
        self.said(id, FromWorker::Report(Report { incarnation: Incarnation(1), submits: u64::MAX, ..report }));
    }

    /// Rows of choice 0 of request 1, from `index` on.
    pub(crate) fn tokens(&mut self, id: WorkerId, epoch: u32, index: u32, tokens: &[Token]) {
        let rows = tokens.iter().zip(index..).map(|(&token, index)| row(1, epoch, 0, index, token));
        self.said(id, FromWorker::Tokens(rows.collect()));
    }

    pub(crate) fn ended(&mut self, id: WorkerId, epoch: u32, tokens: u32, end: End) {
        self.said(id, FromWorker::Ended { key: key(1, epoch, 0), tokens, end });
    }

    pub(crate) fn failed(&mut self, id: WorkerId, epoch: u32, why: Failure) {
        self.blamed(id, None, epoch, why);
    }

    /// A worker says that an attempt failed, and whose fault it was.
    pub(crate) fn blamed(&mut self, id: WorkerId, fault: Option<WorkerId>, epoch: u32, why: Failure) {
        let detail = format!("{why:?}");
        self.said(id, FromWorker::Failed { request: RequestId(1), epoch: Epoch(epoch), why, fault, detail });
    }

    /// Returns the commands of the last event, a word or two each, without introductions.
    pub(crate) fn said_so(&self) -> String {
        let others = self.out.iter().filter(|command| !is_introduction(command));
        others.map(word).collect::<Vec<_>>().join(", ")
    }

    /// Returns the commands of the last event up to its last introduction, and that.
    pub(crate) fn introduced(&self) -> String {
        let last = self.out.iter().rposition(is_introduction).map_or(0, |last| last + 1);
        self.out[..last].iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// Returns a placement with request 1 under way: 100 tokens, up to 8 to make.
pub(crate) fn begun(workers: &[WorkerId]) -> Bench {
    let mut bench = Bench::new(config(), workers);
    bench.arrive(request(1, 100, 1, 8));
    bench
}

/// Compares what the last event led to.
pub(crate) fn check(bench: &Bench, expect: &str) {
    assert_eq!(bench.said_so(), expect);
}

pub(crate) fn nothing_left(bench: &Bench) {
    assert_eq!(bench.placement.open(), 0);
}

fn is_introduction(command: &Command) -> bool {
    matches!(command, Command::Send { message: ToWorker::Peer(_), .. })
}

fn word(command: &Command) -> String {
    match command {
        Command::Send { worker, message: ToWorker::Submit(submit) } => {
            let assignment = match submit.assignment {
                Assignment::Prefill { decode } => format!("prefill for {decode}"),
                Assignment::Decode { prefill } => format!("decode after {prefill}"),
                Assignment::TakeOver { from } => format!("take over from {from}"),
                Assignment::Whole => "whole".into(),
            };
            let committed: usize = submit.choices.iter().map(|(_, tokens)| tokens.len()).sum();
            format!("{worker} {assignment} {}+{committed}", submit.epoch)
        }
        Command::Send { worker, message: ToWorker::Cancel { epoch, choice, .. } } => {
            format!("{worker} cancel {epoch}{}", choice.map_or(String::new(), |choice| format!("/{choice}")))
        }
        Command::Send { worker, message: ToWorker::Snapshot } => format!("{worker} snapshot"),
        Command::Send { worker, message: ToWorker::Peer(peer) } => format!("{worker} meets {}", peer.id),
        Command::Send { worker, message: ToWorker::PeerLeft { id, incarnation } } => {
            format!("{worker} forgets {id}/{incarnation}")
        }
        Command::Send { worker, message: ToWorker::Migrate(migrate) } => {
            format!("{worker} hand {} over to {} as {} +{}", migrate.epoch, migrate.to, migrate.next, migrate.known)
        }
        Command::Send { worker, message: ToWorker::Heartbeat } => format!("{worker} beat"),
        Command::Send { worker, message: ToWorker::Hello(_) | ToWorker::Proof(_) | ToWorker::Refused { .. } } => {
            format!("{worker} hello")
        }
        Command::Send { worker, message: ToWorker::OperatorAsk { .. } } => format!("{worker} ask"),
        Command::Close { worker, why } => format!("{worker} close {why:?}"),
        Command::Token { choice, row, .. } => format!("{choice}[{}]={}", row.index, row.token),
        Command::ChoiceEnd { choice, end, .. } => format!("{choice} {:?}", end.finish),
        Command::End { end, usage, .. } => format!("end {:?} by {:?} {}", end.finish, end.by, usage.output_tokens),
        Command::Reject { why, .. } => format!("reject {why:?}"),
    }
}

pub(crate) fn peer(id: WorkerId, role: Role, incarnation: Incarnation) -> PeerInfo {
    PeerInfo { id, incarnation, name: id.to_string(), role, address: PeerAddress::default() }
}

pub(crate) fn key(request: u64, epoch: u32, choice: u16) -> SeqKey {
    SeqKey { request: RequestId(request), epoch: Epoch(epoch), choice: Choice(choice) }
}

pub(crate) fn row(request: u64, epoch: u32, choice: u16, index: u32, token: Token) -> TokenRow {
    TokenRow { key: key(request, epoch, choice), index, token, logprobs: None, cached_tokens: 0 }
}
