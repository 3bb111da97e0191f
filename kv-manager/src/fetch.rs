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

mod command;
mod config;
mod error;
mod event;
mod piece;
mod state;
mod state_name;

pub use command::FetchCommand;
pub use config::FetchConfig;
pub use error::FetchError;
pub use event::FetchEvent;
pub use piece::Piece;
pub use state_name::FetchState;

use domain::handoff::{Offer, PeerBody};
use domain::plan::BlockTable;
use domain::planted_bugs::{self, Bug};
use domain::{Choice, LeaseId, StepId, Time, Token};
use state::{Offered, Room, State};
use std::time::Duration;

/// A fetch: one state machine per attempt.
///
/// [`handle`](Self::handle) passes each event to its handler, `on_*`. A handler that the state does not expect counts
/// the owner's message as ignored, or panics for what only its own worker can say.
#[derive(Clone, Debug)]
pub struct Fetch {
    config: FetchConfig,
    /// Of the request.
    deadline: Time,
    state: State,
    /// The wait of this state has failed at this time.
    wait_until: Time,
    /// The next inquiry (before the offer), renewal (before the release) or repeated release (after it) is due.
    repeat_at: Time,
    /// Messages of the owner that were ignored.
    ignored: u64,
}

impl Fetch {
    /// Expects an offer, for a request that must have ended by `deadline`. As long as the owner says that the prompt
    /// waits in its queue, the offer may come until then.
    pub fn expect(now: Time, config: FetchConfig, deadline: Time) -> Self {
        let wait_until =
            if planted_bugs::is(Bug::ExpectationWithoutDeadline) { Time::MAX } else { now + config.wait_max };
        let state = State::Expecting { asked: false, queued: None };
        Self { deadline, state, wait_until, repeat_at: now + config.inquiry_interval(), ignored: 0, config }
    }

    /// Expects an offer of blocks that the owner was asked for, and waits for it as long as for any answer. The owner
    /// has all of them, so the offer is complete; one that is not is refused.
    pub fn ask(now: Time, config: FetchConfig, deadline: Time) -> Self {
        let state = State::Expecting { asked: true, queued: None };
        Self { deadline, state, wait_until: now + config.answer_max, repeat_at: Time::MAX, ignored: 0, config }
    }

    /// Takes an event and appends what is to be done, in order.
    pub fn handle(&mut self, now: Time, event: FetchEvent, out: &mut Vec<FetchCommand>) {
        match event {
            FetchEvent::Queued => self.on_queued(now),
            FetchEvent::Offer(offer) => self.on_offer(now, offer, out),
            FetchEvent::Written { step, tokens } => self.on_written(now, step, tokens, out),
            FetchEvent::Complete { first } => self.on_complete(now, first, out),
            FetchEvent::Withdraw => self.on_withdraw(out),
            FetchEvent::Room { tables, held_tokens } => self.on_room(now, tables, held_tokens, out),
            FetchEvent::ReadsEnded { pieces, ok } => self.on_reads_ended(now, pieces, ok, out),
            FetchEvent::Quiesced => self.on_quiesced(out),
            FetchEvent::Released { valid } => self.on_released(valid, out),
            FetchEvent::Cancel => self.end(None, out),
            FetchEvent::OwnerLost => self.on_owner_lost(out),
            FetchEvent::Tick { ticks } => self.on_tick(now, ticks, out),
        }
        self.release_when_read(now, out);
    }

    /// Prolongs the current wait by a pause of the reader: it has not read yet what came meanwhile, so none of that is
    /// late. To be called before any other method. The request's deadline is its client's, and stays.
    pub fn stood_still(&mut self, pause: Duration) {
        self.wait_until = self.wait_until + pause;
    }

    /// Returns when the next [`FetchEvent::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        // The end of cancelled reads is the transport's promise, and nothing else is waited for.
        (!self.state.has_ended()).then(|| self.deadline.min(self.wait_until).min(self.repeat_at))
    }

    /// Returns where it stands.
    pub fn state(&self) -> FetchState {
        self.state.name()
    }

    /// Returns whether the owner has computed all that it offered, and said so; of what was asked for, from the
    /// beginning. `false` once the fetch has ended, or waits for cancelled reads alone.
    pub fn is_complete(&self) -> bool {
        match &self.state {
            State::Expecting { asked, .. } => *asked,
            State::WaitingRoom { offered, .. } | State::Reading { offered, .. } => offered.first.is_some(),
            State::Answering { .. } => true,
            State::Quiescing { .. } | State::Done { .. } => false,
        }
    }

    /// Returns when the owner last said that the prompt waits in its queue; `None` also once the offer is there.
    pub fn queued(&self) -> Option<Time> {
        match self.state {
            State::Expecting { queued, .. } => queued,
            _ => None,
        }
    }

    /// Returns the lease of the offer that was taken, or refused.
    pub fn lease(&self) -> Option<LeaseId> {
        self.state.lease()
    }

    /// Counts the owner's messages that were ignored: duplicates, and what came before its time or too late.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }
}

