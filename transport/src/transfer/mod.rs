//! Transfers: what of a peer's memory is to be read, checked and merged once, when it is prepared.

pub(crate) mod claims;
pub(crate) mod cursor;
pub(crate) mod plan_slot;
pub(crate) mod prepared;
pub(crate) mod run_times;
pub(crate) mod timeline;

use crate::agent::config::TcpConfig;
use crate::agent::event::{TransferError, TransferReport};
use crate::agent::link::{Link, Source, Way};
use crate::agent::shared::AgentShared;
use crate::lanes::Lane;
use crate::lanes::nvlink::ReaderDevice;
use crate::lanes::rdma::ReadPlan;
use crate::lanes::tcp::StreamPlan;
use crate::regions::RegionId;
use crate::transfer::claims::{Claim, Claims, Range};
use crate::transfer::prepared::{Plan, PlanGuard, Prepared};
use domain::WorkerId;
use kv_memory::{Copier, Memory, PeerMemory, Place};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// One contiguous read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Byte offset in the peer's region.
    pub from: u64,
    /// Byte offset in the caller's region.
    pub to: u64,
}

/// Copies of one length between one pair of regions that may begin at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadBatch {
    /// The peer's region.
    pub source: RegionId,
    /// The caller's region.
    pub destination: RegionId,
    /// Bytes of each copy.
    pub len: usize,
    /// The peer's progress word must have reached this; 0: at once.
    pub gate: u64,
    /// Where each begins at both ends.
    pub copies: Copies,
}

/// Copies of one length, one by one or by the rule that places them.
///
/// ```
/// use transport::{Copies, Copy};
///
/// // The same head of four blocks, each 4096 bytes further on at the owner's, one behind the other here.
/// let (first, step) = (Copy { from: 512, to: 0 }, Copy { from: 4096, to: 128 });
/// let strided = Copies::Strided { first, step, count: 4 };
/// assert_eq!(strided.count(), 4);
/// assert_eq!(strided.get(3), Some(Copy { from: 512 + 3 * 4096, to: 3 * 128 }));
/// assert_eq!(strided.get(4), None);
/// let list: Vec<Copy> = strided.iter().collect();
/// assert_eq!(list[1], Copy { from: 4608, to: 128 });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Copies {
    /// One by one.
    List(Vec<Copy>),
    /// `count` of them, each `step` further on than the one before, at both ends.
    Strided {
        /// The first.
        first: Copy,
        /// Bytes from the beginning of one to that of the next. What one writes, the next does not: `step.to` is
        /// no less than the length of each.
        step: Copy,
        /// Number of copies.
        count: u64,
    },
}

impl Copies {
    /// Returns the number of copies. Shown at [`Copies`], as the calls below are.
    pub fn count(&self) -> u64 {
        match self {
            Copies::List(copies) => copies.len() as u64,
            Copies::Strided { count, .. } => *count,
        }
    }

    /// Returns the `n`-th. Offsets that overflow wrap: `prepare` refuses them.
    pub fn get(&self, n: u64) -> Option<Copy> {
        match self {
            Copies::List(copies) => copies.get(usize::try_from(n).ok()?).copied(),
            Copies::Strided { first, step, count } => {
                let at = |first: u64, step: u64| first.wrapping_add(step.wrapping_mul(n));
                (n < *count).then(|| Copy { from: at(first.from, step.from), to: at(first.to, step.to) })
            }
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Copy> + '_ {
        (0..self.count()).filter_map(|n| self.get(n))
    }
}

impl From<Vec<Copy>> for Copies {
    fn from(copies: Vec<Copy>) -> Self {
        Self::List(copies)
    }
}

/// A contiguous read, of neighbours that were merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) len: usize,
}

/// Pieces between one pair of regions that may begin at the same time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) source: RegionId,
    pub(crate) destination: RegionId,
    pub(crate) gate: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// Pieces to be copied by this process, with their memory.
pub(crate) struct Batch {
    pub(crate) source: Source,
    pub(crate) destination: Arc<dyn Memory>,
    pub(crate) gate: u64,
    pub(crate) pieces: Vec<Piece>,
}

