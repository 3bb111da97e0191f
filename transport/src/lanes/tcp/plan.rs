//! A transfer over `tcp`, prepared: the requests, encoded, and where each piece of the answers goes.

use super::TcpWay;
use super::encoded::part_of;
use super::pieces::{Landing, LandingPlace};
use super::series::{Series, first_series};
use super::wire::{Asked, PIECE_BYTES_MAX, REQUEST_PIECES_MAX, REQUEST_SERIES_MAX};
use crate::agent::config::TcpConfig;
use crate::agent::link::{Link, Way};
use crate::regions::RegionId;
use crate::transfer::prepared::{Plan, Reusable};
use crate::transfer::{Piece, PrepareError, Run, Work, new_number};
use domain::KvPart;
use kv_memory::{Memory, Place, fetch_to_write};
use std::sync::Arc;

/// Bytes of a bucket: what one request asks for, and so what one rail is given at once, and what is read again
/// where a rail fails.
const BUCKET_BYTES: usize = 1 << 20;

/// Of the memory that bytes will go to, so much is brought into the caches while they are on their way.
const EXPECTED_BYTES: usize = 256 << 10;

/// A prepared transfer.
pub(crate) struct StreamPlan {
    /// How both ends name it.
    pub(crate) number: u64,
    pub(crate) requests: Vec<Request>,
    pub(crate) landings: Vec<Landing>,
    /// Pieces that have not landed.
    pub(crate) missing: usize,
    /// Runs that are on their way to memory of a device.
    pub(super) scattering: usize,
    pub(crate) checksums: bool,
    /// What of it the thread that posted it asked for.
    pub(super) begun: Begun,
    /// Keeps the destinations mapped.
    _destinations: Vec<Arc<dyn Memory>>,
}

/// What of a posted transfer the thread that posted it asked for.
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
    /// Which of the link's rails it goes over, once that is decided.
    pub(crate) rail: Option<usize>,
    /// The life of that rail's connection in which it was asked for; 0: it was not.
    pub(crate) life: u32,
    /// Its place among all that were asked for over that rail, the first being 1.
    pub(super) place: u64,
    /// Its gate at the owner.
    pub(crate) gate: u64,
    /// Whether the gate is known to be open.
    pub(crate) is_pending: bool,
    /// Its first piece.
    pub(crate) first: usize,
    pub(crate) frame: Arc<[u8]>,
    /// Pieces in it.
    pub(crate) pieces: usize,
    /// What they are made of, where they come encoded.
    pub(crate) part: Option<KvPart>,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
    /// The region that they go to, where that is memory of a device.
    pub(crate) device: Option<Arc<dyn Memory>>,
}

impl Request {
    /// As if it had never been asked for.
    fn renew(&mut self) {
        (self.rail, self.life, self.is_pending) = (None, 0, self.gate == 0);
    }

    /// Returns what so many bytes of its pieces have on the wire.
    pub(super) fn wire_bytes(&self, bytes: usize) -> usize {
        wire_bytes(self.part, bytes)
    }
}

impl Reusable for StreamPlan {
    /// Under a new number: late answers to what was asked before are told from those of the next time.
    fn reset(mut self) -> Plan {
        self.number = new_number();
        (self.missing, self.begun) = (self.landings.len(), Begun::Nothing);
        self.landings.iter_mut().for_each(|landing| (landing.landed, landing.scatters) = (false, false));
        for request in &mut self.requests {
            request.renew();
            // Copied only where a request of a transfer that was given up is still being sent.
            Asked::renumber(Arc::make_mut(&mut request.frame), self.number);
        }
        Plan::Stream(self)
    }
}

impl StreamPlan {
    /// The plan for `runs`, whose pieces are inside their regions.
    pub(crate) fn new(
        runs: Vec<Run>,
        tcp: &TcpConfig,
        destination: impl Fn(RegionId) -> Result<Arc<dyn Memory>, PrepareError>,
    ) -> Result<Self, PrepareError> {
        let checksums = tcp.checksums;
        let number = new_number();
        let mut plan = Self {
            number,
            requests: Vec::new(),
            landings: Vec::new(),
            missing: 0,
            scattering: 0,
            checksums,
            begun: Begun::Nothing,
            _destinations: Vec::new(),
        };
        for run in runs {
            let memory = destination(run.destination)?;
            let part =
                part_of(&*memory).filter(|&part| tcp.encoded && run.pieces.iter().all(|piece| is_whole(part, piece)));
            let len_max = part.map_or(PIECE_BYTES_MAX, |part| PIECE_BYTES_MAX / part.bytes() * part.bytes());
            let pieces: Vec<Piece> = run.pieces.iter().flat_map(|piece| cut(piece, len_max)).collect();
            let mut rest = pieces.as_slice();
            while !rest.is_empty() {
                let (series, taken) = first_series(&rest[..bucket(rest)], REQUEST_SERIES_MAX);
                let (pieces, after) = rest.split_at(taken);
                plan.request(&run, part, &series, pieces, &memory);
                rest = after;
            }
            plan._destinations.push(memory);
        }
        plan.missing = plan.landings.len();
        Ok(plan)
    }

    /// Connections that it goes over.
    pub(crate) fn rails(&self) -> u16 {
        let used = self.requests.iter().filter_map(|request| request.rail);
        used.fold(0_u16, |used, rail| used | 1 << rail).count_ones().max(1) as u16
    }

    /// Returns whether some of its bytes may have to be waited for until they are written.
    pub(crate) fn is_gated(&self) -> bool {
        self.requests.iter().any(|request| request.gate > 0)
    }

