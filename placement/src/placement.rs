//! The placement: takes events, keeps the journeys, gives commands.

use crate::config::{HandoffPolicy, PlacementConfig};
use crate::cost::{Contexts, Decision, PlacementQuery, book, decide};
use crate::departures::Departures;
use crate::index::{Held, PrefixIndex};
use crate::journey::{Involvement, Journey, Taken};
use crate::liveness::Liveness;
use crate::message::{Closing, Command, Event, Rejected, Usage};
use crate::overload::{AnswerLength, Load, retry_after};
use crate::retry::{AttemptFailure, Ending, after_failure, give_up};
use crate::seats::{Seating, Seats};
use crate::waiting::{Waiting, Waits};
use crate::workers::{Reported, Worker, WorkerView, Workers};
use domain::session::{Assignment, Failure, FromWorker, PeerInfo, Role, Submit, ToWorker, TokenRow};
use domain::{BlockHash, Choice, End, Ender, Epoch, Finish, Incarnation, Request, RequestId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Requests that wait and are looked at, one after the other, when one may begin.
const WAITING_TRIED: usize = 8;

/// What happened so far, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts with a handoff.
    pub handoffs: u64,
    /// Attempts that a decode worker makes alone.
    pub wholes: u64,
    /// Attempts after the first.
    pub replays: u64,
    /// Requests refused.
    pub rejected: u64,
    /// Rows of an earlier attempt, of a request that has ended, or past the end of a choice.
    pub stale_rows: u64,
    /// Rows that were there already.
    pub duplicate_rows: u64,
    /// Rows that had to wait for an earlier one.
    pub early_rows: u64,
    /// Running sequences that another worker took over.
    pub moves: u64,
    /// Workers that were lost because they said nothing.
    pub silences: u64,
    /// Other messages of an earlier attempt, life or request.
    pub stale_messages: u64,
    /// Gaps in reports, each of which led to a snapshot.
    pub report_gaps: u64,
    /// Arrivals with the id of an open request.
    pub repeated_requests: u64,
}

/// How many open requests are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// No decode worker would soon get to them.
    pub waiting: usize,
    /// Their prompt is being computed.
    pub prefilling: usize,
    /// They have their first tokens, and nothing yet from the decode worker that takes over.
    pub handing_off: usize,
    /// Their decode worker makes tokens.
    pub decoding: usize,
}

/// The router's brain. See the crate's documentation.
#[derive(Debug)]
pub struct Placement {
    pub(crate) config: PlacementConfig,
    pub(crate) workers: Workers,
    pub(crate) journeys: BTreeMap<RequestId, Journey>,
    /// Requests that have no worker yet.
    waiting: Waiting,
    /// Something changed by which one of them may begin.
    looks: bool,
    /// One entry per journey, and per request that waits.
    deadlines: BTreeSet<(Time, RequestId)>,
    /// Who has to do with each.
    pub(crate) seating: Seating,
    /// Sequences that nobody takes over for want of room, by the blocks that they need.
    pub(crate) stuck: BTreeSet<(u32, RequestId)>,
    /// Room for what each worker has of a prompt.
    pub(crate) held: Vec<Held>,
    departures: Departures,
    liveness: Liveness,
    answers: AnswerLength,
    counters: Counters,
}

impl Placement {
    /// A placement without workers or requests.
    pub fn new(config: PlacementConfig) -> Self {
        Self {
            workers: Workers::new(config.index_blocks_max),
            liveness: Liveness::new(config.heartbeat, config.silence_max),
            config,
            journeys: BTreeMap::new(),
            waiting: Waiting::default(),
            looks: false,
            deadlines: BTreeSet::new(),
            departures: Departures::default(),
            seating: Seating::default(),
            stuck: BTreeSet::new(),
            held: Vec::new(),
            answers: AnswerLength::default(),
            counters: Counters::default(),
        }
    }

