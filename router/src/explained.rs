//! Why requests were served where they were, and what each took: of all that are open, and of the last that ended.

use domain::session::{Assignment, Submit};
use domain::{Choice, End, Ender, Epoch, Finish, Request, RequestId, Time, WorkerId};
use placement::{Decision, Usage};
use std::collections::{HashMap, VecDeque};

/// Placements of a request that are kept: the latest.
const PLACEMENTS_KEPT: usize = 8;

/// What is known of requests. Those that are open are as many as the router lets be open.
#[derive(Debug)]
pub(crate) struct Explained {
    open: HashMap<RequestId, Record>,
    /// Those that ended, the latest last.
    over: VecDeque<Record>,
    over_max: usize,
}

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
}

/// One choice of workers for a request.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) at: Time,
    pub(crate) epoch: Epoch,
    /// The one that makes the tokens.
    pub(crate) decode: WorkerId,
    /// `None`: a running sequence moves, which its worker's drain asks for.
    pub(crate) decision: Option<Decision>,
}

impl Explained {
    pub(crate) fn new(over_max: usize) -> Self {
        Self { open: HashMap::new(), over: VecDeque::new(), over_max }
    }

    /// Returns what is known of a request.
    pub(crate) fn get(&self, id: RequestId) -> Option<&Record> {
        self.open.get(&id).or_else(|| self.over.iter().rev().find(|record| record.id == id))
    }

    /// Returns those that ended, the latest first, and when.
    pub(crate) fn ended_last(&self) -> impl Iterator<Item = (&Record, Time)> {
        self.over.iter().rev().filter_map(|record| record.ended.map(|(at, _)| (record, at)))
    }

    /// Notes that a request arrived.
    pub(crate) fn arrived(&mut self, now: Time, request: &Request) {
        let record = Record {
            id: request.id,
            arrived: now,
            prompt_tokens: request.prompt.len() as u32,
            placements: VecDeque::new(),
            placements_total: 0,
            submitted: None,
            first: None,
            taken_over: None,
            ended: None,
            end: String::new(),
        };
        self.open.entry(request.id).or_insert(record);
    }

    /// Notes that a worker is told of an attempt, which follows from this decision. Both workers of a pair are told.
    pub(crate) fn submitted(&mut self, now: Time, worker: WorkerId, submit: &Submit, decision: Option<&Decision>) {
        let Some(record) = self.open.get_mut(&submit.request) else { return };
        record.submitted.get_or_insert(now);
        if record.placements.back().is_some_and(|last| last.epoch == submit.epoch) {
            return;
        }
        let moves = matches!(submit.assignment, Assignment::TakeOver { .. });
        let decision = decision.filter(|_| !moves).cloned();
        let decode = decision.as_ref().map_or(worker, |decision| decision.route.decode);
        if record.placements.len() == PLACEMENTS_KEPT {
            record.placements.pop_front();
        }
        record.placements.push_back(Placed { at: now, epoch: submit.epoch, decode, decision });
        record.placements_total += 1;
    }

    /// Notes that the client gets a token of a choice.
    pub(crate) fn token(&mut self, now: Time, request: RequestId, choice: Choice) {
        let Some(record) = self.open.get_mut(&request) else { return };
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
        if let Some(record) = self.open.get_mut(&request) {
            record.end = in_words(end);
        }
    }

    /// Notes that a request ended.
    pub(crate) fn ended(&mut self, now: Time, request: RequestId, end: &End, usage: &Usage) {
        self.close(now, request, *usage, in_words(end));
    }

    /// Notes that a request was refused.
    pub(crate) fn rejected(&mut self, now: Time, request: RequestId, detail: &str) {
        self.close(now, request, Usage::default(), format!("refused: {detail}"));
    }

    fn close(&mut self, now: Time, request: RequestId, usage: Usage, end: String) {
        let Some(mut record) = self.open.remove(&request) else { return };
        record.ended = Some((now, usage));
        if record.end.is_empty() {
            record.end = end;
        }
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
