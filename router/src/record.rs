//! What is known of one request: where it was served, and when what happened.

use domain::{Choice, Epoch, RequestId, Time, WorkerId};
use placement::{Decision, Usage};
use std::collections::VecDeque;
use std::sync::Arc;
use telemetry::metrics::Outcome;

/// What is known of one request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: RequestId,
    pub(crate) arrived: Time,
    pub(crate) prompt_tokens: u32,
    /// The latest placements.
    pub(crate) placements: VecDeque<Placed>,
    /// How many there were.
    pub(crate) placements_total: u32,
    /// When a worker was first told of it.
    pub(crate) submitted: Option<Time>,
    /// When its first token came, and of which choice.
    pub(crate) first: Option<(Time, Choice)>,
    /// When the decode worker said its first token, where another one computed the prompt.
    pub(crate) taken_over: Option<Time>,
    pub(crate) ended: Option<(Time, Usage)>,
    /// How it ends, in words; empty: it does not yet.
    pub(crate) end: String,
    /// The same, as a metric counts it.
    pub(crate) outcome: Option<Outcome>,
}

impl Record {
    /// Returns the name of the worker that computed its prompt for another one, if there was one.
    pub(crate) fn prefill_name(&self) -> Option<&str> {
        self.placements.iter().rev().find_map(|placed| placed.prefill_name.as_deref())
    }
}

/// One choice of workers for a request.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) at: Time,
    pub(crate) epoch: Epoch,
    /// The one that makes the tokens.
    pub(crate) decode: WorkerId,
    /// Its name.
    pub(crate) decode_name: Arc<str>,
    /// The name of the one that computes the prompt for it.
    pub(crate) prefill_name: Option<Arc<str>>,
    /// `None`: a running sequence moves, which its worker's drain asks for.
    pub(crate) decision: Option<Decision>,
}
