//! The lane `file`: a [`FileMover`] reads files of this host into registered memory, and writes registered memory into them.
//!
//! It is the mover of the disk tier. Other lanes read a peer's bytes, behind gates, over a connection that may break; here both
//! ends are the caller's own and both directions exist, so transfers are of a type of their own and cannot be mixed up with
//! those. The rest is alike: prepare once, post without waiting, one end for each, which says that memory and files are not
//! touched any more.
//!
//! Operations go through io_uring with memory that was registered once, past the page cache (O_DIRECT), with a bounded number
//! under way; on hosts that do not allow io_uring through threads that block. What was taken, and why nothing better, is told.
//!
//! What is deliberately absent: what the bytes mean, whether they are valid, and which are worth keeping (`kv-manager`'s).

mod operation;
mod plan;
mod ring;
mod stripes;
mod threads;

pub use plan::{Direction, FileBatch, FileCopy, FileId, FilePrepareError, FileTransfer};
pub use stripes::{FILE_ALIGN, FileSpec};

use crate::event::TransferId;
use crate::memory::{Memory, RegionId, Regions};
use crate::transfer::PostError;
use crate::wake::{Doorbell, Wake};
use operation::{Done, Operation};
use plan::{Cursor, Run};
use ring::Ring;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripes::Stripes;
use threads::Threads;

/// Bytes of an operation, at most: several of a large copy are under way at once.
const OPERATION_BYTES_MAX: usize = 1 << 20;
/// Bytes of operations that are started together, about: the device begins with these while more are made. Small ones gain
/// nothing by being started a few at a time.
const STARTED_BYTES: usize = 512 << 10;

/// Settings of a mover of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Name for people.
    pub name: String,
    /// Operations under way at once: the queue depth that the devices see together. At least 1.
    pub depth: u32,
    /// Transfers posted and not ended; one more is refused.
    pub posted_max: usize,
    /// Whether io_uring may be taken.
    pub io_uring: bool,
}

/// How a mover moves, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FileStatus {
    /// Why threads that block do it, where io_uring does not.
    pub no_io_uring: Option<String>,
    /// Why memory is pinned for each operation, where it is not registered.
    pub unregistered: Option<String>,
    /// Why the page cache is in the way, of each region of files.
    pub buffered: Vec<Option<String>>,
}

/// The one end of a posted file transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct FileEnd {
    /// Which.
    pub id: TransferId,
    /// All bytes are where they belong, or why not. What was written is in the files then, not yet safe from a loss of power.
    pub result: Result<FileReport, FileError>,
}

/// What a file transfer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileReport {
    /// Bytes read and written.
    pub bytes: u64,
    /// From post to the first operation: other transfers.
    pub queued: Duration,
    /// From the first operation to the end.
    pub wire: Duration,
}

/// Why a file transfer did not move all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The caller cancelled it, or the mover ended.
    #[error("cancelled")]
    Cancelled,
    /// The system refused a read or a write.
    #[error("a read or write failed: {}", io::Error::from_raw_os_error(*errno))]
    System {
        /// Its error number.
        errno: i32,
    },
    /// A file ends before its share does.
    #[error("a file was cut short by somebody else")]
    CutShort,
}

type Sink = Box<dyn Fn(FileEnd) + Send + Sync>;

/// Moves bytes between files and memory. Dropping it ends its transfers.
pub struct FileMover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    config: FileConfig,
    sink: Sink,
    bell: Arc<Doorbell>,
    orders: Mutex<Orders>,
    memory: Mutex<Regions>,
    files: Mutex<Vec<Arc<Stripes>>>,
    status: Mutex<FileStatus>,
    open: AtomicUsize,
    next_id: AtomicU64,
}

#[derive(Default)]
struct Orders {
    registered: Vec<(RegionId, Arc<dyn Memory>)>,
    posted: VecDeque<Posted>,
    cancelled: Vec<TransferId>,
    /// As many operations as may be are under way, so that a transfer more begins no sooner than one of them ends.
    is_full: bool,
    closed: bool,
}

