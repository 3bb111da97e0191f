//! The reader's side of handoffs: for each expected prompt a fetch machine ([`kv_manager::Fetch`]), and its transfers.
//! Room to read into it gets in its turn among all that wait for some ([`scheduler`]).
//!
//! This file opens and closes fetches, and passes on what happens to their owners and to time. The rest has a file per
//! direction: what owners say (`messages`, and `early` before the submit is here), what machines command (`commands`),
//! and what is read (`reads`). Prefixes that other workers hold come by the same machine; what is their own is in
//! `prefix`.

mod commands;
mod early;
mod entry;
#[cfg(feature = "explore")]
mod explore;
mod messages;
mod prefix;
mod reads;

pub use entry::{FetchKind, FetchProgress};

use crate::state::WorkerState;
use domain::handoff::PeerBody;
use domain::session::Failure;
use domain::{Epoch, LeaseId, RequestId, SeqKey, Time, WorkerId};
use early::EarlyOffers;
use entry::{Entry, LANE_NONE};
use kv_manager::{Fetch, FetchConfig, FetchEvent};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use telemetry::metrics::{self as declared, HandoffResult};
use transport::TransferId;

/// An attempt at a request: what a fetch is known by.
type AttemptId = (RequestId, Epoch);

/// All fetches of a worker.
#[derive(Default)]
pub struct Fetches {
    open: BTreeMap<AttemptId, Entry>,
    leases: BTreeMap<(WorkerId, LeaseId), AttemptId>,
    /// The fetch of each posted transfer, and the pieces that it reads.
    transfers: HashMap<TransferId, (AttemptId, u32)>,
    /// When each machine is due next: one entry each, but for those that wait for no time.
    deadlines: BTreeSet<(Time, AttemptId)>,
    early: EarlyOffers,
}

impl Fetches {
    /// Expects that `owner` offers the KV of an attempt: of its prompt, or (`running`) of a sequence that decodes
    /// there. Its sequence is in `core` already ([`WorkerState::expect`]). An attempt whose offer came too early,
    /// and was given back, fails at once.
    pub fn expect(&mut self, core: &mut WorkerState, now: Time, key: SeqKey, owner: WorkerId, running: bool) {
        let id = (key.request, key.epoch);
        if self.early.is_closed(id) {
            // Its owner offered once, and was told to forget that: no valid copy can come of a wait.
            declared::handoffs(LANE_NONE, HandoffResult::Lapsed).increment(1);
            let detail = format!("the offer of worker {owner} came before its attempt and was given back");
            return core.fail(key.request, key.epoch, Failure::HandoffLapsed, detail);
        }
        let Some(attempt) = core.attempt(key.request, key.epoch) else { return };
        let machine = Fetch::expect(now, config(core, core.config.handoff_wait), attempt.deadline);
        let kind = if running { FetchKind::Running } else { FetchKind::Prompt };
        self.open.insert(id, Entry::new(machine, key, owner, kind, attempt.submit.choices.len() as u16));
        self.note_deadline(id);
        // While the owner computes, so that nothing waits for it then.
        core.transport.connect(owner);
        if let Some((offer, followed_by)) = self.early.take(owner, id) {
            self.on_offer(core, now, owner, offer);
            for body in followed_by {
                self.handle(core, now, owner, body);
            }
        }
    }

    /// Ends the fetch of an attempt that is over for the router.
    pub fn cancel(&mut self, core: &mut WorkerState, now: Time, request: RequestId, epoch: Epoch) {
        self.event(core, now, (request, epoch), FetchEvent::Cancel);
    }

    /// Gives back what `owner` offers to an attempt that was refused, now or when it comes. Otherwise it would be kept
    /// as an early offer, as long as a submit may take.
    pub(crate) fn refuse(&mut self, core: &mut WorkerState, owner: WorkerId, request: RequestId, epoch: Epoch) {
        if let Some((offer, _)) = self.early.take(owner, (request, epoch)) {
            core.send(owner, PeerBody::Release { lease: offer.lease });
        }
        self.early.close((request, epoch));
    }

    /// Reads what waited for the connection to this owner.
    pub fn connected(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        let waiting =
            self.open.iter().filter(|(_, entry)| entry.owner == owner && !entry.unposted.is_empty()).map(|(&id, _)| id);
        for id in waiting.collect::<Vec<_>>() {
            let Some(entry) = self.open.get_mut(&id) else { continue };
            for pieces in std::mem::take(&mut entry.unposted) {
                if let Some(failed) = self.read(core, id, pieces) {
                    // Nothing more is to be read.
                    self.event(core, now, id, failed);
                    break;
                }
            }
        }
    }

