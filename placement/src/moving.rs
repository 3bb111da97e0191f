//! Moving running sequences away from workers that drain.
//!
//! The taker gets the attempt of a new epoch, its giver is told whom to offer to; both speak until the taker has said its
//! first token, and the giver until none of its tokens is missing. Whatever goes wrong in between is a replay. A worker that
//! drains and is needed no more is let go: its session is closed, which is what it waits for.

use crate::config::HandoffPolicy;
use crate::cost::{Ask, take_over};
use crate::message::{Closing, Command};
use crate::placement::{Placement, submission};
use domain::session::{Migrate, Part, ToWorker};
use domain::{RequestId, Time, WorkerId};

impl Placement {
    /// Moves what can be moved from all workers that drain.
    pub(crate) fn move_from_draining(&mut self, now: Time, out: &mut Vec<Command>) {
        let touched = self.journeys.iter().filter(|(_, journey)| self.drains(journey.attempt.decode));
        let touched: Vec<RequestId> = touched.map(|(&id, _)| id).collect();
        touched.into_iter().for_each(|request| self.move_away(now, request, out));
    }

    /// Whether a worker is to have nothing to do any more.
    pub(crate) fn drains(&self, id: WorkerId) -> bool {
        self.workers.any_drains() && self.workers.get(id).is_some_and(|worker| worker.draining)
    }

    /// Lets those go that drain and that nothing here needs any more.
    pub(crate) fn let_go(&mut self, now: Time, out: &mut Vec<Command>) {
        if !self.workers.any_drains() {
            return;
        }
        let needed = |id| self.journeys.values().any(|journey| journey.needs(id));
        let free: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|worker| worker.draining && !needed(worker.id))
            .map(|worker| worker.id)
            .collect();
        for worker in free {
            self.workers.remove(worker);
            out.push(Command::Close { worker, why: Closing::Drained });
            self.lost(now, worker, out);
        }
    }

    /// Moves a request to another decode worker, if it decodes, has one choice left and somebody has room for it.
    pub(crate) fn move_away(&mut self, now: Time, request: RequestId, out: &mut Vec<Command>) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        // A first token that is still to come would be nobody's once its worker is left behind.
        let idle = journey.moving.is_none() && journey.before.is_none() && !journey.awaits_first();
        let Some(known) = journey.only_choice().filter(|_| idle && journey.attempt.decode_started) else { return };
        let giver = journey.attempt.decode;
        let refused: Vec<_> = journey.refused.iter().copied().chain([giver]).collect();
        let ask = Ask {
            tokens: journey.input_tokens(),
            contexts: journey.contexts(),
            sequences: 1,
            chain: &journey.chain,
            handoff: HandoffPolicy::Never,
            failed: &journey.failed,
            refused: &refused,
        };
        let Some(to) = take_over(&self.config, &mut self.workers, &ask) else { return };
        let next = journey.begin_move(to);
        let submit = submission(now, journey, next, Part::TakeOver { from: giver });
        out.push(Command::Send { worker: to, message: ToWorker::Submit(submit) });
        let migrate = Migrate { request, epoch: journey.epoch, to, next, known, lease: journey.lease };
        out.push(Command::Send { worker: giver, message: ToWorker::Migrate(migrate) });
    }
}
