//! What operators ask the brain: lists of what it knows, and what it passes on to workers.

use super::Brain;
use super::waterfall::{self, ms};
use crate::record::{Placed, Record};
use domain::session::{PROTOCOL_OF_ASKS, Role, ToWorker};
use domain::{RequestId, Time, WorkerId};
use placement::{Cost, RequestState, RequestView, WorkerView};
use proto::admin as wire;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Asks that wait for answers of workers at once. Above: refused.
const ASKS_MAX: usize = 1024;

/// Where the answer of a worker goes, encoded.
type Reply = oneshot::Sender<Result<Vec<u8>, AskError>>;

/// What an operator wants.
#[derive(Debug)]
pub(crate) enum OperatorNote {
    /// The workers.
    Workers(oneshot::Sender<Vec<wire::Worker>>),
    /// The open requests, the oldest first.
    Requests(oneshot::Sender<Vec<wire::Request>>),
    /// At most so many requests that ended, the latest first.
    Ended(usize, oneshot::Sender<Vec<wire::Request>>),
    /// Why a request was served where it was.
    Explain(RequestId, oneshot::Sender<Option<wire::Explanation>>),
    /// An answer of a worker.
    Ask {
        /// The worker.
        worker: WorkerId,
        /// What is asked, encoded.
        ask: Vec<u8>,
        /// Where the answer goes; dropped where the session ends before.
        reply: Reply,
    },
}

/// Why a worker is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    /// It is not there.
    #[error("the worker is not there any more")]
    Gone,
    /// Too many asks, or too much else, wait for workers.
    #[error("too much waits for the worker: try again later")]
    Full,
    /// It is of an earlier release.
    #[error("the worker speaks protocol {0}, and answers operators from {PROTOCOL_OF_ASKS} on: upgrade it first")]
    Older(u32),
}

/// What operators asked of workers and was not answered yet.
#[derive(Debug, Default)]
pub(super) struct Asks {
    last: u64,
    open: BTreeMap<(WorkerId, u64), Reply>,
}

impl Asks {
    /// Passes on what a worker answered. An answer that no operator waits for is dropped.
    pub(super) fn answered(&mut self, worker: WorkerId, number: u64, answer: Vec<u8>) {
        if let Some(reply) = self.open.remove(&(worker, number)) {
            let _ = reply.send(Ok(answer));
        }
    }

    /// Forgets what a worker was asked whose session is over: it stays unanswered.
    pub(super) fn close(&mut self, worker: WorkerId) {
        self.open.retain(|&(asked, _), _| asked != worker);
    }

    /// Returns the number of a new ask. `None`: there is no room, even without those whose operators are gone.
    fn begin(&mut self, worker: WorkerId, reply: Reply) -> Option<u64> {
        if self.open.len() >= ASKS_MAX {
            self.open.retain(|_, reply| !reply.is_closed());
        }
        if self.open.len() >= ASKS_MAX {
            let _ = reply.send(Err(AskError::Full));
            return None;
        }
        self.last += 1;
        self.open.insert((worker, self.last), reply);
        Some(self.last)
    }
}

impl Brain {
    /// Answers, or asks a worker. An operator that does not wait any more needs no answer.
    pub(super) fn operator(&mut self, note: OperatorNote) {
        match note {
            OperatorNote::Workers(reply) => drop(reply.send(self.workers())),
            OperatorNote::Requests(reply) => drop(reply.send(self.requests())),
            OperatorNote::Ended(most, reply) => drop(reply.send(self.ended(most))),
            OperatorNote::Explain(id, reply) => {
                let record = self.explained.get(id);
                drop(reply.send(record.map(|record| self.explanation(record))));
            }
            OperatorNote::Ask { worker, ask, reply } => self.ask(worker, ask, reply),
        }
    }

    fn ask(&mut self, worker: WorkerId, ask: Vec<u8>, reply: Reply) {
        let refused = match self.reached.get(&worker) {
            None => Some(AskError::Gone),
            Some(&(_, protocol)) => (protocol < PROTOCOL_OF_ASKS).then_some(AskError::Older(protocol)),
        };
        if let Some(error) = refused {
            let _ = reply.send(Err(error));
            return;
        }
        let Some(number) = self.asks.begin(worker, reply) else { return };
        let bytes = proto::session::encode_to_worker(&ToWorker::OperatorAsk { number, ask });
        if self.links.send(worker, bytes).is_err()
            && let Some(reply) = self.asks.open.remove(&(worker, number))
        {
            let _ = reply.send(Err(AskError::Full));
        }
    }

