//! The steps of the protocol, as one worker sees those of its attempts: what a fault can hit.

use domain::session::Assignment;
use domain::{Choice, Epoch, RequestId, SeqKey};
use kv_manager::FetchState;
use transport::TransferId;
use worker::{FetchKind, FetchProgress, Machine, PROMPT};

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    /// It waits to be computed.
    Queued,
    /// A prompt that nobody takes over is being computed.
    Computing,
    /// A prompt is being computed and read meanwhile.
    Offering,
    /// It is computed; the lease keeps it for its reader.
    Leased,
    /// The offer is awaited.
    Expecting,
    /// It is offered; room is awaited.
    WaitingRoom,
    /// Nothing is read yet.
    Reading,
    /// A slice is read, and not all is computed.
    SliceRead,
    /// All is computed and not all is read.
    Completed,
    /// All is read; the owner's answer is awaited.
    Answering,
    /// It is over, and its reads are not.
    Quiescing,
    /// It decodes.
    Decoding,
    /// It decodes, and another worker reads it.
    Giving,
    /// A running sequence is to be taken over; the offer or room is awaited.
    TakerWaiting,
    /// It is being read.
    TakerReading,
    /// It is read; the owner's answer is awaited.
    TakerAnswering,
    /// The beginning of a prompt was asked for; the holder's offer is awaited.
    Asking,
    /// It is being read.
    PrefixReading,
    /// It is read; the holder's answer is awaited.
    PrefixAnswering,
    /// The worker drains.
    Draining,
}

/// All of them.
pub(crate) const STEPS: [Step; 20] = [
    Step::Queued,
    Step::Computing,
    Step::Offering,
    Step::Leased,
    Step::Expecting,
    Step::WaitingRoom,
    Step::Reading,
    Step::SliceRead,
    Step::Completed,
    Step::Answering,
    Step::Quiescing,
    Step::Decoding,
    Step::Giving,
    Step::TakerWaiting,
    Step::TakerReading,
    Step::TakerAnswering,
    Step::Asking,
    Step::PrefixReading,
    Step::PrefixAnswering,
    Step::Draining,
];

impl Step {
    /// A few letters for the head of a table.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Step::Queued => "queue",
            Step::Computing => "comp",
            Step::Offering => "offer",
            Step::Leased => "lease",
            Step::Expecting => "expct",
            Step::WaitingRoom => "room",
            Step::Reading => "read",
            Step::SliceRead => "slice",
            Step::Completed => "compl",
            Step::Answering => "answr",
            Step::Quiescing => "quies",
            Step::Decoding => "decod",
            Step::Giving => "give",
            Step::TakerWaiting => "t-wait",
            Step::TakerReading => "t-read",
            Step::TakerAnswering => "t-answ",
            Step::Asking => "ask",
            Step::PrefixReading => "p-read",
            Step::PrefixAnswering => "p-answ",
            Step::Draining => "drain",
        }
    }
}

/// The steps of a worker's attempts. `has_read`: whether a transfer has brought anything.
pub(crate) fn steps_at(machine: &Machine, has_read: impl Fn(TransferId) -> bool) -> Vec<(RequestId, Step)> {
    let mut steps = Vec::new();
    let core = machine.core();
    let offered = |request: RequestId, epoch: Epoch| {
        machine.offers().open().any(|key| (key.request, key.epoch) == (request, epoch))
    };
    let is_fetched = |request: RequestId, epoch: Epoch| {
        machine.fetches().progress().any(|fetch| (fetch.request, fetch.epoch) == (request, epoch))
    };
    for (request, epoch, attempt) in core.attempts() {
        let key = |choice| SeqKey { request, epoch, choice };
        let is_open = |choice: Choice| core.kv.is_open(key(choice));
        let step = match attempt.submit.assignment {
            _ if is_fetched(request, epoch) => continue,
            Assignment::Prefill { .. } if offered(request, epoch) => Step::Offering,
            Assignment::Prefill { .. } if is_open(PROMPT) => Step::Computing,
            _ if offered(request, epoch) => Step::Giving,
            _ if attempt.live.iter().any(|&choice| core.decodes(key(choice))) => Step::Decoding,
            _ if attempt.live.iter().chain([&PROMPT]).any(|&choice| is_open(choice)) => Step::Computing,
            _ => Step::Queued,
        };
        steps.push((request, step));
        if core.is_draining() {
            steps.push((request, Step::Draining));
        }
    }
    steps.extend(machine.fetches().progress().filter_map(|fetch| Some((fetch.request, step_of(&fetch, &has_read)?))));
    steps
}

fn step_of(fetch: &FetchProgress<'_>, has_read: impl Fn(TransferId) -> bool) -> Option<Step> {
    Some(match (fetch.state, fetch.kind) {
        (FetchState::Expecting, FetchKind::Prompt) => Step::Expecting,
        (FetchState::WaitingRoom, FetchKind::Prompt) => Step::WaitingRoom,
        (FetchState::Expecting | FetchState::WaitingRoom, FetchKind::Running) => Step::TakerWaiting,
        (FetchState::Expecting | FetchState::WaitingRoom, FetchKind::Prefix) => Step::Asking,
        (FetchState::Reading, FetchKind::Prefix) => Step::PrefixReading,
        (FetchState::Reading, FetchKind::Running) => Step::TakerReading,
        (FetchState::Reading, FetchKind::Prompt) if fetch.complete => Step::Completed,
        (FetchState::Reading, FetchKind::Prompt) if fetch.transfers.iter().any(|&id| has_read(id)) => Step::SliceRead,
        (FetchState::Reading, FetchKind::Prompt) => Step::Reading,
        (FetchState::Answering, FetchKind::Prompt) => Step::Answering,
        (FetchState::Answering, FetchKind::Running) => Step::TakerAnswering,
        (FetchState::Answering, FetchKind::Prefix) => Step::PrefixAnswering,
        (FetchState::Quiescing, _) => Step::Quiescing,
        (FetchState::Done, _) => return None,
    })
}