impl Batch {
    /// Returns the bytes of all its pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Returns how its bytes get from one end to the other.
    pub(crate) fn reach(&self) -> Reach<'_> {
        let destination = self.destination.place();
        match (self.source.place(), destination) {
            (Ok(source), _) => Reach::Copied { source, destination },
            (Err(source), Place::Device(device)) => Reach::Fetched { source, copier: device.copier },
            (Err(_), Place::Host(_)) => unreachable!("`Prepared::check` refuses what no device can write"),
        }
    }

    /// Returns whether the calling thread alone can copy it: both ends are host memory.
    pub(crate) fn is_the_hosts(&self) -> bool {
        matches!(self.reach(), Reach::Copied { source: Place::Host(_), destination: Place::Host(_) })
    }
}

/// How bytes of a batch get from one end to the other.
pub(crate) enum Reach<'a> {
    /// A thread copies them; by way of a frame, where an end is memory of a device.
    Copied { source: Place<'a>, destination: Place<'a> },
    /// The device of the destination fetches them.
    Fetched { source: &'a Arc<PeerMemory>, copier: &'a Arc<dyn Copier> },
}

/// How the bytes come.
pub(crate) enum Work {
    /// This process copies them.
    Copies(PlanGuard<Vec<Batch>>),
    /// A device reads them.
    Reads(PlanGuard<ReadPlan>),
    /// The peer is asked to send them.
    Stream(PlanGuard<StreamPlan>),
}

/// Returns a number that no other transfer of this process has had, and that is not 0: so late answers are told from
/// those to any other transfer.
pub(crate) fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A transfer that was posted, on its way to its end.
pub(crate) struct Transfer {
    pub(crate) link: Arc<Link>,
    pub(crate) work: Work,
    pub(crate) bytes: u64,
    /// The times of its parts are kept.
    pub(crate) timed: bool,
}

impl Prepared {
    /// Checks `batches` and holds what they need. `reader`: whose it is; `tcp`: how it reads over that
    /// lane; `claims`: what its transfers write; `own`: the caller's regions. Errors: [`PrepareError`].
    pub(crate) fn check(
        reader: Weak<AgentShared>,
        link: Arc<Link>,
        batches: Vec<ReadBatch>,
        tcp: &TcpConfig,
        claims: &Arc<Claims>,
        own: impl Fn(RegionId) -> Option<Arc<dyn Memory>>,
    ) -> Result<Self, PrepareError> {
        let mut sources = Sources { link: &link, held: BTreeMap::new() };
        check(&mut sources, &batches, &own)?;
        let bytes = batches.iter().map(|batch| batch.len as u64 * batch.copies.count()).sum();
        let runs = merge(batches, link.progress());
        let destination = |id| own(id).ok_or(PrepareError::NoRegion { peer: None, region: id });
        let claim = claim(claims, &runs, destination)?;
        let plan = match &link.way {
            Way::Rdma(way) => Plan::Reads(ReadPlan::new(way, link.peer, runs, destination)?),
            Way::Tcp(_) => Plan::Stream(StreamPlan::new(runs, tcp, destination)?),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } => {
                let batch = |run: Run| {
                    let missing = PrepareError::NoRegion { peer: Some(link.peer), region: run.source };
                    let destination = destination(run.destination)?;
                    if let Way::Nvlink(way) = &link.way
                        && !way.reads_into(&*destination)
                    {
                        return Err(PrepareError::NotOnDevice { region: run.destination });
                    }
                    let mut source = sources.held.get(&run.source).cloned().ok_or(missing)?;
                    if let Source::Own(memory) = &source
                        && let Some(reader) = ReaderDevice::of_memory(&*destination)
                        // Where it cannot, its bytes go through host memory, as was said when the peer was connected.
                        && let Ok(Some(fetched)) = link.mapped_for(&reader, run.source, memory)
                    {
                        source = fetched;
                    }
                    Ok(Batch { source, destination, gate: run.gate, pieces: run.pieces })
                };
                Plan::Copies(runs.into_iter().map(batch).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self::new(reader, link, plan, claim, bytes))
    }
}

impl Transfer {
    /// Bytes that it reads.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lane that it takes.
    pub(crate) fn lane(&self) -> Lane {
        self.link.lane()
    }

    /// It ended so: its destination is not touched any more. To be called before anybody is told.
    pub(crate) fn end(self, result: Result<TransferReport, TransferError>) {
        match self.work {
            Work::Copies(batches) => batches.end(result),
            Work::Reads(plan) => plan.end(result),
            Work::Stream(plan) => plan.end(result),
        }
    }
}

/// The regions of a peer that a transfer reads. What is copied out of is looked up once: a peer may exchange it at
/// any time, and what was checked must be what is read.
struct Sources<'a> {
    link: &'a Link,
    held: BTreeMap<RegionId, Source>,
}

