//! What follows a failed attempt. The decision is pure, and its test is a table.

use domain::session::Failure;
use domain::{Ender, WorkerId};

/// Workers that may refuse an attempt, one after the other; what the next one says ends the request.
pub(crate) const REFUSALS_MAX: usize = 16;

/// Why an attempt ended before its request.
#[derive(Clone, Debug)]
pub(crate) struct AttemptFailure {
    /// The worker at fault.
    pub(crate) worker: WorkerId,
    /// What that worker, or its peer, reported. `None`: the worker is gone, or lost a token.
    pub(crate) why: Option<Failure>,
    /// The same in words.
    pub(crate) detail: String,
}

/// How far a request is, with the failed attempt counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    /// The client has at least one token, so a status can tell it nothing any more.
    pub(crate) emitted: bool,
    /// Attempts so far. A refusal is none.
    pub(crate) attempts: u32,
    /// Attempts that a request may have.
    pub(crate) attempts_max: u32,
    /// Workers that refused the current attempt.
    pub(crate) refusals: usize,
    /// The words of one that refused it for lack of time, not of size.
    pub(crate) full: Option<&'a str>,
    /// The words of the last engine that failed an attempt.
    pub(crate) engine: Option<&'a str>,
}

/// How a request ends that gets no further attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client gets a status: the request itself is wrong.
    RefuseInvalid(String),
    /// The client gets a status: no worker is large enough.
    RefuseTooLarge(String),
    /// The client gets a status: it should come back later.
    RefuseOverloaded(String),
    /// The request ends with an error, in its stream if one has begun.
    End(Ender, String),
}

/// Decides what follows a failure. `None`: another attempt, if a worker is left for it. A refusal costs no attempt.
pub(crate) fn after_failure(failure: &AttemptFailure, standing: &Standing<'_>) -> Option<Ending> {
    let is_over = match failure.why {
        Some(Failure::Invalid | Failure::Deadline) => true,
        Some(Failure::QueueFull | Failure::Draining | Failure::TooLarge) => standing.refusals > REFUSALS_MAX,
        Some(Failure::HandoffLapsed | Failure::HandoffTimeout | Failure::Engine) | None => {
            standing.attempts >= standing.attempts_max
        }
    };
    is_over.then(|| give_up(failure, standing))
}

/// Decides how a request ends for which no further attempt makes sense, or no worker is left.
pub(crate) fn give_up(failure: &AttemptFailure, standing: &Standing<'_>) -> Ending {
    let detail = failure.detail.clone();
    match failure.why {
        Some(Failure::Invalid) if !standing.emitted => Ending::RefuseInvalid(detail),
        Some(Failure::Deadline) => Ending::End(Ender::Limit, detail),
        Some(Failure::QueueFull | Failure::Draining | Failure::TooLarge) => match (standing.full, standing.emitted) {
            // The workers that are large enough have no time.
            (Some(full), false) => Ending::RefuseOverloaded(full.to_owned()),
            (Some(full), true) => Ending::End(Ender::Us, full.to_owned()),
            (None, false) => Ending::RefuseTooLarge(detail),
            (None, true) => Ending::End(Ender::Worker, detail),
        },
        // If an engine failed the attempt, a decode worker may report first that its handoff came to nothing.
        Some(Failure::HandoffLapsed | Failure::HandoffTimeout) => {
            Ending::End(Ender::Worker, standing.engine.map_or(detail, str::to_owned))
        }
        Some(Failure::Invalid | Failure::Engine) | None => Ending::End(Ender::Worker, detail),
    }
}
