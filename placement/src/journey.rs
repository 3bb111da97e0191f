//! One request from its arrival to its end: its attempt and the tokens of its choices. Knows nothing of other
//! requests, of workers' loads, or of what to do next; [`crate::Placement`] decides that.

use crate::cost::{Contexts, Decision, Route};
use crate::message::{Command, Usage};
use crate::requests_by_worker::InvolvedWorkers;
use crate::retry::{AttemptFailure, Standing};
use domain::planted_bugs::{self, Bug};
use domain::session::{Failure, TokenRow};
use domain::{BlockHash, Choice, End, Epoch, Request, Time, Token, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Rows of a choice that wait for an earlier one: a decode worker may be this far ahead of the prefill worker's first
/// token. One more, and the first token counts as lost: the attempt fails.
pub const EARLY_ROWS_MAX: usize = 256;

/// A request that is open.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) request: Arc<Request>,
    /// Identities of the prompt's full blocks.
    pub(crate) chain: Vec<BlockHash>,
    pub(crate) deadline: Time,
    /// Grows with each attempt; the first is 1.
    pub(crate) epoch: Epoch,
    pub(crate) attempt: Attempt,
    /// Attempts so far. A move to another worker is none, and neither is one that was refused.
    pub(crate) attempts: u32,
    /// The highest epoch given out.
    last_epoch: Epoch,
    /// Who is about to take the running sequence over, and under which epoch.
    pub(crate) moving: Option<(WorkerId, Epoch)>,
    /// Who it was taken over from, as long as tokens of it are missing.
    pub(crate) before: Option<(WorkerId, Epoch)>,
    /// Of the current attempt.
    pub(crate) decision: Decision,
    /// Lease duration of the current attempt.
    pub(crate) lease: Duration,
    /// A handoff came to nothing: the prompt is computed again only by a worker that has room to go on with it.
    pub(crate) lapsed: bool,
    /// Workers whose attempts failed.
    pub(crate) failed: Vec<WorkerId>,
    /// What an engine said that failed one.
    pub(crate) engine: Option<String>,
    /// Workers that refused the current attempt, each once, until it has begun or they take other work than they did.
    pub(crate) refused: Vec<WorkerId>,
    /// What one said that refused it for want of time, not of size.
    pub(crate) full: Option<String>,
    /// The workers that take part in it, as noted in [`RequestsByWorker`](crate::requests_by_worker::RequestsByWorker).
    pub(crate) involved: InvolvedWorkers,
    /// Blocks that a taker needs room for, while nobody takes it over for want of that.
    pub(crate) stuck: Option<u32>,
    sequences: Vec<Sequence>,
    cached_tokens: u32,
}

/// Who works on a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// `None`: the decode worker computes the prompt, or the prefill worker is gone and was not needed any more.
    pub(crate) prefill: Option<WorkerId>,
    pub(crate) decode: WorkerId,
    /// A token came from the decode worker: it needs the prefill worker no more.
    pub(crate) decode_started: bool,
}

impl Attempt {
    pub(crate) fn new(route: Route) -> Self {
        Self { prefill: route.prefill, decode: route.decode, decode_started: false }
    }

    pub(crate) fn has(&self, worker: WorkerId) -> bool {
        self.decode == worker || self.prefill == Some(worker)
    }
}

/// As what a worker works on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Involvement {
    /// In the current attempt.
    Current,
    /// It takes the running sequence over.
    Taker,
    /// It was taken over from; its last tokens may still come.
    Before,
}

/// One choice.
#[derive(Debug, Default)]
struct Sequence {
    /// Sent to the client.
    committed: Vec<Token>,
    /// Tokens committed before the current attempt.
    base: usize,
    /// Rows behind a gap, by index.
    early: BTreeMap<u32, TokenRow>,
    /// How it will end, and after how many tokens.
    ending: Option<(u32, End)>,
    end: Option<End>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was committed, and those that waited for it.
    Committed,
    /// It waits.
    Early,
    /// It was committed or waits already.
    Duplicate,
    /// Its sequence does not exist, or has ended before it.
    Stale,
    /// Too many wait.
    Overflow,
}

