//! What goes into a placement and what comes out.

use crate::config::PlacementLimits;
use domain::session::{FromWorker, PeerInfo, ToWorker, TokenRow};
use domain::{BlockHash, Choice, End, Epoch, Request, RequestId, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A session with a worker began. Of a worker that is up already: its earlier session is over.
    WorkerUp {
        /// The worker, and where its peers find it.
        peer: PeerInfo,
        /// The longest sequence that it takes.
        context_tokens: u32,
    },
    /// The session with a worker is lost.
    WorkerDown {
        /// The worker.
        id: WorkerId,
    },
    /// A worker said something.
    Worker {
        /// The worker.
        id: WorkerId,
        /// Its message. One of an earlier attempt is dropped and counted.
        message: FromWorker,
    },
    /// A worker was not told of an attempt, for too much waits for it already: it is as full as one that says so
    /// itself.
    Unsent {
        /// The worker.
        worker: WorkerId,
        /// The request.
        request: RequestId,
        /// The attempt.
        epoch: Epoch,
    },
    /// A client's request, parsed and tokenized.
    Arrive {
        /// The request. An id that is open already is ignored and counted.
        request: Arc<Request>,
        /// Identities of the full blocks of its prompt.
        chain: Vec<BlockHash>,
    },
    /// The client hung up.
    Gone {
        /// The request.
        request: RequestId,
    },
    /// A stop string ended a sequence.
    StopChoice {
        /// The request.
        request: RequestId,
        /// The sequence.
        choice: Choice,
    },
    /// An operator changed limits.
    Limits(PlacementLimits),
    /// Nothing but the time: deadlines may have passed. (Every other event looks at them too.)
    Tick,
}

/// Do this, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send a message to a worker.
    Send {
        /// The worker; it is up.
        worker: WorkerId,
        /// The message, not yet encoded.
        message: ToWorker,
    },
    /// Close the session with a worker; it is not up any more.
    Close {
        /// The worker.
        worker: WorkerId,
        /// The reason, for the log: the worker is not told.
        why: Closing,
    },
    /// The next token of a sequence: in order, without gaps, each once.
    Token {
        /// The request.
        request: RequestId,
        /// The sequence.
        choice: Choice,
        /// The token.
        row: TokenRow,
    },
    /// A sequence ended; no token of it follows.
    ChoiceEnd {
        /// The request.
        request: RequestId,
        /// The sequence.
        choice: Choice,
        /// A regular end: by length, a stop token or a stop string.
        end: End,
    },
    /// The request ended; nothing of it follows. After a regular end of every choice, that of choice 0; else the error.
    End {
        /// The request.
        request: RequestId,
        /// A regular end, or the error with the party that ended the request.
        end: End,
        /// What it took.
        usage: Usage,
    },
    /// The request was refused before any of its tokens; nothing of it follows.
    Reject {
        /// The request.
        request: RequestId,
        /// Why, as a kind.
        why: Rejected,
        /// Why, for people.
        detail: String,
    },
}

/// Why a router closes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The worker said nothing for too long.
    Silent,
    /// It drains, and nothing here needs it any more: it may end.
    Drained,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Too much to do; it is worth asking again.
    Overloaded {
        /// After about this long.
        retry_after: Duration,
    },
    /// No decode worker is up.
    NoWorkers,
    /// It fits no worker that is there.
    TooLarge,
    /// No worker of this model can compute it.
    Invalid,
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Of those, how many the first attempt that sampled found in a cache.
    pub cached_tokens: u32,
    /// Tokens sent to the client, over all choices.
    pub output_tokens: u32,
    /// Attempts.
    pub attempts: u32,
}
