//! Moving running sequences away from workers that drain.
//!
//! The taker gets the attempt of a new epoch, its giver is told whom to offer to; both speak until the taker has
//! said its first token, and the giver until none of its tokens is missing. A failure in between is a replay.
//!
//! A worker that is about to end says so once, and waits for its session to be closed, which happens when no request
//! needs it. One that an operator drains says so in its reports: its session stays open, so that it can be told to take
//! work again.

use crate::attempts::submission;
use crate::config::HandoffPolicy;
use crate::cost::{PlacementQuery, has_room, take_over};
use crate::journey::Journey;
use crate::message::{Closing, Command};
use crate::placement::Placement;
use domain::session::{Assignment, Migrate, Role, ToWorker};
use domain::{RequestId, Time, WorkerId};

/// Sequences that are tried at a report of a worker, of those that wait for room.
const MOVES_TRIED_PER_REPORT_MAX: usize = 8;

impl Placement {
    /// Moves what can be moved from all workers that drain.
    pub(crate) fn move_from_draining(&mut self, now: Time, out: &mut Vec<Command>) {
        let decodes = |request: &RequestId, id: WorkerId| self.journeys[request].attempt.decode == id;
        let of =
            |&id: &WorkerId| self.requests_by_worker.of(id).into_iter().filter(move |request| decodes(request, id));
        let touched: Vec<RequestId> = self.workers.draining().iter().flat_map(of).collect();
        touched.into_iter().for_each(|request| self.move_away(now, request, out));
    }

    /// Moves sequences that no worker had room for to a decode worker that has just reported, if it has room.
    pub(crate) fn move_stuck_to(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        if self.workers.get(id).is_none_or(|worker| worker.role != Role::Decode) {
            return;
        }
        let smallest: Vec<RequestId> =
            self.stuck.iter().take(MOVES_TRIED_PER_REPORT_MAX).map(|&(_, request)| request).collect();
        for request in smallest {
            let Some(journey) = self.journeys.get(&request) else { continue };
            if has_room(&self.config, &self.workers, &query_of(journey, &refused(journey)), id) {
                self.move_away(now, request, out);
            }
        }
    }

    /// Returns whether a worker drains.
    pub(crate) fn drains(&self, id: WorkerId) -> bool {
        self.workers.draining().contains(&id)
    }

    /// Closes the sessions of workers that are about to end and that no request needs any more.
    pub(crate) fn close_drained(&mut self, now: Time, out: &mut Vec<Command>) {
        let free: Vec<WorkerId> = self
            .workers
            .draining()
            .iter()
            .copied()
            .filter(|&worker| self.workers.leaves(worker) && !self.requests_by_worker.is_needed(worker))
            .collect();
        for worker in free {
            let life = self.workers.get(worker).map(|worker| worker.peer.incarnation);
            self.workers.remove(worker);
            out.push(Command::Close { worker, why: Closing::Drained });
            self.handle_worker_lost(now, worker, out);
            life.into_iter().for_each(|life| self.tell_left(worker, life, out));
        }
    }

    /// Notes that a sequence does not wait for room elsewhere, or no longer.
    pub(crate) fn unstick(&mut self, request: RequestId) {
        if let Some(blocks) = self.journeys.get_mut(&request).and_then(|journey| journey.stuck.take()) {
            self.stuck.remove(&(blocks, request));
        }
    }

    /// Moves a request from a worker that drains to another decode worker, if it decodes, has one choice left and a
    /// worker has room for it.
    pub(crate) fn move_away(&mut self, now: Time, request: RequestId, out: &mut Vec<Command>) {
        self.unstick(request);
        let draining = self.workers.draining();
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        if !draining.contains(&journey.attempt.decode) {
            // Its worker takes work again.
            return;
        }
        // A first token that is still to come would be lost once its worker is left behind.
        let idle = journey.moving.is_none() && journey.before.is_none() && !journey.awaits_first();
        let Some(known) = journey.only_choice().filter(|_| idle && journey.attempt.decode_started) else { return };
        let (giver, refused) = (journey.attempt.decode, refused(journey));
        let Some(to) = take_over(&self.config, &mut self.workers, &mut self.held, &query_of(journey, &refused)) else {
            let blocks = journey.input_tokens().div_ceil(self.config.block_tokens);
            journey.stuck = Some(blocks);
            self.stuck.insert((blocks, request));
            return;
        };
        let next = journey.begin_move(to);
        let submit = submission(now, journey, next, Assignment::TakeOver { from: giver });
        out.push(Command::Send { worker: to, message: ToWorker::Submit(submit) });
        let migrate = Migrate { request, epoch: journey.epoch, to, next, known, lease: journey.lease };
        out.push(Command::Send { worker: giver, message: ToWorker::Migrate(migrate) });
        self.update_involved(request);
    }
}

/// Returns the workers that do not take it over: those that refused it, and the one that has it.
fn refused(journey: &Journey) -> Vec<WorkerId> {
    journey.refused.iter().copied().chain([journey.attempt.decode]).collect()
}

/// Returns what is to be taken over.
fn query_of<'a>(journey: &'a Journey, refused: &'a [WorkerId]) -> PlacementQuery<'a> {
    PlacementQuery {
        tokens: journey.input_tokens(),
        contexts: journey.contexts(),
        sequences: 1,
        chain: &journey.chain,
        adapter: journey.request.adapter.as_ref(),
        handoff: HandoffPolicy::Never,
        failed: &journey.failed,
        refused,
    }
}
