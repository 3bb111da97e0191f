//! The world: the workers and the messages between them. What may happen next, and what happens then.
//!
//! Workers have clocks of their own that nothing ties to each other: any of them may stand still or run ahead, so
//! a lease may lapse at any instant of its reader's work. Nothing but durations crosses between them.

use crate::action::{Action, Seen};
use crate::ghost::{Ended, Ghost};
use crate::network::Envelope;
use crate::process::{Event, LAYERS, Read, Slice, View};
use crate::scope::{ANY, FIRST, Faults, LATER, NEXT, NONE, OWNER, Scope, Source};
use crate::workers::{Edge, StateId, Workers};
use domain::handoff::PeerBody;
use domain::planted_bugs::{self, Bug};
use domain::{Incarnation, LeaseId, Token, WorkerId};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

/// The world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) scope: Scope,
    /// What may still go wrong, of all kinds together and of each.
    total: u8,
    left: Faults,
    /// The state of each worker.
    pub(crate) at: Vec<StateId>,
    pub(crate) network: Vec<Envelope>,
    /// What the router says, on its way.
    pub(crate) told: Vec<(WorkerId, Event)>,
    pub(crate) ghosts: Rc<Vec<Ghost>>,
    /// Of the ghosts.
    ghosts_digest: u64,
    /// What the last action, and what came at once of it, brought about.
    pub(crate) last: Last,
}

/// What an action, and what came at once of it, brought about.
#[derive(Clone, Default)]
pub(crate) struct Last {
    pub(crate) seen: Vec<(WorkerId, Seen)>,
    /// Answers to releases, with what they should be.
    pub(crate) answers: Vec<(LeaseId, Option<bool>, bool)>,
    /// Renewals, with whether their reader was told that the lease is over, and whether it should be.
    pub(crate) renewals: Vec<(LeaseId, bool, bool)>,
    /// What a worker read.
    pub(crate) read: Option<(WorkerId, Read, Token)>,
    pub(crate) broken: Option<String>,
}

impl World {
    pub(crate) fn new(scope: Scope, workers: &mut Workers) -> Self {
        let mut world = Self {
            scope,
            total: scope.total,
            left: scope.faults,
            at: scope.workers().map(|worker| workers.begin(worker, FIRST)).collect(),
            network: Vec::new(),
            told: Vec::new(),
            ghosts: Rc::default(),
            ghosts_digest: 0,
            last: Last::default(),
        };
        if scope.source == Source::Fetched {
            world.told.extend(scope.requests().map(|request| (OWNER, Event::Submit(request))));
        }
        world.told.extend(scope.requests().map(|request| (scope.reader(request), Event::Submit(request))));
        if !scope.faults.late_submits {
            std::mem::take(&mut world.told)
                .into_iter()
                .for_each(|(worker, said)| world.happen(worker, said, None, workers));
        }
        if !scope.source.is_computed() {
            world.told.push((OWNER, Event::Submit(NEXT)));
        }
        world
    }

