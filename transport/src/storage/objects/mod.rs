//! The lane `object`: an [`ObjectMover`] reads objects of a store that speaks the S3 API into registered memory,
//! and writes registered memory as objects.
//!
//! It is the mover of the object tier, and like the mover of files: both ends are the caller's own, transfers are
//! of a type of their own, prepared, posted without waiting, and ended exactly once, after which memory is not
//! touched any more. A transfer is about one object, so that each has an end of its own: that an object is missing
//! is no failure of its neighbours. A key is written once: whoever finds it taken leaves it as it is, and is told.
//!
//! Requests run on a thread of the mover's own, with a runtime of one thread, in place of a runtime that it is
//! lent: its owners have none to lend, dropping it then waits for no task of others, and copying megabytes holds
//! up nobody's tokens. Bytes are copied once, from what a response brought to where they belong, or from memory
//! into a request.
//!
//! What is deliberately absent: what bytes mean, whether they are valid and which are worth keeping (`kv-manager`'s).

mod client;
mod config;
mod error;
mod failure;
mod plan;
mod prepared;
mod requests;
mod thread;

pub use config::{ObjectConfig, ObjectCredentials};
pub use error::{ObjectError, ObjectTrouble};
pub use plan::{ObjectPiece, ObjectPrepareError, ObjectWork};
pub use prepared::ObjectTransfer;
pub use requests::open_store;

use crate::agent::event::TransferId;
use crate::bounded_thread::{BoundedThread, Late};
use crate::clock::now;
use crate::failure::Failure;
use crate::regions::{RegionId, Regions};
use crate::speed::storage_speed::StorageSpeeds;
use crate::transfer::PostError;
use kv_memory::Memory;
use plan::ObjectPlan;
use requests::Requests;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thread::{Order, Posted};
use threads::Doing;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;

/// How long a mover that is dropped waits for its thread: longer than that takes, unless something hangs.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The one end of a posted object transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectEnd {
    /// As [`ObjectMover::post`] returned it.
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
    /// The objects that were asked for, in the order of their keys. Fewer than were wanted: there are no more.
    Listed(Vec<ListedObject>),
}

/// An object that a store lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
}

/// Moves bytes between objects and memory. Dropping it ends its transfers, and waits for no store and no name
/// server that hangs.
pub struct ObjectMover {
    shared: Arc<Shared>,
    /// `None`: the thread shall end.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<BoundedThread>,
    memory: Mutex<Regions>,
    next_id: AtomicU64,
}

/// Makes the runtime of a mover, whose threads for what may block have this name.
fn runtime(name: String) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .thread_name(&name)
        .on_thread_start(move || threads::register(&name, Doing::AwaitsTask))
        .on_thread_park(|| threads::does(Doing::WaitsForTasks))
        .on_thread_unpark(|| threads::does(Doing::RunsTasks))
        .enable_all()
        .build()
}

/// What the mover and its thread share.
struct Shared {
    config: ObjectConfig,
    failure: Failure,
    sink: Box<dyn Fn(ObjectEnd) + Send + Sync>,
    speeds: Arc<StorageSpeeds>,
    open: AtomicUsize,
}

impl ObjectMover {
    /// Starts a mover. `sink` gets the end of each transfer, from the mover's thread; it must not block. The end
    /// may come before [`ObjectMover::post`] returns. Nothing is asked of the store yet. A panic of its thread is
    /// reported to `failure`. Errors: settings that cannot be; of the system. Shown at [`ObjectMover::post`].
    pub fn start(
        config: ObjectConfig,
        failure: &Failure,
        sink: Box<dyn Fn(ObjectEnd) + Send + Sync>,
    ) -> io::Result<Self> {
        let requests = Requests::new(&config)?;
        let name = format!("{}-object", config.name);
        let runtime = runtime(format!("{name}-io"))?;
        let (failure_of, speeds) = (failure.clone(), Arc::default());
        let shared = Arc::new(Shared { config, failure: failure_of, sink, speeds, open: AtomicUsize::new(0) });
        // As many as may be open, and a word for each that is cancelled.
        let (orders, theirs) = tokio::sync::mpsc::unbounded_channel();
        let ends = shared.clone();
        let body = move || run_to_end(runtime, |runtime| thread::run(runtime, &ends, requests, theirs));
        let thread = BoundedThread::spawn(name, failure, body)?;
        let (memory, next_id) = (Mutex::default(), AtomicU64::new(1));
        Ok(Self { shared, orders: Some(orders), thread: Some(thread), memory, next_id })
    }