/// The owner's messages.
impl Fetch {
    /// Waits anew: the length of the owner's queue says nothing about this handoff.
    fn on_queued(&mut self, now: Time) {
        match &mut self.state {
            State::Expecting { asked: false, queued } => {
                *queued = Some(now);
                self.wait_until = now + self.config.wait_max;
            }
            _ => self.ignored += 1,
        }
    }

    fn on_offer(&mut self, now: Time, offer: Offer, out: &mut Vec<FetchCommand>) {
        let State::Expecting { asked, .. } = self.state else {
            self.ignored += 1;
            return;
        };
        let (tokens, ready, duration) = (offer.tokens, offer.ready, offer.duration);
        let mut offered = Offered { offer, covered: 0, first: asked.then(Vec::new) };
        let refusal = offered.refusal(&self.config);
        let covered = offered.cover(&self.config, ready).map(|blocks| (blocks.end, None));
        self.state = State::WaitingRoom { offered, covered: covered.into_iter().collect() };
        self.wait_until = now + self.config.wait_max;
        self.repeat_at = now + config::renewal_interval(duration);
        match refusal {
            None => out.push(FetchCommand::WantRoom { tokens }),
            Some(error) => self.end(Some(error), out),
        }
    }

    fn on_written(&mut self, now: Time, step: StepId, tokens: u32, out: &mut Vec<FetchCommand>) {
        if self.cover(tokens, Some(step), out) {
            self.progressed(now);
        } else {
            self.ignored += 1;
        }
    }

    fn on_complete(&mut self, now: Time, first: Vec<(Choice, Token)>, out: &mut Vec<FetchCommand>) {
        let Some(offered) = self.state.offered().filter(|offered| offered.first.is_none()) else {
            self.ignored += 1;
            return;
        };
        if first.is_empty() {
            return self.end(None, out);
        }
        offered.first = Some(first);
        // The prompt is computed, so every block is written, whatever was said of it before.
        let tokens = offered.offer.tokens;
        self.cover(tokens, None, out);
        self.progressed(now);
    }

    fn on_withdraw(&mut self, out: &mut Vec<FetchCommand>) {
        match self.lease() {
            Some(_) => self.end(Some(FetchError::Withdrawn), out),
            None => self.ignored += 1,
        }
    }

    fn on_released(&mut self, valid: bool, out: &mut Vec<FetchCommand>) {
        match &mut self.state {
            // Whatever else is read under the lease is for nothing.
            State::WaitingRoom { .. } | State::Reading { .. } if !valid => self.end(Some(FetchError::LeaseOver), out),
            State::Answering { lease, first } => {
                out.push(FetchCommand::Send(PeerBody::ReleaseAck { lease: *lease }));
                if valid {
                    let first = std::mem::take(first);
                    out.push(FetchCommand::Start { first });
                    self.finish(out);
                } else {
                    self.end(Some(FetchError::NotValid), out);
                }
            }
            _ => self.ignored += 1,
        }
    }

    fn on_owner_lost(&mut self, out: &mut Vec<FetchCommand>) {
        if let State::Quiescing { owes_release, .. } = &mut self.state {
            *owes_release = false;
        }
        self.end(Some(FetchError::OwnerLost), out);
    }
}

/// The reader's own worker.
impl Fetch {
    fn on_room(&mut self, now: Time, tables: Vec<BlockTable>, held_tokens: u32, out: &mut Vec<FetchCommand>) {
        let (offered, covered) = match std::mem::replace(&mut self.state, State::Done { lease: None }) {
            State::WaitingRoom { offered, covered } => (offered, covered),
            state => {
                assert!(matches!(state, State::Done { .. }), "room was given that was not asked for");
                self.state = state;
                return out.push(FetchCommand::Free);
            }
        };
        let room = Room { tables, held: held_tokens / self.config.block_tokens };
        let pieces = offered.fits(&self.config, &room).then(|| {
            let (mut pieces, mut from) = (Vec::new(), 0);
            for (to, step) in covered {
                offered.pieces(&room, from..to, step, &mut pieces);
                from = to;
            }
            pieces
        });
        self.state = State::Reading { offered, room, outstanding: 0 };
        match pieces {
            Some(pieces) => {
                self.progressed(now);
                self.read(pieces, out);
            }
            None => self.end(Some(FetchError::RoomDiffers), out),
        }
    }

    fn on_reads_ended(&mut self, now: Time, pieces: u32, ok: bool, out: &mut Vec<FetchCommand>) {
        match &mut self.state {
            State::Reading { outstanding, .. } | State::Quiescing { outstanding, .. } if pieces <= *outstanding => {
                *outstanding -= pieces;
            }
            state => panic!("{pieces} reads ended, and so many were not asked for: {state:?}"),
        }
        self.progressed(now);
        if !ok {
            self.end(Some(FetchError::ReadFailed), out);
        }
    }

    fn on_quiesced(&mut self, out: &mut Vec<FetchCommand>) {
        let State::Quiescing { lease, owes_release, .. } = self.state else {
            panic!("reads were cancelled that should go on: {:?}", self.state);
        };
        if owes_release {
            out.push(FetchCommand::Send(PeerBody::Release { lease }));
        }
        out.push(FetchCommand::Free);
        self.finish(out);
    }

