//! What workers say.

use crate::journey::{Involvement, Journey};
use crate::message::Command;
use crate::placement::Placement;
use crate::retry::AttemptFailure;
use crate::workers::Reported;
use domain::session::{Failure, FromWorker, Report, ToWorker};
use domain::{Epoch, RequestId, Time, WorkerId};

impl Placement {
    /// Takes a worker's message.
    pub(crate) fn handle_worker_message(
        &mut self,
        now: Time,
        id: WorkerId,
        message: FromWorker,
        out: &mut Vec<Command>,
    ) {
        match message {
            FromWorker::Tokens(rows) => rows.into_iter().for_each(|row| self.commit_row(now, id, row, out)),
            FromWorker::Ended { key, tokens, end } => self.end_choice(id, key, tokens, end, out),
            FromWorker::Failed { request, epoch, why, fault, detail } => {
                let failure = AttemptFailure { worker: fault.unwrap_or(id), why: Some(why), detail };
                self.handle_failed(now, id, request, epoch, failure, out);
            }
            FromWorker::Draining => {
                self.workers.leave(id);
                self.move_from_draining(now, out);
            }
            // How a session begins is its carrier's matter, and what operators want to know is the shell's.
            FromWorker::Challenge(_)
            | FromWorker::Hello(_)
            | FromWorker::Heartbeat
            | FromWorker::OperatorAnswer { .. }
            | FromWorker::Phases { .. } => {}
            FromWorker::Report(report) => self.handle_report(now, id, report, out),
        }
    }

    /// Takes the word of the shell that a submit was not sent: the worker is as full as one that says so itself.
    pub(crate) fn handle_unsent(
        &mut self,
        now: Time,
        id: WorkerId,
        request: RequestId,
        epoch: Epoch,
        out: &mut Vec<Command>,
    ) {
        self.workers.unsent(id);
        let detail = "too much waits for the worker".to_owned();
        let failure = AttemptFailure { worker: id, why: Some(Failure::QueueFull), detail };
        self.handle_failed(now, id, request, epoch, failure, out);
    }

    fn handle_failed(
        &mut self,
        now: Time,
        id: WorkerId,
        request: RequestId,
        epoch: Epoch,
        failure: AttemptFailure,
        out: &mut Vec<Command>,
    ) {
        let Some(journey) = self.current(id, request, epoch) else { return };
        let (attempt, involvement) = (journey.attempt, journey.involvement(id, epoch));
        // All that is missing of a worker that was taken over from are tokens that it sent before.
        let was_taken_over = involvement == Some(Involvement::Before);
        // The decode worker goes on without its prefill worker. That one may be the taker by now, since workers change
        // their roles: then its word is about the move.
        let is_of_prefill = involvement == Some(Involvement::Current) && attempt.prefill == Some(id);
        let is_past_prefill = is_of_prefill && attempt.decode_started && !journey.awaits_first();
        if was_taken_over || is_past_prefill {
            self.counters.stale_messages += 1;
            return;
        }
        self.retry_or_end(now, request, failure, out);
    }

    fn handle_report(&mut self, now: Time, id: WorkerId, report: Report, out: &mut Vec<Command>) {
        let changes = self.workers.changes();
        let reported = self.workers.report(id, report);
        // It drains from now on, or takes over what others that drain have.
        if changes != self.workers.changes() {
            self.forget_refusals(id);
            self.move_from_draining(now, out);
        }
        match reported {
            Reported::Taken | Reported::Awaited => {
                self.move_stuck_to(now, id, out);
                self.begin_waiting_at(now, id, out);
            }
            Reported::Stale => self.counters.stale_messages += 1,
            Reported::Gap => {
                self.counters.report_gaps += 1;
                out.push(Command::Send { worker: id, message: ToWorker::Snapshot });
            }
        }
    }

    /// Returns the journey that a message of this attempt from this worker is about. Counts a message about none as
    /// stale.
    pub(crate) fn current(&mut self, id: WorkerId, request: RequestId, epoch: Epoch) -> Option<&mut Journey> {
        let journey = self.journeys.get_mut(&request).filter(|journey| journey.involvement(id, epoch).is_some());
        if journey.is_none() {
            self.counters.stale_messages += 1;
        }
        journey
    }
}
