//! Submits: which attempts begin, and which are refused.

use super::Machine;
use crate::grammars::{CompiledFor, Readiness};
use crate::role::Refusal;
use crate::sessions::SessionId;
use crate::state::shares_prompt;
use domain::Time;
use domain::session::{Assignment, FromWorker, Submit};

impl Machine {
    /// Begins the attempt, or tells the router why not.
    pub(super) fn on_submit(&mut self, now: Time, session: SessionId, submit: Submit) {
        if let Some(session) = self.core.sessions.get_mut(session) {
            session.submitted();
        }
        let (request, epoch) = (submit.request, submit.epoch);
        let is_here = self.core.attempt(request, epoch).is_some() || self.core.grammars.has(request, epoch);
        if !self.core.draining && is_here {
            // The submit arrived twice.
            return;
        }
        if let Err(refusal) = self.judge(&submit) {
            return self.refuse(session, &submit, &refusal);
        }
        match self.core.grammars.take(session, submit) {
            Readiness::Ready(submit, grammar) => self.begin(now, session, submit, grammar),
            Readiness::Waits => {}
            Readiness::TooMany(submit) => self.refuse(session, &submit, &Refusal::TooManyGrammars),
        }
    }

    /// Begins the attempt that waited for its grammar, if it was not cancelled meanwhile.
    pub(super) fn on_compiled(&mut self, now: Time, CompiledFor { request, epoch, compiled }: CompiledFor) {
        let Some((session, submit)) = self.core.grammars.remove(request, epoch) else { return };
        match compiled {
            Ok(grammar) => self.begin(now, session, submit, Some(grammar)),
            Err(error) => self.refuse(session, &submit, &Refusal::NoGrammar(error)),
        }
    }

    /// Tells the router, and the worker that the attempt would take over from, why it is not begun.
    fn refuse(&mut self, session: SessionId, submit: &Submit, refusal: &Refusal) {
        let (request, epoch) = (submit.request, submit.epoch);
        if let Assignment::Decode { prefill: owner } | Assignment::TakeOver { from: owner } = submit.assignment {
            self.fetches.refuse(&mut self.core, owner, request, epoch);
        }
        let (why, detail) = (refusal.failure(), refusal.to_string());
        self.core.tell(session, &FromWorker::Failed { request, epoch, why, fault: None, detail });
    }

    /// Returns why the attempt is not begun here, if so.
    fn judge(&self, submit: &Submit) -> Result<(), Refusal> {
        if self.core.draining {
            return Err(Refusal::Draining);
        }
        if self.core.paused {
            return Err(Refusal::Paused);
        }
        self.check_limits(submit)?;
        self.role.judge(submit)?;
        match submit.assignment {
            Assignment::Prefill { .. } if !shares_prompt(submit) => Err(Refusal::ChoicesDiffer),
            _ => Ok(()),
        }
    }

    /// Checks that the attempt can be computed here. A router may not know how long a context this worker allows, or
    /// take its model for another one.
    fn check_limits(&self, submit: &Submit) -> Result<(), Refusal> {
        let (choices, running_max) = (submit.choices.len(), self.core.config.scheduler.running_max);
        if choices > running_max as usize {
            return Err(Refusal::TooManyChoices { choices, running_max });
        }
        if submit.adapter.as_ref().is_some_and(|adapter| !self.core.adapters.contains(adapter)) {
            return Err(Refusal::NoAdapter);
        }
        if submit.params.grammar.is_some() && !self.core.grammars.is_open() {
            return Err(Refusal::GrammarsUnknown);
        }
        let (prompt, context) = (submit.prompt.len(), self.device.limits().context_max);
        let made = match submit.assignment {
            Assignment::Prefill { .. } => {
                submit.choices.iter().map(|(_, committed)| committed.len()).max().unwrap_or(0)
            }
            Assignment::Decode { .. } | Assignment::TakeOver { .. } | Assignment::Whole => {
                submit.params.max_tokens as usize
            }
        };
        if prompt + made > context {
            return Err(Refusal::TooLong { prompt, made, context });
        }
        let vocab = self.device.vocab();
        let committed = submit.choices.iter().flat_map(|(_, committed)| committed.iter());
        match submit.prompt.iter().chain(committed).find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Refusal::ForeignToken { token, vocab }),
            None => Ok(()),
        }
    }
}
