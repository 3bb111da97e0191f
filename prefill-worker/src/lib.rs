#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, Migrate, Submit};
use domain::{Choice, Epoch, RequestId, SeqKey, StepId, Time, Token, WorkerId};
use scheduler::Work;
use std::time::Duration;
use transport::Completion;
use worker::{Core, Fetches, Offers, Role, SessionId, Taker};

/// The role of a prefill worker.
#[derive(Default)]
pub struct Prefill {
    /// Beginnings of its prompts.
    fetches: Fetches,
    /// What it hands off, and cached blocks that others asked for.
    offers: Offers,
}

impl Prefill {
    /// Returns what it fetches, for tests and reports.
    pub fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// Returns what it offers, for tests and reports.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }
}

impl Role for Prefill {
    fn submitted(&mut self, core: &mut Core, now: Time, session: SessionId, submit: Submit) {
        let (request, epoch, part) = (submit.request, submit.epoch, submit.part);
        let shares_prompt = worker::shares_prompt(&submit);
        core.open(now, session, submit);
        match part {
            Assignment::Prefill { decode } if shares_prompt => {
                // While the prompt waits, so that its offer does not.
                core.transport.connect(decode);
                self.fetches.queue(core, now, request, epoch);
            }
            Assignment::Prefill { .. } => {
                core.fail(request, epoch, Failure::Engine, "choices that differ already cannot share a handoff");
            }
            Assignment::Decode { .. } | Assignment::TakeOver { .. } | Assignment::Whole => {
                core.fail(request, epoch, Failure::Engine, "a prefill worker does not decode");
            }
        }
    }

    fn cancelled(&mut self, core: &mut Core, now: Time, request: RequestId, epoch: Epoch) {
        self.fetches.cancel(core, now, request, epoch);
        self.offers.withdraw_all(core, request, epoch);
    }

    fn migrate(&mut self, core: &mut Core, _now: Time, migrate: Migrate) {
        let detail = "a prefill worker runs nothing that could move";
        core.fail(migrate.request, migrate.epoch, Failure::Engine, detail);
    }

    fn appended(&mut self, _core: &mut Core, _now: Time, _key: SeqKey) {}

    fn preempted(&mut self, _core: &mut Core, _now: Time, _key: SeqKey) {}

    /// Sends the offer, before the first step, so that the reader can follow layer by layer.
    fn admitted(&mut self, core: &mut Core, now: Time, key: SeqKey) {
        let Some(attempt) = core.attempt(key.request, key.epoch) else { return };
        let Assignment::Prefill { decode } = attempt.submit.part else { return };
        let known = committed(&attempt.submit);
        if attempt.submit.params.max_tokens <= known + 1 {
            // The first token is the last: nobody takes anything over.
            return;
        }
        let Some(tokens) = core.sequence(key).map(|sequence| sequence.tokens.len() as u32) else { return };
        let taker = Taker { to: decode, epoch: key.epoch, lease: attempt.submit.lease, tokens, known };
        if !self.offers.begin(core, now, key, taker) {
            core.fail(key.request, key.epoch, Failure::HandoffLapsed, "too many leases are open");
        }
    }

    fn room_given(&mut self, core: &mut Core, now: Time, key: SeqKey, cached_tokens: u32) {
        self.fetches.room_given(core, now, key, cached_tokens);
    }

    fn planned(&mut self, core: &mut Core, _now: Time, step: StepId, work: &[Work]) {
        for work in work {
            self.offers.writes(core, step, work.key, work.start + work.count);
        }
    }

    fn prompt_ended(&mut self, core: &mut Core, _now: Time, key: SeqKey, first: Vec<(Choice, Token)>) {
        self.offers.complete(core, key, Vec::new(), first);
        // The lease keeps the blocks for the reader; nothing else is left to do here.
        core.forget(key.request, key.epoch);
        core.close(key);
    }

    fn step_failed(&mut self, core: &mut Core, _now: Time, work: &[Work]) {
        for work in work {
            self.offers.withdraw(core, work.key);
        }
    }

    fn peer(&mut self, core: &mut Core, now: Time, from: WorkerId, body: PeerBody) {
        if !self.offers.handle(core, now, from, &body) {
            self.fetches.handle(core, now, from, body);
        }
    }

    fn peer_restarted(&mut self, core: &mut Core, now: Time, peer: WorkerId) {
        self.offers.reader_restarted(core, peer);
        self.fetches.owner_restarted(core, now, peer);
    }

    fn connected(&mut self, core: &mut Core, now: Time, peer: WorkerId) {
        self.fetches.connected(core, now, peer);
    }

    fn peer_lost(&mut self, core: &mut Core, now: Time, peer: WorkerId) {
        self.offers.reader_lost(core, peer);
        self.fetches.owner_lost(core, now, peer);
    }

    fn deals_with(&self, peer: WorkerId) -> bool {
        self.offers.deals_with(peer) || self.fetches.deals_with(peer)
    }

    fn transfer_ended(&mut self, core: &mut Core, now: Time, completion: Completion) {
        self.fetches.transfer_ended(core, now, &completion);
    }

    fn stood_still(&mut self, pause: Duration) {
        self.fetches.stood_still(pause);
    }

    fn tick(&mut self, core: &mut Core, now: Time) {
        self.offers.tick(core, now);
        self.fetches.tick(core, now);
    }

    fn next_deadline(&self, core: &Core) -> Option<Time> {
        [self.offers.next_deadline(core), self.fetches.next_deadline(core)].into_iter().flatten().min()
    }
}

/// Tokens that the client has already of the choice that got the most.
fn committed(submit: &Submit) -> u32 {
    submit.choices.iter().map(|(_, tokens)| tokens.len() as u32).max().unwrap_or(0)
}