impl Journey {
    pub(crate) fn new(
        request: Arc<Request>,
        chain: Vec<BlockHash>,
        deadline: Time,
        lease: Duration,
        decision: Decision,
    ) -> Self {
        let sequences = (0..request.choices).map(|_| Sequence::default()).collect();
        Self {
            attempt: Attempt::new(decision.route),
            request,
            chain,
            deadline,
            epoch: Epoch(1),
            attempts: 1,
            last_epoch: Epoch(1),
            moving: None,
            before: None,
            decision,
            lease,
            lapsed: false,
            failed: Vec::new(),
            engine: None,
            refused: Vec::new(),
            full: None,
            involved: InvolvedWorkers::default(),
            stuck: None,
            sequences,
            cached_tokens: 0,
        }
    }

    /// Takes a row of the current epoch.
    pub(crate) fn take(&mut self, row: TokenRow, out: &mut Vec<Command>) -> Taken {
        let first = !self.emitted();
        let (choice, cached) = (row.key.choice, row.cached_tokens);
        let max = self.request.params.max_tokens;
        let Some(sequence) = self.sequences.get_mut(usize::from(choice.0)) else { return Taken::Stale };
        let last = sequence.ending.as_ref().map_or(max, |(tokens, _)| *tokens);
        let next = sequence.committed.len() as u32;
        if sequence.end.is_some() || row.index >= last.max(next) {
            return Taken::Stale;
        }
        if row.index < next && planted_bugs::is(Bug::TokenFrameReplayed) {
            out.push(Command::Token { request: self.request.id, choice, row });
            return Taken::Committed;
        }
        if row.index < next || sequence.early.contains_key(&row.index) {
            return Taken::Duplicate;
        }
        if row.index > next {
            if sequence.early.len() == EARLY_ROWS_MAX {
                return Taken::Overflow;
            }
            sequence.early.insert(row.index, row);
            return Taken::Early;
        }
        let mut row = Some(row);
        while let Some(ready) = row {
            sequence.committed.push(ready.token);
            out.push(Command::Token { request: self.request.id, choice, row: ready });
            row = sequence.early.remove(&(sequence.committed.len() as u32));
        }
        if first {
            self.cached_tokens = cached;
        }
        self.settle(choice, out);
        Taken::Committed
    }

    /// A choice ends regularly after `tokens` tokens; `false`: there is no such choice, or it ended already.
    pub(crate) fn ending(&mut self, choice: Choice, tokens: u32, end: End, out: &mut Vec<Command>) -> bool {
        let Some(sequence) = self.sequences.get_mut(usize::from(choice.0)) else { return false };
        if sequence.end.is_some() || sequence.ending.is_some() {
            return false;
        }
        sequence.early.retain(|&index, _| index < tokens);
        sequence.ending = Some((tokens, end));
        self.settle(choice, out);
        true
    }

    /// A choice ends now, whatever its workers still say; `false`: there is no such choice, or it ended already.
    pub(crate) fn end_choice(&mut self, choice: Choice, end: End, out: &mut Vec<Command>) -> bool {
        match self.sequences.get_mut(usize::from(choice.0)) {
            Some(sequence) if sequence.end.is_none() => {
                sequence.ending = Some((sequence.committed.len() as u32, end));
                self.settle(choice, out);
                true
            }
            _ => false,
        }
    }

    /// Forgets what the current attempt left unfinished.
    pub(crate) fn rewind(&mut self, out: &mut Vec<Command>) {
        self.end_implied(out);
        for sequence in &mut self.sequences {
            sequence.early.clear();
            sequence.ending = None;
            sequence.base = sequence.committed.len();
        }
    }

