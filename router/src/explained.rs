//! Why requests were served where they were, and what each took: of all that are open, and of the last that ended.

use crate::access::Access;
use crate::record::{Placed, Record};
use domain::session::{Assignment, Submit};
use domain::{Choice, End, Ender, Epoch, Finish, Phase, Request, RequestId, Time, TraceContext, WorkerId};
use placement::{Decision, Usage};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use telemetry::metrics::Outcome;

/// Placements of a request that are kept: the latest.
const PLACEMENTS_KEPT: usize = 8;

/// What is known of requests. Those that are open are as many as the router lets be open.
#[derive(Debug)]
pub(crate) struct Explained {
    /// Each with what the log will say of it.
    open: HashMap<RequestId, (Record, Arc<Access>)>,
    /// Those that ended, the latest last.
    over: VecDeque<Arc<Record>>,
    over_max: usize,
}

/// The names of workers that have a session.
pub(crate) type Names = BTreeMap<WorkerId, Arc<str>>;

impl Explained {
    pub(crate) fn new(over_max: usize) -> Self {
        Self { open: HashMap::new(), over: VecDeque::new(), over_max }
    }

    /// Keeps so many of those that ended.
    pub(crate) fn keep(&mut self, over_max: usize) {
        self.over_max = over_max;
        self.over.drain(..self.over.len().saturating_sub(over_max));
    }

    /// Returns what is known of a request.
    pub(crate) fn get(&self, id: RequestId) -> Option<&Record> {
        let open = self.open.get(&id).map(|(record, _)| record);
        open.or_else(|| self.over.iter().rev().map(|record| &**record).find(|record| record.id == id))
    }

    /// Returns those that ended, the latest first, and when.
    pub(crate) fn ended_last(&self) -> impl Iterator<Item = (&Record, Time)> {
        self.over.iter().rev().filter_map(|record| record.ended.map(|(at, _)| (&**record, at)))
    }

    /// Returns whether what workers measure is of use: some requests that ended are kept.
    pub(crate) fn wants_phases(&self) -> bool {
        self.over_max > 0
    }

    /// Notes that a request arrived, and is to wait for workers.
    pub(crate) fn arrived(&mut self, now: Time, request: &Request, access: Arc<Access>) {
        let record = Record {
            id: request.id,
            arrived: access.arrived(),
            tokenized: access.tokenizing(),
            queued: now,
            prompt_tokens: request.prompt.len() as u32,
            placements: VecDeque::new(),
            placements_total: 0,
            submitted: None,
            first: None,
            taken_over: None,
            ended: None,
            end: String::new(),
            outcome: None,
            measured: Vec::new(),
            phases_left_out: 0,
        };
        self.open.entry(request.id).or_insert((record, access));
    }

    /// Notes that a worker is told of an attempt, which follows from this decision. Both workers of a pair are told.
    pub(crate) fn submitted(
        &mut self,
        now: Time,
        worker: WorkerId,
        submit: &Submit,
        decision: Option<&Decision>,
        names: &Names,
    ) {
        let Some((record, _)) = self.open.get_mut(&submit.request) else { return };
        record.submitted.get_or_insert(now);
        if record.placements.back().is_some_and(|last| last.epoch == submit.epoch) {
            return;
        }
        let moves = matches!(submit.assignment, Assignment::TakeOver { .. });
        let decision = decision.filter(|_| !moves).cloned();
        let decode = decision.as_ref().map_or(worker, |decision| decision.route.decode);
        let name = |id: WorkerId| names.get(&id).cloned().unwrap_or_else(|| id.to_string().into());
        let prefill_name = decision.as_ref().and_then(|decision| decision.route.prefill).map(name);
        if record.placements.len() == PLACEMENTS_KEPT {
            record.placements.pop_front();
        }
        let (epoch, decode_name) = (submit.epoch, name(decode));
        record.placements.push_back(Placed { at: now, epoch, decode, decode_name, prefill_name, decision });
        record.placements_total += 1;
    }

    /// Notes what a worker tells of an attempt, which may have ended meanwhile.
    pub(crate) fn measured(
        &mut self,
        worker: &Arc<str>,
        (request, epoch): (RequestId, Epoch),
        phases: Vec<Phase>,
        left_out: u32,
    ) {
        let record = match self.open.get_mut(&request) {
            Some((record, _)) => Some(record),
            None => self.over.iter_mut().rev().find(|record| record.id == request).map(Arc::make_mut),
        };
        if let Some(record) = record {
            record.measured(worker, epoch, phases, left_out);
        }
    }

    /// Returns the place of an open request in its trace, if it is traced.
    pub(crate) fn trace(&self, request: RequestId) -> Option<TraceContext> {
        self.open.get(&request).and_then(|(_, access)| access.context())
    }

    /// Notes that the client gets a token of a choice.
    pub(crate) fn token(&mut self, now: Time, request: RequestId, choice: Choice) {
        let Some((record, _)) = self.open.get_mut(&request) else { return };
        match record.first {
            None => record.first = Some((now, choice)),
            // The prefill worker says one token of each choice.
            Some((_, first)) if first == choice && record.taken_over.is_none() => {
                let is_pair = |placed: &Placed| placed.decision.as_ref().is_some_and(|it| it.route.prefill.is_some());
                if record.placements.back().is_some_and(is_pair) {
                    record.taken_over = Some(now);
                }
            }
            Some(_) => {}
        }
    }

    /// Notes that the router itself is about to end a request in this way.
    pub(crate) fn ends(&mut self, request: RequestId, end: &End) {
        if let Some((record, _)) = self.open.get_mut(&request) {
            (record.end, record.outcome) = (in_words(end), Some(Outcome::of(end)));
        }
    }

    /// Notes that a request ended.
    pub(crate) fn ended(&mut self, now: Time, request: RequestId, end: &End, usage: &Usage) {
        self.close(now, request, *usage, in_words(end), Outcome::of(end));
    }

    /// Notes that a request was refused.
    pub(crate) fn rejected(&mut self, now: Time, request: RequestId, detail: &str) {
        self.close(now, request, Usage::default(), format!("refused: {detail}"), Outcome::Rejected);
    }

    fn close(&mut self, now: Time, request: RequestId, usage: Usage, end: String, outcome: Outcome) {
        let Some((mut record, access)) = self.open.remove(&request) else { return };
        record.ended = Some((now, usage));
        if record.end.is_empty() {
            (record.end, record.outcome) = (end, Some(outcome));
        }
        let record = Arc::new(record);
        access.prompt_over(record.clone());
        if self.over.len() == self.over_max {
            self.over.pop_front();
        }
        if self.over_max > 0 {
            self.over.push_back(record);
        }
    }
}

/// Returns how a request ended, in words.
fn in_words(end: &End) -> String {
    let by = match end.by {
        Ender::Done => "done",
        Ender::Client => "client",
        Ender::Limit => "limit",
        Ender::Worker => "worker",
        Ender::Us => "router",
    };
    match end.finish {
        Finish::Stop => "stop".to_owned(),
        Finish::Length => "length".to_owned(),
        Finish::Error => format!("error by {by}: {}", end.detail),
    }
}

#[cfg(test)]
mod tests;
