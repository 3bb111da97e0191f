//! Attempts: what the router asked of this worker and has not ended.

use crate::sessions::{SessionId, Sessions};
use domain::session::Submit;
use domain::{BlockHash, Choice, Epoch, RequestId, Scope, SeqKey, Time, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An attempt at a request, on this worker.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Whose it is.
    pub session: SessionId,
    /// What the router said.
    pub submit: Submit,
    /// When it arrived.
    pub arrived: Time,
    /// The client's deadline.
    pub deadline: Time,
    /// Choices that have not ended.
    pub live: Vec<Choice>,
    /// What identities of its blocks are derived under.
    pub(crate) scope: Scope,
    /// Identities of the full blocks of its prompt.
    pub(crate) chain: Arc<Vec<BlockHash>>,
}

/// All open attempts, with their deadlines.
#[derive(Default)]
pub(crate) struct Attempts {
    open: BTreeMap<(RequestId, Epoch), Attempt>,
    deadlines: BTreeSet<(Time, RequestId, Epoch)>,
}

impl Attempts {
    /// Opens an attempt that is not open.
    pub(crate) fn open(&mut self, now: Time, session: SessionId, submit: Submit, scope: Scope, block_tokens: u32) {
        let id = (submit.request, submit.epoch);
        let deadline = now + submit.deadline;
        let live = submit.choices.iter().map(|&(choice, _)| choice).collect();
        self.deadlines.insert((deadline, id.0, id.1));
        let mut chain = Vec::with_capacity(submit.prompt.len() / block_tokens as usize);
        scope.extend_chain(&mut chain, &submit.prompt, block_tokens);
        let chain = Arc::new(chain);
        let before = self.open.insert(id, Attempt { session, submit, arrived: now, deadline, live, scope, chain });
        debug_assert!(before.is_none(), "the machine ignores a submit that arrives twice");
    }

    /// Sequences of all that are open.
    pub(crate) fn live_choices(&self) -> u32 {
        self.open.values().map(|attempt| attempt.live.len() as u32).sum()
    }

    pub(crate) fn get(&self, request: RequestId, epoch: Epoch) -> Option<&Attempt> {
        self.open.get(&(request, epoch))
    }

    /// Returns whether the outbox of the sequence's router is full, so that the sequence makes no tokens.
    pub(crate) fn is_held(&self, sessions: &Sessions, key: SeqKey) -> bool {
        self.get(key.request, key.epoch).is_some_and(|attempt| sessions.is_full(attempt.session))
    }

    /// Takes a choice off the attempt; `None`: it was not live. `Some(true)`: it was the last.
    pub(crate) fn choice_ended(&mut self, request: RequestId, epoch: Epoch, choice: Choice) -> Option<bool> {
        let attempt = self.open.get_mut(&(request, epoch))?;
        let at = attempt.live.iter().position(|&live| live == choice)?;
        attempt.live.remove(at);
        Some(attempt.live.is_empty())
    }

    /// Of the choices that got a first token those that are still wanted; from now on the attempt is about these alone.
    /// The others ended with their first token, or were cancelled while the prompt was on its way.
    pub(crate) fn go_on(
        &mut self,
        request: RequestId,
        epoch: Epoch,
        first: &[(Choice, Token)],
    ) -> Vec<(Choice, Token)> {
        let Some(attempt) = self.open.get_mut(&(request, epoch)) else { return Vec::new() };
        let first_of = |choice: Choice| first.iter().find(|&&(of, _)| of == choice).copied();
        let wanted: Vec<_> = attempt.live.iter().filter_map(|&choice| first_of(choice)).collect();
        attempt.live = wanted.iter().map(|&(choice, _)| choice).collect();
        if wanted.is_empty() {
            self.close(request, epoch);
        }
        wanted
    }

    pub(crate) fn close(&mut self, request: RequestId, epoch: Epoch) -> Option<Attempt> {
        let attempt = self.open.remove(&(request, epoch))?;
        self.deadlines.remove(&(attempt.deadline, request, epoch));
        Some(attempt)
    }

    /// One attempt whose deadline has passed.
    pub(crate) fn overdue(&self, now: Time) -> Option<(RequestId, Epoch)> {
        self.deadlines.first().filter(|&&(deadline, ..)| deadline <= now).map(|&(_, request, epoch)| (request, epoch))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, ..)| deadline)
    }

    /// Those that pass the test.
    pub(crate) fn ids(&self, of: impl Fn(&Attempt) -> bool) -> Vec<(RequestId, Epoch)> {
        self.open.iter().filter(|(_, attempt)| of(attempt)).map(|(&id, _)| id).collect()
    }

    /// All.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, Epoch, &Attempt)> {
        self.open.iter().map(|(&(request, epoch), attempt)| (request, epoch, attempt))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
