//! Attempts: what routers asked of this worker and what has not ended.

use crate::sessions::{SessionId, Sessions};
use crate::timed::Timed;
use domain::session::Submit;
use domain::{BlockHash, Choice, Epoch, RequestId, Scope, SeqKey, Time, Token};
use engine::grammar::CompiledGrammar;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An attempt at a request, on this worker.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The session that it was submitted over.
    pub session: SessionId,
    /// What the router submitted.
    pub submit: Submit,
    /// When it arrived.
    pub arrived: Time,
    /// The client's deadline.
    pub deadline: Time,
    /// Choices that have not ended.
    pub live: Vec<Choice>,
    /// The scope that identities of its blocks are derived under.
    pub(crate) scope: Scope,
    /// Identities of the full blocks of its prompt.
    pub(crate) chain: Arc<Vec<BlockHash>>,
    /// What its outputs have to be texts of, if not any.
    pub(crate) grammar: Option<Arc<CompiledGrammar>>,
    /// What took time, if anybody wants to know.
    timed: Option<Box<Timed>>,
}

/// All open attempts, with their deadlines.
#[derive(Default)]
pub(crate) struct Attempts {
    open: BTreeMap<(RequestId, Epoch), Attempt>,
    deadlines: BTreeSet<(Time, RequestId, Epoch)>,
}

impl Attempts {
    /// Opens an attempt that is not open.
    pub(crate) fn open(
        &mut self,
        now: Time,
        session: SessionId,
        submit: Submit,
        scope: Scope,
        block_tokens: u32,
        timed: Option<Box<Timed>>,
    ) {
        let id = (submit.request, submit.epoch);
        let deadline = now + submit.deadline;
        let live = submit.choices.iter().map(|&(choice, _)| choice).collect();
        self.deadlines.insert((deadline, id.0, id.1));
        let mut chain = Vec::with_capacity(submit.prompt.len() / block_tokens as usize);
        scope.extend_chain(&mut chain, &submit.prompt, block_tokens);
        let chain = Arc::new(chain);
        let before = self
            .open
            .insert(id, Attempt { session, submit, arrived: now, deadline, live, scope, chain, grammar: None, timed });
        debug_assert!(before.is_none(), "the machine ignores a submit that arrives twice");
    }

    /// Keeps the outputs of an open attempt to a grammar. Sequences that it has by then are not.
    pub(crate) fn keep_to(&mut self, request: RequestId, epoch: Epoch, grammar: Arc<CompiledGrammar>) {
        if let Some(attempt) = self.get_mut(request, epoch) {
            attempt.grammar = Some(grammar);
        }
    }

    /// Returns how many sequences all open attempts have.
    pub(crate) fn live_choices(&self) -> u32 {
        self.open.values().map(|attempt| attempt.live.len() as u32).sum()
    }

    pub(crate) fn get(&self, request: RequestId, epoch: Epoch) -> Option<&Attempt> {
        self.open.get(&(request, epoch))
    }

    fn get_mut(&mut self, request: RequestId, epoch: Epoch) -> Option<&mut Attempt> {
        self.open.get_mut(&(request, epoch))
    }

    /// Returns the phases of an open attempt, if it is timed.
    pub(crate) fn timed(&mut self, request: RequestId, epoch: Epoch) -> Option<&mut Timed> {
        self.get_mut(request, epoch)?.timed.as_deref_mut()
    }

    /// Takes the phases of an open attempt, which is timed no more.
    pub(crate) fn take_timed(&mut self, request: RequestId, epoch: Epoch) -> Option<Box<Timed>> {
        self.get_mut(request, epoch)?.timed.take()
    }

    /// Returns whether the outbox of the sequence's router is full, so that the sequence makes no tokens.
    pub(crate) fn is_held(&self, sessions: &Sessions, key: SeqKey) -> bool {
        self.get(key.request, key.epoch).is_some_and(|attempt| sessions.is_full(attempt.session))
    }

    /// Ends a choice of the attempt. `Some(true)`: it was the last live one. `None`: it was not live.
    pub(crate) fn choice_ended(&mut self, request: RequestId, epoch: Epoch, choice: Choice) -> Option<bool> {
        let attempt = self.open.get_mut(&(request, epoch))?;
        let at = attempt.live.iter().position(|&live| live == choice)?;
        attempt.live.remove(at);
        Some(attempt.live.is_empty())
    }

    /// Restricts the attempt to choices that go on from a first token, and returns them: if there are none, the attempt
    /// is to be closed. The others ended with their first token, or were cancelled while the prompt was fetched or
    /// computed.
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
        wanted
    }

    pub(crate) fn close(&mut self, request: RequestId, epoch: Epoch) -> Option<Attempt> {
        let attempt = self.open.remove(&(request, epoch))?;
        self.deadlines.remove(&(attempt.deadline, request, epoch));
        Some(attempt)
    }

    /// Returns an attempt whose deadline has passed.
    pub(crate) fn overdue(&self, now: Time) -> Option<(RequestId, Epoch)> {
        self.deadlines.first().filter(|&&(deadline, ..)| deadline <= now).map(|&(_, request, epoch)| (request, epoch))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, ..)| deadline)
    }

    /// Returns the attempts that pass the test.
    pub(crate) fn ids(&self, of: impl Fn(&Attempt) -> bool) -> Vec<(RequestId, Epoch)> {
        self.open.iter().filter(|(_, attempt)| of(attempt)).map(|(&id, _)| id).collect()
    }

    /// Returns all open attempts.
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