    /// Registers memory that transfers may read and write. Done once, at start. Shown at [`ObjectMover::post`].
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        lock(&self.memory).add(memory)
    }

    /// Prepares a transfer. Errors: [`ObjectPrepareError`]. Shown at [`ObjectMover::post`].
    pub fn prepare(&self, work: ObjectWork) -> Result<ObjectTransfer, ObjectPrepareError> {
        let memory = |id| lock(&self.memory).get(id);
        let plan = ObjectPlan::new(work, self.shared.config.part_bytes, memory)?;
        Ok(ObjectTransfer::new(plan, self.shared.speeds.clone()))
    }

    /// Starts a transfer without waiting for it; its end comes to the sink, and can be asked or waited for. Once
    /// it has ended it may be posted again. What it writes from must not change until its end. Errors:
    /// [`PostError`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{sync::Arc, time::Duration};
    /// # use transport::*;
    /// let config = ObjectConfig {
    ///     name: "example".to_owned(),
    ///     endpoint: "http://127.0.0.1:9000".to_owned(),
    ///     region: "us-east-1".to_owned(),
    ///     bucket: "kv".to_owned(),
    ///     credentials: ObjectCredentials { key_id: "key".to_owned(), secret: "secret".to_owned(), token: None },
    ///     requests_max: 16,
    ///     posted_max: 64,
    ///     part_bytes: 8 << 20,
    ///     silence_max: Duration::from_secs(5),
    ///     give_up: Duration::from_secs(30),
    /// };
    /// let mover = ObjectMover::start(config, &Failure::new(), Box::new(|_| {}))?;
    /// let memory = mover.register(Arc::new(SealedMemory::new("example", 2 << 20)?));
    /// let key = "example".to_owned();
    /// let write = mover.prepare(ObjectWork::Write { key: key.clone(), memory, range: 0..1 << 20 })?;
    /// let pieces = vec![ObjectPiece { object: 4096, memory: 1 << 20, len: 512 << 10 }];
    /// let read = mover.prepare(ObjectWork::Read { key, memory, pieces })?;
    /// for transfer in [&write, &read] {
    ///     mover.post(transfer)?;
    ///     match transfer.wait(Duration::from_secs(60)) {
    ///         TransferState::Ended(Ok(report)) => println!("{:?}, {} bytes", report.outcome, report.bytes),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// println!("reading it again would take {:?}", read.estimate());
    /// # Ok(())
    /// # }
    /// ```
    pub fn post(&self, transfer: &ObjectTransfer) -> Result<TransferId, PostError> {
        if !Arc::ptr_eq(&transfer.speeds, &self.shared.speeds) {
            return Err(PostError::Foreign);
        }
        let posted_max = self.shared.config.posted_max;
        let room = |open| (open < posted_max).then_some(open + 1);
        if self.shared.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(PostError::Full(posted_max));
        }
        let Some(plan) = transfer.slot.take() else {
            self.shared.open.fetch_sub(1, Ordering::AcqRel);
            return Err(PostError::UnderWay);
        };
        let id = TransferId(self.next_id.fetch_add(1, Ordering::Relaxed));
        match self.order(Order::Post { posted: Posted { id, plan, slot: transfer.slot.clone() }, at: now() }) {
            Some(Order::Post { posted, .. }) => {
                self.shared.open.fetch_sub(1, Ordering::AcqRel);
                posted.slot.refuse(posted.plan);
                Err(PostError::Panicked)
            }
            _ => Ok(id),
        }
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once. A
    /// write that is cancelled may have reached the store; then its key is taken.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{sync::mpsc::channel, time::Duration};
    /// # use transport::*;
    /// # // Somebody who listens and says nothing.
    /// # let store = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let config = ObjectConfig {
    /// #     name: "example".to_owned(),
    /// #     endpoint: format!("http://{}", store.local_addr()?),
    /// #     region: "us-east-1".to_owned(),
    /// #     bucket: "kv".to_owned(),
    /// #     credentials: ObjectCredentials { key_id: "key".to_owned(), secret: "secret".to_owned(), token: None },
    /// #     requests_max: 16,
    /// #     posted_max: 64,
    /// #     part_bytes: 8 << 20,
    /// #     silence_max: Duration::from_secs(5),
    /// #     give_up: Duration::from_secs(30),
    /// # };
    /// let (sender, ends) = channel();
    /// let sink = Box::new(move |end| sender.send(end).expect("it is listened to"));
    /// let mover = ObjectMover::start(config, &Failure::new(), sink)?;
    /// let look = mover.prepare(ObjectWork::Look { key: "example".to_owned() })?;
    /// assert_eq!((look.bytes(), look.state()), (0, TransferState::Unposted));
    /// let id = mover.post(&look)?;
    /// mover.cancel(id);
    /// // From then on memory is not touched for it.
    /// let end = ends.recv_timeout(Duration::from_secs(60))?;
    /// assert_eq!((end.id, end.result), (id, Err(ObjectError::Cancelled)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, id: TransferId) {
        // Where the thread is gone, it has told all ends.
        self.order(Order::Cancel(id));
    }

    /// Gives the order back if the thread is gone: it ends after the mover, or by a panic.
    fn order(&self, order: Order) -> Option<Order> {
        match &self.orders {
            Some(orders) => orders.send(order).err().map(|refused| refused.0),
            None => Some(order),
        }
    }
}

