//! The placement: takes events, keeps the journeys, gives commands.
//!
//! This file dispatches. A file per concern says what follows: `arrivals` and requests that wait, `attempts`, `rows`
//! that workers send, `ends`, `worker_messages`, `worker_sessions` that begin and end, and `drain`.

use crate::config::{PlacementConfig, PlacementLimits};
use crate::cost::Decision;
use crate::counters::{Counters, Phases};
use crate::departures::Departures;
use crate::index::{Held, PrefixIndex};
use crate::journey::Journey;
use crate::liveness::Liveness;
use crate::meetings::Meetings;
use crate::message::{Command, Event};
use crate::overload::AnswerLength;
use crate::request_view::RequestView;
use crate::requests_by_worker::RequestsByWorker;
use crate::waiting::WaitingRequests;
use crate::workers::{WorkerView, Workers};
use domain::{End, Ender, RequestId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The router's brain. See the crate's documentation.
#[derive(Debug)]
pub struct Placement {
    pub(crate) config: PlacementConfig,
    pub(crate) workers: Workers,
    pub(crate) journeys: BTreeMap<RequestId, Journey>,
    /// Requests that have no worker yet.
    pub(crate) waiting: WaitingRequests,
    /// Something changed by which a waiting request may begin.
    pub(crate) waiting_may_begin: bool,
    /// One entry per journey, and per request that waits.
    pub(crate) deadlines: BTreeSet<(Time, RequestId)>,
    /// Which requests each worker takes part in.
    pub(crate) requests_by_worker: RequestsByWorker,
    /// Sequences of draining workers that no other has room for, by the blocks that they need.
    pub(crate) stuck: BTreeSet<(u32, RequestId)>,
    /// Room for what each worker has of a prompt.
    pub(crate) held: Vec<Held>,
    pub(crate) departures: Departures,
    pub(crate) meetings: Meetings,
    pub(crate) liveness: Liveness,
    pub(crate) answers: AnswerLength,
    pub(crate) counters: Counters,
}

impl Placement {
    /// Makes a placement without workers or requests.
    pub fn new(config: PlacementConfig) -> Self {
        Self {
            workers: Workers::new(config.index_blocks_max),
            liveness: Liveness::new(config.heartbeat, config.silence_max),
            config,
            journeys: BTreeMap::new(),
            waiting: WaitingRequests::default(),
            waiting_may_begin: false,
            deadlines: BTreeSet::new(),
            departures: Departures::default(),
            meetings: Meetings::default(),
            requests_by_worker: RequestsByWorker::default(),
            stuck: BTreeSet::new(),
            held: Vec::new(),
            answers: AnswerLength::default(),
            counters: Counters::default(),
        }
    }

    /// Takes an event and appends what is to be done. Readings of `now` never fall.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        let (first, changes) = (out.len(), self.workers.changes());
        self.expire(now, out);
        if let Event::Worker { id, .. } = event {
            self.note_heard(now, id);
        }
        self.close_silent(now, out);
        match event {
            Event::WorkerUp { peer, context_tokens } => self.handle_worker_up(now, peer, context_tokens, out),
            Event::WorkerDown { id } => self.handle_worker_down(now, id, out),
            Event::Worker { id, message } => self.handle_worker_message(now, id, message, out),
            Event::Unsent { worker, request, epoch } => self.handle_unsent(now, worker, request, epoch, out),
            Event::Arrive { request, chain } => self.place_request(now, request, chain, out),
            Event::Gone { request } => self.finish(request, End::error(Ender::Client, "the client hung up"), out),
            Event::StopChoice { request, choice } => self.stop_choice(request, choice, out),
            Event::Limits(limits) => self.take_limits(limits),
            Event::Tick => {}
        }
        self.close_drained(now, out);
        self.tell_departures(now, out);
        self.waiting_may_begin |= changes != self.workers.changes();
        // As long as some begin, or are refused.
        while std::mem::take(&mut self.waiting_may_begin) {
            self.begin_waiting(now, out);
        }
        self.introduce_named(first, out);
        self.note_sent(now, &out[first..]);
    }

    fn take_limits(&mut self, limits: PlacementLimits) {
        self.config = self.config.clone().with(limits);
        self.workers.limit_index(limits.index_blocks_max);
        // What no worker would soon begin may have another route now.
        self.waiting_may_begin = true;
    }

    /// Returns when the next deadline passes; an [`Event::Tick`] is due then.
    pub fn next_deadline(&self) -> Option<Time> {
        let requests = self.deadlines.first().map(|&(deadline, _)| deadline);
        requests.into_iter().chain(self.liveness.next_deadline()).chain(self.departures.next_deadline()).min()
    }

    /// Returns why an open request is served where it is.
    pub fn explain(&self, request: RequestId) -> Option<&Decision> {
        self.journeys.get(&request).map(|journey| &journey.decision)
    }

    /// Returns the number of attempts of an open request that a worker has.
    pub fn attempts(&self, request: RequestId) -> Option<u32> {
        self.journeys.get(&request).map(|journey| journey.attempts)
    }

    /// Returns how many requests wait for a decode worker.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns what happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many requests are open.
    pub fn open(&self) -> usize {
        self.journeys.len() + self.waiting.len()
    }

    /// Counts the open requests by how far they are. Looks at each.
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

    /// Returns the workers that are up, by id.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.workers.views(|id| self.requests_by_worker.is_needed(id))
    }

    /// Returns the requests that are open. Looks at each.
    pub fn requests(&self) -> Vec<RequestView> {
        let waiting = self.waiting.iter().map(RequestView::waiting);
        waiting.chain(self.journeys.values().map(Journey::view)).collect()
    }

    /// Returns an open request.
    pub fn request(&self, request: RequestId) -> Option<RequestView> {
        let waits = || self.waiting.get(request).map(RequestView::waiting);
        self.journeys.get(&request).map(Journey::view).or_else(waits)
    }

    /// Counts how often a worker came, went, began or ended to drain, or changed its role.
    pub fn fleet_changes(&self) -> u64 {
        self.workers.changes()
    }

    /// Returns the entries of the prefix index over all workers.
    pub fn indexed_blocks(&self) -> usize {
        self.workers.indexed()
    }

    /// Estimates the bytes of the prefix index.
    pub fn index_bytes(&self) -> u64 {
        self.workers.index_bytes()
    }

    /// Estimates the bytes of a prefix index with so many entries.
    pub fn index_bytes_max(blocks: usize) -> u64 {
        PrefixIndex::bytes_max(blocks)
    }
}
