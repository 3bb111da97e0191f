//! The queue of a thread that carries out transfers, of a lane or of those that copy: where other threads lay what it
//! is to do, and how the caller that posted a transfer receives its end.
//!
//! What is deliberately absent: how bytes come. That is each lane's, which takes the orders from here, one batch
//! at a time.

use crate::agent::event::{TransferError, TransferId, TransferReport};
use crate::agent::link::Link;
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::transfer::prepared::{PlanGuard, Reusable};
use crate::transfer::run_times::RunTimes;
use crate::transfer::timeline::{Moment, note};
use crate::transfer::{Transfer, Work};
use crate::wake::{Doorbell, Wake};
use domain::{Incarnation, WorkerId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where others lay orders for a lane's thread. `O`: orders that this lane alone has; `S`: what a peer reads over;
/// `B`: what wakes the thread.
pub(crate) struct LaneQueue<O, S, B = Doorbell> {
    bell: Arc<B>,
    orders: Mutex<Orders<O, S>>,
    /// The thread takes no orders any more that are laid from now on. Changed and looked at with the lock on them.
    closed: AtomicBool,
}

/// What a lane's thread is to do.
pub(crate) struct Orders<O, S> {
    /// Bounded by [`crate::AgentConfig::posted_max`], but for reads of probes, of which a link has one at a time.
    pub(crate) posted: VecDeque<Posted>,
    /// Never refused, or a destination would stay lent until its gates open. Emptied in every round, and callers
    /// cancel a transfer once, so it holds about as many as may be posted.
    pub(crate) cancelled: Vec<TransferId>,
    /// What this lane alone is asked for.
    pub(crate) own: Vec<O>,
    /// Peers that read from now on, each over what is beside it.
    pub(crate) served: Vec<(WorkerId, Incarnation, S)>,
    /// Lives of peers that are known; what belongs to earlier ones is closed.
    pub(crate) introduced: Vec<(WorkerId, Incarnation)>,
    /// Some link is gone.
    pub(crate) links_changed: bool,
    /// The thread is to end.
    pub(crate) closed: bool,
}

/// Why a read that was waited for brought nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneReadError {
    #[error("the lane has ended")]
    LaneEnded,
    #[error("a read takes longer than {0:?}")]
    TooSlow(Duration),
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// A transfer that was posted, and what it needs to be read.
pub(crate) struct Posted {
    pub(crate) open: Open,
    pub(crate) work: Work,
}

/// A transfer that is posted and not ended: whose it is, and how long it takes.
pub(crate) struct Open {
    caller: Caller,
    pub(crate) link: Arc<Link>,
    pub(crate) bytes: u64,
    at: Instant,
    begun: Option<Instant>,
    wire: Duration,
    /// Bytes that came over the lane.
    wire_bytes: u64,
    /// The times of its parts, if they are kept.
    runs: Option<RunTimes>,
}

/// What receives a transfer's end.
enum Caller {
    /// The agent's owner.
    Owner(TransferId),
    /// A thread of the agent that waits for it.
    Waiting(SyncSender<Result<TransferReport, TransferError>>),
}

impl<O, S, B: Wake> LaneQueue<O, S, B> {
    pub(crate) fn new(bell: B, posted_max: usize) -> Self {
        Self { bell: Arc::new(bell), orders: Mutex::new(Orders::new(posted_max)), closed: AtomicBool::new(false) }
    }

    /// Returns what wakes the thread.
    pub(crate) fn bell(&self) -> &Arc<B> {
        &self.bell
    }

    fn orders(&self) -> MutexGuard<'_, Orders<O, S>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays an order and wakes the thread, unless that takes none any more.
    fn order(&self, order: impl FnOnce(&mut Orders<O, S>)) {
        let mut orders = self.orders();
        if !self.closed.load(Ordering::Relaxed) {
            order(&mut orders);
        }
        drop(orders);
        self.bell.wake();
    }

    /// Takes all orders in exchange for `carried_out`, which are empty and kept for their room.
    pub(crate) fn take(&self, carried_out: &mut Orders<O, S>) {
        std::mem::swap(carried_out, &mut *self.orders());
    }

    /// Lays a transfer. `begin` may begin it at once, and says whether the thread is to be woken for it. Gives it
    /// back if the thread takes none any more.
    pub(crate) fn post(
        &self,
        id: TransferId,
        transfer: Transfer,
        begin: impl FnOnce(&Link, &mut Work) -> bool,
    ) -> Option<Transfer> {
        self.lay(Caller::Owner(id), transfer, begin)
    }

    /// Reads and waits for the end, for `at_most`; `begin` as for [`LaneQueue::post`].
    pub(crate) fn read(
        &self,
        transfer: Transfer,
        at_most: Duration,
        begin: impl FnOnce(&Link, &mut Work) -> bool,
    ) -> Result<TransferReport, LaneReadError> {
        let (waiting, answer) = sync_channel(1);
        if self.lay(Caller::Waiting(waiting), transfer, begin).is_some() {
            return Err(LaneReadError::LaneEnded);
        }
        Ok(answer.recv_timeout(at_most).map_err(|_| LaneReadError::TooSlow(at_most))??)
    }

    fn lay(
        &self,
        caller: Caller,
        transfer: Transfer,
        begin: impl FnOnce(&Link, &mut Work) -> bool,
    ) -> Option<Transfer> {
        // The thread looks among the orders for what is answered, so it must not look before this one is there.
        let mut orders = self.orders();
        if self.closed.load(Ordering::Relaxed) {
            return Some(transfer);
        }
        let Transfer { link, mut work, bytes, timed } = transfer;
        let (wire, runs) = (Duration::ZERO, timed.then(RunTimes::new));
        let open = |link| Open { caller, link, bytes, at: now(), begun: None, wire, wire_bytes: 0, runs };
        let wakes = begin(&link, &mut work);
        orders.posted.push_back(Posted { open: open(link), work });
        drop(orders);
        if wakes {
            self.bell.wake();
        }
        None
    }

    pub(crate) fn cancel(&self, id: TransferId) {
        self.order(|orders| orders.cancelled.push(id));
    }

    /// Asks for what this lane alone does.
    pub(crate) fn ask(&self, own: O) {
        self.order(|orders| orders.own.push(own));
    }

    /// A peer reads over `served`. Non-blocking.
    pub(crate) fn serve(&self, peer: WorkerId, incarnation: Incarnation, served: S) {
        self.order(|orders| orders.served.push((peer, incarnation, served)));
    }

    /// A life of a peer is known; connections of earlier ones are closed.
    pub(crate) fn introduced(&self, id: WorkerId, incarnation: Incarnation) {
        self.order(|orders| orders.introduced.push((id, incarnation)));
    }

    /// Some link is gone.
    pub(crate) fn links_changed(&self) {
        self.order(|orders| orders.links_changed = true);
    }

    /// Has the thread end, with what was laid until now. It takes no more.
    pub(crate) fn close(&self) {
        let mut orders = self.orders();
        orders.closed = true;
        self.closed.store(true, Ordering::Relaxed);
        drop(orders);
        self.bell.wake();
    }
}

impl<O, S> Orders<O, S> {
    /// None, with room for `posted_max` transfers.
    pub(crate) fn new(posted_max: usize) -> Self {
        Self {
            posted: VecDeque::with_capacity(posted_max),
            cancelled: Vec::with_capacity(posted_max),
            own: Vec::new(),
            served: Vec::new(),
            introduced: Vec::new(),
            links_changed: false,
            closed: false,
        }
    }
}

impl Open {
    /// `None`: it is not the agent's owner's.
    pub(crate) fn id(&self) -> Option<TransferId> {
        match self.caller {
            Caller::Owner(id) => Some(id),
            Caller::Waiting(_) => None,
        }
    }

    /// Its first byte is on its way, if none was before.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// Notes that bytes behind a gate begin to come, or that so many of them are there.
    pub(crate) fn note(&mut self, moment: Moment, gate: u64, bytes: usize) {
        let Some(id) = self.id() else { return };
        note(moment, id, &self.link, || (gate, bytes));
        if let Some(runs) = &mut self.runs {
            let at = now().duration_since(self.at);
            match moment {
                Moment::Begun => runs.begun(gate, at),
                Moment::Read => runs.read(gate, at, bytes as u64),
            }
        }
    }

    /// So many bytes came over the lane.
    pub(crate) fn delivered(&mut self, bytes: u64) {
        self.wire_bytes += bytes;
    }

    /// Bytes of it were on their way for so long.
    pub(crate) fn add_wire(&mut self, wire: Duration) {
        self.wire += wire;
    }

    /// Takes it to its one end; its plan goes back to where it was prepared. `rails`: how many its bytes came over.
    pub(crate) fn end<P: Reusable>(
        self,
        agent: &AgentShared,
        plan: PlanGuard<P>,
        rails: u16,
        result: Result<(), TransferError>,
    ) {
        let result = result.map(|()| self.report(rails)).map_err(|error| agent.outcome(error));
        if let (Caller::Owner(_), Ok(report)) = (&self.caller, &result) {
            agent.read(&self.link, report);
        }
        plan.end(result);
        match self.caller {
            Caller::Owner(id) => agent.end_with(id, result, self.runs.map_or_else(Vec::new, RunTimes::into_list)),
            // It may have stopped waiting.
            Caller::Waiting(waiting) => drop(waiting.try_send(result)),
        }
    }

    fn report(&self, rails: u16) -> TransferReport {
        TransferReport {
            lane: self.link.lane(),
            rails,
            bytes: self.bytes,
            wire_bytes: self.wire_bytes,
            queued: self.begun.unwrap_or(self.at).duration_since(self.at),
            wire: self.wire,
            elapsed: now().duration_since(self.at),
        }
    }
}
