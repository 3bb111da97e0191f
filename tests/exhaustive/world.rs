//! The world: an owner, its readers, and the messages between them. What may happen next, and what happens then.
//!
//! Owner and ranks have clocks of their own that nothing ties to each other: any of them may stand still or run ahead, so
//! a lease may lapse at any instant of its reader's work. Nothing but durations crosses between them.

use crate::action::{Action, Seen};
use crate::ghost::{Ended, Ghost};
use crate::network::Envelope;
use crate::owner::{OWNER, Owner, PROMPT, Stage, TENANT};
use crate::rank::{Outputs, Rank};
use crate::scope::{ANY, Faults, NONE, Scope, Source};
use domain::handoff::{Ask, PeerBody};
use domain::{Epoch, Incarnation, LeaseId, RequestId, Time, WorkerId};
use kv_manager::{FetchState, Heard, Incarnations};
use std::rc::Rc;
use std::time::Duration;

/// Layer slices of the block.
pub(crate) const LAYERS: u16 = 2;
/// Readers of a scope, and ranks of a reader, at most.
pub(crate) const READERS_MAX: usize = 2;
pub(crate) const RANKS_MAX: usize = 2;
/// How long a lease lives without renewal.
pub(crate) const LEASE: Duration = Duration::from_millis(30);
/// How long a rank waits for anything. Longer than two of its timers' intervals.
pub(crate) const WAIT: Duration = Duration::from_millis(25);

/// The worker that a rank belongs to.
pub(crate) fn reader_of(rank: u8, ranks: u8) -> WorkerId {
    WorkerId(1 + u32::from(rank / ranks))
}

/// A reader's process.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) life: Incarnation,
    pub(crate) lives: Incarnations,
}

/// The world. Its parts are shared with the states it came from until they change.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) scope: Scope,
    /// What may still go wrong, of all kinds together and of each.
    pub(crate) total: u8,
    pub(crate) left: Faults,
    pub(crate) owner: Rc<Owner>,
    pub(crate) readers: Rc<Vec<Reader>>,
    pub(crate) ranks: Vec<Rc<Rank>>,
    pub(crate) network: Vec<Envelope>,
    pub(crate) ghosts: Rc<Vec<Ghost>>,
    /// What the last action, and what came at once of it, brought about.
    pub(crate) seen: Vec<Seen>,
    /// Answers that the last action gave, with what the reference says that they should be.
    pub(crate) answers: Vec<(LeaseId, bool, bool)>,
}

impl World {
    pub(crate) fn new(scope: Scope) -> Self {
        let reader = || Reader { life: Incarnation(1), lives: Incarnations::new(Incarnation(1)) };
        let asks = scope.source == Source::Cached;
        let mut world = Self {
            scope,
            total: scope.total,
            left: scope.faults,
            owner: Rc::new(Owner::new(Incarnation(1), Time::ZERO, scope.source)),
            readers: Rc::new((0..scope.readers).map(|_| reader()).collect()),
            ranks: (0..scope.readers * scope.ranks).map(|number| Rc::new(Rank::new(number, asks))).collect(),
            network: Vec::new(),
            ghosts: Rc::default(),
            seen: Vec::new(),
            answers: Vec::new(),
        };
        if asks {
            world.ask();
        }
        world
    }

    /// Every rank asks the owner, whose life its reader was told.
    fn ask(&mut self) {
        let readers = Rc::make_mut(&mut self.readers);
        readers.iter_mut().for_each(|reader| assert_eq!(reader.lives.learn(OWNER, Incarnation(1)), Heard::Current));
        for number in 0..self.ranks.len() as u8 {
            let (request, epoch) = (RequestId(1), Epoch(1));
            let (wait, tenant) = (Duration::ZERO, TENANT);
            let ask = Ask { request, epoch, lease: LEASE, wait, tenant, chain: vec![PROMPT] };
            self.rank(number, |rank, out| out.send(rank, PeerBody::Ask(ask)));
        }
    }