    fn workers(&self) -> Vec<wire::Worker> {
        let reached = |id| self.reached.get(&id).cloned().unwrap_or_default();
        self.placement.workers().into_iter().map(|worker| worker_to_wire(reached(worker.id), worker)).collect()
    }

    fn names(&self) -> Names {
        Names(self.placement.workers().into_iter().map(|worker| (worker.id, worker.name)).collect())
    }

    fn requests(&self) -> Vec<wire::Request> {
        let (names, now) = (self.names(), self.clock.now());
        let arrived = |view: &RequestView| self.clients.get(&view.id).map_or(now, |client| client.arrived());
        let mut views: Vec<_> = self.placement.requests().into_iter().map(|view| (arrived(&view), view)).collect();
        views.sort_by_key(|(arrived, view)| (*arrived, view.id));
        views.into_iter().map(|(arrived, view)| request_to_wire(&view, ms(arrived, now), &names)).collect()
    }

    fn ended(&self, most: usize) -> Vec<wire::Request> {
        let names = self.names();
        let ended = self.explained.ended_last().take(most);
        ended.map(|(record, at)| ended_to_wire(record, ms(record.arrived, at), &names)).collect()
    }

    fn explanation(&self, record: &Record) -> wire::Explanation {
        let (names, now) = (self.names(), self.clock.now());
        let until = record.ended.map_or(now, |(at, _)| at);
        let open = self.placement.request(record.id);
        let request = match open {
            Some(view) => request_to_wire(&view, ms(record.arrived, until), &names),
            None => ended_to_wire(record, ms(record.arrived, until), &names),
        };
        let first = record.first.map(|(at, _)| at);
        let decodes = record.taken_over.or(first.filter(|_| !record.waits_to_be_taken_over()));
        let between = |from: Option<Time>, to: Option<Time>| Some(ms(from?, to?));
        wire::Explanation {
            request: Some(request),
            placements: record.placements.iter().map(|placed| placed_to_wire(placed, record.arrived, &names)).collect(),
            placements_total: record.placements_total,
            tokenize_ms: Some(ms(record.arrived, record.queued)),
            queue_ms: between(Some(record.queued), record.submitted),
            prefill_ms: between(record.submitted, first),
            handoff_ms: between(first, record.taken_over),
            decode_ms: between(decodes, record.ended.map(|(at, _)| at)),
            first_token_ms: between(Some(record.arrived), first),
            total_ms: record.ended.map(|(at, _)| ms(record.arrived, at)),
            cached_tokens: record.ended.map_or(0, |(_, usage)| usage.cached_tokens),
            end: record.end.clone(),
            phases: waterfall::phases(record),
            phases_left_out: record.phases_left_out,
        }
    }
}

impl Record {
    /// Returns whether its tokens come from the prefill worker still, if it has any.
    fn waits_to_be_taken_over(&self) -> bool {
        let decision = self.placements.back().and_then(|placed| placed.decision.as_ref());
        self.taken_over.is_none() && decision.is_some_and(|decision| decision.route.prefill.is_some())
    }
}

/// The names of workers that are there.
struct Names(BTreeMap<WorkerId, String>);