    fn on_tick(&mut self, now: Time, ticks: u64, out: &mut Vec<FetchCommand>) {
        if self.state.has_ended() {
            return;
        }
        if now >= self.deadline {
            return self.end(Some(FetchError::Deadline), out);
        }
        if now >= self.wait_until {
            return self.end(Some(FetchError::TimedOut { waiting_for: self.state() }), out);
        }
        if now < self.repeat_at {
            return;
        }
        match &self.state {
            State::Expecting { .. } => {
                out.push(FetchCommand::Inquire);
                self.repeat_at = now + self.config.inquiry_interval();
            }
            State::WaitingRoom { offered, .. } | State::Reading { offered, .. } => {
                let Offer { lease, duration, .. } = offered.offer;
                if !planted_bugs::is(Bug::LeaseNotRenewed) {
                    out.push(FetchCommand::Send(PeerBody::Renew { lease, ticks }));
                }
                self.repeat_at = now + config::renewal_interval(duration);
            }
            &State::Answering { lease, .. } => self.release(now, lease, out),
            State::Quiescing { .. } | State::Done { .. } => {}
        }
    }
}

/// Transitions.
impl Fetch {
    /// Asks the owner whether the copy is valid, once all blocks are read and the prompt is complete.
    fn release_when_read(&mut self, now: Time, out: &mut Vec<FetchCommand>) {
        if let State::Reading { offered, outstanding: 0, .. } = &mut self.state
            && let Some(first) = offered.first.take()
        {
            let lease = offered.offer.lease;
            self.state = State::Answering { lease, first };
            self.wait_until = now + self.config.answer_max;
            self.release(now, lease, out);
            if planted_bugs::is(Bug::StartBeforeAnswer) {
                self.on_released(true, out);
            }
        }
    }

    /// Sends the release, and again after a while unless it is answered.
    fn release(&mut self, now: Time, lease: LeaseId, out: &mut Vec<FetchCommand>) {
        out.push(FetchCommand::Send(PeerBody::Release { lease }));
        self.repeat_at = now + self.config.release_interval();
    }

    /// Ends without a start, with an error or (after a cancel, and where nothing is to be decoded) without one: waits
    /// for reads that run, or gives back the owner's blocks, for which no answer is awaited, and the reader's own.
    fn end(&mut self, error: Option<FetchError>, out: &mut Vec<FetchCommand>) {
        if self.state.has_ended() {
            return;
        }
        // An owner that is gone needs no release, and neither does a lease that is over.
        let owes_release = !matches!(error, Some(FetchError::OwnerLost | FetchError::LeaseOver));
        let release = |lease| owes_release.then_some(FetchCommand::Send(PeerBody::Release { lease }));
        out.extend(error.map(FetchCommand::Fail));
        match &self.state {
            State::WaitingRoom { offered, .. } => out.extend(release(offered.offer.lease)),
            &State::Reading { ref offered, outstanding, .. }
                if outstanding > 0 && !planted_bugs::is(Bug::FreeBeforeQuiesced) =>
            {
                self.state = State::Quiescing { lease: offered.offer.lease, owes_release, outstanding };
                return out.push(FetchCommand::CancelReads);
            }
            State::Reading { offered, .. } => {
                out.extend(release(offered.offer.lease));
                out.push(FetchCommand::Free);
            }
            State::Answering { .. } => out.push(FetchCommand::Free),
            State::Expecting { .. } | State::Quiescing { .. } | State::Done { .. } => {}
        }
        self.finish(out);
    }

    fn finish(&mut self, out: &mut Vec<FetchCommand>) {
        self.state = State::Done { lease: self.lease() };
        out.push(FetchCommand::Done);
    }

    /// Notes that the positions below `tokens` are written once `step` is. Reads the blocks that were not covered
    /// before, now or when there is room. Returns whether there are any.
    fn cover(&mut self, tokens: u32, step: Option<StepId>, out: &mut Vec<FetchCommand>) -> bool {
        match &mut self.state {
            State::WaitingRoom { offered, covered } => {
                let blocks = offered.cover(&self.config, tokens);
                covered.extend(blocks.iter().map(|blocks| (blocks.end, step)));
                blocks.is_some()
            }
            State::Reading { offered, room, .. } => {
                let Some(blocks) = offered.cover(&self.config, tokens) else { return false };
                let mut pieces = Vec::new();
                offered.pieces(room, blocks, step, &mut pieces);
                self.read(pieces, out);
                true
            }
            _ => false,
        }
    }

    fn read(&mut self, pieces: Vec<Piece>, out: &mut Vec<FetchCommand>) {
        if let State::Reading { outstanding, .. } = &mut self.state
            && !pieces.is_empty()
        {
            *outstanding += pieces.len() as u32;
            out.push(FetchCommand::Read(pieces));
        }
    }

    /// Begins the wait anew, while reading, because there is a sign of life.
    fn progressed(&mut self, now: Time) {
        if let State::Reading { .. } = self.state {
            self.wait_until = now + self.config.wait_max;
        }
    }
}

#[cfg(feature = "explore")]
mod explore;
#[cfg(test)]
mod tests;