    /// Everything that may happen now.
    pub(crate) fn actions(&self, actions: &mut Vec<Action>) {
        let (owner, left) = (&self.owner, &self.left);
        let mut may = |action: Action, holds: bool| {
            if holds {
                actions.push(action);
            }
        };
        may(Action::OwnerGoesOn, owner.can_go_on());
        may(Action::StepFails, left.failed_steps > 0 && matches!(owner.prompt, Stage::Running(_)));
        may(Action::OwnerClock, owner.kv.next_deadline().is_some_and(|at| at > owner.now));
        may(Action::OwnerExpires, owner.is_overdue());
        may(Action::OwnerCrashes, left.owner_crashes > 0 && owner.prompt != Stage::Waiting);
        for reader in 0..self.scope.readers {
            let of = |rank: &&Rc<Rank>| rank.number / self.scope.ranks == reader;
            let begun = |rank: &Rc<Rank>| rank.lease.is_some() || rank.asks && rank.fetch.is_some();
            let begun = self.ranks.iter().filter(of).any(begun);
            may(Action::ReaderCrashes(reader), left.reader_crashes > 0 && begun);
        }
        for at in 0..self.network.len() as u8 {
            if !self.may_come(at) {
                continue;
            }
            may(Action::Deliver(at), true);
            may(Action::Lose(at), left.losses > 0);
            may(Action::Duplicate(at), left.duplicates > 0);
        }
        for rank in &self.ranks {
            let number = rank.number;
            may(Action::GiveRoom(number), rank.wants_room);
            for layer in 0..LAYERS {
                may(Action::ReadSlice(number, layer), rank.can_read(layer, owner.life, owner.word));
            }
            may(Action::Quiesce(number), rank.reads.is_some_and(|reads| reads.cancelled));
            may(Action::Tick(number), left.ticks > 0 && rank.is_timed() && rank.lease.is_some());
            may(Action::TimeOut(number), left.timeouts > 0 && rank.is_timed());
            let open = rank.fetch.as_ref().is_some_and(|fetch| fetch.state() != FetchState::Quiescing);
            may(Action::Cancel(number), left.cancels > 0 && open);
        }
    }

    /// Whether a message may come next: where there is an order, the first of its rank and direction, or a later one that
    /// overtakes it.
    fn may_come(&self, at: u8) -> bool {
        self.left.reorders > 0 || !self.is_behind(at)
    }

    fn is_behind(&self, at: u8) -> bool {
        let of = |envelope: &Envelope| (envelope.rank, envelope.to_owner);
        let (before, rest) = self.network.split_at(usize::from(at));
        before.iter().any(|envelope| of(envelope) == of(&rest[0]))
    }

    /// The action in a trace.
    pub(crate) fn describe(&self, action: Action) -> String {
        match action {
            Action::Deliver(at) => format!("deliver {}", self.network[usize::from(at)].describe()),
            Action::Lose(at) => format!("lose {}", self.network[usize::from(at)].describe()),
            Action::Duplicate(at) => format!("deliver a copy of {}", self.network[usize::from(at)].describe()),
            Action::OwnerGoesOn => format!("owner: {}", self.owner.describe_next()),
            other => format!("{other:?}"),
        }
    }