    /// A choice whose last committed token ends it has ended, even if the worker that should have said so is gone.
    pub(crate) fn end_implied(&mut self, out: &mut Vec<Command>) {
        let params = Arc::clone(&self.request.params);
        for choice in (0..self.request.choices).map(Choice) {
            let committed = &self.sequences[usize::from(choice.0)].committed;
            let end = match committed.last() {
                Some(token) if params.stop_tokens.contains(token) => End::stop(),
                Some(_) if committed.len() >= params.max_tokens as usize => End::length(),
                _ => continue,
            };
            self.end_choice(choice, end, out);
        }
    }

    /// Notes why the current attempt ended. Workers that refused a failed attempt may take the next one.
    pub(crate) fn note_failure(&mut self, failure: &AttemptFailure) {
        match failure.why {
            Some(Failure::Invalid | Failure::Deadline) => return,
            Some(Failure::TooLarge) => return self.refused.push(failure.worker),
            Some(Failure::QueueFull | Failure::Draining) => {
                self.full = Some(failure.detail.clone());
                return self.refused.push(failure.worker);
            }
            Some(Failure::HandoffLapsed | Failure::HandoffTimeout) => {
                self.lapsed = true;
                self.lease = self.lease.saturating_mul(2);
            }
            Some(Failure::Engine) => self.engine = Some(failure.detail.clone()),
            None => {}
        }
        self.failed.push(failure.worker);
        self.refused.clear();
        self.full = None;
    }

