//! A copier of one pool: a thread and a queue for each direction. What copies is a [`Hand`], one of each thread.

use crate::copier::{COPIES_QUEUED_MAX, Copied, Copier, CopyError, CopyOrder, FetchOrder, Fetched, Reply, Ticket};
use crate::device::{DeviceFile, DeviceId, DeviceKind};
use crate::frame::Frame;
use crate::host_range::HostRange;
use crate::peer_memory::PeerMemory;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use threads::Doing;

/// What carries out the orders of one direction. It begins them, and waits for the end of each. Some are under way at
/// once, and are ended in the order in which they began.
///
/// # Safety of the calls All orders were checked ([`CopyOrder::check`], [`FetchOrder::check`]): their ranges are inside
/// the pool, and the memory at the other end has room. What was begun is ended before its order is dropped. An order
/// that did not begin is not ended, and nothing of it is under way any more.
pub trait Hand: Send + 'static {
    /// Orders that are under way at once, at most; 1 where each has happened when it has begun.
    const AT_ONCE: usize;

    /// What is known of an order under way.
    type Begun: Send;

    /// Prepares its thread, before all orders.
    fn bind(&mut self) {}

    /// Begins to copy the ranges of the pool to the beginning of the frame, of which they take so many bytes. Errors:
    /// it cannot.
    ///
    /// # Safety
    /// As said of all.
    unsafe fn gather(&mut self, order: &mut CopyOrder, bytes: usize) -> Result<Self::Begun, CopyError>;

    /// Begins to copy so many bytes of the frame to the ranges, if their sum is `sum`, or the order has none. Errors:
    /// it is not, or it cannot.
    ///
    /// # Safety
    /// As said of all.
    unsafe fn scatter(&mut self, order: &CopyOrder, bytes: usize, sum: u64) -> Result<Self::Begun, CopyError>;

    /// Begins to copy ranges of a peer's memory to the pool. Errors: it cannot.
    ///
    /// # Safety
    /// As said of all.
    unsafe fn fetch(&mut self, order: &FetchOrder) -> Result<Self::Begun, CopyError>;

    /// Begins to copy the first `len` bytes of a peer's memory, which has as many, to where nothing lies. Errors: it
    /// cannot.
    ///
    /// # Safety
    /// As said of all.
    unsafe fn try_out(&mut self, source: &PeerMemory, len: usize) -> Result<Self::Begun, CopyError>;

    /// Waits for the end of the order that began first. `gathered`: the order, if it is a gather. Returns the checksum
    /// of what was gathered, where its order wants one, and else any number. Errors: it failed; what was scattered does
    /// not match its sum.
    fn end(&mut self, begun: Self::Begun, gathered: Option<&mut CopyOrder>) -> Result<u64, CopyError>;
}

/// The device of a pool, for what a copier does on the asker's thread.
pub trait CopierDevice: Send + Sync + 'static {
    /// Returns what drives it.
    fn kind(&self) -> DeviceKind;

    /// Returns its number.
    fn id(&self) -> DeviceId;

    /// Makes a frame: [`Copier::frame`].
    fn frame(&self, bytes: usize) -> io::Result<Frame> {
        Frame::new(bytes)
    }

    /// Maps memory of another process: [`Copier::import`].
    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>>;

    /// Pins host memory: [`Copier::pin`].
    fn pin(&self, _name: &str, _memory: HostRange) -> Option<Box<dyn Send>> {
        None
    }

    /// Returns the nearest node: [`Copier::nearest_node`].
    fn nearest_node(&self) -> Option<u32> {
        None
    }
}

/// A copier of one pool. Its threads end when it is dropped, once what was ordered is done.
pub struct CopierThreads<D> {
    /// What leaves the pool.
    outward: SyncSender<Ordered>,
    /// What goes to it.
    inward: SyncSender<Ordered>,
    device: D,
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

/// An order that was begun, or failed at that, with its bytes.
struct UnderWay<B> {
    begun: Result<B, CopyError>,
    ordered: Ordered,
    bytes: usize,
}

/// What one thread works with.
struct Work<H: Hand> {
    hand: H,
    /// Bytes of the pool.
    pool: usize,
    kind: DeviceKind,
    id: DeviceId,
    under_way: VecDeque<UnderWay<H::Begun>>,
}

impl<D: CopierDevice> CopierThreads<D> {
    /// Starts the threads of a pool of so many bytes; their names begin with `name`. `hands`: of what leaves the pool,
    /// and of what goes to it. Errors: of the system.
    pub fn start<H: Hand>(name: &str, device: D, pool: usize, hands: [H; 2]) -> io::Result<Self> {
        let (kind, id) = (device.kind(), device.id());
        let start = |direction: &str, hand: H| {
            let (sender, orders) = sync_channel(COPIES_QUEUED_MAX);
            let mut work = Work { hand, pool, kind, id, under_way: VecDeque::new() };
            threads::spawn(format!("{name}-{direction}"), move || work.run(&orders))?;
            Ok::<_, io::Error>(sender)
        };
        let [outward, inward] = hands;
        Ok(Self { outward: start("gather", outward)?, inward: start("scatter", inward)?, device })
    }
}

/// Lays an order with this waker. If the thread has ended, the order has too.
fn lay<T>(
    thread: &SyncSender<Ordered>,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
    ordered: impl FnOnce(Reply<T>) -> Ordered,
) -> Ticket<T> {
    let (ticket, reply) = Ticket::new(waker);
    drop(thread.send(ordered(reply)));
    ticket
}

impl<D: CopierDevice> Copier for CopierThreads<D> {
    fn frame(&self, bytes: usize) -> io::Result<Frame> {
        self.device.frame(bytes)
    }

