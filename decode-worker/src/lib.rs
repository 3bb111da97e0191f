//! The decode worker: takes prompts over from prefill workers, or computes them itself where that is faster, and makes
//! the tokens.
//!
//! What is deliberately absent: deciding which prompts to compute here. That is placement's.
#![forbid(unsafe_code)]

use domain::handoff::PeerBody;
use domain::session::{Failure, Part, Submit};
use domain::{Choice, Epoch, RequestId, SeqKey, StepId, Time, Token, WorkerId};
use scheduler::Work;
use transport::Completion;
use worker::{Core, Fetches, Role};

/// The role of a decode worker.
#[derive(Default)]
pub struct Decode {
    fetches: Fetches,
}

impl Role for Decode {
    fn submitted(&mut self, core: &mut Core, now: Time, submit: Submit) {
        let (request, epoch, part) = (submit.request, submit.epoch, submit.part);
        core.open(now, submit.clone());
        match part {
            Part::Whole => core.queue(now, request, epoch),
            Part::Decode { prefill } | Part::TakeOver { from: prefill } => {
                let key = core.expect(now, &submit);
                self.fetches.expect(core, now, key, prefill);
            }
            Part::Prefill { .. } => {
                core.fail(request, epoch, Failure::Engine, "a decode worker does not compute prompts for others");
            }
        }
    }

    fn cancelled(&mut self, core: &mut Core, now: Time, request: RequestId, epoch: Epoch) {
        self.fetches.cancel(core, now, request, epoch);
    }

    fn admitted(&mut self, _core: &mut Core, _now: Time, _key: SeqKey) {}

    fn planned(&mut self, _core: &mut Core, _now: Time, _step: StepId, _work: &[Work]) {}

    fn prompt_ended(&mut self, core: &mut Core, _now: Time, key: SeqKey, first: Vec<(Choice, Token)>) {
        core.start(key, &first);
    }

    fn step_failed(&mut self, _core: &mut Core, _now: Time, _work: &[Work]) {}

    fn peer(&mut self, core: &mut Core, now: Time, from: WorkerId, body: PeerBody) {
        self.fetches.handle(core, now, from, body);
    }

    fn peer_restarted(&mut self, core: &mut Core, now: Time, peer: WorkerId) {
        self.fetches.owner_restarted(core, now, peer);
    }

    fn transfer_ended(&mut self, core: &mut Core, now: Time, completion: Completion) {
        self.fetches.transfer_ended(core, now, &completion);
    }

    fn tick(&mut self, core: &mut Core, now: Time) {
        self.fetches.tick(core, now);
    }

    fn next_deadline(&self, core: &Core) -> Option<Time> {
        self.fetches.next_deadline(core)
    }
}
