//! The lane `object`: an [`ObjectMover`] reads objects of a store that speaks the S3 API into registered memory, and writes
//! registered memory as objects.
//!
//! It is the mover of the object tier, and like the mover of files: both ends are the caller's own, transfers are of a type of
//! their own, prepared, posted without waiting, and ended exactly once, after which memory is not touched any more. A transfer
//! is about one object, so that each has an end of its own: that an object is missing is no failure of its neighbours. A key is
//! written once: whoever finds it taken leaves it as it is, and is told.
//!
//! Requests run on a thread of the mover's own, with a runtime of one thread, in place of a runtime that it is lent: its owners
//! have none to lend, dropping it then waits for no task of others, and copying megabytes holds up nobody's tokens. Bytes are
//! copied once, from what a response brought to where they belong, or from memory into a request.
//!
//! What is deliberately absent: what bytes mean, whether they are valid and which are worth keeping (`kv-manager`'s).

mod client;
mod config;
mod error;
mod failure;
mod plan;
mod requests;
mod thread;

pub use config::{ObjectConfig, ObjectCredentials};
pub use error::{ObjectError, ObjectTrouble};
pub use plan::{ObjectPiece, ObjectPrepareError, ObjectTransfer, ObjectWork};

use crate::event::TransferId;
use crate::memory::{Memory, RegionId, Regions};
use crate::transfer::PostError;
use requests::Requests;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::Order;
use tokio::sync::mpsc::UnboundedSender;

/// The one end of a posted object transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectEnd {
    /// Which.
    pub id: TransferId,
    /// What became of it, or why nothing did.
    pub result: Result<ObjectReport, ObjectError>,
}

/// What an object transfer did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectReport {
    /// What became of it.
    pub outcome: ObjectOutcome,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Requests that it took, repetitions included.
    pub requests: u32,
    /// From post to the first request: other transfers.
    pub queued: Duration,
    /// From the first request to the end.
    pub wire: Duration,
}

/// What became of an object transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// All bytes that were asked for are in memory.
    Read,
    /// The object is in the store.
    Written,
    /// The key was taken; the object that it names is as it was.
    Existed,
    /// The store has no object of that key any more.
    Deleted,
    /// The object is there, and has so many bytes.
    Present(u64),
    /// The store has no object of that key.
    Missing,
    /// The keys that were asked for, in their order. Fewer than were wanted: there are no more.
    Listed(Vec<String>),
}

/// Moves bytes between objects and memory. Dropping it ends its transfers.
pub struct ObjectMover {
    shared: Arc<Shared>,
    /// `None`: the thread shall end.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
    memory: Mutex<Regions>,
    next_id: AtomicU64,
}

/// What the mover and its thread share.
struct Shared {
    config: ObjectConfig,
    sink: Box<dyn Fn(ObjectEnd) + Send + Sync>,
    open: AtomicUsize,
}

#[expect(clippy::disallowed_methods, reason = "transfers are timed; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

impl ObjectMover {
    /// Starts a mover. `sink` gets the end of each transfer, from the mover's thread; it must not block. The end may come before
    /// [`ObjectMover::post`] returns. Nothing is asked of the store yet. Errors: settings that cannot be; of the system.
    pub fn start(config: ObjectConfig, sink: Box<dyn Fn(ObjectEnd) + Send + Sync>) -> io::Result<Self> {
        let requests = Requests::new(&config)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared { config, sink, open: AtomicUsize::new(0) });
        // As many as may be open, and a word for each that is cancelled.
        let (orders, theirs) = tokio::sync::mpsc::unbounded_channel();
        let (name, ends) = (format!("{}-object", shared.config.name), shared.clone());
        let body = move || runtime.block_on(thread::run(&ends, requests, theirs));
        let thread = std::thread::Builder::new().name(name).spawn(body)?;
        let (memory, next_id) = (Mutex::default(), AtomicU64::new(1));
        Ok(Self { shared, orders: Some(orders), thread: Some(thread), memory, next_id })
    }

    /// Registers memory that transfers may read and write. Done once, at start.
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).add(memory)
    }

    /// Prepares a transfer. Errors: [`ObjectPrepareError`].
    pub fn prepare(&self, work: ObjectWork) -> Result<ObjectTransfer, ObjectPrepareError> {
        let memory = |id| self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(id);
        ObjectTransfer::new(work, self.shared.config.part_bytes, memory)
    }

    /// Starts a transfer without waiting for it. What it writes from must not change until its end. Errors: [`PostError`].
    pub fn post(&self, transfer: ObjectTransfer) -> Result<TransferId, PostError> {
        let posted_max = self.shared.config.posted_max;
        let room = |open| (open < posted_max).then_some(open + 1);
        if self.shared.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(PostError::Full(posted_max));
        }
        let id = TransferId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.order(Order::Post { id, transfer, at: now() });
        Ok(id)
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once. A write that is
    /// cancelled may have reached the store; then its key is taken.
    pub fn cancel(&self, id: TransferId) {
        self.order(Order::Cancel(id));
    }

    fn order(&self, order: Order) {
        let taken = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        debug_assert!(taken, "the thread ends after the mover");
    }
}

impl Drop for ObjectMover {
    fn drop(&mut self) {
        self.orders = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(mover = self.shared.config.name, "the thread that moves objects panicked");
        }
    }
}

impl Shared {
    fn end(&self, id: TransferId, result: Result<ObjectReport, ObjectError>) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        (self.sink)(ObjectEnd { id, result });
    }
}
