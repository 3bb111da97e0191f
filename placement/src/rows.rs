//! Rows of tokens that workers send, and the ends of choices.

use crate::attempts::cancel;
use crate::journey::{Involvement, Journey, Taken};
use crate::message::Command;
use crate::placement::Placement;
use crate::retry::AttemptFailure;
use domain::session::TokenRow;
use domain::{Choice, End, RequestId, SeqKey, Time, WorkerId};

impl Placement {
    /// Commits a row, or keeps it until the rows before it are there.
    pub(crate) fn commit_row(&mut self, now: Time, id: WorkerId, row: TokenRow, out: &mut Vec<Command>) {
        let request = row.key.request;
        let takes_part = |journey: &&mut Journey| journey.involvement(id, row.key.epoch).is_some();
        let Some(journey) = self.journeys.get_mut(&request).filter(takes_part) else {
            self.counters.stale_rows += 1;
            return;
        };
        if journey.involvement(id, row.key.epoch) == Some(Involvement::Taker) {
            self.counters.moves += 1;
            journey.moved();
        }
        if journey.attempt.decode == id {
            journey.begun();
        }
        match journey.take(row, out) {
            Taken::Committed => {
                journey.settle_move();
                let (decode, is_stuck) = (journey.attempt.decode, journey.stuck.is_some());
                self.finish_if_ended(request, out);
                // What kept it from being moved when its worker began to drain may be over. That there is room comes
                // with a report.
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
                self.retry_or_end(now, request, AttemptFailure { worker, why: None, detail }, out);
            }
        }
        self.update_involved(request);
    }

    /// Ends a choice regularly after so many tokens, once those are committed.
    pub(crate) fn end_choice(&mut self, id: WorkerId, key: SeqKey, tokens: u32, end: End, out: &mut Vec<Command>) {
        let Some(journey) = self.current(id, key.request, key.epoch) else { return };
        if journey.ending(key.choice, tokens, end, out) {
            self.finish_if_ended(key.request, out);
            self.update_involved(key.request);
        } else {
            self.counters.stale_messages += 1;
        }
    }

    /// Ends a choice in whose text the shell found a stop string.
    pub(crate) fn stop_choice(&mut self, request: RequestId, choice: Choice, out: &mut Vec<Command>) {
        let Some(journey) = self.journeys.get_mut(&request) else { return };
        if !journey.end_choice(choice, End::stop(), out) {
            return;
        }
        if journey.ended().is_none() {
            cancel(&self.workers, journey, Some(choice), out);
        }
        self.finish_if_ended(request, out);
        self.update_involved(request);
    }
}