    /// Takes an event and appends what is to be done. Readings of `now` never fall.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        let (begin, changes) = (out.len(), self.workers.changes());
        self.expire(now, out);
        if let Event::Worker { id, .. } = &event
            && let Some(worker) = self.workers.get_mut(*id)
        {
            self.looks |= worker.silent;
            (worker.heard, worker.silent) = (now, false);
        }
        let silent = self.liveness.look(now, &mut self.workers, out);
        // All of them are gone before work goes to anybody else.
        for &id in &silent {
            self.counters.silences += 1;
            self.depart(now, id);
            out.push(Command::Close { worker: id, why: Closing::Silent });
        }
        silent.into_iter().for_each(|id| self.lost(now, id, out));
        match event {
            Event::WorkerUp { peer, context_tokens } => self.up(now, peer, context_tokens, out),
            Event::WorkerDown { id } => {
                if self.depart(now, id) {
                    self.lost(now, id, out);
                }
            }
            Event::Worker { id, message } => self.said(now, id, message, out),
            Event::Unsent { worker, request, epoch } => {
                self.workers.unsent(worker);
                let detail = "too much waits for the worker".to_owned();
                self.said(
                    now,
                    worker,
                    FromWorker::Failed { request, epoch, why: Failure::QueueFull, fault: None, detail },
                    out,
                );
            }
            Event::Arrive { request, chain } => self.arrive(now, request, chain, out),
            Event::Gone { request } => {
                self.finish(request, End::error(Ender::Client, "the client hung up"), out);
            }
            Event::StopChoice { request, choice } => self.stop_choice(request, choice, out),
            Event::Tick => {}
        }
        self.let_go(now, out);
        while let Some((id, incarnation)) = self.departures.next(now) {
            self.tell_left(id, incarnation, out);
            self.looks = true;
        }
        self.looks |= changes != self.workers.changes();
        // As long as some begin, or are refused.
        while std::mem::take(&mut self.looks) {
            self.begin_waiting(now, out);
        }
        for command in &out[begin..] {
            if let Command::Send { worker, .. } = command
                && let Some(worker) = self.workers.get_mut(*worker)
            {
                worker.said = now;
            }
        }
    }

    /// When the next deadline passes; a [`Event::Tick`] is due then.
    pub fn next_deadline(&self) -> Option<Time> {
        let requests = self.deadlines.first().map(|&(deadline, _)| deadline);
        requests.into_iter().chain(self.liveness.due()).chain(self.departures.due()).min()
    }

    /// Why an open request is served where it is.
    pub fn explain(&self, request: RequestId) -> Option<&Decision> {
        self.journeys.get(&request).map(|journey| &journey.decision)
    }

    /// In which attempt an open request is that a worker has.
    pub fn attempts(&self, request: RequestId) -> Option<u32> {
        self.journeys.get(&request).map(|journey| journey.attempts)
    }

    /// Requests that wait for a decode worker.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Requests that are open.
    pub fn open(&self) -> usize {
        self.journeys.len() + self.waiting.len()
    }

    /// Where they are. Looks at each.
    pub fn phases(&self) -> Phases {
        let mut phases = Phases { waiting: self.waiting.len(), ..Phases::default() };
        for journey in self.journeys.values() {
            *(if journey.awaits_first() {
                &mut phases.prefilling
            } else if journey.attempt.decode_started {
                &mut phases.decoding
            } else {
                &mut phases.handing_off
            }) += 1;
        }
        phases
    }

    /// The workers that are up, by id.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.workers.views()
    }

    /// Times that a worker came, went or began to drain so far.
    pub fn fleet_changes(&self) -> u64 {
        self.workers.changes()
    }

    /// Entries of the prefix index over all workers.
    pub fn indexed_blocks(&self) -> usize {
        self.workers.indexed()
    }

    /// Bytes that they take, about.
    pub fn index_bytes(&self) -> u64 {
        self.workers.index_bytes()
    }

    /// What that may become with so many entries.
    pub fn index_bytes_max(blocks: usize) -> u64 {
        PrefixIndex::bytes_max(blocks)
    }

    fn expire(&mut self, now: Time, out: &mut Vec<Command>) {
        while let Some(&(deadline, request)) = self.deadlines.first()
            && deadline <= now
        {
            let waits = self.waiting.get(request).map(|waits| &waits.request);
            let asked = waits.or_else(|| self.journeys.get(&request).map(|journey| &journey.request));
            let given = asked.map_or(0.0, |request| request.deadline.as_secs_f64());
            self.finish(request, End::error(Ender::Limit, format!("its deadline of {given:.0} s passed")), out);
        }
    }

    /// A session began: the others learn of the worker, and it of them.
    fn up(&mut self, now: Time, peer: PeerInfo, context_tokens: u32, out: &mut Vec<Command>) {
        let (id, role) = (peer.id, peer.role);
        let was_up = self.workers.remove(id);
        self.departures.back(id);
        for other in self.workers.iter() {
            out.push(Command::Send { worker: other.id, message: ToWorker::Peer(peer.clone()) });
            out.push(Command::Send { worker: id, message: ToWorker::Peer(other.peer.clone()) });
        }
        self.workers.insert(now, peer, context_tokens);
        if was_up {
            self.lost(now, id, out);
        }
        if role == Role::Decode {
            self.move_from_draining(now, out);
        }
    }

    /// A worker is lost, maybe for good; whether it was up.
    fn depart(&mut self, now: Time, id: WorkerId) -> bool {
        if let Some(worker) = self.workers.get(id) {
            self.departures.lost(now, id, worker.peer.incarnation);
        }
        self.workers.remove(id)
    }

    /// Tells all that a worker has left.
    pub(crate) fn tell_left(&self, id: WorkerId, incarnation: Incarnation, out: &mut Vec<Command>) {
        for other in self.workers.iter() {
            out.push(Command::Send { worker: other.id, message: ToWorker::PeerLeft { id, incarnation } });
        }
    }

    fn arrive(&mut self, now: Time, request: Arc<Request>, chain: Vec<BlockHash>, out: &mut Vec<Command>) {
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
        let waits = Waits { deadline: now + request.deadline, request, chain };
        match self.choose(now, &waits) {
            Err((why, detail)) => self.reject(id, why, detail, out),
            Ok(decision) if is_first && decision.is_soon() => self.begin(now, waits, decision, out),
            Ok(_) => {
                self.deadlines.insert((waits.deadline, id));
                self.waiting.push(waits);
                // It may be short enough for those who are too small for all before it.
                self.looks |= self.waiting.len() <= WAITING_TRIED;
            }
        }
    }

    /// Chooses who serves a request that nobody has served yet. Errors: why nobody will.
    fn choose(&mut self, now: Time, waits: &Waits) -> Result<Decision, (Rejected, String)> {
        let Waits { request, chain, deadline } = waits;
        let ask = ask(&self.config, request, chain);
        let Some(decision) = decide(&self.config, &self.workers, &mut self.held, &ask) else {
            let takes_work = self.workers.of_role(Role::Decode).filter(|worker| !worker.draining);
            return Err(match takes_work.map(|worker| worker.context_tokens).max() {
                None => (Rejected::NoWorkers, "no decode worker is up".to_owned()),
                Some(longest) => {
                    let asked = format!("{} tokens and {} to be made", ask.tokens, request.params.max_tokens);
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

    /// Begins the first attempt at a request.
    fn begin(&mut self, now: Time, waits: Waits, decision: Decision, out: &mut Vec<Command>) {
        let Waits { request, chain, deadline } = waits;
        let id = request.id;
        book(&self.config, &mut self.workers, &ask(&self.config, &request, &chain), &decision);
        let journey = Journey::new(request, chain, deadline, self.config.lease, decision);
        self.submit(now, &journey, out);
        self.deadlines.insert((deadline, id));
        self.journeys.insert(id, journey);
        self.note(id);
    }

    /// Begins what waits, the first one first, until one has to wait on. One that is too long for some workers
    /// keeps nobody from those: so many are looked at behind it.
    fn begin_waiting(&mut self, now: Time, out: &mut Vec<Command>) {
        // The shortest that has to wait on.
        let mut waits_on: Option<u32> = None;
        for (number, waits) in self.waiting.take_first(WAITING_TRIED) {
            let id = waits.request.id;
            let needs = ask(&self.config, &waits.request, &waits.chain).contexts.decode;
            let is_shorter = |worker: &Worker| waits_on.is_none_or(|tokens| worker.context_tokens < tokens);
            if !self.workers.of_role(Role::Decode).any(is_shorter) && waits_on.is_some() {
                self.waiting.put_back(number, waits);
                continue;
            }
            match self.choose(now, &waits) {
                Ok(decision)
                    if decision.is_soon() && self.workers.get(decision.route.decode).is_some_and(is_shorter) =>
                {
                    self.begin(now, waits, decision, out);
                    // Whoever comes next may begin as well.
                    self.looks = self.waiting.len() > 0;
                }
                Ok(_) => {
                    waits_on = Some(waits_on.map_or(needs, |tokens| tokens.min(needs)));
                    self.waiting.put_back(number, waits);
                }
                // Whoever was there may be back soon.
                Err((Rejected::NoWorkers | Rejected::TooLarge, _)) if self.departures.due().is_some() => {
                    self.waiting.put_back(number, waits);
                }
                Err((why, detail)) => {
                    self.deadlines.remove(&(waits.deadline, id));
                    self.reject(id, why, detail, out);
                    self.looks = self.waiting.len() > 0;
                }
            }
        }
    }

    /// A decode worker said how it stands: what waits goes to it, if it would soon get to that.
    fn begin_at(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        let takes = |worker: &Worker, waits: &Waits| {
            let blocks = (waits.request.prompt.len() as u32).div_ceil(self.config.block_tokens);
            let missing = blocks.saturating_sub(self.workers.held(id, &waits.chain).device);
            worker.role == Role::Decode && worker.takes(waits.request.choices.into(), missing)
        };
        let worker = self.workers.get(id);
        if worker.is_some_and(|worker| self.waiting.first(WAITING_TRIED).any(|waits| takes(worker, waits))) {
            self.begin_waiting(now, out);
        }
    }

    /// Notes who has to do with a request now.
    pub(crate) fn note(&mut self, request: RequestId) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        let now = journey.seats();
        if now != journey.seated {
            self.seating.change(request, &journey.seated, &now);
            journey.seated = now;
        }
    }

    fn said(&mut self, now: Time, id: WorkerId, message: FromWorker, out: &mut Vec<Command>) {
        match message {
            FromWorker::Tokens(rows) => rows.into_iter().for_each(|row| self.token(now, id, row, out)),
            FromWorker::Ended { key, tokens, end } => {
                let Some(journey) = self.current(id, key.request, key.epoch) else { return };
                if journey.ending(key.choice, tokens, end, out) {
                    self.finish_if_ended(key.request, out);
                    self.note(key.request);
                } else {
                    self.counters.stale_messages += 1;
                }
            }
            FromWorker::Failed { request, epoch, why, fault, detail } => {
                let Some(journey) = self.current(id, request, epoch) else { return };
                let attempt = journey.attempt;
                if journey.seat(id, epoch) == Some(Involvement::Before) {
                    // All that was wanted of it are tokens that it sent before.
                    self.counters.stale_messages += 1;
                    return;
                }
                if attempt.prefill == Some(id) && attempt.decode_started && !journey.awaits_first() {
                    // The decode worker goes on without it.
                    self.counters.stale_messages += 1;
                    return;
                }
                self.replay(now, request, AttemptFailure { worker: fault.unwrap_or(id), why: Some(why), detail }, out);
            }
            FromWorker::Draining => {
                self.workers.drain(id);
                self.move_from_draining(now, out);
            }
            // How a session begins is its carrier's matter.
            FromWorker::Challenge(_) | FromWorker::Hello(_) | FromWorker::Heartbeat => {}
            FromWorker::Report(report) => match self.workers.report(id, report) {
                Reported::Taken | Reported::Awaited => {
                    self.move_to(now, id, out);
                    self.begin_at(now, id, out);
                }
                Reported::Stale => self.counters.stale_messages += 1,
                Reported::Gap => {
                    self.counters.report_gaps += 1;
                    out.push(Command::Send { worker: id, message: ToWorker::Snapshot });
                }
            },
        }
    }

    fn token(&mut self, now: Time, id: WorkerId, row: TokenRow, out: &mut Vec<Command>) {
        let request = row.key.request;
        let seat = |journey: &&mut Journey| journey.seat(id, row.key.epoch).is_some();
        let Some(journey) = self.journeys.get_mut(&request).filter(seat) else {
            self.counters.stale_rows += 1;
            return;
        };
        if journey.seat(id, row.key.epoch) == Some(Involvement::Taker) {
            self.counters.moves += 1;
            journey.moved();
        }
        journey.attempt.decode_started |= journey.attempt.decode == id;
        match journey.take(row, out) {
            Taken::Committed => {
                journey.settle_move();
                let (decode, is_stuck) = (journey.attempt.decode, journey.stuck.is_some());
                self.finish_if_ended(request, out);
                // Whatever kept it from being moved when its worker began to drain may be over; of room, a report
                // tells.
                if !is_stuck && self.drains(decode) {
                    self.move_away(now, request, out);
                }
            }
            Taken::Early => self.counters.early_rows += 1,
            Taken::Duplicate => self.counters.duplicate_rows += 1,
            Taken::Stale => self.counters.stale_rows += 1,
            Taken::Overflow => {
                let worker = journey.attempt.prefill.unwrap_or(id);
                let detail = format!("{worker} never sent a token that {id} went on from");
                self.replay(now, request, AttemptFailure { worker, why: None, detail }, out);
            }
        }
        self.note(request);
    }

    /// The journey that a message of this attempt from this worker is about; a message that is about none is counted.
    fn current(&mut self, id: WorkerId, request: RequestId, epoch: Epoch) -> Option<&mut Journey> {
        let journey = self.journeys.get_mut(&request).filter(|journey| journey.seat(id, epoch).is_some());
        if journey.is_none() {
            self.counters.stale_messages += 1;
        }
        journey
    }

    fn stop_choice(&mut self, request: RequestId, choice: Choice, out: &mut Vec<Command>) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        if !journey.end_choice(choice, End::stop(), out) {
            return;
        }
        if journey.ended().is_none() {
            cancel(&self.workers, journey, Some(choice), out);
        }
        self.finish_if_ended(request, out);
        self.note(request);
    }

    /// The session with a worker ended, and with it all that it did.
    pub(crate) fn lost(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        for request in self.seating.of(id) {
            let Some(journey) = self.journeys.get_mut(&request) else { continue };
            // Of a move, the one may have stopped already and the other not begun; of one who was taken over from,
            // tokens are missing that will not come.
            if journey.attempt.prefill != Some(id) || journey.attempt.decode == id || journey.awaits_first() {
                let detail = format!("the session with {id} was lost");
                self.replay(now, request, AttemptFailure { worker: id, why: None, detail }, out);
            } else {
                // Whether the handoff was complete, the decode worker knows and will say. Of a choice that its first
                // token ended it knows nothing.
                journey.attempt.prefill = None;
                journey.end_implied(out);
                self.finish_if_ended(request, out);
                self.note(request);
            }
        }
    }

    /// Ends the current attempt, and begins another where that makes sense.
    fn replay(&mut self, now: Time, request: RequestId, failure: AttemptFailure, out: &mut Vec<Command>) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        journey.rewind(out);
        if journey.ended().is_some() {
            return self.finish_if_ended(request, out);
        }
        if failure.why == Some(Failure::Draining) {
            self.workers.drain(failure.worker);
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
        let ask = PlacementQuery {
            tokens: journey.input_tokens(),
            contexts: journey.contexts(),
            sequences: journey.open_choices().len() as u32,
            chain: &journey.chain,
            handoff,
            failed: &journey.failed,
            refused: &journey.refused,
        };
        let Some(decision) = decide(&self.config, &self.workers, &mut self.held, &ask) else {
            let ending = give_up(&failure, &standing);
            return self.end_with(request, ending, out);
        };
        book(&self.config, &mut self.workers, &ask, &decision);
        cancel(&self.workers, journey, None, out);
        journey.go_elsewhere(decision);
        self.counters.replays += 1;
        // Taken out while `submit` reads it beside the counters.
        let journey = self.journeys.remove(&request).expect("it was there above");
        self.submit(now, &journey, out);
        self.journeys.insert(request, journey);
        self.unstick(request);
        self.note(request);
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

    /// Tells the workers of a journey's current attempt.
    fn submit(&mut self, now: Time, journey: &Journey, out: &mut Vec<Command>) {
        let route = journey.decision.route;
        let submit = |part| ToWorker::Submit(submission(now, journey, journey.epoch, part));
        let Some(prefill) = route.prefill else {
            self.counters.wholes += 1;
            return out.push(Command::Send { worker: route.decode, message: submit(Assignment::Whole) });
        };
        self.counters.handoffs += 1;
        // First the expectation, so that the offer finds it.
        out.push(Command::Send { worker: route.decode, message: submit(Assignment::Decode { prefill }) });
        out.push(Command::Send { worker: prefill, message: submit(Assignment::Prefill { decode: route.decode }) });
    }

    fn finish_if_ended(&mut self, request: RequestId, out: &mut Vec<Command>) {
        if let Some(end) = self.journeys.get(&request).and_then(Journey::ended) {
            self.finish(request, end, out);
        }
    }

    /// Ends a request, if it is open.
    fn finish(&mut self, request: RequestId, end: End, out: &mut Vec<Command>) {
        if let Some(waits) = self.waiting.remove(request) {
            self.looks = true;
            self.deadlines.remove(&(waits.deadline, request));
            let usage = Usage { prompt_tokens: waits.request.prompt.len() as u32, ..Usage::default() };
            out.push(Command::End { request, end, usage });
        } else if let Some(journey) = self.close(request, out) {
            // Its place does not stay empty until the next report. What a worker refused had none.
            self.looks |= self.workers.ended(journey.attempt.decode) && self.waiting.len() > 0;
            let usage = journey.usage();
            if end.finish != Finish::Error {
                self.answers.count(f64::from(usage.output_tokens) / f64::from(journey.request.choices));
            }
            out.push(Command::End { request, end, usage });
        }
    }

    /// Refuses a request after it was placed.
    fn refuse(&mut self, request: RequestId, why: Rejected, detail: String, out: &mut Vec<Command>) {
        if self.close(request, out).is_some() {
            self.reject(request, why, detail, out);
        }
    }

    /// The one way out of the journeys. Its workers close the epoch, if they have not.
    fn close(&mut self, request: RequestId, out: &mut Vec<Command>) -> Option<Journey> {
        self.unstick(request);
        let journey = self.journeys.remove(&request)?;
        self.seating.change(request, &journey.seated, &Seats::default());
        self.deadlines.remove(&(journey.deadline, request));
        cancel(&self.workers, &journey, None, out);
        Some(journey)
    }

    fn reject(&mut self, request: RequestId, why: Rejected, detail: String, out: &mut Vec<Command>) {
        self.counters.rejected += 1;
        out.push(Command::Reject { request, why, detail });
    }

    fn overloaded(&self) -> Rejected {
        Rejected::Overloaded { retry_after: self.retry_after() }
    }

    /// After how long a request that is refused now would find room. Looks at each worker.
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

/// What is to be placed, of a request that nobody has served yet.
fn ask<'a>(config: &PlacementConfig, request: &Request, chain: &'a [BlockHash]) -> PlacementQuery<'a> {
    let prompt = request.prompt.len() as u32;
    PlacementQuery {
        tokens: prompt,
        contexts: Contexts { prefill: prompt, decode: prompt.saturating_add(request.params.max_tokens) },
        sequences: request.choices.into(),
        chain,
        handoff: config.handoff,
        failed: &[],
        refused: &[],
    }
}

/// What an attempt is told.
pub(crate) fn submission(now: Time, journey: &Journey, epoch: Epoch, part: Assignment) -> Submit {
    let computes = matches!(part, Assignment::Whole | Assignment::Prefill { .. });
    Submit {
        request: journey.request.id,
        epoch,
        part,
        choices: journey.open_choices(),
        prompt: Arc::clone(&journey.request.prompt),
        params: Arc::clone(&journey.request.params),
        seed: journey.request.seed,
        deadline: journey.deadline.since(now),
        lease: journey.lease,
        tenant: journey.request.tenant.clone(),
        holder: journey.decision.holder.filter(|_| computes),
    }
}

/// Tells those workers of a journey that are up to stop it, or one choice of it.
fn cancel(workers: &Workers, journey: &Journey, choice: Option<Choice>, out: &mut Vec<Command>) {
    let attempt = journey.attempt;
    let current = attempt.prefill.into_iter().chain([attempt.decode]).map(|worker| (worker, journey.epoch));
    for (worker, epoch) in current.chain(journey.moving).filter(|&(worker, _)| workers.contains(worker)) {
        let message = ToWorker::Cancel { request: journey.request.id, epoch, choice };
        out.push(Command::Send { worker, message });
    }
}
