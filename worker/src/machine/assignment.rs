//! What happens to an attempt after its submit: it follows from its [`Assignment`], whatever the role of the worker is
//! by then.
//!
//! | assignment | begins with | when its prompt is admitted | when its prompt is computed |
//! | --- | --- | --- | --- |
//! | `Prefill` | its prompt, queued | offered to the decode worker | handed off, and forgotten |
//! | `Whole` | its prompt, queued | | decoded |
//! | `Decode` | a fetch of the prompt | | decoded, once fetched |
//! | `TakeOver` | a fetch of the sequence | | decoded, once fetched |

use super::Machine;
use crate::migration;
use crate::offers::Taker;
use crate::sessions::SessionId;
use domain::session::{Assignment, Failure, Migrate, Submit};
use domain::{Choice, Epoch, RequestId, SeqKey, Time, Token};
use engine::grammar::CompiledGrammar;
use std::sync::Arc;

impl Machine {
    /// Opens an attempt, and queues its prompt or expects an offer of it.
    /// `grammar`: of the submit, compiled.
    pub(super) fn begin(
        &mut self,
        now: Time,
        session: SessionId,
        submit: Submit,
        grammar: Option<Arc<CompiledGrammar>>,
    ) {
        let (core, fetches) = (&mut self.core, &mut self.fetches);
        let (request, epoch, assignment) = (submit.request, submit.epoch, submit.assignment);
        core.open(now, session, submit.clone(), grammar);
        match assignment {
            Assignment::Prefill { decode } => {
                // The workers connect while the prompt waits, so that its offer does not wait for a connection.
                core.transport.connect(decode);
                fetches.queue(core, now, request, epoch);
            }
            Assignment::Whole => fetches.queue(core, now, request, epoch),
            Assignment::Decode { prefill: owner } | Assignment::TakeOver { from: owner } => {
                let key = core.expect(now, &submit);
                fetches.expect(core, now, key, owner, matches!(assignment, Assignment::TakeOver { .. }));
            }
        }
    }

    /// Offers a prompt that got its blocks, if it is to be handed off. The offer is sent before the first step of the
    /// prompt, so that the reader can follow layer by layer.
    pub(super) fn offer_prompt(&mut self, now: Time, key: SeqKey) {
        let core = &mut self.core;
        let Some(attempt) = core.attempt(key.request, key.epoch) else { return };
        let Assignment::Prefill { decode } = attempt.submit.assignment else { return };
        let known = committed(&attempt.submit);
        if attempt.submit.params.max_tokens <= known + 1 {
            // The first token is the last one, so there is nothing to take over.
            return;
        }
        let Some(tokens) = core.sequence(key).map(|sequence| sequence.tokens.len() as u32) else { return };
        let taker = Taker { to: decode, epoch: key.epoch, lease: attempt.submit.lease, tokens, known };
        if !self.offers.begin(core, now, key, taker) {
            self.fail_attempt(now, key.request, key.epoch, Failure::HandoffLapsed, "too many leases are open");
        }
    }

    /// Hands a prompt off that is computed, or decodes on from it. Its first tokens have been sent to the router; those
    /// of choices that go on are in `first`.
    pub(super) fn finish_prompt(&mut self, key: SeqKey, first: Vec<(Choice, Token)>) {
        let core = &mut self.core;
        let assignment = core.attempt(key.request, key.epoch).map(|attempt| attempt.submit.assignment);
        match assignment {
            Some(Assignment::Whole | Assignment::Decode { .. } | Assignment::TakeOver { .. }) => {
                core.start(key, &first)
            }
            // `None`: its first tokens ended the attempt. A reader that was offered the prompt still needs the end.
            Some(Assignment::Prefill { .. }) | None => {
                self.offers.complete(core, key, Vec::new(), first);
                // The lease keeps the blocks for the reader. Nothing else is left to do here.
                core.forget(key.request, key.epoch);
                core.close(key);
            }
        }
    }

    /// Offers a running sequence to another worker, as a router asks. If it cannot move, its attempt fails, and the
    /// router replays it elsewhere.
    pub(super) fn on_migrate(&mut self, now: Time, migrate: Migrate) {
        if let Err(error) = migration::begin(&mut self.offers, &mut self.core, now, migrate) {
            let why = error.failure(self.core.draining);
            self.fail_attempt(now, migrate.request, migrate.epoch, why, &error.to_string());
        }
    }

    /// Closes an attempt that its router does not need any more.
    pub(super) fn on_cancel(&mut self, now: Time, request: RequestId, epoch: Epoch) {
        self.core.grammars.remove(request, epoch);
        if self.core.forget(request, epoch).is_some() {
            self.end_transfers(now, request, epoch);
        }
    }

    /// Closes an attempt irregularly and tells its router why.
    pub(super) fn fail_attempt(&mut self, now: Time, request: RequestId, epoch: Epoch, why: Failure, detail: &str) {
        self.core.fail(request, epoch, why, detail);
        self.end_transfers(now, request, epoch);
    }

    /// Cancels the fetch of an attempt that is over, and withdraws its offers.
    fn end_transfers(&mut self, now: Time, request: RequestId, epoch: Epoch) {
        self.fetches.cancel(&mut self.core, now, request, epoch);
        self.offers.withdraw_all(&mut self.core, request, epoch);
    }
}

/// Returns how many tokens the client has already, of the choice that got the most.
fn committed(submit: &Submit) -> u32 {
    submit.choices.iter().map(|(_, tokens)| tokens.len() as u32).max().unwrap_or(0)
}
