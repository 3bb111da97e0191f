//! Requests that arrive, wait and are rejected.

use crate::config::PlacementConfig;
use crate::cost::{Contexts, Decision, PlacementQuery, decide};
use crate::message::{Command, Rejected};
use crate::overload::{Load, retry_after};
use crate::placement::Placement;
use crate::waiting::WaitingRequest;
use crate::workers::Worker;
use domain::session::Role;
use domain::{Adapter, BlockHash, Request, RequestId, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// Waiting requests that are tried, one after the other, when one may begin.
const WAITING_TRIED_MAX: usize = 8;

impl Placement {
    /// Begins a request, lets it wait, or rejects it.
    pub(crate) fn place_request(
        &mut self,
        now: Time,
        request: Arc<Request>,
        chain: Vec<BlockHash>,
        out: &mut Vec<Command>,
    ) {
        let id = request.id;
        if self.journeys.contains_key(&id) || self.waiting.get(id).is_some() {
            self.counters.repeated_requests += 1;
            return;
        }
        if self.open() >= self.config.requests_max {
            let detail = format!("{} requests are open already", self.open());
            return self.reject(id, self.overloaded(), detail, out);
        }
        let is_first = self.waiting.len() == 0;
        let waits = WaitingRequest { deadline: now + request.deadline, request, chain };
        match self.choose(now, &waits) {
            Err((why, detail)) => self.reject(id, why, detail, out),
            Ok(decision) if is_first && decision.is_soon() => self.begin_first_attempt(now, waits, decision, out),
            Ok(_) => {
                self.deadlines.insert((waits.deadline, id));
                self.waiting.push(waits);
                // It may be short enough for workers that are too small for all requests before it.
                self.waiting_may_begin |= self.waiting.len() <= WAITING_TRIED_MAX;
            }
        }
    }

    /// Chooses workers for a request's first attempt. Errors: why there are none.
    fn choose(&mut self, now: Time, waits: &WaitingRequest) -> Result<Decision, (Rejected, String)> {
        let WaitingRequest { request, chain, deadline } = waits;
        let query = query_of(&self.config, request, chain);
        let Some(decision) = decide(&self.config, &self.workers, &mut self.held, &query) else {
            let takes_work = self.workers.of_role(Role::Decode).filter(|worker| !worker.draining);
            return Err(match takes_work.map(|worker| worker.context_tokens).max() {
                None => (Rejected::NoWorkers, "no decode worker is up".to_owned()),
                Some(_) if let Some(adapter) = self.missing_adapter(request) => {
                    (Rejected::NoWorkers, format!("no decode worker has {adapter}"))
                }
                Some(longest) => {
                    let asked = format!("{} tokens and {} to be made", query.tokens, request.params.max_tokens);
                    (Rejected::TooLarge, format!("{asked} are more than the longest context, of {longest} tokens"))
                }
            });
        };
        match decision.first_token_s {
            Some(first_token_s) if first_token_s > deadline.since(now).as_secs_f64() => {
                let detail = format!("the first token is {first_token_s:.1} s away, beyond the request's deadline");
                Err((self.overloaded(), detail))
            }
            _ => Ok(decision),
        }
    }

    /// Returns the request's adapter, if no decode worker has it.
    fn missing_adapter<'a>(&self, request: &'a Request) -> Option<&'a Adapter> {
        let is_missing =
            |&adapter: &&Adapter| !self.workers.of_role(Role::Decode).any(|worker| worker.has(Some(adapter)));
        request.adapter.as_ref().filter(is_missing)
    }

    /// Begins requests that wait, in order of arrival, until one has to wait on. A request that is too long for some
    /// workers does not keep later ones from those, so [`WAITING_TRIED_MAX`] are looked at.
    pub(crate) fn begin_waiting(&mut self, now: Time, out: &mut Vec<Command>) {
        // The shortest that has to wait on.
        let mut waits_on: Option<u32> = None;
        for (number, waits) in self.waiting.take_first(WAITING_TRIED_MAX) {
            let id = waits.request.id;
            let needs = query_of(&self.config, &waits.request, &waits.chain).contexts.decode;
            let is_shorter = |worker: &Worker| waits_on.is_none_or(|tokens| worker.context_tokens < tokens);
            if !self.workers.of_role(Role::Decode).any(is_shorter) && waits_on.is_some() {
                self.waiting.put_back(number, waits);
                continue;
            }
            match self.choose(now, &waits) {
                Ok(decision)
                    if decision.is_soon() && self.workers.get(decision.route.decode).is_some_and(is_shorter) =>
                {
                    self.begin_first_attempt(now, waits, decision, out);
                    // The next one may begin as well.
                    self.waiting_may_begin = self.waiting.len() > 0;
                }
                Ok(_) => {
                    waits_on = Some(waits_on.map_or(needs, |tokens| tokens.min(needs)));
                    self.waiting.put_back(number, waits);
                }
                // A worker that was there may be back soon.
                Err((Rejected::NoWorkers | Rejected::TooLarge, _)) if self.departures.next_deadline().is_some() => {
                    self.waiting.put_back(number, waits);
                }
                Err((why, detail)) => {
                    self.deadlines.remove(&(waits.deadline, id));
                    self.reject(id, why, detail, out);
                    self.waiting_may_begin = self.waiting.len() > 0;
                }
            }
        }
    }

    /// Begins requests that wait, if a decode worker that has just reported would soon get to one of them.
    pub(crate) fn begin_waiting_at(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        let takes = |worker: &Worker, waits: &WaitingRequest| {
            let blocks = (waits.request.prompt.len() as u32).div_ceil(self.config.block_tokens);
            let missing = blocks.saturating_sub(self.workers.held(id, &waits.chain).device);
            worker.role == Role::Decode && worker.takes(waits.request.choices.into(), missing)
        };
        let worker = self.workers.get(id);
        if worker.is_some_and(|worker| self.waiting.first(WAITING_TRIED_MAX).any(|waits| takes(worker, waits))) {
            self.begin_waiting(now, out);
        }
    }

    /// Rejects a request: nothing of it follows.
    pub(crate) fn reject(&mut self, request: RequestId, why: Rejected, detail: String, out: &mut Vec<Command>) {
        self.counters.rejected += 1;
        out.push(Command::Reject { request, why, detail });
    }

    /// Returns the rejection of a request that should come back later.
    pub(crate) fn overloaded(&self) -> Rejected {
        Rejected::Overloaded { retry_after: self.retry_after() }
    }

    /// Predicts after how long a request that is refused now would find room. Looks at each worker.
    pub fn retry_after(&self) -> Duration {
        let assumed = self.workers.assumed(&self.config.defaults);
        let loads = |role| {
            let takes_work = self.workers.of_role(role).filter(|worker| !worker.draining);
            let mut loads: Vec<Load> = takes_work.map(|worker| worker.load(&assumed)).collect();
            // What waits here will be shared by them.
            let workers = loads.len();
            for load in &mut loads {
                load.waiting += self.waiting.len().div_ceil(workers) as u32;
                load.queued_tokens += self.waiting.tokens() / workers as u64;
            }
            loads
        };
        let (prefill, decode) = (loads(Role::Prefill), loads(Role::Decode));
        retry_after(&prefill, &decode, self.config.handoff, self.answers.tokens())
    }
}

/// Returns what is to be placed of a request that has had no attempt yet.
pub(crate) fn query_of<'a>(
    config: &PlacementConfig,
    request: &'a Request,
    chain: &'a [BlockHash],
) -> PlacementQuery<'a> {
    let prompt = request.prompt.len() as u32;
    PlacementQuery {
        tokens: prompt,
        contexts: Contexts { prefill: prompt, decode: prompt.saturating_add(request.params.max_tokens) },
        sequences: request.choices.into(),
        chain,
        adapter: request.adapter.as_ref(),
        handoff: config.handoff,
        failed: &[],
        refused: &[],
    }
}