struct Posted {
    id: TransferId,
    transfer: FileTransfer,
    cursor: Cursor,
    /// All its operations were made, or no more shall be.
    exhausted: bool,
    under_way: usize,
    failed: Option<FileError>,
    at: Instant,
    begun: Option<Instant>,
}

#[expect(clippy::disallowed_methods, reason = "transfers are timed; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileMover {
    /// Starts a mover. `sink` gets the end of each transfer, from the mover's thread; it must not block. The end may come before
    /// [`FileMover::post`] returns. Errors: of the system.
    pub fn start(config: FileConfig, sink: Box<dyn Fn(FileEnd) + Send + Sync>) -> io::Result<Self> {
        let bell = Arc::new(Doorbell::new()?);
        let config = FileConfig { depth: config.depth.max(1), ..config };
        let (engine, no_io_uring) = Engine::new(&config, &bell)?;
        if let Some(why) = &no_io_uring {
            tracing::warn!(mover = config.name, why, "files are read and written by threads, which is slower");
        }
        let orders = Orders { posted: VecDeque::with_capacity(config.posted_max), ..Orders::default() };
        let shared = Arc::new(Shared {
            sink,
            bell,
            orders: Mutex::new(orders),
            memory: Mutex::default(),
            files: Mutex::default(),
            status: Mutex::new(FileStatus { no_io_uring, ..FileStatus::default() }),
            open: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            config,
        });
        let (name, theirs) = (format!("{}-file", shared.config.name), shared.clone());
        let thread = std::thread::Builder::new().name(name).spawn(move || Work::new(&theirs, engine).run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Registers memory that transfers may read and write. Done once, at start; it stays mapped as long as the mover lives.
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        let id = lock(&self.shared.memory).add(memory.clone());
        self.shared.order(|orders| orders.registered.push((id, memory)));
        id
    }

    /// Opens a region of files, and takes its room on the devices. Errors: of the system, with the path; a spec that is none.
    pub fn open(&self, spec: &FileSpec) -> io::Result<FileId> {
        let stripes = Stripes::open(spec)?;
        let buffered = stripes.buffered().map(str::to_owned);
        if let Some(why) = &buffered {
            tracing::warn!(mover = self.shared.config.name, why, "files are read and written through the page cache");
        }
        let mut files = lock(&self.shared.files);
        files.push(Arc::new(stripes));
        lock(&self.shared.status).buffered.push(buffered);
        Ok(FileId(files.len() as u32 - 1))
    }

    /// How it moves, and why not better.
    pub fn status(&self) -> FileStatus {
        lock(&self.shared.status).clone()
    }

    /// Prepares a transfer. Its batches are carried out in no order. Errors: [`FilePrepareError`].
    pub fn prepare(&self, batches: Vec<FileBatch>) -> Result<FileTransfer, FilePrepareError> {
        let run = |batch: FileBatch| {
            let stripes = lock(&self.shared.files).get(batch.file.0 as usize).cloned();
            let stripes = stripes.ok_or(FilePrepareError::NoFile(batch.file))?;
            let memory = lock(&self.shared.memory).get(batch.memory);
            let memory = memory.ok_or(FilePrepareError::NoMemory(batch.memory))?;
            Run::new(batch, stripes, memory)
        };
        Ok(FileTransfer::new(batches.into_iter().map(run).collect::<Result<_, _>>()?))
    }

    /// Starts a transfer without waiting for it. Allocates nothing. Errors: [`PostError`].
    pub fn post(&self, transfer: FileTransfer) -> Result<TransferId, PostError> {
        let shared = &self.shared;
        let posted_max = shared.config.posted_max;
        let room = |open| (open < posted_max).then_some(open + 1);
        if shared.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(PostError::Full(posted_max));
        }
        let id = TransferId(shared.next_id.fetch_add(1, Ordering::Relaxed));
        let (cursor, at) = (Cursor::default(), now());
        let posted = Posted { id, transfer, cursor, exhausted: false, under_way: 0, failed: None, at, begun: None };
        let mut orders = lock(&shared.orders);
        orders.posted.push_back(posted);
        // The thread looks here before it begins another one. To wake it for nothing takes time from whatever else runs.
        let is_full = orders.is_full;
        drop(orders);
        if !is_full {
            shared.bell.wake();
        }
        Ok(id)
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once.
    pub fn cancel(&self, id: TransferId) {
        // Never refused. Emptied in every turn of the thread.
        self.shared.order(|orders| orders.cancelled.push(id));
    }
}

