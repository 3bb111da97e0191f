//! What is known of one request: where it was served, and when what happened.

use domain::{Choice, Epoch, Phase, RequestId, Time, WorkerId};
use placement::{Decision, Usage};
use std::collections::VecDeque;
use std::sync::Arc;
use telemetry::metrics::Outcome;

/// Phases of a request that are kept, the first that workers told.
const PHASES_KEPT: usize = 192;

/// What is known of one request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: RequestId,
    pub(crate) arrived: Time,
    /// When its body was parsed, its template rendered and its text made tokens.
    pub(crate) tokenized: Option<(Time, Time)>,
    /// When it began to wait for workers.
    pub(crate) queued: Time,
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
    /// What took time at workers.
    pub(crate) measured: Vec<Measured>,
    /// Phases that are not kept.
    pub(crate) phases_left_out: u32,
}

impl Record {
    /// Returns the name of the worker that computed its prompt for another one, if there was one.
    pub(crate) fn prefill_name(&self) -> Option<&str> {
        self.placements.iter().rev().find_map(|placed| placed.prefill_name.as_deref())
    }

    /// Keeps what a worker tells of an attempt, and that it leaves phases out. What it tells counts from when it was
    /// told of the attempt.
    pub(crate) fn measured(&mut self, worker: &Arc<str>, epoch: Epoch, phases: Vec<Phase>, left_out: u32) {
        let since = self.placements.iter().find(|placed| placed.epoch == epoch).map(|placed| placed.at);
        self.phases_left_out = self.phases_left_out.saturating_add(left_out);
        for phase in phases {
            match since.filter(|_| self.measured.len() < PHASES_KEPT) {
                Some(since) => self.measured.push(Measured { since, worker: worker.clone(), epoch, phase }),
                None => self.phases_left_out = self.phases_left_out.saturating_add(phase.parts),
            }
        }
    }
}

/// Something that took time at a worker.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// When the worker was told of the attempt: its phases count from then.
    pub(crate) since: Time,
    /// Its name.
    pub(crate) worker: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) phase: Phase,
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