    /// Lets it happen.
    pub(crate) fn apply(&mut self, action: Action) {
        self.forget_the_action();
        let (scope, ranks) = (self.scope, self.scope.ranks);
        if let Action::Deliver(at) | Action::Lose(at) | Action::Duplicate(at) = action
            && self.left.reorders != ANY
            && self.is_behind(at)
        {
            self.spend(|left| &mut left.reorders);
        }
        match action {
            Action::StepFails => self.spend(|left| &mut left.failed_steps),
            Action::OwnerCrashes => self.spend(|left| &mut left.owner_crashes),
            Action::ReaderCrashes(_) => self.spend(|left| &mut left.reader_crashes),
            Action::Lose(_) => self.spend(|left| &mut left.losses),
            Action::Duplicate(_) => self.spend(|left| &mut left.duplicates),
            Action::Tick(_) => self.spend(|left| &mut left.ticks),
            Action::TimeOut(_) => self.spend(|left| &mut left.timeouts),
            Action::Cancel(_) => self.spend(|left| &mut left.cancels),
            _ => {}
        }
        match action {
            Action::OwnerGoesOn => self.own(|owner, network, seen| owner.go_on(scope, network, seen)),
            Action::StepFails => self.own(|owner, _, _| owner.fail_step()),
            Action::OwnerClock => self.own(|owner, _, _| owner.clock()),
            Action::OwnerExpires => self.own(|owner, _, _| owner.expire()),
            Action::OwnerCrashes => {
                let life = Incarnation(self.owner.life.0 + 1);
                self.owner = Rc::new(Owner::new(life, self.owner.now, scope.source));
                Rc::make_mut(&mut self.ghosts).iter_mut().for_each(|ghost| ghost.end(Ended::Crashed));
            }
            Action::ReaderCrashes(reader) => {
                let life = Incarnation(self.readers[usize::from(reader)].life.0 + 1);
                Rc::make_mut(&mut self.readers)[usize::from(reader)] = Reader { life, lives: Incarnations::new(life) };
                for number in reader * ranks..(reader + 1) * ranks {
                    self.ranks[usize::from(number)] = Rc::new(Rank::idle(number, life));
                }
            }
            Action::Deliver(at) => {
                let envelope = self.network.remove(usize::from(at));
                self.deliver(&envelope);
            }
            Action::Lose(at) => {
                drop(self.network.remove(usize::from(at)));
            }
            Action::Duplicate(at) => {
                let envelope = self.network[usize::from(at)].clone();
                self.deliver(&envelope);
            }
            Action::GiveRoom(rank) => {
                self.rank(rank, |rank, out| rank.give_room(out));
            }
            Action::ReadSlice(rank, layer) => {
                let reads = self.ranks[usize::from(rank)].reads.expect("it was posted");
                let slice = (reads.life == self.owner.life).then_some(self.owner.slices[usize::from(layer)]);
                self.rank(rank, |rank, out| rank.read(layer, slice, out));
            }
            Action::Quiesce(rank) => self.rank(rank, |rank, out| rank.quiesce(out)),
            Action::Tick(rank) => {
                self.rank(rank, |rank, out| rank.tick(out));
            }
            Action::TimeOut(rank) => {
                self.rank(rank, |rank, out| rank.time_out(out));
            }
            Action::Cancel(rank) => {
                self.rank(rank, |rank, out| rank.cancel(out));
            }
        }
        // Whether a step may fail makes no difference to messages.
        if (Faults { failed_steps: 0, ..self.left }) == NONE {
            self.hurry();
        }
        self.note();
        self.forget_what_changes_nothing();
    }

    /// Nothing was brought about yet.
    pub(crate) fn forget_the_action(&mut self) {
        self.seen.clear();
        self.answers.clear();
    }

    /// One thing less may go wrong. (On the way to quiescence, waits end without that.)
    fn spend(&mut self, kind: fn(&mut Faults) -> &mut u8) {
        let left = kind(&mut self.left);
        if *left > 0 && *left != ANY {
            *left -= 1;
            self.total -= 1;
            if self.total == 0 {
                let reorders = if self.left.reorders == ANY { ANY } else { 0 };
                self.left = Faults { reorders, ..NONE };
            }
        }
    }

    /// Where nothing can go wrong any more, some messages may come at once: whenever they come, the receiver does the same,
    /// and nothing that could happen before is hindered by it. Not a release or a renewal, which race with the owner's
    /// time, nor an ask, which races with the next use of the block, and neither a withdrawal nor the
    /// answer to a renewal that came too late, which race with reads that were posted.
    fn hurry(&mut self) {
        use domain::handoff::PeerBody as Body;
        loop {
            let reads = |at: usize| self.ranks[usize::from(self.network[at].rank)].reads.is_some();
            let sure = |at: &usize| match self.network[*at].message.body {
                Body::Withdraw { .. } | Body::Released { valid: false, .. } => !reads(*at),
                Body::Offer(_) | Body::Written { .. } | Body::Complete { .. } => true,
                Body::Released { valid: true, .. } => true,
                Body::ReleaseAck { .. } | Body::Decline { .. } => true,
                // Nobody inquires here.
                Body::Expect { .. } | Body::Queued { .. } => false,
                Body::Renew { .. } | Body::Release { .. } | Body::Ask(_) => false,
            };
            let mut places = 0..self.network.len();
            let Some(at) = places.find(|at| sure(at) && !self.is_behind(*at as u8)) else { return };
            let envelope = self.network.remove(at);
            self.deliver(&envelope);
        }
    }