impl Drop for FileMover {
    fn drop(&mut self) {
        self.shared.order(|orders| orders.closed = true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(mover = self.shared.config.name, "the thread that moves files panicked");
        }
    }
}

impl Shared {
    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut lock(&self.orders));
        self.bell.wake();
    }

    fn end(&self, id: TransferId, result: Result<FileReport, FileError>) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        (self.sink)(FileEnd { id, result });
    }
}

/// What carries operations out.
enum Engine {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Engine {
    /// An engine, and why it is none of io_uring where it is not.
    fn new(config: &FileConfig, bell: &Arc<Doorbell>) -> io::Result<(Self, Option<String>)> {
        let why = if config.io_uring {
            match Ring::new(config.depth, bell.clone()) {
                Ok(ring) => return Ok((Self::Ring(Box::new(ring)), None)),
                Err(error) => format!("io_uring is not to be had: {error}"),
            }
        } else {
            "io_uring is switched off".to_owned()
        };
        let threads = Threads::new(&format!("{}-file", config.name), config.depth, bell.clone())?;
        Ok((Self::Threads(threads), Some(why)))
    }

    fn push(&mut self, slot: usize, operation: &Operation) {
        match self {
            Self::Ring(ring) => ring.push(slot, operation),
            Self::Threads(threads) => threads.push(slot, operation),
        }
    }

    /// Makes it the calling thread's.
    fn begin(&self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.begin(),
            Self::Threads(_) => Ok(()),
        }
    }

    /// Starts what was pushed.
    fn start(&mut self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.start(),
            Self::Threads(_) => Ok(()),
        }
    }

    fn turn(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.turn(wait, done),
            Self::Threads(threads) => threads.turn(wait, done),
        }
    }
}

/// The thread: what is under way, and for whom.
struct Work<'a> {
    shared: &'a Shared,
    engine: Engine,
    active: VecDeque<Posted>,
    /// What is under way, and for which transfer.
    slots: Vec<Option<(TransferId, Operation)>>,
    free: Vec<usize>,
    closed: bool,
}

impl<'a> Work<'a> {
    fn new(shared: &'a Shared, engine: Engine) -> Self {
        let depth = shared.config.depth as usize;
        Self {
            shared,
            engine,
            active: VecDeque::with_capacity(shared.config.posted_max),
            slots: vec![None; depth],
            free: (0..depth).collect(),
            closed: false,
        }
    }

    /// Returns once the mover is dropped and nothing is under way any more.
    fn run(mut self) {
        if let Err(error) = self.carry_on() {
            // A bad descriptor or address, which nothing here can bring about. What is under way may still write into memory,
            // so nobody may be told that it has ended.
            tracing::error!(mover = self.shared.config.name, %error, "files cannot be read or written any more");
            std::mem::forget(self);
        }
    }