impl Sources<'_> {
    /// Returns the bytes of a region.
    fn len(&mut self, id: RegionId) -> Option<u64> {
        if let Way::Rdma(_) | Way::Tcp(_) = self.link.way {
            // Its owner, or the device, refuses what is outside.
            return self.link.region_len(id);
        }
        let source = match self.held.entry(id) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => place.insert(self.link.source(id)?),
        };
        Some(source.len() as u64)
    }
}

fn check(
    sources: &mut Sources<'_>,
    batches: &[ReadBatch],
    own: &impl Fn(RegionId) -> Option<Arc<dyn Memory>>,
) -> Result<(), PrepareError> {
    for batch in batches {
        let missing = |peer, region| PrepareError::NoRegion { peer, region };
        let peer = Some(sources.link.peer);
        let from = sources.len(batch.source).ok_or(missing(peer, batch.source))?;
        let destination = own(batch.destination).ok_or(missing(None, batch.destination))?;
        let to = destination.len() as u64;
        let inside = |offset: u64, len: u64| offset.checked_add(batch.len as u64).is_some_and(|end| end <= len);
        let leaves = |copy: &Copy| !inside(copy.from, from) || !inside(copy.to, to);
        let outside = match &batch.copies {
            Copies::List(copies) => copies.iter().copied().find(leaves),
            // The last one is the furthest at both ends.
            &Copies::Strided { first, step, count } if count > 0 => {
                let last = |first: u64, step: u64| step.checked_mul(count - 1)?.checked_add(first);
                let last = last(first.from, step.from).zip(last(first.to, step.to));
                let last = last.map_or(Copy { from: u64::MAX, to: u64::MAX }, |(from, to)| Copy { from, to });
                leaves(&last).then_some(last)
            }
            Copies::Strided { .. } => None,
        };
        if let Some(copy) = outside {
            return Err(PrepareError::OutOfBounds { copy, len: batch.len });
        }
        // Each has room of its own, so no more of them than fit the destination.
        if let &Copies::Strided { first, step, count } = &batch.copies
            && count > 1
            && step.to < batch.len as u64
        {
            return Err(PrepareError::Overlap { region: batch.destination, at: first.to.saturating_add(step.to) });
        }
    }
    Ok(())
}

/// Claims what the runs write. Errors: they write a byte twice.
fn claim(
    claims: &Arc<Claims>,
    runs: &[Run],
    destination: impl Fn(RegionId) -> Result<Arc<dyn Memory>, PrepareError>,
) -> Result<Claim, PrepareError> {
    let mut ranges = Vec::with_capacity(runs.iter().map(|run| run.pieces.len()).sum());
    let mut begins: Vec<(RegionId, usize)> = Vec::new();
    for run in runs {
        let begin = destination(run.destination)?.place().address() as usize;
        begins.push((run.destination, begin));
        ranges.extend(run.pieces.iter().map(|piece| {
            let begin = begin + piece.to as usize;
            Range { begin, end: begin + piece.len }
        }));
    }
    Claim::new(claims, ranges).map_err(|overlap| {
        // Regions that are one memory have one address; any of them tells where.
        let of = begins.into_iter().filter(|&(_, begin)| begin <= overlap.begin).max_by_key(|&(_, begin)| begin);
        let (region, begin) = of.unwrap_or((RegionId(0), 0));
        PrepareError::Overlap { region, at: (overlap.begin - begin) as u64 }
    })
}

/// Batches in their order, where those that follow each other between the same regions are one if their gates are open
/// already, and copies that are neighbours at both ends are one. So a record whose layers are all written is one read,
/// however small its slices are.
fn merge(batches: Vec<ReadBatch>, progress: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for batch in batches.into_iter().filter(|batch| batch.len > 0 && batch.copies.count() > 0) {
        let pieces = batch.copies.iter().map(|copy| Piece { from: copy.from, to: copy.to, len: batch.len });
        match runs.last_mut() {
            Some(last)
                if (last.source, last.destination) == (batch.source, batch.destination)
                    && (last.gate == batch.gate || batch.gate.max(last.gate) <= progress) =>
            {
                last.pieces.extend(pieces);
            }
            _ => runs.push(Run {
                source: batch.source,
                destination: batch.destination,
                gate: batch.gate,
                pieces: pieces.collect(),
            }),
        }
    }
    for run in &mut runs {
        run.pieces.sort_unstable_by_key(|piece| piece.from);
        run.pieces.dedup_by(|next, piece| {
            let neighbours = piece.from + piece.len as u64 == next.from && piece.to + piece.len as u64 == next.to;
            if neighbours {
                piece.len += next.len;
            }
            neighbours
        });
    }
    runs
}

