//! What a router and a worker tell each other over their session. Plain data; `proto` gives it bytes.

use crate::adapter::Adapter;
use crate::block::{BlockHash, BlockLink};
use crate::end::End;
pub use crate::hello::{Challenge, Hello, ModelShape, Opening, PROTOCOL, PROTOCOL_OF_ASKS, RouterHello, Served};
use crate::ids::{Choice, Epoch, Incarnation, RequestId, SeqKey, Token, WorkerId};
pub use crate::peer::{PeerAddress, PeerInfo, Role};
use crate::phases::Phase;
use crate::plan::TokenLogprobs;
use crate::request::SamplingParams;
use crate::trace::TraceContext;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A running sequence moves to another decode worker: a handoff whose sender is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrate {
    /// The request; one of its choices is left.
    pub request: RequestId,
    /// The attempt that runs here.
    pub epoch: Epoch,
    /// The worker that takes over.
    pub to: WorkerId,
    /// The attempt that it takes over under.
    pub next: Epoch,
    /// Output tokens that it knows already.
    pub known: u32,
    /// How long the lease lives without renewal.
    pub lease: Duration,
}

/// Router to worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// The session begins.
    Hello(RouterHello),
    /// That the router knows the cluster's secret. Nothing is taken from it before.
    Proof([u8; 32]),
    /// The router, which proved itself, does without this worker, since it does not belong to the others. Nothing
    /// follows.
    Refused {
        /// Why, and what fixes it, for people.
        why: String,
    },
    /// A sign of life; the worker's is its answer.
    Heartbeat,
    /// Another worker is there, in this life and at this place.
    Peer(PeerInfo),
    /// The router has lost that life of another worker for good. Others may still hear of it.
    PeerLeft {
        /// The worker.
        id: WorkerId,
        /// Which life.
        incarnation: Incarnation,
    },
    /// A running sequence shall go on elsewhere.
    Migrate(Migrate),
    /// An attempt at a request begins here.
    Submit(Submit),
    /// The attempt is over for the router: stop, free. `choice`: only that sequence (a stop string ended it).
    Cancel {
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
        /// Only this sequence.
        choice: Option<Choice>,
    },
    /// The router missed reports: send a full one.
    Snapshot,
    /// An operator asks something. The answer has the same number.
    OperatorAsk {
        /// Of the router's asks.
        number: u64,
        /// What is asked, encoded: `proto` says how.
        ask: Vec<u8>,
    },
}

impl ToWorker {
    /// Returns the message's name, for logs and tests.
    pub fn name(&self) -> &'static str {
        match self {
            ToWorker::Hello(_) => "hello",
            ToWorker::Proof(_) => "proof",
            ToWorker::Refused { .. } => "refused",
            ToWorker::Heartbeat => "heartbeat",
            ToWorker::Peer(_) => "peer",
            ToWorker::PeerLeft { .. } => "peer left",
            ToWorker::Migrate(_) => "migrate",
            ToWorker::Submit(_) => "submit",
            ToWorker::Cancel { .. } => "cancel",
            ToWorker::Snapshot => "snapshot",
            ToWorker::OperatorAsk { .. } => "ask",
        }
    }
}

impl FromWorker {
    /// Returns the message's name, for logs and tests.
    pub fn name(&self) -> &'static str {
        match self {
            FromWorker::Challenge(_) => "challenge",
            FromWorker::Hello(_) => "hello",
            FromWorker::Heartbeat => "heartbeat",
            FromWorker::Draining => "draining",
            FromWorker::Tokens(_) => "tokens",
            FromWorker::Ended { .. } => "ended",
            FromWorker::Failed { .. } => "failed",
            FromWorker::Report(_) => "report",
            FromWorker::OperatorAnswer { .. } => "answer",
            FromWorker::Phases { .. } => "phases",
        }
    }
}

/// An attempt, as each of its workers gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Submit {
    /// The request.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// What this worker shall do.
    pub assignment: Assignment,
    /// The sequences to make: choice and the tokens already committed to the client (all empty on the first attempt).
    pub choices: Vec<(Choice, Arc<[Token]>)>,
    /// Prompt of the client.
    pub prompt: Arc<[Token]>,
    /// How to sample.
    pub params: Arc<SamplingParams>,
    /// Seed of the request ([`crate::Request::seed`] gives a choice's).
    pub seed: u64,
    /// Time left to the client's deadline.
    pub deadline: Duration,
    /// How long a lease of this attempt lives without renewal; doubles after a lapse.
    pub lease: Duration,
    /// Tenant scope.
    pub tenant: String,
    /// What it is computed with. `None`: the model alone.
    pub adapter: Option<Adapter>,
    /// Where a worker that computes the prompt may fetch its beginning from.
    pub holder: Option<Holder>,
    /// The trace that the attempt belongs to, if it is traced.
    pub trace: Option<TraceContext>,
    /// The router wants to know what took time.
    pub timed: bool,
}

/// A worker that is said to have the beginning of a prompt cached. A hint: what is not there, or does not come, is
/// computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Which life of it; another has nothing.
    pub incarnation: Incarnation,
    /// Leading tokens of the prompt that it has: whole blocks.
    pub tokens: u32,
}