    fn carry_on(&mut self) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.slots.len());
        self.engine.begin()?;
        loop {
            self.shared.bell.answer();
            self.carry_out();
            self.fill()?;
            if self.active.iter().any(Posted::is_finished) {
                // Devices are busy while others are told: to wake those takes as long as some reads do.
                self.engine.start()?;
                self.end_finished();
            }
            if self.closed && self.active.is_empty() {
                return Ok(());
            }
            let engine = &mut self.engine;
            self.shared.bell.sleep(|wait| engine.turn(wait, &mut done))?;
            done.drain(..).for_each(|done| self.done(done));
        }
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = lock(&self.shared.orders);
        self.closed |= orders.closed;
        orders.is_full = false;
        self.active.append(&mut orders.posted);
        let cancelled = std::mem::take(&mut orders.cancelled);
        let registered = std::mem::take(&mut orders.registered);
        drop(orders);
        for (id, memory) in registered {
            if let Engine::Ring(ring) = &mut self.engine {
                ring.register(id, &*memory);
                let why = ring.unregistered().map(str::to_owned);
                let known = &mut lock(&self.shared.status).unregistered;
                if known.is_none()
                    && let Some(why) = &why
                {
                    tracing::warn!(
                        mover = self.shared.config.name,
                        why,
                        "memory is pinned for every read and write of a file"
                    );
                }
                *known = why;
            }
        }
        let closed = self.closed;
        for posted in self.active.iter_mut().filter(|posted| closed || cancelled.contains(&posted.id)) {
            posted.stop(FileError::Cancelled);
        }
    }

    /// Begins operations of the transfers in turn, as many as may be under way.
    fn fill(&mut self) -> io::Result<()> {
        let (mut idle, mut made) = (0, 0);
        while idle < self.active.len()
            && let Some(&slot) = self.free.last()
            && let Some(mut posted) = self.active.pop_front()
        {
            match posted.next(&self.engine) {
                Some(operation) => {
                    idle = 0;
                    self.free.pop();
                    posted.under_way += 1;
                    posted.begun.get_or_insert_with(now);
                    self.engine.push(slot, &operation);
                    self.slots[slot] = Some((posted.id, operation));
                    made += operation.place.len;
                    if made >= STARTED_BYTES {
                        made = 0;
                        self.engine.start()?;
                    }
                }
                None => idle += 1,
            }
            self.active.push_back(posted);
        }
        if self.free.is_empty() {
            lock(&self.shared.orders).is_full = true;
        }
        Ok(())
    }

    /// An operation ended: its transfer goes on, with the rest of it first where it did a part.
    fn done(&mut self, done: Done) {
        let Some((id, mut operation)) = self.slots.get_mut(done.slot).and_then(Option::take) else { return };
        let Some(posted) = self.active.iter_mut().find(|posted| posted.id == id) else { return };
        let again = match done.result {
            Ok(0) => Err(FileError::CutShort),
            Ok(moved) if moved < operation.place.len => {
                operation.advance(moved);
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => Ok(true),
                errno => Err(FileError::System { errno: errno.unwrap_or(libc::EIO) }),
            },
        };
        match again {
            Ok(true) if posted.failed.is_none() => {
                self.engine.push(done.slot, &operation);
                self.slots[done.slot] = Some((id, operation));
                return;
            }
            Ok(_) => {}
            Err(error) => posted.stop(error),
        }
        posted.under_way -= 1;
        self.free.push(done.slot);
    }

    /// Tells the ends of the transfers of which nothing is left and nothing under way.
    fn end_finished(&mut self) {
        for _ in 0..self.active.len() {
            let Some(posted) = self.active.pop_front() else { break };
            if posted.is_finished() {
                let Posted { id, transfer, failed, at, begun, .. } = posted;
                let (begun, bytes) = (begun.unwrap_or(at), transfer.bytes());
                // Its regions are let go of before anybody hears of its end.
                drop(transfer);
                let report = FileReport { bytes, queued: begun.duration_since(at), wire: now().duration_since(begun) };
                self.shared.end(id, failed.map_or(Ok(report), Err));
            } else {
                self.active.push_back(posted);
            }
        }
    }
}

impl Posted {
    fn next(&mut self, engine: &Engine) -> Option<Operation> {
        let len_max = |offset| match engine {
            Engine::Ring(_) => OPERATION_BYTES_MAX.min(Ring::at_once(offset)),
            Engine::Threads(_) => OPERATION_BYTES_MAX,
        };
        let operation = if self.exhausted { None } else { self.transfer.next(&mut self.cursor, len_max) };
        // Seen now and not at its next turn, which may come after those of many others, so that its end is told in time.
        self.exhausted |= self.transfer.is_over(&self.cursor);
        operation
    }

    /// Nothing of it is left, and nothing under way.
    fn is_finished(&self) -> bool {
        self.exhausted && self.under_way == 0
    }

    /// Begins nothing more. The first reason counts.
    fn stop(&mut self, why: FileError) {
        self.exhausted = true;
        self.failed.get_or_insert(why);
    }
}
