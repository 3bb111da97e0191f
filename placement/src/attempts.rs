//! Attempts: the first one of a request, and what follows a failed one.

use crate::arrivals::query_of;
use crate::config::HandoffPolicy;
use crate::cost::{Decision, PlacementQuery, book, decide};
use crate::journey::Journey;
use crate::message::{Command, Rejected};
use crate::placement::Placement;
use crate::retry::{AttemptFailure, Ending, after_failure, give_up};
use crate::waiting::WaitingRequest;
use crate::workers::Workers;
use domain::session::{Assignment, Failure, Submit, ToWorker};
use domain::{Choice, End, Epoch, RequestId, Time};
use std::sync::Arc;

impl Placement {
    /// Begins the first attempt at a request.
    pub(crate) fn begin_first_attempt(
        &mut self,
        now: Time,
        waits: WaitingRequest,
        decision: Decision,
        out: &mut Vec<Command>,
    ) {
        let WaitingRequest { request, chain, deadline } = waits;
        let id = request.id;
        book(&self.config, &mut self.workers, &query_of(&self.config, &request, &chain), &decision);
        let journey = Journey::new(request, chain, deadline, self.config.lease, decision);
        self.send_submits(now, &journey, out);
        self.deadlines.insert((deadline, id));
        self.journeys.insert(id, journey);
        self.update_involved(id);
    }

    /// Ends the current attempt. Begins another, or ends the request ([`after_failure`] decides).
    pub(crate) fn retry_or_end(
        &mut self,
        now: Time,
        request: RequestId,
        failure: AttemptFailure,
        out: &mut Vec<Command>,
    ) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        journey.rewind(out);
        if journey.ended().is_some() {
            return self.finish_if_ended(request, out);
        }
        if failure.why == Some(Failure::Draining) {
            self.workers.leave(failure.worker);
        }
        journey.note_failure(&failure);
        let standing = journey.standing(self.config.attempts_max);
        if let Some(ending) = after_failure(&failure, &standing) {
            return self.end_with(request, ending, out);
        }
        let handoff = match self.config.handoff {
            _ if !journey.one_input() => HandoffPolicy::Never,
            HandoffPolicy::Auto if journey.lapsed => HandoffPolicy::Never,
            policy => policy,
        };
        let query = PlacementQuery {
            tokens: journey.input_tokens(),
            contexts: journey.contexts(),
            sequences: journey.open_choices().len() as u32,
            chain: &journey.chain,
            adapter: journey.request.adapter.as_ref(),
            handoff,
            failed: &journey.failed,
            refused: &journey.refused,
        };
        let Some(decision) = decide(&self.config, &self.workers, &mut self.held, &query) else {
            let ending = give_up(&failure, &standing);
            return self.end_with(request, ending, out);
        };
        book(&self.config, &mut self.workers, &query, &decision);
        cancel(&self.workers, journey, None, out);
        journey.go_elsewhere(decision);
        self.counters.replays += 1;
        // Taken out while `send_submits` reads it beside the counters.
        let journey = self.journeys.remove(&request).expect("it was there above");
        self.send_submits(now, &journey, out);
        self.journeys.insert(request, journey);
        self.unstick(request);
        self.update_involved(request);
    }

    /// Ends a request that gets no further attempt.
    fn end_with(&mut self, request: RequestId, ending: Ending, out: &mut Vec<Command>) {
        match ending {
            Ending::RefuseInvalid(detail) => self.refuse(request, Rejected::Invalid, detail, out),
            Ending::RefuseTooLarge(detail) => self.refuse(request, Rejected::TooLarge, detail, out),
            Ending::RefuseOverloaded(detail) => self.refuse(request, self.overloaded(), detail, out),
            Ending::End(by, detail) => self.finish(request, End::error(by, detail), out),
        }
    }

    /// Sends the submits of a journey's current attempt.
    fn send_submits(&mut self, now: Time, journey: &Journey, out: &mut Vec<Command>) {
        let route = journey.decision.route;
        let submit = |assignment| ToWorker::Submit(submission(now, journey, journey.epoch, assignment));
        let Some(prefill) = route.prefill else {
            self.counters.wholes += 1;
            return out.push(Command::Send { worker: route.decode, message: submit(Assignment::Whole) });
        };
        self.counters.handoffs += 1;
        // First the expectation, so that the offer finds it.
        out.push(Command::Send { worker: route.decode, message: submit(Assignment::Decode { prefill }) });
        out.push(Command::Send { worker: prefill, message: submit(Assignment::Prefill { decode: route.decode }) });
    }

    /// Notes which workers take part in a request now.
    pub(crate) fn update_involved(&mut self, request: RequestId) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        let now = journey.involved_workers();
        if now != journey.involved {
            self.requests_by_worker.update(request, &journey.involved, &now);
            journey.involved = now;
        }
    }
}

/// Returns what a worker of an attempt receives.
pub(crate) fn submission(now: Time, journey: &Journey, epoch: Epoch, assignment: Assignment) -> Submit {
    let computes = matches!(assignment, Assignment::Whole | Assignment::Prefill { .. });
    Submit {
        request: journey.request.id,
        epoch,
        assignment,
        choices: journey.open_choices(),
        prompt: Arc::clone(&journey.request.prompt),
        params: Arc::clone(&journey.request.params),
        seed: journey.request.seed,
        deadline: journey.deadline.since(now),
        lease: journey.lease,
        tenant: journey.request.tenant.clone(),
        adapter: journey.request.adapter.clone(),
        holder: journey.decision.holder.filter(|_| computes),
        // The router traces, and nothing is decided by it.
        trace: None,
        timed: false,
    }
}

/// Tells those workers of a journey that are up to stop it, or one choice of it.
pub(crate) fn cancel(workers: &Workers, journey: &Journey, choice: Option<Choice>, out: &mut Vec<Command>) {
    let attempt = journey.attempt;
    let current = attempt.prefill.into_iter().chain([attempt.decode]).map(|worker| (worker, journey.epoch));
    for (worker, epoch) in current.chain(journey.moving).filter(|&(worker, _)| workers.contains(worker)) {
        let message = ToWorker::Cancel { request: journey.request.id, epoch, choice };
        out.push(Command::Send { worker, message });
    }
}