    fn deliver(&mut self, envelope: &Envelope) {
        let (ranks, rank) = (self.scope.ranks, envelope.rank);
        if envelope.to_owner {
            return self.own(|owner, network, seen| owner.hear(envelope, ranks, network, seen));
        }
        let reader = &mut Rc::make_mut(&mut self.readers)[usize::from(rank / ranks)];
        let heard = reader.lives.hear(&envelope.message);
        if heard == Heard::Restarted {
            let first = rank / ranks * ranks;
            (first..first + ranks).for_each(|rank| self.rank(rank, |rank, out| rank.owner_restarted(out)));
        }
        if heard != Heard::Stale {
            let life = envelope.message.from_incarnation;
            self.rank(rank, |rank, out| rank.handle(life, &envelope.message.body, out));
        }
    }

    fn own(&mut self, act: impl FnOnce(&mut Owner, &mut Vec<Envelope>, &mut Vec<Seen>)) {
        let owner = Rc::make_mut(&mut self.owner);
        act(owner, &mut self.network, &mut self.seen);
        owner.changed();
    }

    fn rank(&mut self, rank: u8, act: impl FnOnce(&mut Rank, &mut Outputs<'_>)) {
        let Self { readers, network, seen, .. } = self;
        let ranks = self.scope.ranks;
        let mut out = Outputs { lives: &readers[usize::from(rank / ranks)].lives, ranks, network, seen };
        let rank = Rc::make_mut(&mut self.ranks[usize::from(rank)]);
        act(rank, &mut out);
        if rank.wants_room && !self.left.late_rooms {
            rank.give_room(&mut out);
        }
        rank.renew_digest();
    }

    /// Brings the reference up to date.
    fn note(&mut self) {
        let (now, life) = (self.owner.now, self.owner.life);
        let Self { ghosts, seen, answers, .. } = self;
        let lapses = |ghost: &Ghost| ghost.life == life && ghost.is_overdue(now);
        if seen.is_empty() && !ghosts.iter().any(lapses) {
            return;
        }
        let ghosts = Rc::make_mut(ghosts);
        for &seen in seen.iter() {
            if let Seen::Granted { lease, rank, at, .. } = seen {
                ghosts.push(Ghost::granted(at, life, lease, rank, LEASE));
            }
            let (Seen::Withdrawn { lease }
            | Seen::Renewed { lease, .. }
            | Seen::Answered { lease, .. }
            | Seen::Acknowledged { lease }) = seen
            else {
                continue;
            };
            let ghost = ghosts.iter_mut().find(|ghost| (ghost.life, ghost.lease) == (life, lease));
            match (seen, ghost) {
                (Seen::Answered { valid, written, .. }, ghost) => {
                    let right = ghost.is_some_and(|ghost| ghost.released(written));
                    answers.push((lease, valid, right));
                }
                (Seen::Withdrawn { .. }, Some(ghost)) => ghost.end(Ended::Withdrawn),
                (Seen::Renewed { ticks, .. }, Some(ghost)) => ghost.renewed(now, ticks),
                (Seen::Acknowledged { .. }, Some(ghost)) => ghost.acknowledged(),
                _ => {}
            }
        }
        ghosts.iter_mut().filter(|ghost| lapses(ghost)).for_each(|ghost| ghost.end(Ended::Lapsed));
    }

    /// Nothing is under way and nobody waits for anything.
    pub(crate) fn is_quiet(&self) -> bool {
        self.network.is_empty()
            && self.ranks.iter().all(|rank| rank.fetch.is_none() && !rank.wants_room && !rank.room)
            && self.owner.kv.leases_live() == 0
            && self.owner.available
            && !self.owner.can_go_on()
    }
}