    /// Asks for all bytes, if that allocates nothing.
    fn begin(&mut self, link: &Link, way: &TcpWay) -> Begun {
        if self.missing == 0 || link.is_gone() || !way.askers().iter().all(|asker| asker.has_room(self)) {
            return Begun::Nothing;
        }
        if way.ask(self) { Begun::All } else { Begun::Some }
    }

    /// Forgets what was asked for in a life of a rail that `is_over`, and has not come as a whole. It is asked for
    /// again.
    pub(super) fn forget(&mut self, is_over: impl Fn(usize, u32) -> bool) {
        let Self { requests, landings, missing, .. } = self;
        let is_stale =
            |request: &&mut Request| request.life > 0 && request.rail.is_some_and(|rail| is_over(rail, request.life));
        for request in requests.iter_mut().filter(is_stale) {
            let landings = &mut landings[request.first..request.first + request.pieces];
            let landed = landings.iter().filter(|landing| landing.landed).count();
            if landed < landings.len() {
                // The whole bucket comes anew, the same bytes to the same places.
                landings.iter_mut().for_each(|landing| landing.landed = false);
                *missing += landed;
                request.renew();
            }
        }
    }

    /// Bytes of a request on the wire that have not landed.
    pub(super) fn missing_of(&self, request: &Request) -> u64 {
        let landings = &self.landings[request.first..request.first + request.pieces];
        let missing = landings.iter().filter(|landing| !landing.landed).map(|landing| landing.len as usize).sum();
        request.wire_bytes(missing) as u64
    }

    /// The request that asks for these pieces. `None`: none does.
    pub(super) fn request_of(&mut self, first: u32, count: u32) -> Option<&mut Request> {
        let after = self.requests.partition_point(|request| request.first <= first as usize);
        let request = &mut self.requests[after.checked_sub(1)?];
        (first as usize + count as usize <= request.first + request.pieces).then_some(request)
    }

    /// Has the memory that the first bytes go to brought into the caches of this core.
    pub(crate) fn expect(&self) {
        let mut left = EXPECTED_BYTES;
        for landing in &self.landings {
            let len = left.min(landing.len as usize);
            if let LandingPlace::Host(to) = landing.to {
                fetch_to_write(to, len);
            }
            left -= len;
            if left == 0 {
                break;
            }
        }
    }

    /// Returns the gate of the piece with this number.
    pub(crate) fn gate(&self, piece: u32) -> u64 {
        let after = self.requests.partition_point(|request| request.first <= piece as usize);
        after.checked_sub(1).map_or(0, |at| self.requests[at].gate)
    }

    fn request(
        &mut self,
        run: &Run,
        part: Option<KvPart>,
        series: &[Series],
        pieces: &[Piece],
        memory: &Arc<dyn Memory>,
    ) {
        let first = self.landings.len();
        let asked = Asked::Read {
            transfer: self.number,
            gate: run.gate,
            region: run.source.0,
            first: first as u32,
            series: series.len() as u32,
            checksums: self.checksums,
            part: part.map(KvPart::fingerprint),
        };
        let mut frame = asked.encode().to_vec();
        series.iter().for_each(|series| frame.extend_from_slice(&series.encode()));
        for piece in pieces {
            let to = match memory.place() {
                // SAFETY: the piece is inside its region, which the plan holds.
                Place::Host(first) => LandingPlace::Host(unsafe { first.add(piece.to as usize) }),
                Place::Device(_) => LandingPlace::Device(piece.to),
            };
            self.landings.push(Landing { to, len: piece.len as u32, landed: false, scatters: false });
        }
        let bytes = pieces.iter().map(|piece| piece.len).sum();
        self.requests.push(Request {
            rail: None,
            life: 0,
            place: 0,
            gate: run.gate,
            is_pending: run.gate == 0,
            first,
            frame: frame.into(),
            pieces: pieces.len(),
            part,
            bytes: wire_bytes(part, bytes) as u64,
            device: memory.place().device().map(|_| memory.clone()),
        });
    }
}

/// Asks for the bytes of a transfer, if the sockets take it now. Whether the thread is to be woken: for what they
/// do not take, and to look out for bytes that come soon; for those behind a gate, their arrival wakes it, and
/// where callers wait for their reads themselves, no thread need be woken.
pub(crate) fn begin(link: &Link, work: &mut Work) -> bool {
    let (Way::Tcp(way), Work::Stream(plan)) = (&link.way, work) else { return true };
    plan.begun = plan.begin(link, way);
    plan.begun != Begun::All || !(plan.is_gated() || way.is_driven())
}

/// Returns how many of `pieces`, which are some, one request asks for.
fn bucket(pieces: &[Piece]) -> usize {
    let mut bytes = 0;
    let fits = |piece: &&Piece| {
        bytes += piece.len;
        bytes <= BUCKET_BYTES
    };
    pieces.iter().take(REQUEST_PIECES_MAX).take_while(fits).count().max(1)
}

/// Parts of a piece that are no larger than `len_max`.
fn cut(piece: &Piece, len_max: usize) -> impl Iterator<Item = Piece> + use<> {
    let Piece { from, to, len } = *piece;
    (0..len).step_by(len_max).map(move |at| Piece {
        from: from + at as u64,
        to: to + at as u64,
        len: (len - at).min(len_max),
    })
}

/// Returns whether a piece is whole parts, at both ends.
fn is_whole(part: KvPart, piece: &Piece) -> bool {
    let bytes = part.bytes() as u64;
    [piece.from, piece.to, piece.len as u64].iter().all(|number| number.is_multiple_of(bytes))
}

/// Returns what so many bytes have on the wire.
fn wire_bytes(part: Option<KvPart>, bytes: usize) -> usize {
    part.map_or(bytes, |part| part.stored_bytes_of(bytes))
}
