//! Copies between a pool on a card and frames of the host, and to it out of memory of other processes: one thread and
//! one queue of the card for each direction, beside the steps.

use super::card::Card;
use super::error::CudaError;
use cuda::{Access, Context, DeviceBytes, DriverError, Pinned, Reservation, Shared, Stream, StreamPriority};
use domain::KvPart;
use domain::planted_bugs::{self, Bug};
use kv_memory::{
    COPIES_QUEUED_MAX, Copied, Copier, CopyError, CopyOrder, DeviceFile, DeviceId, DeviceKind, FetchOrder, FetchRange,
    Fetched, Frame, PeerMemory, PoolRange, Reply, SumOf, Ticket, decode_parts, encode_parts,
};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use threads::Doing;

/// Bytes of pinned memory that a direction has at first.
const STAGING_BYTES: usize = 4 << 20;

/// A copier of one pool. Its threads end when it is dropped, once what was ordered is done.
struct CudaCopier {
    /// What leaves the pool.
    outward: SyncSender<Ordered>,
    /// What goes to it.
    inward: SyncSender<Ordered>,
    context: Arc<Context>,
    id: DeviceId,
}

/// An order, and where its end is told.
enum Ordered {
    Gather(CopyOrder, Reply),
    /// With what its frame has to sum up to.
    Scatter(CopyOrder, u64, Reply),
    Fetch(FetchOrder, Reply<Fetched>),
    /// So many bytes, to nowhere.
    TryOut(Arc<PeerMemory>, usize, Reply<Fetched>),
}

/// What one thread works with.
struct Hand {
    context: Arc<Context>,
    id: DeviceId,
    pool: Arc<Reservation>,
    /// Bytes of it that are the pool's.
    len: usize,
    stream: Stream,
    staging: Pinned,
}

/// Starts the copier of a pool. Errors: of the driver, and of the system.
pub(super) fn start(card: &Card, pool: &Arc<Reservation>, len: usize) -> Result<Arc<dyn Copier>, CudaError> {
    let (context, id) = (card.context.clone(), DeviceId(card.number));
    let start = |name: &str| {
        let (sender, orders) = sync_channel::<Ordered>(COPIES_QUEUED_MAX);
        let mut hand = Hand {
            context: context.clone(),
            id,
            pool: pool.clone(),
            len,
            stream: Stream::new(&context, StreamPriority::Low)?,
            staging: Pinned::new(&context, STAGING_BYTES)?,
        };
        threads::spawn(format!("baton-cuda-{name}"), move || {
            // A context that cannot be made current fails the first order too.
            let _ = hand.context.bind();
            while let Ok(ordered) = threads::during(Doing::WaitsForOrders, || orders.recv()) {
                hand.carry_out(ordered);
            }
        })
        .map_err(CudaError::Threads)?;
        Ok::<_, CudaError>(sender)
    };
    let (outward, inward) = (start("gather")?, start("scatter")?);
    Ok(Arc::new(CudaCopier { outward, inward, context, id }))
}

/// Lays an order. If the thread has ended, the order has too.
fn lay<T>(
    thread: &SyncSender<Ordered>,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
    order: impl FnOnce(Reply<T>) -> Ordered,
) -> Ticket<T> {
    let (ticket, reply) = Ticket::new(waker);
    drop(thread.send(order(reply)));
    ticket
}

impl Copier for CudaCopier {
    fn frame(&self, bytes: usize) -> io::Result<Frame> {
        Frame::new(bytes)
    }

    fn gather(&self, mut order: CopyOrder) -> Ticket {
        lay(&self.outward, order.waker.take(), |reply| Ordered::Gather(order, reply))
    }

    fn scatter(&self, mut order: CopyOrder, sum: u64) -> Ticket {
        lay(&self.inward, order.waker.take(), |reply| Ordered::Scatter(order, sum, reply))
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>> {
        let end = exported.offset.checked_add(len as u64);
        if end.is_none_or(|end| end > exported.bytes) {
            return Err(io::Error::other("the memory leaves what its owner exports"));
        }
        let bytes = usize::try_from(exported.bytes).map_err(io::Error::other)?;
        let shared = Shared::from(exported.file.try_clone_to_owned()?);
        let mapped = Reservation::import(&self.context, &shared, bytes, Access::Read).or_else(|error| {
            // Drivers before CUDA 13 map memory of devices for writing alone; nothing here writes it.
            tracing::debug!(%error, "memory of a peer is mapped for writing too");
            Reservation::import(&self.context, &shared, bytes, Access::ReadWrite)
        });
        let mapped = mapped.map_err(io::Error::other)?;
        let address = mapped.address() + exported.offset;
        // SAFETY: the device may read the mapping as long as it lives, and the memory is inside of it.
        Ok(Arc::new(unsafe { PeerMemory::new(DeviceKind::Cuda, self.id, address, len, Box::new(mapped)) }))
    }

    fn fetch(&self, mut order: FetchOrder) -> Ticket<Fetched> {
        lay(&self.inward, order.waker.take(), |reply| Ordered::Fetch(order, reply))
    }

    fn try_out(&self, source: &Arc<PeerMemory>, len: usize) -> Ticket<Fetched> {
        lay(&self.inward, None, |reply| Ordered::TryOut(source.clone(), len, reply))
    }
}

impl Hand {
    fn carry_out(&mut self, ordered: Ordered) {
        match ordered {
            Ordered::Gather(order, reply) => reply.tell(self.gather(order)),
            Ordered::Scatter(order, sum, reply) => reply.tell(self.scatter(order, sum)),
            Ordered::Fetch(order, reply) => reply.tell(self.fetch(order)),
            Ordered::TryOut(source, len, reply) => reply.tell(self.try_out(source, len)),
        }
    }

