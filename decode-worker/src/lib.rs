#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod migration;
#[cfg(test)]
mod tests;

use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, Migrate, Submit};
use domain::{Choice, Epoch, RequestId, SeqKey, StepId, Time, Token, WorkerId};
use scheduler::Work;
use std::time::Duration;
use transport::Completion;
use worker::{Core, Fetches, Offers, Role, SessionId};

/// The role of a decode worker.
#[derive(Default)]
pub struct Decode {
    /// What it takes over, and beginnings of prompts.
    fetches: Fetches,
    /// What it hands over, and cached blocks that others asked for.
    offers: Offers,
}

impl Decode {
    /// Returns what it takes over, for tests and reports.
    pub fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// Returns what it hands over, for tests and reports.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }
}

impl Role for Decode {
    fn submitted(&mut self, core: &mut Core, now: Time, session: SessionId, submit: Submit) {
        let (request, epoch, part) = (submit.request, submit.epoch, submit.part);
        core.open(now, session, submit.clone());
        match part {
            Assignment::Whole => self.fetches.queue(core, now, request, epoch),
            Assignment::Decode { prefill: owner } | Assignment::TakeOver { from: owner } => {
                let key = core.expect(now, &submit);
                self.fetches.expect(core, now, key, owner, matches!(part, Assignment::TakeOver { .. }));
            }
            Assignment::Prefill { .. } => {
                core.fail(request, epoch, Failure::Engine, "a decode worker does not compute prompts for others");
            }
        }
    }

    fn migrate(&mut self, core: &mut Core, now: Time, migrate: Migrate) {
        if let Err(why) = migration::begin(&mut self.offers, core, now, migrate) {
            core.fail(migrate.request, migrate.epoch, Failure::Draining, why);
            self.cancelled(core, now, migrate.request, migrate.epoch);
        }
    }

    fn cancelled(&mut self, core: &mut Core, now: Time, request: RequestId, epoch: Epoch) {
        self.fetches.cancel(core, now, request, epoch);
        self.offers.withdraw_all(core, request, epoch);
    }

    fn admitted(&mut self, _core: &mut Core, _now: Time, _key: SeqKey) {}

    fn room_given(&mut self, core: &mut Core, now: Time, key: SeqKey, cached_tokens: u32) {
        self.fetches.room_given(core, now, key, cached_tokens);
    }

    fn planned(&mut self, core: &mut Core, _now: Time, step: StepId, work: &[Work]) {
        for work in work {
            self.offers.writes(core, step, work.key, work.start + work.count);
        }
    }

    fn prompt_ended(&mut self, core: &mut Core, _now: Time, key: SeqKey, first: Vec<(Choice, Token)>) {
        core.start(key, &first);
    }

    fn appended(&mut self, core: &mut Core, _now: Time, key: SeqKey) {
        migration::appended(&mut self.offers, core, key);
    }

    fn preempted(&mut self, core: &mut Core, _now: Time, key: SeqKey) {
        self.offers.withdraw(core, key);
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