impl Drop for ObjectMover {
    fn drop(&mut self) {
        self.orders = None;
        let mover = &self.shared.config.name;
        if let Some(Err(Late)) = self.thread.take().map(|thread| thread.join(CLOSE_WAIT_MAX)) {
            tracing::error!(mover, "the thread that moves objects hangs: it is left behind");
        }
    }
}

impl Shared {
    /// A panic, on the mover's thread.
    fn failed(&self, panic: impl fmt::Display) {
        self.failure.report(std::thread::current().name().unwrap_or_default(), panic);
    }

    fn end(&self, posted: Posted, result: Result<ObjectReport, ObjectError>) {
        let Posted { id, plan, slot } = posted;
        self.open.fetch_sub(1, Ordering::AcqRel);
        slot.put(plan, result.clone());
        // If its caller dropped it, its memory is let go of before anybody hears of its end.
        drop(slot);
        (self.sink)(ObjectEnd { id, result });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs it to its end, and waits for nothing that blocks beyond that: the system resolves names on threads of the
/// runtime, for as long as its name servers say nothing.
fn run_to_end(runtime: Runtime, work: impl FnOnce(&Runtime)) {
    work(&runtime);
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_name_server_that_hangs_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be made");
        let (goes_on, hangs) = channel::<()>();
        let (says, ended) = channel();
        run_to_end(runtime, |runtime| {
            runtime.block_on(async move {
                drop(tokio::task::spawn_blocking(move || {
                    let _ = hangs.recv();
                    says.send(()).expect("somebody listens");
                }));
                // So that it is begun.
                tokio::task::yield_now().await;
            });
        });
        drop(goes_on);
        ended.recv().expect("it was begun, and ends by itself");
    }
}