    fn fetch(&mut self, order: FetchOrder) -> Result<Fetched, CopyError> {
        let bytes = order.check(DeviceKind::Cuda, self.id, self.len)?;
        for &FetchRange { from, to, len } in &order.ranges {
            // SAFETY: both ranges are inside their memory, which the order and this thread hold until the copies have
            // happened, and no other code uses what is fetched to.
            let queued = unsafe { self.stream.copy(self.pool.address() + to, order.source.address() + from, len) };
            queued.map_err(lost)?;
        }
        self.stream.synchronize().map_err(lost)?;
        Ok(Fetched { ranges: order.ranges, bytes })
    }

    fn try_out(&mut self, source: Arc<PeerMemory>, len: usize) -> Result<Fetched, CopyError> {
        let order = FetchOrder { source, ranges: Vec::new(), waker: None };
        order.check(DeviceKind::Cuda, self.id, self.len)?;
        let len = len.min(order.source.len());
        let nowhere = DeviceBytes::new(&self.context, len).map_err(lost)?;
        // SAFETY: the peer's memory has so many bytes and is held, and the others are this call's own.
        unsafe { self.stream.copy(nowhere.address(), order.source.address(), len) }.map_err(lost)?;
        self.stream.synchronize().map_err(lost)?;
        Ok(Fetched { ranges: order.ranges, bytes: len as u64 })
    }

    fn gather(&mut self, mut order: CopyOrder) -> Result<Copied, CopyError> {
        let bytes = order.check(self.len)?;
        let total = self.make_room(&order.ranges)?;
        let mut at = 0;
        for range in &order.ranges {
            let from = self.pool.address() + range.at;
            // SAFETY: the range is inside the pool, and the staging memory has room for all ranges. What the card
            // writes meanwhile arrives torn.
            unsafe { self.stream.download(self.staging.as_ptr().add(at), from, range.len) }.map_err(lost)?;
            at += range.len;
        }
        self.stream.synchronize().map_err(lost)?;
        // SAFETY: the copies have happened, and this thread alone has the memory.
        let raw = unsafe { std::slice::from_raw_parts(self.staging.as_ptr(), total) };
        let framed = &mut order.frame[..bytes];
        match order.part {
            Some(part) => each(&order.ranges, part, raw.len(), |raw_at, framed_at| {
                encode_parts(part, &raw[raw_at], &mut framed[framed_at]);
            }),
            None => framed.copy_from_slice(raw),
        }
        let sum = order.sum(bytes);
        Ok(Copied { frame: order.frame, bytes, sum })
    }

    fn scatter(&mut self, order: CopyOrder, sum: u64) -> Result<Copied, CopyError> {
        let bytes = order.check(self.len)?;
        if order.sum != SumOf::Nothing && order.sum(bytes) != sum {
            return Err(CopyError::Checksum);
        }
        let total = self.make_room(&order.ranges)?;
        // SAFETY: this thread alone has the memory, and no copy out of it is under way.
        let raw = unsafe { std::slice::from_raw_parts_mut(self.staging.as_ptr(), total) };
        let framed = &order.frame[..bytes];
        match order.part {
            Some(part) => each(&order.ranges, part, raw.len(), |raw_at, framed_at| {
                decode_parts(part, &framed[framed_at], &mut raw[raw_at]);
            }),
            None => raw.copy_from_slice(framed),
        }
        let mut at = 0;
        for range in &order.ranges {
            // SAFETY: the range is inside the pool, and no other code uses what is scattered to.
            let sent = unsafe { self.stream.upload(self.pool.address() + range.at, &raw[at..at + range.len]) };
            sent.map_err(lost)?;
            at += range.len;
        }
        let is_there = || if planted_bugs::is(Bug::CopyNotAwaited) { Ok(()) } else { self.stream.synchronize() };
        is_there().map_err(lost)?;
        Ok(Copied { frame: order.frame, bytes, sum })
    }

    /// Makes the pinned memory as long as these ranges. Returns their bytes.
    fn make_room(&mut self, ranges: &[PoolRange]) -> Result<usize, CopyError> {
        let total = ranges.iter().map(|range| range.len).sum();
        if total > self.staging.len() {
            self.staging = Pinned::new(&self.context, total).map_err(lost)?;
        }
        Ok(total)
    }
}

/// Calls `each` for every range: with its place among so many bytes of all ranges, and in the frame.
fn each(
    ranges: &[PoolRange],
    part: KvPart,
    total: usize,
    mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let (mut raw, mut framed) = (0, 0);
    for range in ranges {
        let stored = part.stored_bytes_of(range.len);
        each(raw..raw + range.len, framed..framed + stored);
        (raw, framed) = (raw + range.len, framed + stored);
    }
    debug_assert_eq!(raw, total, "all ranges");
}

/// Notes that the card is lost, with its error, in the log.
fn lost(error: DriverError) -> CopyError {
    tracing::error!(%error, "a copy to or from the card failed");
    CopyError::Lost
}