    fn gather(&self, mut order: CopyOrder) -> Ticket {
        lay(&self.outward, order.waker.take(), |reply| Ordered::Gather(order, reply))
    }

    fn scatter(&self, mut order: CopyOrder, sum: u64) -> Ticket {
        lay(&self.inward, order.waker.take(), |reply| Ordered::Scatter(order, sum, reply))
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>> {
        self.device.import(exported, len)
    }

    fn fetch(&self, mut order: FetchOrder) -> Ticket<Fetched> {
        lay(&self.inward, order.waker.take(), |reply| Ordered::Fetch(order, reply))
    }

    fn try_out(&self, source: &Arc<PeerMemory>, len: usize) -> Ticket<Fetched> {
        lay(&self.inward, None, |reply| Ordered::TryOut(source.clone(), len, reply))
    }

    fn pin(&self, name: &str, memory: HostRange) -> Option<Box<dyn Send>> {
        self.device.pin(name, memory)
    }

    fn nearest_node(&self) -> Option<u32> {
        self.device.nearest_node()
    }
}

impl<H: Hand> Work<H> {
    /// Runs until the copier is dropped, and what was ordered has ended.
    fn run(&mut self, orders: &Receiver<Ordered>) {
        self.hand.bind();
        while let Ok(first) = threads::during(Doing::WaitsForOrders, || orders.recv()) {
            self.begin(first);
            // More are begun before the first one is waited for.
            while !self.under_way.is_empty() {
                match orders.try_recv() {
                    Ok(next) if self.under_way.len() < H::AT_ONCE => self.begin(next),
                    Ok(next) => {
                        self.end();
                        self.begin(next);
                    }
                    Err(_) => self.end(),
                }
            }
        }
    }

    fn begin(&mut self, mut ordered: Ordered) {
        let (pool, hand) = (self.pool, &mut self.hand);
        let begun = match &mut ordered {
            Ordered::Gather(order, _) => order.check(pool).and_then(|bytes| {
                // SAFETY: it was checked, and is ended before it is dropped.
                Ok((unsafe { hand.gather(order, bytes) }?, bytes))
            }),
            Ordered::Scatter(order, sum, _) => order.check(pool).and_then(|bytes| {
                // SAFETY: as above.
                Ok((unsafe { hand.scatter(order, bytes, *sum) }?, bytes))
            }),
            Ordered::Fetch(order, _) => order.check(self.kind, self.id, pool).and_then(|bytes| {
                // SAFETY: as above.
                Ok((unsafe { hand.fetch(order) }?, bytes as usize))
            }),
            Ordered::TryOut(source, len, _) => {
                let order = FetchOrder { source: source.clone(), ranges: Vec::new(), waker: None };
                order.check(self.kind, self.id, pool).and_then(|_| {
                    let len = (*len).min(source.len());
                    // SAFETY: as above.
                    Ok((unsafe { hand.try_out(source, len) }?, len))
                })
            }
        };
        let (begun, bytes) = match begun {
            Ok((begun, bytes)) => (Ok(begun), bytes),
            Err(error) => (Err(error), 0),
        };
        self.under_way.push_back(UnderWay { begun, ordered, bytes });
    }

    /// Waits for the order that began first, and tells its end.
    fn end(&mut self) {
        let Some(UnderWay { begun, ordered, bytes }) = self.under_way.pop_front() else { return };
        let end = |gathered: Option<&mut CopyOrder>| self.hand.end(begun?, gathered);
        match ordered {
            Ordered::Gather(mut order, reply) => {
                let ended = end(Some(&mut order));
                reply.tell(ended.map(|sum| Copied { frame: order.frame, bytes, sum }));
            }
            Ordered::Scatter(order, sum, reply) => {
                let ended = end(None);
                reply.tell(ended.map(|_| Copied { frame: order.frame, bytes, sum }));
            }
            Ordered::Fetch(order, reply) => {
                let ended = end(None);
                reply.tell(ended.map(|_| Fetched { ranges: order.ranges, bytes: bytes as u64 }));
            }
            Ordered::TryOut(_source, _, reply) => {
                let ended = end(None);
                reply.tell(ended.map(|_| Fetched { ranges: Vec::new(), bytes: bytes as u64 }));
            }
        }
    }
}