impl Names {
    /// Returns the name of a worker; of one that is gone, its id.
    fn of(&self, id: WorkerId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

fn worker_to_wire((address, protocol): (String, u32), worker: WorkerView) -> wire::Worker {
    let state = match (worker.draining, worker.needed) {
        (true, true) => wire::WorkerState::Draining,
        (true, false) => wire::WorkerState::Drained,
        (false, _) if worker.silent => wire::WorkerState::Silent,
        (false, _) => wire::WorkerState::Serving,
    };
    let role = match worker.role {
        Role::Prefill => wire::Role::Prefill,
        Role::Decode => wire::Role::Decode,
    };
    wire::Worker {
        id: worker.id.0,
        name: worker.name,
        role: role.into(),
        address,
        incarnation: worker.incarnation.0,
        state: state.into(),
        waiting: worker.waiting,
        running: worker.running,
        running_max: worker.running_max,
        waiting_tokens: worker.waiting_tokens,
        blocks_available: worker.blocks_available,
        blocks_total: worker.blocks_total,
        context_tokens: worker.context_tokens,
        protocol,
        model: String::new(),
        tiers: Vec::new(),
        prefill_tokens_per_s: worker.prefill_tokens_per_s,
        decode_step_s: worker.decode_step_s,
    }
}

fn request_to_wire(view: &RequestView, age_ms: f64, names: &Names) -> wire::Request {
    let name = |id: Option<WorkerId>| id.map_or_else(String::new, |id| names.of(id));
    let (prefill, decode, taker) = (name(view.prefill), name(view.decode), name(view.taker));
    let (state, waits_for) = match view.state {
        RequestState::Waiting => (wire::RequestState::Waiting, "a decode worker that would soon get to it".to_owned()),
        RequestState::Prefilling => {
            let computes = if view.prefill.is_some() { &prefill } else { &decode };
            (wire::RequestState::Prefilling, format!("{computes}, which computes its prompt"))
        }
        RequestState::HandingOff => (wire::RequestState::HandingOff, format!("{decode}, which takes its KV over")),
        RequestState::Decoding if view.stuck => {
            (wire::RequestState::Decoding, format!("its next token, and room elsewhere: {decode} drains"))
        }
        RequestState::Decoding => (wire::RequestState::Decoding, format!("its next token, of {decode}")),
        RequestState::Moving => (wire::RequestState::Moving, format!("{taker}, which takes it over from {decode}")),
    };
    wire::Request {
        id: view.id.to_string(),
        state: state.into(),
        waits_for,
        prefill: view.prefill.map(|id| id.0),
        prefill_name: prefill,
        decode: view.decode.map(|id| id.0),
        decode_name: decode,
        prompt_tokens: view.prompt_tokens,
        output_tokens: view.output_tokens,
        age_ms,
        attempts: view.attempts,
    }
}

/// Describes a request that is over.
fn ended_to_wire(record: &Record, age_ms: f64, names: &Names) -> wire::Request {
    let last = record.placements.back();
    let prefill = last.and_then(|placed| placed.decision.as_ref()?.route.prefill);
    let usage = record.ended.map(|(_, usage)| usage).unwrap_or_default();
    wire::Request {
        id: record.id.to_string(),
        state: wire::RequestState::Ended.into(),
        waits_for: String::new(),
        prefill: prefill.map(|id| id.0),
        prefill_name: prefill.map_or_else(String::new, |id| names.of(id)),
        decode: last.map(|placed| placed.decode.0),
        decode_name: last.map_or_else(String::new, |placed| names.of(placed.decode)),
        prompt_tokens: record.prompt_tokens,
        output_tokens: usage.output_tokens,
        age_ms,
        attempts: usage.attempts,
    }
}

fn placed_to_wire(placed: &Placed, arrived: Time, names: &Names) -> wire::Placement {
    let at_ms = ms(arrived, placed.at);
    let Some(decision) = &placed.decision else {
        let (epoch, decode) = (placed.epoch.0, placed.decode.0);
        return wire::Placement { epoch, at_ms, decode, moved: true, ..wire::Placement::default() };
    };
    let route = decision.route;
    let kinds = [
        (wire::CandidateKind::Prefill, &decision.prefill, route.prefill),
        (wire::CandidateKind::Decode, &decision.decode, route.prefill.map(|_| route.decode)),
        (wire::CandidateKind::Alone, &decision.whole, Some(route.decode).filter(|_| route.prefill.is_none())),
    ];
    let candidates = kinds.into_iter().flat_map(|(kind, costs, chosen)| {
        costs.iter().map(move |cost| candidate_to_wire(kind, cost, chosen == Some(cost.worker), names))
    });
    wire::Placement {
        epoch: placed.epoch.0,
        at_ms,
        tokens: decision.tokens,
        prefill: route.prefill.map(|id| id.0),
        decode: route.decode.0,
        cost_s: decision.cost_s,
        first_token_s: decision.first_token_s,
        candidates: candidates.collect(),
        moved: false,
    }
}

fn candidate_to_wire(kind: wire::CandidateKind, cost: &Cost, chosen: bool, names: &Names) -> wire::Candidate {
    wire::Candidate {
        kind: kind.into(),
        worker: cost.worker.0,
        worker_name: names.of(cost.worker),
        chosen,
        cached_tokens: cost.cached_tokens,
        holder: cost.holder.map(|holder| holder.worker.0),
        holder_tokens: cost.holder.map_or(0, |holder| holder.tokens),
        queue_s: cost.queue_s,
        load_s: cost.load_s,
        compute_s: cost.compute_s,
        fetch_s: cost.fetch_s,
        overhead_s: cost.overhead_s,
        slowdown_s: cost.slowdown_s,
        total_s: cost.total_s(),
        fits: cost.fits,
        takes: cost.takes,
        measured: cost.measured,
    }
}
