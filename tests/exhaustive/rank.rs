//! A rank of a reader: the real fetch, in a shell that does what a worker's does, with memory for one block. Each of its
//! layer slices is read by itself.

use crate::action::Seen;
use crate::network::Envelope;
use crate::owner::OWNER;
use crate::world::{LAYERS, WAIT, reader_of};
use domain::handoff::{PeerBody, PeerMessage};
use domain::plan::BlockTable;
use domain::{BlockId, Incarnation, LeaseId, ProgressWord, StepId, Time};
use kv_manager::{Fetch, FetchCommand, FetchConfig, FetchEvent, FetchState, Incarnations};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A posted read of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reads {
    /// The life of the owner whose memory it reads.
    pub(crate) life: Incarnation,
    /// The step whose layers it waits for; `None`: it waits for nothing.
    pub(crate) gate: Option<StepId>,
    /// Slices that were read.
    pub(crate) done: u16,
    pub(crate) cancelled: bool,
}

/// A rank. Its reader's life and what that knows of lives are copied into each of its ranks.
#[derive(Clone)]
pub(crate) struct Rank {
    pub(crate) number: u8,
    pub(crate) life: Incarnation,
    pub(crate) now: Time,
    /// The attempt, while it is open.
    pub(crate) fetch: Option<Fetch>,
    /// It asks for what it reads, and is owed nothing.
    pub(crate) asks: bool,
    /// The lease that it was offered, and by which life.
    pub(crate) lease: Option<(Incarnation, LeaseId)>,
    ticks: u64,
    pub(crate) wants_room: bool,
    pub(crate) room: bool,
    pub(crate) reads: Option<Reads>,
    /// What was read.
    pub(crate) copy: [u8; LAYERS as usize],
    /// The fetch said that its copy may be used.
    pub(crate) started: bool,
    /// Of everything but its number.
    pub(crate) digest: u64,
}

impl Rank {
    /// A rank with an open attempt, which expects an offer or asks for one.
    pub(crate) fn new(number: u8, asks: bool) -> Self {
        let config = FetchConfig {
            layout: 0,
            block_tokens: 1,
            wait_max: WAIT,
            answer_max: WAIT,
            release_retry: Duration::from_millis(10),
        };
        let deadline = Time(u64::MAX / 2);
        let begin = if asks { Fetch::ask } else { Fetch::expect };
        let fetch = Some(begin(Time::ZERO, config, deadline));
        let mut rank = Self { fetch, asks, ..Self::idle(number, Incarnation(1)) };
        rank.renew_digest();
        rank
    }

    /// A rank without an attempt.
    pub(crate) fn idle(number: u8, life: Incarnation) -> Self {
        let mut rank = Self {
            number,
            life,
            now: Time::ZERO,
            fetch: None,
            asks: false,
            lease: None,
            ticks: 0,
            wants_room: false,
            room: false,
            reads: None,
            copy: [0; LAYERS as usize],
            started: false,
            digest: 0,
        };
        rank.renew_digest();
        rank
    }

    /// Whether the slice may be read now, given the owner's life and word: from the first layer on, as transports do. Reads
    /// of a memory that is gone fail at once.
    pub(crate) fn can_read(&self, layer: u16, life: Incarnation, word: u64) -> bool {
        self.reads.is_some_and(|reads| {
            let raised = reads.gate.is_none_or(|step| word >= ProgressWord::mark(step, layer));
            reads.done == layer && (raised || reads.life != life)
        })
    }

    /// Reads a slice; `None`: its memory is gone.
    pub(crate) fn read(&mut self, layer: u16, slice: Option<u8>, out: &mut Outputs<'_>) {
        let reads = self.reads.as_mut().expect("it was posted");
        reads.done += 1;
        let whole = reads.done == LAYERS;
        match slice {
            Some(slice) => {
                let Reads { life, gate, .. } = *reads;
                out.seen.push(Seen::Read { rank: self.number, layer, slice, life, gate });
                self.copy[usize::from(layer)] = slice;
                if whole {
                    self.reads_end(true, out);
                }
            }
            None => self.reads_end(false, out),
        }
    }

    /// The transport has ended a cancelled read.
    pub(crate) fn quiesce(&mut self, out: &mut Outputs<'_>) {
        self.reads_end(false, out);
    }

    fn reads_end(&mut self, ok: bool, out: &mut Outputs<'_>) {
        let cancelled = self.reads.take().is_some_and(|reads| reads.cancelled);
        self.event(FetchEvent::ReadsEnded { pieces: 1, ok }, out);
        if cancelled {
            self.event(FetchEvent::Quiesced, out);
        }
    }

    /// The room that it wants is there.
    pub(crate) fn give_room(&mut self, out: &mut Outputs<'_>) {
        self.wants_room = false;
        if self.fetch.is_some() {
            self.room = true;
            let tables = vec![BlockTable { first: 0, blocks: vec![BlockId(0)] }];
            self.event(FetchEvent::Room { tables, held_tokens: 0 }, out);
        }
    }

    /// Its next timer fires.
    pub(crate) fn tick(&mut self, out: &mut Outputs<'_>) {
        let due = self.fetch.as_ref().and_then(Fetch::next_deadline).expect("a timer runs");
        self.now = self.now.max(due);
        self.ticks += 1;
        self.event(FetchEvent::Tick { ticks: self.ticks }, out);
    }

    /// It waited in vain.
    pub(crate) fn time_out(&mut self, out: &mut Outputs<'_>) {
        self.now = self.now + WAIT;
        self.event(FetchEvent::Tick { ticks: self.ticks }, out);
    }