    pub(crate) fn view<'a>(&self, worker: WorkerId, workers: &'a Workers) -> &'a View {
        workers.view(self.at[worker.0 as usize])
    }

    /// Everything that may happen now.
    pub(crate) fn actions(&self, workers: &mut Workers, actions: &mut Vec<Action>) {
        let left = self.left;
        for worker in self.scope.workers() {
            if self.wants_turn(worker, workers) {
                actions.push(Action::At(worker, Event::Turn));
            }
            let view = self.view(worker, workers);
            let mut may = |event: Event, holds: bool| {
                if holds {
                    actions.push(Action::At(worker, event));
                }
            };
            may(Event::Lapse, view.lapses);
            may(Event::WriteLayer, view.running.is_some_and(|layers| layers < LAYERS));
            may(Event::StepEnds, view.running == Some(LAYERS));
            may(Event::StepFails, view.running.is_some() && left.failed_steps > 0);
            may(Event::Tick, view.timed && left.ticks > 0);
            may(Event::TimeOut, view.timed && left.timeouts > 0);
            let cancelled = view.fetching.iter().filter(|_| self.scope.is_reader(worker));
            cancelled.for_each(|&request| may(Event::Cancel(request), left.cancels > 0));
            let peers = view.heard.keys().filter(|&&peer| worker == OWNER || peer == OWNER);
            peers.for_each(|&peer| may(Event::Lost(peer), left.cuts > 0));
            for (number, read) in (0..).zip(&view.reads) {
                may(Event::Quiesces(number), read.cancelled);
            }
            let reads = (0..).zip(&view.reads).filter(|(_, read)| self.can_read(read, workers));
            actions.extend(reads.map(|(number, _)| Action::Read(worker, number)));
            let crashes = if self.scope.is_reader(worker) { left.reader_crashes } else { left.owner_crashes };
            if crashes > 0 {
                actions.push(Action::Crash(worker));
            }
        }
        for (at, (worker, _)) in self.told.iter().enumerate() {
            // A session keeps the order.
            if self.told[..at].iter().all(|(of, _)| of != worker) {
                actions.push(Action::Told(at as u8));
            }
        }
        for at in (0..self.network.len() as u8).filter(|&at| left.reorders > 0 || !self.is_behind(at)) {
            actions.push(Action::Deliver(at));
            actions.extend((left.losses > 0).then_some(Action::Lose(at)));
            actions.extend((left.duplicates > 0).then_some(Action::Duplicate(at)));
        }
    }

    /// Whether a turn would do anything, and is not had by itself.
    pub(crate) fn wants_turn(&self, worker: WorkerId, workers: &mut Workers) -> bool {
        let at = self.at[worker.0 as usize];
        let may = self.left.late_turns || workers.is_first(at) || workers.view(at).overdue;
        may && workers.after(at, Event::Turn).to != at
    }

    /// Whether the next slice may be read: the owner's word lets it through. Reads of a memory that is gone fail
    /// at once.
    pub(crate) fn can_read(&self, read: &Read, workers: &Workers) -> bool {
        let owner = self.view(read.owner, workers);
        owner.life != read.life || owner.word >= read.next().gate
    }

    /// Whether an earlier message between the same two workers is under way.
    fn is_behind(&self, at: u8) -> bool {
        let (before, rest) = self.network.split_at(usize::from(at));
        let ends = |envelope: &Envelope| (envelope.message.from, envelope.to);
        before.iter().any(|envelope| ends(envelope) == ends(&rest[0]))
    }

    /// The action in a trace.
    pub(crate) fn describe(&self, action: Action) -> String {
        match action {
            Action::Deliver(at) => format!("deliver {}", self.network[usize::from(at)].describe()),
            Action::Lose(at) => format!("lose {}", self.network[usize::from(at)].describe()),
            Action::Duplicate(at) => format!("deliver a copy of {}", self.network[usize::from(at)].describe()),
            Action::Told(at) => format!("{:?}", self.told[usize::from(at)]),
            other => format!("{other:?}"),
        }
    }

    /// Lets it happen.
    pub(crate) fn apply(&mut self, action: Action, workers: &mut Workers) {
        self.last = Last::default();
        if let Action::Deliver(at) | Action::Lose(at) | Action::Duplicate(at) = action
            && self.left.reorders != ANY
            && self.is_behind(at)
        {
            self.spend(|left| &mut left.reorders);
        }
        match action {
            Action::At(worker, event) => {
                match event {
                    Event::StepFails => self.spend(|left| &mut left.failed_steps),
                    Event::Tick => self.spend(|left| &mut left.ticks),
                    Event::TimeOut => self.spend(|left| &mut left.timeouts),
                    Event::Cancel(_) => self.spend(|left| &mut left.cancels),
                    Event::Lost(_) => self.spend(|left| &mut left.cuts),
                    _ => {}
                }
                self.happen(worker, event, None, workers);
            }
            Action::Read(worker, number) => self.read(worker, number, workers),
            Action::Told(at) => {
                let (worker, said) = self.told.remove(usize::from(at));
                self.happen(worker, said, None, workers);
            }
            Action::Crash(worker) => self.crash(worker, workers),
            Action::Deliver(at) => {
                let envelope = self.network.remove(usize::from(at));
                self.deliver(&envelope, workers);
            }
            Action::Lose(at) => {
                self.spend(|left| &mut left.losses);
                drop(self.network.remove(usize::from(at)));
            }
            Action::Duplicate(at) => {
                self.spend(|left| &mut left.duplicates);
                let envelope = self.network[usize::from(at)].clone();
                self.deliver(&envelope, workers);
            }
        }
        // Whether a step may fail makes no difference to messages.
        let Faults { late_turns, late_submits, .. } = self.left;
        if (Faults { failed_steps: 0, ..self.left }) == (Faults { late_turns, late_submits, ..NONE }) {
            self.hurry(workers);
        }
        self.forget_what_changes_nothing(workers);
    }

    /// One thing less may go wrong. (On the way to quiescence, waits end without that.)
    fn spend(&mut self, kind: fn(&mut Faults) -> &mut u8) {
        let left = kind(&mut self.left);
        if *left > 0 && *left != ANY {
            *left -= 1;
            self.total -= 1;
            if self.total == 0 {
                let Faults { late_turns, late_submits, .. } = self.left;
                let reorders = if self.left.reorders == ANY { ANY } else { 0 };
                self.left = Faults { reorders, late_turns, late_submits, ..NONE };
            }
        }
    }

    fn crash(&mut self, worker: WorkerId, workers: &mut Workers) {
        let of_readers: fn(&mut Faults) -> &mut u8 = |left| &mut left.reader_crashes;
        self.spend(if self.scope.is_reader(worker) { of_readers } else { |left| &mut left.owner_crashes });
        let life = Incarnation(self.view(worker, workers).life.0 + 1);
        self.at[worker.0 as usize] = workers.begin(worker, life);
        let mut ghosts = Vec::clone(&self.ghosts);
        ghosts.iter_mut().filter(|ghost| ghost.owner == worker).for_each(|ghost| ghost.end(Ended::Crashed));
        self.ghosts_are(ghosts);
        self.told.retain(|&(of, _)| of != worker);
        let others = self.scope.workers().filter(|&of| (of == OWNER) != (worker == OWNER));
        self.told.extend(others.map(|of| (of, Event::Introduced(worker, life))));
        if worker == OWNER && self.scope.source.is_computed() {
            self.told.push((worker, Event::Submit(LATER)));
        }
    }

    fn read(&mut self, worker: WorkerId, number: u8, workers: &mut Workers) {
        let read = self.view(worker, workers).reads[usize::from(number)].clone();
        let owner = self.view(read.owner, workers);
        let Slice { from: (block, layer), .. } = read.next();
        let slice = (owner.life == read.life).then(|| owner.memory[block as usize][usize::from(layer)]);
        self.last.read = slice.map(|slice| (worker, read, slice));
        self.happen(worker, Event::Arrives { read: number, slice }, None, workers);
    }

    fn deliver(&mut self, envelope: &Envelope, workers: &mut Workers) {
        self.happen(envelope.to, Event::Message(envelope.number), Some(envelope), workers);
    }

    /// Something happens at a worker.
    fn happen(&mut self, worker: WorkerId, event: Event, message: Option<&Envelope>, workers: &mut Workers) {
        let at = self.at[worker.0 as usize];
        let edge = workers.after(at, event);
        self.note(workers.view(at), event, message, &edge);
        self.at[worker.0 as usize] = edge.to;
        self.network.extend_from_slice(&edge.sent);
        self.last.seen.extend(edge.seen.iter().map(|&seen| (worker, seen)));
        if let Some(broken) = &edge.broken {
            self.last.broken.get_or_insert_with(|| broken.clone());
        }
    }

    /// Brings the reference up to date with what happened to a worker.
    fn note(&mut self, view: &View, event: Event, message: Option<&Envelope>, edge: &Edge) {
        let View { worker, life, heard, .. } = view;
        let introduced = if let Event::Introduced(peer, life) = event { Some((peer, life)) } else { None };
        if message.is_none()
            && introduced.is_none()
            && edge.sent.is_empty()
            && edge.seen.is_empty()
            && edge.passed == [Duration::ZERO; 2]
        {
            return;
        }
        let mut ghosts = Vec::clone(&self.ghosts);
        let is_own = |ghost: &&mut Ghost| (ghost.owner, ghost.life) == (*worker, *life);
        let [before, after] = edge.passed;
        ghosts.iter_mut().filter(is_own).for_each(|ghost| ghost.pass(before));
        let said = message.filter(|envelope| envelope.message.to_incarnation.is_none_or(|to| to == *life));
        let said = said.map(|envelope| (envelope.message.from, envelope.message.from_incarnation));
        if let Some((peer, life)) = introduced.or(said)
            && heard.get(&peer).is_some_and(|known| *known < life)
        {
            let of_reader = ghosts.iter_mut().filter(is_own).filter(|ghost| ghost.reader == peer);
            of_reader.for_each(|ghost| ghost.end(Ended::Withdrawn));
        }
        if let Some(envelope) = message {
            let message = &*envelope.message;
            let (from, from_life) = (message.from, message.from_incarnation);
            let to_earlier = message.to_incarnation.is_some_and(|to| to != *life);
            let stale = to_earlier || heard.get(&from).is_some_and(|known| from_life < *known);
            let answer = edge.sent.iter().find_map(|sent| match sent.message.body {
                PeerBody::Released { lease, valid } if envelope.lease() == Some(lease) => Some(valid),
                _ => None,
            });
            let of_it = |ghost: &&mut Ghost| Some(ghost.lease) == envelope.lease() && !stale;
            let mut ghost = ghosts.iter_mut().filter(is_own).find(of_it);
            match (&message.body, &mut ghost) {
                // Another reader's lease is no matter of its sender.
                (_, Some(ghost)) if ghost.reader != from => {}
                (PeerBody::Release { lease }, ghost) => {
                    let right = ghost.as_mut().is_some_and(|ghost| ghost.released());
                    self.last.answers.push((*lease, answer, right));
                }
                (PeerBody::Renew { lease, ticks }, Some(ghost)) => {
                    let right = ghost.renewed(*ticks);
                    self.last.renewals.push((*lease, answer.is_some(), right));
                }
                (PeerBody::ReleaseAck { .. }, Some(ghost)) => ghost.acknowledged(),
                _ => {}
            }
        }
        for sent in &edge.sent {
            match &sent.message.body {
                PeerBody::Offer(offer) => ghosts.push(Ghost::granted(*worker, *life, sent.to, offer)),
                PeerBody::Withdraw { lease } => {
                    let withdrawn = ghosts.iter_mut().filter(is_own).filter(|ghost| ghost.lease == *lease);
                    withdrawn.for_each(|ghost| ghost.end(Ended::Withdrawn));
                }
                _ => {}
            }
        }
        for seen in &edge.seen {
            if let Seen::Wrote { request } = seen {
                let written = ghosts.iter_mut().filter(is_own).filter(|ghost| ghost.request == *request);
                written.for_each(|ghost| ghost.written = true);
            }
        }
        ghosts.iter_mut().filter(is_own).for_each(|ghost| ghost.pass(after));
        self.ghosts_are(ghosts);
    }

    fn ghosts_are(&mut self, ghosts: Vec<Ghost>) {
        let mut hasher = DefaultHasher::new();
        ghosts.hash(&mut hasher);
        (self.ghosts, self.ghosts_digest) = (Rc::new(ghosts), hasher.finish());
    }

    /// Where nothing can go wrong any more, some messages may come at once: whenever they come, the receiver does
    /// the same, and nothing that could happen before is hindered by it. Not a release or a renewal, which race
    /// with the owner's time, nor an ask, which races with the next use of the block, and neither a withdrawal nor
    /// the answer to a renewal that came too late, which race with reads that were posted.
    fn hurry(&mut self, workers: &mut Workers) {
        loop {
            let sure = |at: &usize| {
                let envelope = &self.network[*at];
                match envelope.message.body {
                    PeerBody::Withdraw { .. } | PeerBody::Released { valid: false, .. } => {
                        self.view(envelope.to, workers).reads.is_empty()
                    }
                    PeerBody::Offer(_) | PeerBody::Written { .. } | PeerBody::Complete { .. } => true,
                    PeerBody::Released { valid: true, .. } | PeerBody::ReleaseAck { .. } => true,
                    PeerBody::Decline { .. } | PeerBody::Queued { .. } => true,
                    PeerBody::Expect { .. } | PeerBody::Renew { .. } | PeerBody::Release { .. } => false,
                    PeerBody::Ask(_) => false,
                }
            };
            let mut places = 0..self.network.len();
            let Some(at) = places.find(|at| sure(at) && !self.is_behind(*at as u8)) else { return };
            let envelope = self.network.remove(at);
            self.deliver(&envelope, workers);
        }
    }

    /// Takes messages out that can change nothing any more, whenever they arrive: without them, states that differ in
    /// nothing else are one.
    fn forget_what_changes_nothing(&mut self, workers: &mut Workers) {
        let mut at = 0;
        while at < self.network.len() {
            if self.changes_nothing(&self.network[at], workers) {
                self.network.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn changes_nothing(&self, envelope: &Envelope, workers: &mut Workers) -> bool {
        let (message, state) = (&*envelope.message, self.at[envelope.to.0 as usize]);
        let View { life, heard, .. } = workers.view(state);
        // Lives only grow: what is stale stays so.
        let stale = message.to_incarnation.is_some_and(|to| to != *life)
            || heard.get(&message.from).is_some_and(|known| message.from_incarnation < *known);
        match message.body {
            // These are answered all the same.
            PeerBody::Release { .. } | PeerBody::Renew { .. } | PeerBody::Ask(_) => false,
            _ if stale && !planted_bugs::is(Bug::NoIncarnationCheck) => true,
            PeerBody::Written { .. }
            | PeerBody::Complete { .. }
            | PeerBody::Withdraw { .. }
            | PeerBody::ReleaseAck { .. } => {
                let offers = self.network.iter().filter(|of| matches!(of.message.body, PeerBody::Offer(_)));
                let mut of_it = offers.filter(|of| (of.to, of.lease()) == (envelope.to, envelope.lease()));
                let edge = workers.after(state, Event::Message(envelope.number));
                of_it.next().is_none() && edge.to == state && edge.sent.is_empty()
            }
            _ => false,
        }
    }

    /// Tells states apart.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.total, self.left, &self.at, &self.told, self.ghosts_digest).hash(&mut hasher);
        let mut messages: Vec<_> = self.network.iter().map(|envelope| (envelope.to, envelope.number)).collect();
        // Where there is no order among messages, none is hashed.
        if self.left.reorders == ANY {
            messages.sort_unstable();
        }
        messages.hash(&mut hasher);
        hasher.finish()
    }

    /// Nothing is under way and nobody waits for anything.
    pub(crate) fn is_quiet(&self, workers: &Workers) -> bool {
        let quiet = |worker| self.view(worker, workers).quiet;
        self.network.is_empty() && self.told.is_empty() && self.scope.workers().all(quiet)
    }
}