/// Why a transfer could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The peer is not connected.
    #[error("worker {0} is not connected")]
    NotConnected(WorkerId),
    /// A region that was never registered, or that no lane taken to its owner reaches.
    #[error("region {region:?} is not registered by {}", peer.map_or("this agent".to_owned(), |id| id.to_string()))]
    NoRegion {
        /// Whose; `None`: the caller's own.
        peer: Option<WorkerId>,
        /// The region that is missing.
        region: RegionId,
    },
    /// A copy that leaves its region.
    #[error("the copy of {len} bytes from offset {} to offset {} leaves its region", copy.from, copy.to)]
    OutOfBounds {
        /// The copy.
        copy: Copy,
        /// Its bytes.
        len: usize,
    },
    /// Memory that the devices of `rdma` were not lent: it cannot be read into over that lane, which was taken for
    /// the sake of other regions.
    #[error("region {region:?} cannot be read into over rdma: its devices refused it, and this worker's log says why")]
    NotLent {
        /// The caller's region.
        region: RegionId,
    },
    /// Memory that the device of `nvlink` does not write: the host's, or another device's. That lane was taken when all
    /// of this worker's memory was that device's.
    #[error("region {region:?} cannot be read into over nvlink: it is not in memory of the device that reads")]
    NotOnDevice {
        /// The caller's region.
        region: RegionId,
    },
    /// Two copies that write the same bytes.
    #[error("two copies would write to offset {at} of region {region:?}: each needs a place of its own")]
    Overlap {
        /// The caller's region.
        region: RegionId,
        /// Where in it the second one begins.
        at: u64,
    },
}

