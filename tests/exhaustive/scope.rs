//! How much of the world is looked at: who is there, what they are asked for, and how often each thing may go wrong.

use domain::{Incarnation, RequestId, Token, WorkerId};

/// As often as it likes.
pub(crate) const ANY: u8 = u8::MAX;
/// Tokens of a block.
pub(crate) const BLOCK: usize = 2;
/// The worker whose blocks are read.
pub(crate) const OWNER: WorkerId = WorkerId(0);
/// Its life in which it is asked for anything that readers take over.
pub(crate) const FIRST: Incarnation = Incarnation(1);

/// What the owner computes next, for nobody else: it takes blocks that were read.
pub(crate) const NEXT: RequestId = RequestId(20);
/// What the owner computes in a later life, for a reader that knows nothing of it.
pub(crate) const LATER: RequestId = RequestId(30);
/// What was computed before anything else happens, where something is cached.
pub(crate) const BEFORE: RequestId = RequestId(40);

/// Bounds of a check. Within them everything is tried, in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Where the owner has the bytes from that it offers.
    pub(crate) source: Source,
    /// Workers that read them.
    pub(crate) readers: u8,
    /// Requests of each reader, with a lease and a fetch of their own.
    pub(crate) requests: u8,
    /// How often things may go wrong, of all kinds together.
    pub(crate) total: u8,
    /// And of each kind.
    pub(crate) faults: Faults,
}

/// Where the bytes come from that the owner offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// It computes them, and offers them before it does.
    Computed,
    /// It does the same in two steps, of which the second waits in the device while the first runs.
    InTwoSteps,
    /// It fetches their beginning from one more worker, which has that cached, and computes the rest.
    Fetched,
    /// It has them cached, and offers them to whoever asks; a later life has nothing, and says so.
    Cached,
}

/// How often something may still happen, over all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Messages that overtake earlier ones between the same two workers. [`ANY`]: there is no order.
    pub(crate) reorders: u8,
    /// Messages that are lost.
    pub(crate) losses: u8,
    /// Messages that are delivered and stay in the network all the same.
    pub(crate) duplicates: u8,
    /// Connections that break, as one of their ends sees it.
    pub(crate) cuts: u8,
    /// Deaths of the owner, which comes back at once as a new life with empty memory.
    pub(crate) owner_crashes: u8,
    /// Deaths of a reader, which comes back as a new life without an attempt.
    pub(crate) reader_crashes: u8,
    /// Steps that fail, in any layer.
    pub(crate) failed_steps: u8,
    /// Timers of fetches that fire: an inquiry before the offer, a renewal before the release, a repeated release
    /// after it.
    pub(crate) ticks: u8,
    /// Waits of fetches that end.
    pub(crate) timeouts: u8,
    /// Attempts of readers that the router cancels.
    pub(crate) cancels: u8,
    /// Whether the turn of a step loop may come later than what it has its turn for.
    pub(crate) late_turns: bool,
    /// Whether readers may be told of their attempts later than the owner.
    pub(crate) late_submits: bool,
}

/// Nothing goes wrong.
pub(crate) const NONE: Faults = Faults {
    reorders: 0,
    losses: 0,
    duplicates: 0,
    cuts: 0,
    owner_crashes: 0,
    reader_crashes: 0,
    failed_steps: 0,
    ticks: 0,
    timeouts: 0,
    cancels: 0,
    late_turns: false,
    late_submits: false,
};

/// Every kind of fault, once.
pub(crate) const EACH: Faults = Faults {
    reorders: 1,
    losses: 1,
    duplicates: 1,
    cuts: 1,
    owner_crashes: 1,
    reader_crashes: 1,
    failed_steps: 1,
    ticks: 1,
    timeouts: 1,
    cancels: 1,
    late_turns: false,
    late_submits: false,
};

impl Source {
    /// Whether the owner computes all that it offers.
    pub(crate) fn is_computed(self) -> bool {
        matches!(self, Self::Computed | Self::InTwoSteps)
    }
}

impl Scope {
    /// Everybody who is there: the owner, the readers, and whoever the owner itself fetches from.
    pub(crate) fn workers(self) -> impl Iterator<Item = WorkerId> {
        (0..1 + u32::from(self.readers) + u32::from(self.source == Source::Fetched)).map(WorkerId)
    }

    /// Whether the worker reads from the owner.
    pub(crate) fn is_reader(self, worker: WorkerId) -> bool {
        (1..=u32::from(self.readers)).contains(&worker.0)
    }

    /// The worker that has something cached before anything else happens.
    pub(crate) fn holder(self) -> Option<WorkerId> {
        match self.source {
            Source::Computed | Source::InTwoSteps => None,
            Source::Fetched => Some(WorkerId(1 + u32::from(self.readers))),
            Source::Cached => Some(OWNER),
        }
    }

    /// The requests of the readers.
    pub(crate) fn requests(self) -> impl Iterator<Item = RequestId> {
        (1..=u64::from(self.readers * self.requests)).map(RequestId)
    }

    /// The reader of a request.
    pub(crate) fn reader(self, request: RequestId) -> WorkerId {
        match request {
            LATER => WorkerId(1),
            _ => WorkerId(1 + (request.0 as u32 - 1) / u32::from(self.requests)),
        }
    }

    /// What the request begins with. Where something is cached, all that is read begins with that.
    pub(crate) fn prompt(self, request: RequestId) -> Vec<Token> {
        let own = 10 + request.0 as Token;
        match request {
            NEXT | LATER => vec![own; self.tokens()],
            BEFORE => vec![1; BLOCK],
            _ if self.source.is_computed() => vec![own; self.tokens()],
            _ => [vec![1; BLOCK], vec![own; 1]].concat(),
        }
    }

    /// Tokens of all blocks that the owner has.
    fn tokens(self) -> usize {
        match self.source {
            Source::Fetched | Source::InTwoSteps => 2 * BLOCK,
            Source::Computed | Source::Cached => BLOCK,
        }
    }

    /// Most tokens of a prompt that a step computes.
    pub(crate) fn chunk(self) -> u32 {
        (if self.source == Source::InTwoSteps { BLOCK } else { 2 * BLOCK }) as u32
    }

    /// Blocks of a worker's memory. The owner has as few as its prompts take, so that they are used again as soon
    /// as may be.
    pub(crate) fn blocks(self, worker: WorkerId) -> u32 {
        let requests = u32::from(self.requests);
        match self.source {
            Source::Computed if worker == OWNER => u32::from(self.readers) * requests,
            Source::InTwoSteps if worker == OWNER => 2 * u32::from(self.readers) * requests,
            Source::InTwoSteps => 2 * requests + 1,
            Source::Cached if worker == OWNER => 1,
            Source::Fetched if worker == OWNER => 2,
            Source::Fetched if !self.is_reader(worker) => 1,
            // Whatever goes on there has a token more than was read.
            _ => requests + 1,
        }
    }
}
