//! The owner's side of handoffs: offers, what is written, completes, and the answers to releases.

use crate::core::Core;
use domain::handoff::{Offer, PeerBody};
use domain::{Choice, LeaseId, SeqKey, StepId, Time, Token, WorkerId};
use std::collections::HashMap;
use std::time::Duration;

/// Offers of prompts that are being computed, and the leases of those that were completed.
#[derive(Default)]
pub struct Offers {
    open: HashMap<SeqKey, Open>,
    /// Readers of the leases that are alive.
    readers: HashMap<LeaseId, WorkerId>,
}

struct Open {
    lease: LeaseId,
    to: WorkerId,
    tokens: u32,
    /// Positions below this were announced as written.
    announced: u32,
}

impl Offers {
    /// Offers a prompt that just got its blocks to `to`; `false` if there are too many leases.
    pub fn begin(&mut self, core: &mut Core, now: Time, key: SeqKey, to: WorkerId, duration: Duration) -> bool {
        let Some(sequence) = core.sequence(key) else { return false };
        let tokens = sequence.tokens.len() as u32;
        let deadline = core.attempt(key.request, key.epoch).map_or(now, |attempt| attempt.deadline);
        let until = deadline.min(now + core.config.offer_max);
        let Some(parts) = core.kv.offer(now, key, tokens, duration, until) else { return false };
        self.open.insert(key, Open { lease: parts.lease, to, tokens, announced: parts.ready });
        self.readers.insert(parts.lease, to);
        let offer = Offer {
            request: key.request,
            epoch: key.epoch,
            lease: parts.lease,
            duration,
            layout: core.config.layout.fingerprint(),
            tokens,
            ready: parts.ready,
            groups: parts.groups,
        };
        core.send(to, PeerBody::Offer(offer));
        true
    }

    /// Step `step` is about to write the positions of `key` below `tokens`.
    pub fn writes(&mut self, core: &mut Core, step: StepId, key: SeqKey, tokens: u32) {
        if let Some(open) = self.open.get_mut(&key)
            && tokens > open.announced
        {
            open.announced = tokens;
            let (lease, to) = (open.lease, open.to);
            debug_assert!(tokens <= open.tokens);
            core.send(to, PeerBody::Written { lease, step, tokens });
        }
    }

    /// The prompt is computed; the reader decodes on from `first`.
    pub fn complete(&mut self, core: &mut Core, key: SeqKey, first: Vec<(Choice, Token)>) {
        if let Some(open) = self.open.remove(&key) {
            core.send(open.to, PeerBody::Complete { lease: open.lease, missing: Vec::new(), first });
        }
    }

    /// The prompt will not be completed.
    pub fn withdraw(&mut self, core: &mut Core, key: SeqKey) {
        if let Some(open) = self.open.remove(&key) {
            core.kv.withdraw(open.lease);
            // Its reader will release it, if it ever heard of it and its release arrives: neither is certain.
            self.readers.remove(&open.lease);
            core.send(open.to, PeerBody::Withdraw { lease: open.lease });
        }
    }

    /// A reader's message; `false` if it is none.
    pub fn handle(&mut self, core: &mut Core, now: Time, from: WorkerId, body: &PeerBody) -> bool {
        if let PeerBody::Renew { lease, .. } | PeerBody::Release { lease } | PeerBody::ReleaseAck { lease } = *body
            && self.readers.get(&lease).is_some_and(|&reader| reader != from)
        {
            tracing::warn!(worker = core.config.name, %lease, %from, "a message about another reader's lease is refused");
            return true;
        }
        match *body {
            PeerBody::Renew { lease, ticks } => {
                core.kv.renew(now, lease, ticks);
            }
            PeerBody::Release { lease } => {
                let valid = core.kv.release(now, lease);
                self.readers.remove(&lease);
                core.send(from, PeerBody::Released { lease, valid });
            }
            PeerBody::ReleaseAck { lease } => {
                core.kv.ack(lease);
            }
            _ => return false,
        }
        true
    }

    /// Ends leases whose time has passed.
    pub fn expire(&mut self, core: &mut Core, now: Time) {
        for lease in core.kv.expire(now) {
            let reader = self.readers.remove(&lease);
            core.meters.leases_lapsed.increment(1);
            tracing::warn!(worker = core.config.name, %lease, reader = ?reader, "a lease lapsed");
        }
    }

    /// A reader came back as a new life: what was offered to its old one is void.
    pub fn reader_restarted(&mut self, core: &mut Core, reader: WorkerId) {
        self.open.retain(|_, open| open.to != reader);
        let leases: Vec<LeaseId> =
            self.readers.iter().filter(|(_, to)| **to == reader).map(|(&lease, _)| lease).collect();
        for lease in leases {
            self.readers.remove(&lease);
            core.kv.withdraw(lease);
        }
    }

    /// When `expire` must be called at the latest.
    pub fn next_deadline(&self, core: &Core) -> Option<Time> {
        core.kv.next_deadline()
    }
}