/// Why a transfer was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many transfers as the agent takes are posted and not ended.
    #[error("{0} transfers are posted already; wait for one to end")]
    Full(usize),
    /// It was posted before and has not ended.
    #[error("the transfer is under way already; wait for its end")]
    UnderWay,
    /// Another transfer of the agent that is under way writes some of the same bytes.
    #[error("another transfer that is under way writes some of the same bytes; wait for its end")]
    Overlap,
    /// A thread of the agent, or of the worker whose agent it is, failed ([`crate::Failure`]).
    #[error("the worker has failed, as its log says")]
    Failed,
    /// Another mover prepared it.
    #[error("another mover prepared the transfer")]
    Foreign,
    /// The system takes nothing more of the mover.
    #[error("the mover is broken: {}", std::io::Error::from_raw_os_error(*errno))]
    Broken {
        /// Its error number.
        errno: i32,
    },
    /// The mover's thread panicked, of a bug or in the caller's sink.
    #[error("the mover's thread panicked, as the log says, and takes nothing more: start another mover")]
    Panicked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::TcpConfig;
    use crate::agent::known_peer::KnownPeer;
    use crate::agent::link::FairShares;
    use crate::lanes::shm::progress_page::{ProgressPage, ProgressView};
    use domain::Incarnation;
    use domain::session::PeerAddress;
    use kv_memory::{PeerMapping, SealedMemory};
    use std::os::fd::BorrowedFd;
    use std::sync::Mutex;

    fn batch(region: u32, len: usize, gate: u64, copies: &[(u64, u64)]) -> ReadBatch {
        let copies = copies.iter().map(|&(from, to)| Copy { from, to }).collect();
        let copies = Copies::List(copies);
        ReadBatch { source: RegionId(region), destination: RegionId(region), len, gate, copies }
    }

    /// A gate and the pieces behind it.
    type Expected<'a> = (u64, &'a [(u64, u64, usize)]);

    #[track_caller]
    fn check(batches: Vec<ReadBatch>, progress: u64, expect: &[Expected<'_>]) {
        let runs = merge(batches, progress);
        let plain: Vec<(u64, Vec<_>)> = runs
            .iter()
            .map(|run| (run.gate, run.pieces.iter().map(|piece| (piece.from, piece.to, piece.len)).collect()))
            .collect();
        let expect: Vec<_> = expect.iter().map(|(gate, pieces)| (*gate, pieces.to_vec())).collect();
        assert_eq!(plain, expect);
    }

    #[test]
    fn neighbours_are_one_piece_and_open_layers_one_run() {
        // Two blocks of three layers of 10 bytes; the destination has the blocks the other way round.
        let layer = |n: u64, gate| batch(0, 10, gate, &[(n * 10, 30 + n * 10), (30 + n * 10, n * 10)]);
        let layers = || (0..3).map(|n| layer(n, 5 + n)).collect();
        check(layers(), 7, &[(5, &[(0, 30, 30), (30, 0, 30)])]);
        let last = [(20, 50, 10), (50, 20, 10)];
        check(layers(), 6, &[(5, &[(0, 30, 20), (30, 0, 20)]), (7, &last)]);
        check(layers(), 0, &[(5, &[(0, 30, 10), (30, 0, 10)]), (6, &[(10, 40, 10), (40, 10, 10)]), (7, &last)]);
    }

    #[test]
    fn regions_stay_apart_and_nothing_is_no_run() {
        let batches = vec![batch(0, 4, 0, &[(0, 0)]), batch(1, 4, 0, &[(4, 4)]), batch(1, 0, 0, &[(8, 8)])];
        check(batches, 0, &[(0, &[(0, 0, 4)]), (0, &[(4, 4, 4)])]);
        check(vec![batch(0, 4, 0, &[])], 0, &[]);
    }

    #[test]
    fn what_is_read_is_what_was_checked_though_the_peer_exchanges_it() {
        let page = ProgressPage::new(0).expect("memory");
        let file = |file: BorrowedFd<'_>| file.try_clone_to_owned().expect("descriptors are left");
        let progress = ProgressView::new(file(page.file().expect("it has one"))).expect("it is whole");
        let mapped = |len: usize| {
            let memory = SealedMemory::new("test", len).expect("memory");
            Arc::new(PeerMapping::new(memory.file().expect("it has one").0, 0, len).expect("it is whole"))
        };
        const LARGE: usize = 1 << 20;
        let regions = Mutex::new(BTreeMap::from([(RegionId(0), Some(mapped(LARGE)))]));
        let way = Way::Shm { progress, regions };
        let (id, incarnation, name) = (WorkerId(0), Incarnation(1), "liar".to_owned());
        let known = KnownPeer { id, incarnation, name, address: PeerAddress::default() };
        let link = Arc::new(Link::new(&known, way, &FairShares::default()));
        // Own regions are looked up after the peer's length, and before its bytes are.
        let own: Arc<dyn Memory> = Arc::new(SealedMemory::new("test", LARGE).expect("memory"));
        let exchange = |_| {
            let Way::Shm { regions, .. } = &link.way else { return None };
            regions.lock().expect("nobody panics").insert(RegionId(0), Some(mapped(4096)));
            Some(own.clone())
        };
        let far = batch(0, 4096, 0, &[(LARGE as u64 - 4096, 0)]);
        let prepared = Prepared::check(
            Weak::new(),
            link.clone(),
            vec![far.clone()],
            &TcpConfig::default(),
            &Arc::default(),
            exchange,
        )
        .expect("it fits");
        let Work::Copies(batches) = prepared.take().expect("it is not posted").work else { panic!("it is copied") };
        for batch in &*batches {
            assert!(batch.pieces.iter().all(|piece| piece.from as usize + piece.len <= batch.source.len()));
        }
        let refused =
            Prepared::check(Weak::new(), link.clone(), vec![far], &TcpConfig::default(), &Arc::default(), exchange)
                .err();
        assert!(matches!(refused, Some(PrepareError::OutOfBounds { .. })), "{refused:?}");
    }

    #[test]
    fn strided_copies_are_those_of_the_list() {
        let copies = Copies::Strided { first: Copy { from: 2, to: 90 }, step: Copy { from: 10, to: 4 }, count: 3 };
        let list: Vec<_> = [(2, 90), (12, 94), (22, 98)].map(|(from, to)| Copy { from, to }).to_vec();
        assert_eq!((copies.iter().collect::<Vec<_>>(), copies.count()), (list.clone(), 3));
        assert_eq!(Copies::List(list.clone()).iter().collect::<Vec<_>>(), list);
    }
}
