//! Workers that come, fall silent and go.

use crate::message::{Closing, Command};
use crate::placement::Placement;
use crate::retry::AttemptFailure;
use domain::session::{PeerInfo, Role};
use domain::{Time, WorkerId};

impl Placement {
    /// Takes in a worker whose session began.
    pub(crate) fn handle_worker_up(&mut self, now: Time, peer: PeerInfo, context_tokens: u32, out: &mut Vec<Command>) {
        let (id, role) = (peer.id, peer.role);
        let was_up = self.workers.remove(id);
        self.departures.returned(id);
        self.forget_refusals(id);
        self.workers.insert(now, peer, context_tokens);
        self.introduce_again(id, out);
        if was_up {
            self.handle_worker_lost(now, id, out);
        }
        if role == Role::Decode {
            self.move_from_draining(now, out);
        }
    }

    /// Takes the loss of the session with a worker.
    pub(crate) fn handle_worker_down(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        if self.remove_worker(now, id) {
            self.handle_worker_lost(now, id, out);
        }
    }

    /// Retries, or ends, the requests that cannot go on without a worker whose session ended.
    pub(crate) fn handle_worker_lost(&mut self, now: Time, id: WorkerId, out: &mut Vec<Command>) {
        for request in self.requests_by_worker.of(id) {
            let Some(journey) = self.journeys.get_mut(&request) else { continue };
            // If the worker gave or took a move, the giver may have stopped before the taker began. If it is the one
            // that was taken over from, tokens of it are missing and will not come.
            let moves = [journey.moving, journey.before].into_iter().flatten().any(|(worker, _)| worker == id);
            let prefilled_alone = journey.attempt.prefill == Some(id) && journey.attempt.decode != id && !moves;
            if !prefilled_alone || journey.awaits_first() {
                let detail = format!("the session with {id} was lost");
                self.retry_or_end(now, request, AttemptFailure { worker: id, why: None, detail }, out);
            } else {
                // The decode worker will say whether the handoff was complete. It has never seen a choice that ended
                // with its first token.
                journey.attempt.prefill = None;
                journey.end_implied(out);
                self.finish_if_ended(request, out);
                self.update_involved(request);
            }
        }
    }

    /// Lets every request ask a worker again that refused it: the worker takes other work than it did.
    pub(crate) fn forget_refusals(&mut self, id: WorkerId) {
        self.journeys.values_mut().for_each(|journey| journey.refused.retain(|&refused| refused != id));
    }

    /// Notes that a worker said something. One that was silent takes work again.
    pub(crate) fn note_heard(&mut self, now: Time, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(id) {
            self.waiting_may_begin |= worker.silent;
            (worker.last_heard, worker.silent) = (now, false);
        }
    }

    /// Notes which workers something is sent to, so that they need no heartbeat now.
    pub(crate) fn note_sent(&mut self, now: Time, commands: &[Command]) {
        for command in commands {
            if let Command::Send { worker, .. } = command
                && let Some(worker) = self.workers.get_mut(*worker)
            {
                worker.last_sent = now;
            }
        }
    }

    /// Closes the sessions of workers that have been silent for too long. Sends heartbeats where they are due.
    pub(crate) fn close_silent(&mut self, now: Time, out: &mut Vec<Command>) {
        let silent = self.liveness.look(now, &mut self.workers, out);
        // All of them are gone before their work goes to other workers.
        for &id in &silent {
            self.counters.silences += 1;
            self.remove_worker(now, id);
            out.push(Command::Close { worker: id, why: Closing::Silent });
        }
        silent.into_iter().for_each(|id| self.handle_worker_lost(now, id, out));
    }

    /// Removes a worker that is lost, maybe for good. Returns whether it was up.
    fn remove_worker(&mut self, now: Time, id: WorkerId) -> bool {
        if let Some(worker) = self.workers.get(id) {
            self.departures.lost(now, id, worker.peer.incarnation);
        }
        self.workers.remove(id)
    }

    /// Tells those that have met them which lost ones have not come back in time.
    pub(crate) fn tell_departures(&mut self, now: Time, out: &mut Vec<Command>) {
        while let Some((id, incarnation)) = self.departures.next(now) {
            self.tell_left(id, incarnation, out);
            self.waiting_may_begin = true;
        }
    }
}