/// A worker's part in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Compute the prompt, sample the first token of each choice, hand off to the decode worker.
    Prefill {
        /// The worker that takes over.
        decode: WorkerId,
    },
    /// Take over from the prefill worker, then decode.
    Decode {
        /// The worker that offers.
        prefill: WorkerId,
    },
    /// Take a running sequence over from another decode worker, which may be ahead of the committed tokens, and decode.
    TakeOver {
        /// The worker that offers.
        from: WorkerId,
    },
    /// Compute the prompt and decode, all here.
    Whole,
}

impl Assignment {
    /// Returns the worker that has the other part.
    pub fn peer(self) -> Option<WorkerId> {
        match self {
            Self::Prefill { decode: peer } | Self::Decode { prefill: peer } | Self::TakeOver { from: peer } => {
                Some(peer)
            }
            Self::Whole => None,
        }
    }
}

/// Worker to router.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker {
    /// The answer to the router's hello: what the router is to prove itself over.
    Challenge(Challenge),
    /// The worker's identity; the router has proven itself.
    Hello(Box<Hello>),
    /// Nothing but a sign of life: of the step loop, not of the process alone.
    Heartbeat,
    /// It takes nothing new; what runs here wants to go elsewhere.
    Draining,
    /// The tokens of one step.
    Tokens(Vec<TokenRow>),
    /// A sequence ended regularly after its last token.
    Ended {
        /// The sequence.
        key: SeqKey,
        /// Its output tokens over all attempts.
        tokens: u32,
        /// The party that ended it, and the finish reason.
        end: End,
    },
    /// This worker cannot go on with the attempt; the router may try another.
    Failed {
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
        /// Why, as a kind.
        why: Failure,
        /// The peer that did not do its part. `None`: the cause is this worker, or no worker.
        fault: Option<WorkerId>,
        /// Why, for people.
        detail: String,
    },
    /// State for placement.
    Report(Report),
    /// What an operator asked for.
    OperatorAnswer {
        /// Of the ask.
        number: u64,
        /// The answer, encoded: `proto` says how.
        answer: Vec<u8>,
    },
    /// What took time in an attempt since the last time that this was told. It may come after the attempt's end.
    Phases {
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
        /// In the order in which they ended.
        phases: Vec<Phase>,
        /// Further ones.
        left_out: u32,
    },
}

/// One token of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRow {
    /// The sequence, with its epoch.
    pub key: SeqKey,
    /// Index among the output tokens of the sequence, over all attempts.
    pub index: u32,
    /// The token.
    pub token: Token,
    /// Where asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// Prompt tokens that were not computed in this attempt since a cache had them (first token of an attempt only).
    pub cached_tokens: u32,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// A lease lapsed or the offer was withdrawn before the reader validated its copy.
    HandoffLapsed,
    /// No offer, or no end of it, came within the wait limit.
    HandoffTimeout,
    /// The worker's queue is full.
    QueueFull,
    /// The sequence can never fit the worker's memory.
    TooLarge,
    /// The request itself cannot be computed, on whatever worker of this model.
    Invalid,
    /// The engine failed the step.
    Engine,
    /// The worker is draining.
    Draining,
    /// The client's deadline passed.
    Deadline,
}

/// A worker's state, for placement. Numbered without gaps; a gap makes the router ask for a snapshot.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Report {
    /// This life of the worker.
    pub incarnation: Incarnation,
    /// Number of this report, from 1.
    pub number: u64,
    /// `added` is everything that is on the device, and what was known before is void.
    pub snapshot: bool,
    /// What it is there for now; `None`: what its hello said.
    pub role: Option<Role>,
    /// An operator drains it: it takes nothing new, and stays.
    pub draining: bool,
    /// Submits that came over this session so far: what its router sent later is not in this report.
    pub submits: u64,
    /// Sequences that wait.
    pub waiting: u32,
    /// Prompt tokens that waiting and running sequences still have to compute.
    pub waiting_tokens: u64,
    /// Sequences that run.
    pub running: u32,
    /// Sequences that run at once at most; 0: not said.
    pub running_max: u32,
    /// Sequences of attempts that are open: those that run or wait, and those that other workers still compute.
    pub open: u32,
    /// Blocks that those of them need which have no memory yet.
    pub blocks_wanted: u32,
    /// Blocks that are free or could be evicted: the share of the fullest group, in blocks of the largest one.
    pub blocks_available: u32,
    /// Blocks of the largest group.
    pub blocks_total: u32,
    /// What its device computes with, beside the model alone; rising.
    pub adapters: Vec<Adapter>,
    /// Prompt tokens a second, as measured lately; 0: not known yet.
    pub prefill_tokens_per_s: f32,
    /// Seconds of a decode step, as measured lately; 0: not known yet.
    pub decode_step_s: f32,
    /// Bytes a second at which this worker lately fetched; 0: not known yet.
    pub fetch_bytes_per_s: f32,
    /// Tokens a second whose KV lately came from its host tier; 0: not known yet.
    pub host_tokens_per_s: f32,
    /// Tokens a second whose KV lately came from its disk; 0: not known yet.
    pub disk_tokens_per_s: f32,
    /// Blocks that are on the device now. In this list and the next two, a block comes after the one that it
    /// continues, where both are in the list.
    pub added: Vec<BlockLink>,
    /// Blocks that are not on the device, but in the worker's own host tier. After a snapshot they follow, with
    /// `disk`, in the next reports.
    pub host: Vec<BlockLink>,
    /// Blocks that are not on the device, and of which a part is on the worker's own disk alone.
    pub disk: Vec<BlockLink>,
    /// Identities that are in none of these places any more.
    pub removed: Vec<BlockHash>,
}
