//! The reader's side of a fetch: a machine per attempt at a request, from the expected offer to the validated copy.
//!
//! ```text
//!             Offer          Room             reads ended, Complete        Released(valid)
//!  Expecting ───────► WaitingRoom ───► Reading ───────────────────► Answering ───────────► Done (Start)
//!      │                   │               │                            │
//!      └───────────────────┴───────────────┴──── failure, cancel ───────┴───► [Quiescing] ─► Done (Free)
//! ```
//!
//! It decides when to ask for room, what to read after which step, when to renew and release, and whether the copy
//! counts. Only the owner's answer makes it valid, never the reader's own clock. It moves no bytes, holds no blocks
//! and sends nothing itself: the worker does what the commands say and tells it what happened.

mod error;

pub use error::FetchError;

use domain::handoff::{Offer, PeerBody};
use domain::plan::BlockTable;
use domain::planted_bugs::{self, Bug};
use domain::{BlockId, Choice, GroupId, LeaseId, StepId, Time, Token};
use std::ops::Range;
use std::time::Duration;

/// Renewals in a lease's duration: one may be lost, and one late, and the lease still lives.
const RENEWALS_PER_LEASE: u32 = 3;
/// Questions to an owner in the longest wait for its offer: two may be lost.
const INQUIRIES_PER_WAIT: u32 = 3;
/// No two renewals, and no two releases, are sent closer together than this, whatever an offer or a setting says.
const REPEAT_MIN: Duration = Duration::from_millis(1);

