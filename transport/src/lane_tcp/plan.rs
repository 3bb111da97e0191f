//! A transfer over `tcp`, prepared: the requests, encoded, and where each piece of the answers goes.

use super::asker::Asker;
use super::series::{Series, first_series};
use super::wire::{Asked, PIECE_BYTES_MAX, REQUEST_PIECES_MAX, REQUEST_SERIES_MAX};
use crate::copy::fetch_to_write;
use crate::link::{Link, Way};
use crate::memory::{Memory, RegionId};
use crate::prepared::{Again, Plan};
use crate::transfer::{Piece, PrepareError, Run, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs with fewer bytes go over one connection, others over all.
const STRIPE_BYTES_MIN: usize = 1 << 20;

/// Of the memory that bytes will go to, so much is brought into the caches while they are on their way.
const EXPECTED_BYTES: usize = 256 << 10;

/// Numbers transfers: unique in a process, so that late answers are told from those of any other transfer.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A prepared transfer.
pub(crate) struct StreamPlan {
    /// How both ends name it.
    pub(crate) number: u64,
    pub(crate) requests: Vec<Request>,
    pub(crate) landings: Vec<Landing>,
    /// Pieces that have not landed.
    pub(crate) missing: usize,
    pub(crate) checksums: bool,
    /// What of it was asked for by who posted it.
    pub(super) begun: Begun,
    /// Keeps the destinations mapped.
    _destinations: Vec<Arc<dyn Memory>>,
}

/// What of a posted transfer was asked for by who posted it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Nothing,
    /// All of it, but some requests wait for room in their sockets.
    Some,
    All,
}

/// A request, encoded.
#[derive(Clone)]
pub(crate) struct Request {
    /// Which of the link's connections it goes over.
    pub(crate) connection: usize,
    /// Its gate at the owner.
    pub(crate) gate: u64,
    /// Its first piece.
    pub(crate) first: usize,
    pub(crate) frame: Arc<[u8]>,
    /// Pieces in it.
    pub(crate) pieces: usize,
}

/// Where a piece goes.
pub(crate) struct Landing {
    pub(crate) to: *mut u8,
    pub(crate) len: u32,
    pub(crate) landed: bool,
}

// SAFETY: it is an address; the plan holds its memory, and only the thread that reads the sockets writes there.
unsafe impl Send for Landing {}
// SAFETY: as above.
unsafe impl Sync for Landing {}

impl Again for StreamPlan {
    /// Under a new number: late answers to what was asked before are told from those of the next time.
    fn again(mut self) -> Plan {
        self.number = NEXT.fetch_add(1, Ordering::Relaxed);
        (self.missing, self.begun) = (self.landings.len(), Begun::Nothing);
        self.landings.iter_mut().for_each(|landing| landing.landed = false);
        for request in &mut self.requests {
            // Copied only where a request of a transfer that was given up is still being sent.
            Asked::renumber(Arc::make_mut(&mut request.frame), self.number);
        }
        Plan::Stream(self)
    }
}