    /// Fails what waited for the connection to this owner, which is not there, or no more. What the owner offered
    /// before it was computed has no end, for what it said of that is lost
    /// ([`Offers::reader_lost`](crate::Offers::reader_lost) is the other side of it).
    pub fn owner_lost(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        let of_it: Vec<_> = self.open.iter().filter(|(_, entry)| entry.owner == owner).map(|(&id, _)| id).collect();
        for id in of_it {
            let Some(entry) = self.open.get_mut(&id) else { continue };
            if !entry.unposted.is_empty() {
                let pieces = std::mem::take(&mut entry.unposted).iter().map(|pieces| pieces.len() as u32).sum();
                self.event(core, now, id, FetchEvent::ReadsEnded { pieces, ok: false });
            } else if entry.tokens.is_some() && !entry.machine.is_complete() {
                self.event(core, now, id, FetchEvent::Withdraw);
            }
        }
        self.holder_lost(core, now, owner);
    }

    /// Ends what a peer offered that came back as a new life.
    pub fn owner_restarted(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        self.early.owner_restarted(owner);
        let lost: Vec<_> = self.leases.iter().filter(|((from, _), _)| *from == owner).map(|(_, &id)| id).collect();
        for id in lost {
            self.event(core, now, id, FetchEvent::OwnerLost);
        }
        self.holder_lost(core, now, owner);
    }

    /// Begins to read into the room that was opened for a handoff; so many of its tokens were here already.
    pub fn room_given(&mut self, core: &mut WorkerState, now: Time, key: SeqKey, cached_tokens: u32) {
        core.meters.prefix_hit_tokens.increment(u64::from(cached_tokens));
        let room = FetchEvent::Room { tables: core.kv.tables(key), held_tokens: cached_tokens };
        self.event(core, now, (key.request, key.epoch), room);
    }

    /// Prolongs every wait by a pause of this worker, which has not heard yet what owners said meanwhile.
    pub fn stood_still(&mut self, pause: Duration) {
        for (&id, entry) in &mut self.open {
            entry.machine.stood_still(pause);
            note_deadline(&mut self.deadlines, id, entry);
        }
        self.early.stood_still(pause);
    }

    /// Ends the waits whose deadlines have passed.
    pub fn tick(&mut self, core: &mut WorkerState, now: Time) {
        let ticks = core.ticks();
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id).collect();
        for id in due {
            self.event(core, now, id, FetchEvent::Tick { ticks });
        }
        self.early.tick(core, now);
    }

    /// Returns every fetch that is open, for tests and metrics.
    pub fn progress(&self) -> impl Iterator<Item = FetchProgress<'_>> {
        self.open.values().map(Entry::progress)
    }

    /// Returns the entries of every list, by name: nothing is left of a fetch that is over.
    pub fn sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("fetches", self.open.len()),
            ("leases of fetches", self.leases.len()),
            ("transfers", self.transfers.len()),
            ("deadlines of fetches", self.deadlines.len()),
            ("early offers", self.early.len()),
        ]
    }

    /// Returns whether anything is to come from a peer.
    pub fn deals_with(&self, peer: WorkerId) -> bool {
        self.open.values().any(|entry| entry.owner == peer) || self.early.has_offer_of(peer)
    }

    /// Returns when `tick` must be called at the latest.
    pub fn next_deadline(&self, core: &WorkerState) -> Option<Time> {
        let machines = self.deadlines.first().map(|&(at, _)| at);
        machines.into_iter().chain(self.early.next_deadline(core)).min()
    }

    fn note_deadline(&mut self, id: AttemptId) {
        if let Some(entry) = self.open.get_mut(&id) {
            note_deadline(&mut self.deadlines, id, entry);
        }
    }

    fn forget(&mut self, core: &mut WorkerState, id: AttemptId) {
        if let Some(entry) = self.open.remove(&id) {
            // If it has no room yet it needs none.
            core.scheduler.remove(entry.key);
            entry.due.map(|at| self.deadlines.remove(&(at, id)));
            match entry.machine.lease().map(|lease| (entry.owner, lease)) {
                // A new life of the owner counts its leases anew: the id may be another fetch's by now.
                Some(lease) if self.leases.get(&lease) == Some(&id) => drop(self.leases.remove(&lease)),
                Some(_) => {}
                None => self.early.close(id),
            }
        }
    }
}

fn note_deadline(deadlines: &mut BTreeSet<(Time, AttemptId)>, id: AttemptId, entry: &mut Entry) {
    let due = entry.machine.next_deadline();
    let before = std::mem::replace(&mut entry.due, due);
    if due != before {
        before.map(|at| deadlines.remove(&(at, id)));
        due.map(|at| deadlines.insert((at, id)));
    }
}

/// Settings of a machine that waits for so long.
fn config(core: &WorkerState, wait_max: Duration) -> FetchConfig {
    FetchConfig {
        layout: core.config.layout.fingerprint(),
        block_tokens: core.config.layout.block_tokens,
        wait_max,
        answer_max: core.config.answer_wait,
        release_retry: core.config.release_retry,
    }
}