/// Settings of a [`Fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// Fingerprint of the reader's layout; an offer with another is refused.
    pub layout: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Longest wait for the offer, or for the next word that the prompt is still queued; for room; and, while
    /// reading, for the next sign that the owner or the reads go on.
    pub wait_max: Duration,
    /// Longest wait for the answer to the release, or to an ask.
    pub answer_max: Duration,
    /// Time between repeated releases.
    pub release_retry: Duration,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent {
    /// The owner's [`PeerBody::Queued`] for this attempt.
    Queued,
    /// The owner's offer for this attempt.
    Offer(Offer),
    /// The owner's [`PeerBody::Written`] for the lease.
    Written {
        /// The step that writes the positions.
        step: StepId,
        /// Positions below this are covered.
        tokens: u32,
    },
    /// The owner's [`PeerBody::Complete`] for the lease. Empty: the first token ended every choice.
    Complete {
        /// First token of each choice that goes on.
        first: Vec<(Choice, Token)>,
    },
    /// The owner's [`PeerBody::Withdraw`] for the lease.
    Withdraw,
    /// The room asked for is there: the destination was opened, with nothing left out.
    Room {
        /// The destination's blocks, one entry per group.
        tables: Vec<BlockTable>,
        /// Positions below this were held here already and need no reading; a multiple of the block size.
        held_tokens: u32,
    },
    /// Reads asked for have ended.
    ReadsEnded {
        /// How many of the pieces.
        pieces: u32,
        /// All of these arrived.
        ok: bool,
    },
    /// After [`FetchCommand::CancelReads`]: no read touches the destination any more.
    Quiesced,
    /// The owner's [`PeerBody::Released`] for the lease: the answer to its release, or, where it is not valid, to
    /// a renewal that came too late.
    Released {
        /// Whether what was read is valid.
        valid: bool,
    },
    /// The attempt is over for the router.
    Cancel,
    /// The owner is gone for good: it left, or came back with another incarnation.
    OwnerLost,
    /// Time went by: due at [`Fetch::next_deadline`], harmless at any other time.
    Tick {
        /// Tick count of the reader's step loop, to go into renewals.
        ticks: u64,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchCommand {
    /// Ask the owner whether it still has the attempt ([`PeerBody::Expect`]).
    Inquire,
    /// Open a destination for so many positions, with `leave = 0`, as soon as there is room; then tell
    /// [`FetchEvent::Room`].
    WantRoom {
        /// Positions.
        tokens: u32,
    },
    /// Read these; never empty. Each piece counts in one [`FetchEvent::ReadsEnded`].
    Read(Vec<Piece>),
    /// End all reads not ended yet, those not begun among them; then tell [`FetchEvent::Quiesced`], once.
    CancelReads,
    /// Send to the owner.
    Send(PeerBody),
    /// The copy is valid: seal it and decode on.
    Start {
        /// First token of each choice that goes on; empty only where blocks were asked for ([`Fetch::ask`]).
        first: Vec<(Choice, Token)>,
    },
    /// The attempt cannot go on here. At most once, never after a cancel, never with a start.
    Fail(FetchError),
    /// The destination's blocks may be freed: no read touches them. Exactly once if room was given and nothing started.
    Free,
    /// Nothing is left to do: the machine may be dropped. Room that is given all the same is freed at once.
    Done,
}

/// A block to read: a whole record, layer by layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Group of both blocks.
    pub group: GroupId,
    /// The owner's block.
    pub from: BlockId,
    /// The reader's block.
    pub to: BlockId,
    /// Each layer may be read once the owner's progress word has passed it in this step; `None`: now.
    pub step: Option<StepId>,
}

/// Where a fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchState {
    /// No offer yet.
    Expecting,
    /// Offered; no room yet.
    WaitingRoom,
    /// Reads run, or wait for the owner to write.
    Reading,
    /// All is read and the lease is being released; the answer is not there.
    Answering,
    /// It ended without a start, and reads are being cancelled.
    Quiescing,
    /// Nothing is left to do.
    Done,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Fetch {
    config: FetchConfig,
    /// Of the request.
    deadline: Time,
    state: FetchState,
    /// The wait of this state has failed at this time.
    wait_until: Time,
    /// The next inquiry (before the offer), renewal (before the release) or repeated release (after it) is due.
    repeat_at: Time,
    /// When the owner last said that the prompt is queued.
    queued: Option<Time>,
    offer: Option<Offer>,
    /// The owner still has to be told that the reads have ended.
    owes_release: bool,
    /// Blocks of the sequence below this are written, or being written by a known step.
    covered: u32,
    /// Rising `(blocks, step)`: what became covered before there was room. At most one entry per block.
    waiting: Vec<(u32, Option<StepId>)>,
    /// The destination, once given and not yet started or freed.
    room: Option<Vec<BlockTable>>,
    /// Blocks below this are held by the destination already.
    held: u32,
    /// Pieces asked for and not ended.
    outstanding: u32,
    complete: Option<Vec<(Choice, Token)>>,
    ignored: u64,
}

impl Fetch {
    /// A machine that expects an offer, for a request that must have ended by `deadline`. As long as the owner
    /// says that the prompt waits in its queue, it may do so until then.
    pub fn expect(now: Time, config: FetchConfig, deadline: Time) -> Self {
        let wait_until =
            if planted_bugs::is(Bug::ExpectationWithoutDeadline) { Time::MAX } else { now + config.wait_max };
        Self {
            deadline,
            state: FetchState::Expecting,
            wait_until,
            repeat_at: now + inquiry_interval(&config),
            queued: None,
            offer: None,
            owes_release: false,
            covered: 0,
            waiting: Vec::new(),
            room: None,
            held: 0,
            outstanding: 0,
            complete: None,
            ignored: 0,
            config,
        }
    }

    /// A machine that expects an offer of blocks which it asked for, and waits for it as long as for any answer.
    /// The owner has all of them, so the offer is complete; one that is not is refused.
    pub fn ask(now: Time, config: FetchConfig, deadline: Time) -> Self {
        let wait_until = now + config.answer_max;
        let complete = Some(Vec::new());
        Self { wait_until, repeat_at: Time::MAX, complete, ..Self::expect(now, config, deadline) }
    }

    /// Takes an event and appends what is to be done, in order.
    pub fn handle(&mut self, now: Time, event: FetchEvent, out: &mut Vec<FetchCommand>) {
        match event {
            FetchEvent::Queued => self.is_queued(now),
            FetchEvent::Offer(offer) => self.offered(now, offer, out),
            FetchEvent::Written { step, tokens } => self.written(now, step, tokens, out),
            FetchEvent::Complete { first } => self.completed(now, first, out),
            FetchEvent::Withdraw if self.offer.is_some() => self.end(Some(FetchError::Withdrawn), out),
            FetchEvent::Withdraw => self.ignored += 1,
            FetchEvent::Room { tables, held_tokens } => self.room_given(now, tables, held_tokens, out),
            FetchEvent::ReadsEnded { pieces, ok } => self.reads_ended(now, pieces, ok, out),
            FetchEvent::Quiesced => self.quiesced(out),
            FetchEvent::Released { valid } => self.released(valid, out),
            FetchEvent::Cancel => self.end(None, out),
            FetchEvent::OwnerLost => {
                self.owes_release = false;
                self.end(Some(FetchError::OwnerLost), out);
            }
            FetchEvent::Tick { ticks } => self.tick(now, ticks, out),
        }
        self.release_when_read(now, out);
    }

    /// The reader stood still for so long: what came meanwhile it has not heard yet, so nothing of it is late. To
    /// be told before anything else is. The request's deadline is its client's, and stays.
    pub fn stood_still(&mut self, pause: Duration) {
        self.wait_until = self.wait_until + pause;
    }

    /// When the next [`FetchEvent::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        match self.state {
            // The end of cancelled reads is the transport's promise, and nothing else is waited for.
            FetchState::Quiescing | FetchState::Done => None,
            _ => Some(self.deadline.min(self.wait_until).min(self.repeat_at)),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> FetchState {
        self.state
    }

    /// Whether the owner has computed all that it offered, and said so; of what was asked for, from the beginning.
    pub fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// When the owner last said that the prompt waits in its queue.
    pub fn queued(&self) -> Option<Time> {
        self.queued
    }

    /// The lease of the offer it took, or refused.
    pub fn lease(&self) -> Option<LeaseId> {
        self.offer.as_ref().map(|offer| offer.lease)
    }

    /// Messages of the owner that it ignored: duplicates, and what came before its time or too late.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }
}

/// What the owner says.
impl Fetch {
    /// How long the owner's queue is says nothing of this handoff: it is waited for anew.
    fn is_queued(&mut self, now: Time) {
        if self.state == FetchState::Expecting && self.complete.is_none() {
            self.queued = Some(now);
            self.wait_until = now + self.config.wait_max;
        } else {
            self.ignored += 1;
        }
    }

    fn offered(&mut self, now: Time, offer: Offer, out: &mut Vec<FetchCommand>) {
        if self.state != FetchState::Expecting {
            self.ignored += 1;
            return;
        }
        self.owes_release = true;
        let offer = self.offer.insert(offer);
        let blocks = offer.tokens.div_ceil(self.config.block_tokens);
        // All groups end with the same block; how early they begin is seen once the destination is there.
        let whole =
            offer.groups.iter().all(|group| u64::from(group.first) + group.blocks.len() as u64 == blocks.into());
        let complete = offer.ready == offer.tokens || self.complete.is_none();
        if offer.layout != self.config.layout {
            return self.end(Some(FetchError::LayoutDiffers), out);
        }
        if !whole || !complete {
            return self.end(Some(FetchError::OfferIncomplete), out);
        }
        let (tokens, ready) = (offer.tokens, offer.ready);
        self.state = FetchState::WaitingRoom;
        self.wait_until = now + self.config.wait_max;
        self.repeat_at = now + self.renewal_interval();
        self.cover(self.blocks_written(ready), None, out);
        out.push(FetchCommand::WantRoom { tokens });
    }

    fn written(&mut self, now: Time, step: StepId, tokens: u32, out: &mut Vec<FetchCommand>) {
        if self.is_reading() && self.cover(self.blocks_written(tokens), Some(step), out) {
            self.progressed(now);
        } else {
            self.ignored += 1;
        }
    }

    fn completed(&mut self, now: Time, first: Vec<(Choice, Token)>, out: &mut Vec<FetchCommand>) {
        if !self.is_reading() || self.complete.is_some() {
            self.ignored += 1;
        } else if first.is_empty() {
            self.end(None, out);
        } else {
            // The prompt is computed, so every block is written, whatever was said of it before.
            self.cover(self.blocks(), None, out);
            self.complete = Some(first);
            self.progressed(now);
        }
    }

    fn released(&mut self, valid: bool, out: &mut Vec<FetchCommand>) {
        if self.is_reading() && !valid {
            // The lease is over: whatever else is read under it is for nothing, and there is nothing to give back.
            self.owes_release = false;
            return self.end(Some(FetchError::LeaseOver), out);
        }
        let Some(lease) = self.lease().filter(|_| self.state == FetchState::Answering) else {
            self.ignored += 1;
            return;
        };
        out.push(FetchCommand::Send(PeerBody::ReleaseAck { lease }));
        if valid {
            let first = self.complete.take().expect("nothing is released for an answer before it is complete");
            self.room = None;
            self.state = FetchState::Done;
            out.extend([FetchCommand::Start { first }, FetchCommand::Done]);
        } else {
            self.end(Some(FetchError::NotValid), out);
        }
    }
}

/// What the worker says.
impl Fetch {
    fn room_given(&mut self, now: Time, tables: Vec<BlockTable>, held_tokens: u32, out: &mut Vec<FetchCommand>) {
        if self.state != FetchState::WaitingRoom {
            assert!(self.state == FetchState::Done, "room was given that was not asked for");
            out.push(FetchCommand::Free);
            return;
        }
        let offer = self.offer.as_ref().expect("room is waited for after the offer");
        self.held = held_tokens / self.config.block_tokens;
        let blocks = self.blocks();
        // Every block of the destination is held or offered; the owner may have begun its window later than we do.
        let fits = |(table, offered): (&BlockTable, &domain::handoff::OfferedGroup)| {
            let first = table.first.max(self.held);
            table.first + table.blocks.len() as u32 >= blocks && (first >= blocks || first >= offered.first)
        };
        let fits = tables.len() == offer.groups.len() && tables.iter().zip(&offer.groups).all(fits);
        self.room = Some(tables);
        if !fits {
            self.end(Some(FetchError::RoomDiffers), out);
            return;
        }
        self.state = FetchState::Reading;
        self.progressed(now);
        let mut pieces = Vec::new();
        let mut from = 0;
        for (to, step) in std::mem::take(&mut self.waiting) {
            self.pieces(from..to, step, &mut pieces);
            from = to;
        }
        self.read(pieces, out);
    }

    fn reads_ended(&mut self, now: Time, pieces: u32, ok: bool, out: &mut Vec<FetchCommand>) {
        assert!(pieces <= self.outstanding, "{pieces} reads ended of {} that were asked for", self.outstanding);
        self.outstanding -= pieces;
        self.progressed(now);
        if !ok {
            self.end(Some(FetchError::ReadFailed), out);
        }
    }

    fn quiesced(&mut self, out: &mut Vec<FetchCommand>) {
        assert!(self.state == FetchState::Quiescing, "reads were cancelled that should go on");
        self.outstanding = 0;
        self.finish(out);
    }

    fn tick(&mut self, now: Time, ticks: u64, out: &mut Vec<FetchCommand>) {
        if matches!(self.state, FetchState::Quiescing | FetchState::Done) {
            return;
        }
        if now >= self.deadline {
            return self.end(Some(FetchError::Deadline), out);
        }
        if now >= self.wait_until {
            return self.end(Some(FetchError::TimedOut { waiting_for: self.state }), out);
        }
        if now < self.repeat_at {
            return;
        }
        let Some(lease) = self.lease() else {
            out.push(FetchCommand::Inquire);
            self.repeat_at = now + inquiry_interval(&self.config);
            return;
        };
        if self.state == FetchState::Answering {
            out.push(FetchCommand::Send(PeerBody::Release { lease }));
            self.repeat_at = now + self.config.release_retry.max(REPEAT_MIN);
        } else {
            if !planted_bugs::is(Bug::LeaseNotRenewed) {
                out.push(FetchCommand::Send(PeerBody::Renew { lease, ticks }));
            }
            self.repeat_at = now + self.renewal_interval();
        }
    }
}

/// Steps of the way.
impl Fetch {
    /// All blocks are read and the prompt is complete: asks the owner whether the copy is valid.
    fn release_when_read(&mut self, now: Time, out: &mut Vec<FetchCommand>) {
        if self.state == FetchState::Reading && self.outstanding == 0 && self.complete.is_some() {
            let lease = self.lease().expect("nothing is read before the offer");
            self.owes_release = false;
            self.state = FetchState::Answering;
            self.wait_until = now + self.config.answer_max;
            self.repeat_at = now + self.config.release_retry.max(REPEAT_MIN);
            out.push(FetchCommand::Send(PeerBody::Release { lease }));
            if planted_bugs::is(Bug::StartBeforeAnswer) {
                self.released(true, out);
            }
        }
    }

    /// Ends without a start, told or (after a cancel, and where nothing is to be decoded) untold; waits for reads.
    fn end(&mut self, error: Option<FetchError>, out: &mut Vec<FetchCommand>) {
        if matches!(self.state, FetchState::Quiescing | FetchState::Done) {
            return;
        }
        out.extend(error.map(FetchCommand::Fail));
        if self.outstanding > 0 && !planted_bugs::is(Bug::FreeBeforeQuiesced) {
            self.state = FetchState::Quiescing;
            out.push(FetchCommand::CancelReads);
        } else {
            self.finish(out);
        }
    }

    /// No read runs: lets go of the owner's blocks, for which no answer is waited, and of the own ones.
    fn finish(&mut self, out: &mut Vec<FetchCommand>) {
        self.state = FetchState::Done;
        if let Some(lease) = self.lease().filter(|_| std::mem::take(&mut self.owes_release)) {
            out.push(FetchCommand::Send(PeerBody::Release { lease }));
        }
        if self.room.take().is_some() {
            out.push(FetchCommand::Free);
        }
        out.push(FetchCommand::Done);
    }

    /// Blocks below `to` are written once `step` is: reads those that were not covered, now or when there is room.
    /// Whether there were any.
    fn cover(&mut self, to: u32, step: Option<StepId>, out: &mut Vec<FetchCommand>) -> bool {
        let from = self.covered;
        if to <= from {
            return false;
        }
        self.covered = to;
        if self.room.is_some() {
            let mut pieces = Vec::new();
            self.pieces(from..to, step, &mut pieces);
            self.read(pieces, out);
        } else {
            self.waiting.push((to, step));
        }
        true
    }

    /// Appends the pieces of those blocks, all groups of a block range together; what is held or needed by neither
    /// side's window is left out.
    fn pieces(&self, blocks: Range<u32>, step: Option<StepId>, pieces: &mut Vec<Piece>) {
        let (Some(offer), Some(tables)) = (&self.offer, &self.room) else { return };
        for (number, (table, offered)) in tables.iter().zip(&offer.groups).enumerate() {
            let first = blocks.start.max(self.held).max(table.first).max(offered.first);
            pieces.extend((first..blocks.end).map(|block| Piece {
                group: GroupId(number as u16),
                from: offered.blocks[(block - offered.first) as usize].0,
                to: table.blocks[(block - table.first) as usize],
                step,
            }));
        }
    }

    fn read(&mut self, pieces: Vec<Piece>, out: &mut Vec<FetchCommand>) {
        if !pieces.is_empty() {
            self.outstanding += pieces.len() as u32;
            out.push(FetchCommand::Read(pieces));
        }
    }

    /// A sign of life while reading begins the wait anew.
    fn progressed(&mut self, now: Time) {
        if self.state == FetchState::Reading {
            self.wait_until = now + self.config.wait_max;
        }
    }

    fn is_reading(&self) -> bool {
        matches!(self.state, FetchState::WaitingRoom | FetchState::Reading)
    }

    fn renewal_interval(&self) -> Duration {
        let duration = self.offer.as_ref().map_or(Duration::ZERO, |offer| offer.duration);
        (duration / RENEWALS_PER_LEASE).max(REPEAT_MIN)
    }

    /// Blocks of the sequence.
    fn blocks(&self) -> u32 {
        self.offer.as_ref().map_or(0, |offer| offer.tokens.div_ceil(self.config.block_tokens))
    }

    /// Blocks that are written once the positions below `tokens` are: the full ones, and the tail with the last
    /// position.
    fn blocks_written(&self, tokens: u32) -> u32 {
        match &self.offer {
            Some(offer) if tokens >= offer.tokens => self.blocks(),
            _ => tokens / self.config.block_tokens,
        }
    }
}

/// How often an owner is asked whether it still has the prompt.
fn inquiry_interval(config: &FetchConfig) -> Duration {
    (config.wait_max / INQUIRIES_PER_WAIT).max(REPEAT_MIN)
}

#[cfg(feature = "explore")]
mod explore;
#[cfg(test)]
mod tests;