impl StreamPlan {
    /// The plan for `runs`, whose pieces are inside their regions.
    pub(crate) fn new(
        link: &Link,
        runs: Vec<Run>,
        checksums: bool,
        destination: impl Fn(RegionId) -> Result<Arc<dyn Memory>, PrepareError>,
    ) -> Result<Self, PrepareError> {
        let (connections, mut turn) = match &link.way {
            Way::Tcp { askers, turn, .. } => (askers.len(), turn.fetch_add(1, Ordering::Relaxed)),
            Way::Local(_) | Way::Shm { .. } | Way::Rdma(_) => (1, 0),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut plan = Self {
            number,
            requests: Vec::new(),
            landings: Vec::new(),
            missing: 0,
            checksums,
            begun: Begun::Nothing,
            _destinations: Vec::new(),
        };
        for run in runs {
            let memory = destination(run.destination)?;
            let pieces: Vec<Piece> = run.pieces.iter().flat_map(cut).collect();
            let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
            let ways = if bytes < STRIPE_BYTES_MIN { 1 } else { connections };
            // The shares are not taken in turns piece by piece, so that neighbours stay together.
            for share in pieces.chunks(pieces.len().div_ceil(ways).max(1)) {
                let mut share = share;
                while !share.is_empty() {
                    let most = share.len().min(REQUEST_PIECES_MAX);
                    let (series, taken) = first_series(&share[..most], REQUEST_SERIES_MAX);
                    let (pieces, rest) = share.split_at(taken);
                    plan.request(turn % connections, &run, &series, pieces, &memory);
                    share = rest;
                }
                turn += 1;
            }
            plan._destinations.push(memory);
        }
        plan.missing = plan.landings.len();
        Ok(plan)
    }

    /// Connections that it goes over.
    pub(crate) fn rails(&self) -> u16 {
        let is_first = |at: usize| self.requests[..at].iter().all(|it| it.connection != self.requests[at].connection);
        (0..self.requests.len()).filter(|&at| is_first(at)).count().max(1) as u16
    }

    /// Whether some of its bytes may have to be waited for until they are written.
    pub(crate) fn is_gated(&self) -> bool {
        self.requests.iter().any(|request| request.gate > 0)
    }

    /// Asks for all bytes, if that allocates nothing.
    fn ask(&self, link: &Link, askers: &[Arc<Asker>]) -> Begun {
        if self.missing == 0 || link.is_gone() || !askers.iter().all(|asker| asker.has_room(self)) {
            return Begun::Nothing;
        }
        // Each connection has a share of its own, whatever becomes of the others'.
        let unfinished = askers.iter().filter(|asker| asker.ask(self) != Ok(true)).count();
        if unfinished == 0 { Begun::All } else { Begun::Some }
    }

    /// Has the memory that the first bytes go to brought into the caches of this core.
    pub(crate) fn expect(&self) {
        let mut left = EXPECTED_BYTES;
        for landing in &self.landings {
            let len = left.min(landing.len as usize);
            fetch_to_write(landing.to, len);
            left -= len;
            if left == 0 {
                break;
            }
        }
    }

    /// The gate of the piece with this number.
    pub(crate) fn gate(&self, piece: u32) -> u64 {
        let after = self.requests.partition_point(|request| request.first <= piece as usize);
        after.checked_sub(1).map_or(0, |at| self.requests[at].gate)
    }

    fn request(&mut self, connection: usize, run: &Run, series: &[Series], pieces: &[Piece], memory: &Arc<dyn Memory>) {
        let first = self.landings.len();
        let asked = Asked::Read {
            transfer: self.number,
            gate: run.gate,
            region: run.source.0,
            first: first as u32,
            series: series.len() as u32,
            checksums: self.checksums,
        };
        let mut frame = asked.encode().to_vec();
        series.iter().for_each(|series| frame.extend_from_slice(&series.encode()));
        for piece in pieces {
            // SAFETY: the piece is inside its region, which the plan holds.
            let to = unsafe { memory.as_ptr().add(piece.to as usize) };
            self.landings.push(Landing { to, len: piece.len as u32, landed: false });
        }
        self.requests.push(Request { connection, gate: run.gate, first, frame: frame.into(), pieces: pieces.len() });
    }
}

/// Asks for the bytes of a transfer, if the sockets take it now. Whether the thread is to be woken: for what they do not take,
/// and to look out for bytes that come soon; for those behind a gate, their arrival wakes it.
pub(crate) fn begin(link: &Link, work: &mut Work) -> bool {
    let (Way::Tcp { askers, .. }, Work::Stream(plan)) = (&link.way, work) else { return true };
    plan.begun = plan.ask(link, askers);
    plan.begun != Begun::All || !plan.is_gated()
}

/// Parts of a piece that are no larger than a piece may be.
fn cut(piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
    let Piece { from, to, len } = *piece;
    (0..len).step_by(PIECE_BYTES_MAX).map(move |at| Piece {
        from: from + at as u64,
        to: to + at as u64,
        len: (len - at).min(PIECE_BYTES_MAX),
    })
}