    /// The router cancels the attempt.
    pub(crate) fn cancel(&mut self, out: &mut Outputs<'_>) {
        self.event(FetchEvent::Cancel, out);
    }

    /// A timer runs.
    pub(crate) fn is_timed(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.next_deadline().is_some())
    }

    /// The owner came back as a new life: what its old one offered is void.
    pub(crate) fn owner_restarted(&mut self, out: &mut Outputs<'_>) {
        if self.lease.is_some() || self.asks {
            self.event(FetchEvent::OwnerLost, out);
        }
    }

    /// A message that is not stale arrives.
    pub(crate) fn handle(&mut self, life: Incarnation, body: &PeerBody, out: &mut Outputs<'_>) {
        let (lease, event) = match body {
            PeerBody::Offer(offer) => {
                // The attempt is the first of its request; those of the owner's later lives are nobody's here.
                let expected = self.fetch.as_ref().is_some_and(|fetch| fetch.state() == FetchState::Expecting);
                if expected && offer.epoch.0 == 1 && self.lease.is_none() {
                    self.lease = Some((life, offer.lease));
                    self.event(FetchEvent::Offer(offer.clone()), out);
                } else if self.asks && self.lease != Some((life, offer.lease)) {
                    // What was asked for twice is offered twice, and what came too late is given back.
                    out.send(self, PeerBody::Release { lease: offer.lease });
                }
                return;
            }
            PeerBody::Written { lease, step, tokens } => (*lease, FetchEvent::Written { step: *step, tokens: *tokens }),
            PeerBody::Complete { lease, first, .. } => (*lease, FetchEvent::Complete { first: first.clone() }),
            PeerBody::Withdraw { lease } => (*lease, FetchEvent::Withdraw),
            PeerBody::Released { lease, valid } => (*lease, FetchEvent::Released { valid: *valid }),
            PeerBody::Renew { .. } | PeerBody::Release { .. } | PeerBody::ReleaseAck { .. } => return,
            PeerBody::Expect { .. } | PeerBody::Queued { .. } => unreachable!("nobody inquires"),
            PeerBody::Decline { .. } => {
                if self.asks && self.lease.is_none() {
                    self.event(FetchEvent::Cancel, out);
                }
                return;
            }
            PeerBody::Ask(_) => unreachable!("readers are asked nothing"),
        };
        if self.lease.is_some_and(|(_, known)| known == lease) {
            self.event(event, out);
        } else if matches!(body, PeerBody::Released { .. }) {
            out.send(self, PeerBody::ReleaseAck { lease });
        }
    }

    fn event(&mut self, event: FetchEvent, out: &mut Outputs<'_>) {
        let mut events = VecDeque::from([event]);
        let mut commands = Vec::new();
        while let Some(event) = events.pop_front() {
            let Some(fetch) = &mut self.fetch else { return };
            fetch.handle(self.now, event, &mut commands);
            for command in commands.drain(..) {
                match command {
                    FetchCommand::WantRoom { .. } => self.wants_room = true,
                    // The answer is no more than longer patience, and time is what the explorer says.
                    FetchCommand::Inquire => {}
                    FetchCommand::Read(pieces) => {
                        assert_eq!(pieces.len(), 1, "there is one block");
                        let (life, _) = self.lease.expect("nothing is read before the offer");
                        let gate = pieces[0].step;
                        let posted = Reads { life, gate, done: 0, cancelled: false };
                        assert!(self.reads.replace(posted).is_none(), "a block is read once");
                    }
                    FetchCommand::CancelReads => match &mut self.reads {
                        Some(reads) => reads.cancelled = true,
                        None => events.push_back(FetchEvent::Quiesced),
                    },
                    FetchCommand::Send(body) => out.send(self, body),
                    FetchCommand::Start { .. } => {
                        self.started = true;
                        out.seen.push(Seen::Started { rank: self.number, room: std::mem::take(&mut self.room) });
                    }
                    FetchCommand::Fail(_) => {}
                    FetchCommand::Free => {
                        let room = std::mem::take(&mut self.room);
                        out.seen.push(Seen::Freed { room, reading: self.reads.is_some() });
                    }
                    FetchCommand::Done => {
                        // What it wanted is not wanted any more; where it was given, it was freed or used.
                        (self.fetch, self.lease, self.wants_room) = (None, None, false);
                        out.seen.push(Seen::Ended { room: self.room, reading: self.reads.is_some() });
                        return;
                    }
                }
            }
        }
    }

    /// After a change.
    pub(crate) fn renew_digest(&mut self) {
        let mut hasher = DefaultHasher::new();
        (self.life, self.lease.map(|(life, _)| life), self.wants_room, self.room, self.started).hash(&mut hasher);
        (self.reads, self.copy).hash(&mut hasher);
        if let Some(fetch) = &self.fetch {
            self.ticks.hash(&mut hasher);
            fetch.digest(self.now, &mut hasher);
        }
        self.digest = hasher.finish();
    }
}

/// Where a rank's messages and what is seen of it go, and what its reader knows of lives.
pub(crate) struct Outputs<'a> {
    pub(crate) lives: &'a Incarnations,
    pub(crate) ranks: u8,
    pub(crate) network: &'a mut Vec<Envelope>,
    pub(crate) seen: &'a mut Vec<Seen>,
}

impl Outputs<'_> {
    pub(crate) fn send(&mut self, rank: &Rank, body: PeerBody) {
        let message = PeerMessage {
            from: reader_of(rank.number, self.ranks),
            from_incarnation: rank.life,
            to_incarnation: self.lives.of(OWNER),
            body,
        };
        self.network.push(Envelope::new(true, rank.number, message));
    }
}
