//! What owners say to their readers.

use super::entry::FetchKind;
use super::{AttemptId, Fetches, prefix};
use crate::state::WorkerState;
use domain::handoff::{Offer, PeerBody};
use domain::session::Failure;
use domain::{LeaseId, Time, Token, WorkerId};
use kv_manager::FetchEvent;
use std::ops::ControlFlow;
use telemetry::metrics::PrefixResult;

impl Fetches {
    /// Takes an owner's message. What belongs to no fetch is stale and counted.
    pub fn handle(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, body: PeerBody) {
        match body {
            PeerBody::Offer(offer) => self.on_offer(core, now, from, offer),
            PeerBody::Decline { request, epoch } => self.on_decline(core, now, from, (request, epoch)),
            PeerBody::Queued { request, epoch } => self.on_queued(core, now, from, (request, epoch)),
            PeerBody::Written { lease, .. }
            | PeerBody::Complete { lease, .. }
            | PeerBody::Withdraw { lease }
            | PeerBody::Released { lease, .. } => self.on_lease(core, now, from, lease, body),
            PeerBody::Ask(_)
            | PeerBody::Expect { .. }
            | PeerBody::Renew { .. }
            | PeerBody::Release { .. }
            | PeerBody::ReleaseAck { .. } => {}
        }
    }

    /// Takes a message about a lease.
    fn on_lease(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, lease: LeaseId, body: PeerBody) {
        let Some(&id) = self.leases.get(&(from, lease)) else {
            return self.early.follow(core, from, lease, body);
        };
        let event = match body {
            PeerBody::Written { step, tokens, .. } => FetchEvent::Written { step, tokens },
            PeerBody::Withdraw { .. } => FetchEvent::Withdraw,
            PeerBody::Released { valid, .. } => FetchEvent::Released { valid },
            PeerBody::Complete { missing, first, .. } => {
                if !first.is_empty() && self.note_complete(core, now, from, id, missing).is_break() {
                    return self.event(core, now, id, FetchEvent::Cancel);
                }
                FetchEvent::Complete { first }
            }
            _ => return,
        };
        self.event(core, now, id, event);
    }

    /// Notes the output tokens that were not known here. Breaks off where they are not those that the offer covers: the
    /// attempt has failed.
    fn note_complete(
        &mut self,
        core: &mut WorkerState,
        now: Time,
        from: WorkerId,
        id: AttemptId,
        missing: Vec<Token>,
    ) -> ControlFlow<()> {
        let Some(entry) = self.open.get_mut(&id) else { return ControlFlow::Continue(()) };
        if entry.kind == FetchKind::Prefix || entry.completed.is_some() {
            return ControlFlow::Continue(());
        }
        entry.completed = Some(now);
        tracing::trace!(target: "timeline", worker = core.config.name, request = %id.0, "complete taken");
        let known = core.sequences.get(&entry.key).map_or(0, |sequence| sequence.tokens.len());
        if entry.tokens.is_some_and(|tokens| known + missing.len() != tokens as usize) {
            let detail = format!("worker {from} does not say which tokens it hands over");
            core.fail_by(Some(from), id.0, id.1, Failure::HandoffLapsed, detail);
            return ControlFlow::Break(());
        }
        entry.missing = missing;
        ControlFlow::Continue(())
    }

    /// Takes the word that what is expected of the owner waits in its queue.
    fn on_queued(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, id: AttemptId) {
        match self.open.get(&id) {
            Some(entry) if entry.owner == from => self.event(core, now, id, FetchEvent::Queued),
            _ => core.meters.stale_lease.increment(1),
        }
    }

    /// Takes an offer, keeps it until its submit is here, or gives it back.
    pub(super) fn on_offer(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, offer: Offer) {
        let id = (offer.request, offer.epoch);
        match self.open.get_mut(&id) {
            Some(entry) if entry.owner == from && entry.tokens.is_none() && !self.early.is_closed(id) => {
                entry.tokens = Some(offer.tokens);
                let known = core.sequences.get(&entry.key).map(|sequence| sequence.tokens.len() as u32);
                let fits = |known| match entry.kind {
                    FetchKind::Prompt => offer.tokens == known,
                    FetchKind::Running => offer.tokens >= known,
                    FetchKind::Prefix => prefix::fits(core, offer.tokens, known),
                };
                if known.is_none_or(fits) {
                    self.leases.insert((from, offer.lease), id);
                    return self.event(core, now, id, FetchEvent::Offer(offer));
                }
                core.send(from, PeerBody::Release { lease: offer.lease });
                if entry.kind == FetchKind::Prefix {
                    return self.give_up(core, now, id, PrefixResult::Failed);
                }
                let detail = format!("worker {from} offers {} tokens of another prompt", offer.tokens);
                core.fail_by(Some(from), id.0, id.1, Failure::HandoffLapsed, detail);
                self.event(core, now, id, FetchEvent::Cancel);
            }
            // What was asked for twice is offered twice, under two leases; and an offer that was given back may
            // come twice.
            Some(_) if !self.leases.contains_key(&(from, offer.lease)) => {
                core.meters.stale_lease.increment(1);
                core.send(from, PeerBody::Release { lease: offer.lease });
            }
            Some(_) => core.meters.stale_lease.increment(1),
            None => self.early.keep(core, now, from, offer),
        }
    }
}