    /// Returns how far the request is, for the decision what follows a failure.
    pub(crate) fn standing(&self, attempts_max: u32) -> Standing<'_> {
        Standing {
            emitted: self.emitted(),
            attempts: self.attempts,
            attempts_max,
            refusals: self.refused.len(),
            full: self.full.as_deref(),
            engine: self.engine.as_deref(),
        }
    }

    /// Begins the next attempt, or the same one elsewhere.
    pub(crate) fn go_elsewhere(&mut self, decision: Decision) {
        self.epoch = self.next_epoch();
        self.attempts += u32::from(self.refused.is_empty() || planted_bugs::is(Bug::RefusalCounts));
        self.attempt = Attempt::new(decision.route);
        self.decision = decision;
        self.moving = None;
        self.before = None;
    }

    /// Notes that the decode worker works on the current attempt. Those that refused it before may take what follows.
    pub(crate) fn begun(&mut self) {
        self.attempt.decode_started = true;
        self.refused.clear();
        self.full = None;
    }

    fn next_epoch(&mut self) -> Epoch {
        self.last_epoch = Epoch(self.last_epoch.0 + 1);
        self.last_epoch
    }

    /// Returns as what a worker may speak under an epoch; `None`: what it says is stale.
    pub(crate) fn involvement(&self, worker: WorkerId, epoch: Epoch) -> Option<Involvement> {
        let stale = planted_bugs::is(Bug::StaleEpochTaken) && epoch < self.epoch;
        if (epoch == self.epoch || stale) && self.attempt.has(worker) {
            Some(Involvement::Current)
        } else if self.moving == Some((worker, epoch)) {
            Some(Involvement::Taker)
        } else if self.before == Some((worker, epoch)) {
            Some(Involvement::Before)
        } else {
            None
        }
    }

    /// Returns the workers that take part in it, and whether something of each is still to come, or to be read.
    pub(crate) fn involved_workers(&self) -> InvolvedWorkers {
        let Attempt { prefill, decode, decode_started } = self.attempt;
        let mut involved = InvolvedWorkers::default();
        let mut add = |worker: WorkerId, needed: bool| {
            let entry = involved.iter_mut().find(|entry| entry.is_none_or(|(other, _)| other == worker));
            if let Some(entry) = entry {
                *entry = Some((worker, needed || entry.is_some_and(|(_, needed)| needed)));
            }
        };
        add(decode, true);
        [self.moving, self.before].into_iter().flatten().for_each(|(worker, _)| add(worker, true));
        if let Some(prefill) = prefill {
            add(prefill, !decode_started || self.awaits_first());
        }
        involved
    }

    /// The running sequence is about to be taken over; the epoch for it.
    pub(crate) fn begin_move(&mut self, to: WorkerId) -> Epoch {
        let epoch = self.next_epoch();
        self.moving = Some((to, epoch));
        epoch
    }

    /// The taker said its first token.
    pub(crate) fn moved(&mut self) {
        if let Some((to, epoch)) = self.moving.take() {
            self.before = Some((self.attempt.decode, self.epoch));
            self.attempt = Attempt { prefill: None, decode: to, decode_started: true };
            self.epoch = epoch;
        }
    }

    /// Forgets who it was taken over from once no token of it is missing.
    pub(crate) fn settle_move(&mut self) {
        if self.sequences.iter().all(|sequence| sequence.early.is_empty()) {
            self.before = None;
        }
    }

    /// The one choice that is open, with the number of its committed tokens; `None`: there are several.
    pub(crate) fn only_choice(&self) -> Option<u32> {
        let mut open = self.open();
        let (_, sequence) = open.next()?;
        open.next().is_none().then_some(sequence.committed.len() as u32)
    }

    /// The choices that have not ended, with their committed tokens: what an attempt has to make.
    pub(crate) fn open_choices(&self) -> Vec<(Choice, Arc<[Token]>)> {
        self.open().map(|(choice, sequence)| (choice, sequence.committed.as_slice().into())).collect()
    }

    /// Input tokens of an attempt: the prompt, and what each open choice has committed.
    pub(crate) fn input_tokens(&self) -> u32 {
        let committed: usize = self.open().map(|(_, sequence)| sequence.committed.len()).sum();
        (self.request.prompt.len() + committed) as u32
    }

    /// Returns how long its sequences get: as the input of an attempt, and at the end.
    pub(crate) fn contexts(&self) -> Contexts {
        let committed = self.open().map(|(_, sequence)| sequence.committed.len()).max().unwrap_or(0);
        let prompt = self.request.prompt.len();
        Contexts {
            prefill: (prompt + committed) as u32,
            decode: (prompt as u32).saturating_add(self.request.params.max_tokens),
        }
    }

    /// Returns whether one offer can carry the inputs of all open choices, that is whether they are the same.
    pub(crate) fn one_input(&self) -> bool {
        let mut open = self.open().map(|(_, sequence)| sequence);
        open.clone().count() == 1 || open.all(|sequence| sequence.committed.is_empty())
    }

    /// Returns whether the first tokens of the attempt, which its prefill worker sends, are still missing.
    pub(crate) fn awaits_first(&self) -> bool {
        self.open().any(|(_, sequence)| sequence.committed.len() == sequence.base)
    }

    /// Returns whether the client has any token.
    pub(crate) fn emitted(&self) -> bool {
        self.sequences.iter().any(|sequence| !sequence.committed.is_empty())
    }

    /// Once every choice has ended: how the request did, which is how its choice 0 did.
    pub(crate) fn ended(&self) -> Option<End> {
        let all = self.sequences.iter().all(|sequence| sequence.end.is_some());
        self.sequences[0].end.clone().filter(|_| all)
    }

    /// Returns what it took so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.request.prompt.len() as u32,
            cached_tokens: self.cached_tokens,
            output_tokens: self.sequences.iter().map(|sequence| sequence.committed.len() as u32).sum(),
            attempts: self.attempts,
        }
    }

    fn open(&self) -> impl Iterator<Item = (Choice, &Sequence)> + Clone {
        let numbered = self.sequences.iter().enumerate();
        numbered
            .filter(|(_, sequence)| sequence.end.is_none())
            .map(|(number, sequence)| (Choice(number as u16), sequence))
    }

    /// Ends a choice whose tokens are all there.
    fn settle(&mut self, choice: Choice, out: &mut Vec<Command>) {
        let sequence = &mut self.sequences[usize::from(choice.0)];
        let all_there =
            sequence.ending.as_ref().is_some_and(|(tokens, _)| sequence.committed.len() >= *tokens as usize);
        if all_there && let Some((_, end)) = sequence.ending.take() {
            sequence.early.clear();
            sequence.end = Some(end.clone());
            out.push(Command::ChoiceEnd { request: self.request.id, choice, end });
        }
    }
}
