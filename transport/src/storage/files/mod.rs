//! The lane `file`: a [`FileMover`] reads files of this host into registered memory, and writes registered memory
//! into them.
//!
//! It is the mover of the disk tier. Other lanes read a peer's bytes, behind gates, over a connection that may
//! break; here both ends are the caller's own and both directions exist, so transfers are of a type of their own
//! and cannot be mixed up with those. The rest is alike: prepare once, post without waiting, one end for each,
//! which says that memory and files are not touched any more.
//!
//! Operations go through io_uring with memory that was registered once, past the page cache (O_DIRECT), with a
//! bounded number under way; on hosts that do not allow io_uring through threads that block. Which of the ways
//! ([`FileWay`]) was taken, and why none that is faster by nature, is told.
//!
//! What is deliberately absent: what the bytes mean, whether they are valid, and which are worth keeping
//! (`kv-manager`'s).

mod operation;
mod plan;
mod prepared;
mod ring;
mod stripes;
mod threads;
mod way;
mod work;

pub use plan::{Direction, FileBatch, FileCopy, FileId, FilePrepareError};
pub use prepared::FileTransfer;
pub use stripes::{FILE_ALIGN, FileSpec};
pub use way::FileWay;

use crate::agent::event::TransferId;
use crate::bounded_thread::{BoundedThread, Late};
use crate::clock::now;
use crate::failure::Failure;
use crate::regions::{RegionId, Regions};
use crate::speed::storage_speed::StorageSpeeds;
use crate::transfer::PostError;
use crate::wake::{Doorbell, Wake};
use kv_memory::Memory;
use plan::{FilePlan, Run};
use prepared::FileSlot;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stripes::Stripes;
use way::Engine;
use work::{Posted, Work};

/// Bytes of an operation, at most: several of a large copy are under way at once.
const OPERATION_BYTES_MAX: usize = 1 << 20;
/// Operations that are started together, at most, and their bytes, about: the device begins with these while more
/// are made.
const STARTED_OPERATIONS: usize = 4;
const STARTED_BYTES: usize = 1 << 20;

/// How long a mover that is dropped waits for what is under way: a device that hangs must not keep who ends.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The way taken.
    pub way: FileWay,
    /// Every way that is faster by nature, with the reason why it was not taken.
    pub passed_over: Vec<(FileWay, String)>,
    /// Why memory is pinned for each operation, where it is not registered.
    pub unregistered: Option<String>,
    /// Why the page cache is in the way, of each region of files.
    pub buffered: Vec<Option<String>>,
    /// Why nothing can be posted any more, where that is so.
    pub broken: Option<String>,
}

impl fmt::Display for FileStatus {
    /// Returns the way, and why none before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.way, way::reasons(&self.passed_over))
    }
}

/// The one end of a posted file transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct FileEnd {
    /// As [`FileMover::post`] returned it.
    pub id: TransferId,
    /// All bytes are where they belong, or why not. What was written is in the files then, not yet safe from a
    /// loss of power.
    pub result: Result<FileReport, FileError>,
}

/// What a file transfer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileReport {
    /// The way taken.
    pub way: FileWay,
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
    /// The system takes nothing more of the mover, and does not say what became of what was under way. That may
    /// come still, so the memory and the files stay as they are for as long as the process lives, and are good for
    /// nothing else.
    #[error("files cannot be read or written any more: {}", io::Error::from_raw_os_error(*errno))]
    Broken {
        /// Its error number.
        errno: i32,
    },
    /// The mover's thread panicked, of a bug or in the caller's sink, and nobody knows what is under way. Memory
    /// and files stay as they are, as in [`FileError::Broken`].
    #[error("the thread that moves files panicked, as the log says: start another mover, with other memory and files")]
    Panicked,
}

type Sink = Box<dyn Fn(FileEnd) + Send + Sync>;

/// Moves bytes between files and memory. Dropping it ends its transfers, which takes no longer than devices take,
/// and 10 seconds at most: what hangs for longer ends when it ends.
pub struct FileMover {
    shared: Arc<Shared>,
    thread: Option<BoundedThread>,
}

struct Shared {
    config: FileConfig,
    failure: Failure,
    sink: Sink,
    bell: Arc<Doorbell>,
    orders: Mutex<Orders>,
    memory: Mutex<Regions>,
    files: Mutex<Vec<Arc<Stripes>>>,
    status: Mutex<FileStatus>,
    speeds: Arc<StorageSpeeds>,
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
    /// The thread ended: nobody carries orders out any more, and who posts is refused so.
    broken: Option<PostError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileMover {
    /// Starts a mover. `sink` gets the end of each transfer, from the mover's thread; it must not block. The end
    /// may come before [`FileMover::post`] returns. A panic of one of its threads is reported to `failure`.
    /// Errors: of the system. Shown at [`FileMover::post`].
    pub fn start(config: FileConfig, failure: &Failure, sink: Box<dyn Fn(FileEnd) + Send + Sync>) -> io::Result<Self> {
        let bell = Arc::new(Doorbell::new()?);
        let config = FileConfig { depth: config.depth.max(1), ..config };
        let (engine, passed_over) = Engine::choose(&config, failure, &bell)?;
        Self::with(engine, passed_over, config, failure, bell, sink)
    }

    /// Starts a mover whose operations this engine carries out. `passed_over`: the ways before it, and why.
    fn with(
        engine: Engine,
        passed_over: Vec<(FileWay, String)>,
        config: FileConfig,
        failure: &Failure,
        bell: Arc<Doorbell>,
        sink: Sink,
    ) -> io::Result<Self> {
        let status =
            FileStatus { way: engine.way(), passed_over, unregistered: None, buffered: Vec::new(), broken: None };
        let (mover, way, why) = (&config.name, status.way, way::reasons(&status.passed_over));
        if way == FileWay::Threads {
            tracing::warn!(mover, %way, passed_over = why, "files are read and written by threads, which is slower");
        } else {
            tracing::info!(mover, %way, passed_over = why, "the way to read and write files is chosen");
        }
        let orders = Orders { posted: VecDeque::with_capacity(config.posted_max), ..Orders::default() };
        let shared = Arc::new(Shared {
            failure: failure.clone(),
            sink,
            bell,
            orders: Mutex::new(orders),
            memory: Mutex::default(),
            files: Mutex::default(),
            status: Mutex::new(status),
            speeds: Arc::default(),
            open: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            config,
        });
        let (name, theirs) = (format!("{}-file", shared.config.name), shared.clone());
        let thread = BoundedThread::spawn(name, failure, move || Work::new(theirs, engine).run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Registers memory that transfers may read and write. Done once, at start; it stays mapped as long as the
    /// mover lives. Shown at [`FileMover::post`].
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        let (id, is_ours) = (lock(&self.shared.memory).add(memory.clone()), memory.place().host().is_some());
        if is_ours {
            self.shared.order(|orders| orders.registered.push((id, memory)));
        }
        id
    }

    /// Opens a region of files, and takes its room on the devices. Errors: of the system, with the path; a spec
    /// that is none.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # use transport::*;
    /// # let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: true };
    /// # let mover = FileMover::start(config, &Failure::new(), Box::new(|_| {}))?;
    /// # let folder = std::env::temp_dir().join(format!("baton-example-open-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// // One for each device.
    /// let paths = ["first", "second"].map(|name| folder.join(name)).to_vec();
    /// let spec = FileSpec { paths, bytes: 8 << 20, stripe_bytes: 1 << 20 };
    /// mover.open(&spec)?;
    /// assert_eq!(std::fs::metadata(&spec.paths[1])?.len(), 4 << 20);
    /// // Two names of one file are no two files.
    /// let twice = FileSpec { paths: vec![folder.join("first"), folder.join("first")], ..spec };
    /// assert!(mover.open(&twice).is_err_and(|error| error.to_string().contains("are one file")));
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns how it moves, and why not better.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # use transport::*;
    /// let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: false };
    /// let status = FileMover::start(config, &Failure::new(), Box::new(|_| {}))?.status();
    /// assert_eq!((status.way, status.broken), (FileWay::Threads, None));
    /// assert!(status.passed_over.contains(&(FileWay::IoUring, "switched off".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> FileStatus {
        lock(&self.shared.status).clone()
    }

    /// Prepares a transfer. Its batches are carried out in no order. Errors: [`FilePrepareError`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use transport::*;
    /// # let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: true };
    /// # let mover = FileMover::start(config, &Failure::new(), Box::new(|_| {}))?;
    /// # let path = std::env::temp_dir().join(format!("baton-example-prepare-{}", std::process::id()));
    /// # let file = mover.open(&FileSpec { paths: vec![path.clone()], bytes: 1 << 20, stripe_bytes: 1 << 20 })?;
    /// let memory = mover.register(Arc::new(SealedMemory::new("example", 1 << 20)?));
    /// let batch = |at| {
    ///     let copies = vec![FileCopy { file: at, memory: 0 }];
    ///     FileBatch { direction: Direction::Read, file, memory, len: 64 << 10, copies }
    /// };
    /// assert_eq!(mover.prepare(vec![batch(0), batch(64 << 10)])?.bytes(), 128 << 10);
    /// // What leaves its files, or what a device cannot do, is found here and not when it is posted.
    /// assert!(matches!(mover.prepare(vec![batch(1 << 20)]), Err(FilePrepareError::OutOfBounds { .. })));
    /// assert!(matches!(mover.prepare(vec![batch(512)]), Err(FilePrepareError::Unaligned { .. })));
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(&self, batches: Vec<FileBatch>) -> Result<FileTransfer, FilePrepareError> {
        let run = |batch: FileBatch| {
            let stripes = lock(&self.shared.files).get(batch.file.0 as usize).cloned();
            let stripes = stripes.ok_or(FilePrepareError::NoFile(batch.file))?;
            let memory = lock(&self.shared.memory).get(batch.memory);
            let memory = memory.ok_or(FilePrepareError::NoMemory(batch.memory))?;
            Run::new(batch, stripes, memory)
        };
        let plan = FilePlan::new(batches.into_iter().map(run).collect::<Result<_, _>>()?);
        Ok(FileTransfer::new(plan, self.shared.speeds.clone()))
    }

    /// Starts a transfer without waiting for it; its end comes to the sink, and can be asked or waited for. Once
    /// it has ended it may be posted again. Allocates nothing. Errors: [`PostError`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{sync::Arc, time::Duration};
    /// # use transport::*;
    /// let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: true };
    /// let mover = FileMover::start(config, &Failure::new(), Box::new(|_| {}))?;
    /// let memory = mover.register(Arc::new(SealedMemory::new("example", 1 << 20)?));
    /// let path = std::env::temp_dir().join(format!("baton-example-{}", std::process::id()));
    /// let file = mover.open(&FileSpec { paths: vec![path.clone()], bytes: 1 << 20, stripe_bytes: 1 << 20 })?;
    /// let copies = vec![FileCopy { file: 0, memory: 0 }];
    /// let write = FileBatch { direction: Direction::Write, file, memory, len: 1 << 20, copies };
    /// let transfer = mover.prepare(vec![write])?;
    /// for _ in 0..2 {
    ///     mover.post(&transfer)?;
    ///     match transfer.wait(Duration::from_secs(60)) {
    ///         TransferState::Ended(Ok(report)) => println!("{} bytes by {}", report.bytes, report.way),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// println!("once more would take {:?}", transfer.estimate().expect("it was written before"));
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn post(&self, transfer: &FileTransfer) -> Result<TransferId, PostError> {
        let shared = &self.shared;
        if !Arc::ptr_eq(&transfer.speeds, &shared.speeds) {
            return Err(PostError::Foreign);
        }
        let mut orders = lock(&shared.orders);
        if let Some(error) = orders.broken {
            return Err(error);
        }
        let posted_max = shared.config.posted_max;
        if shared.open.load(Ordering::Acquire) >= posted_max {
            return Err(PostError::Full(posted_max));
        }
        let plan = transfer.slot.take().ok_or(PostError::UnderWay)?;
        // Nobody else adds to it, as whoever does holds the lock.
        shared.open.fetch_add(1, Ordering::AcqRel);
        let id = TransferId(shared.next_id.fetch_add(1, Ordering::Relaxed));
        orders.posted.push_back(Posted::new(id, plan, transfer.slot.clone(), now()));
        // The thread looks here before it begins another one. To wake it for nothing takes time from whatever else
        // runs.
        let is_full = orders.is_full;
        drop(orders);
        if !is_full {
            shared.bell.wake();
        }
        Ok(id)
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{sync::Arc, sync::mpsc::channel, time::Duration};
    /// # use transport::*;
    /// # let config = FileConfig { name: "example".to_owned(), depth: 8, posted_max: 2, io_uring: true };
    /// let (sender, ends) = channel();
    /// let sink = Box::new(move |end| sender.send(end).expect("it is listened to"));
    /// let mover = FileMover::start(config, &Failure::new(), sink)?;
    /// println!("files are moved by {}", mover.status().way);
    /// # let memory = mover.register(Arc::new(SealedMemory::new("example", 1 << 20)?));
    /// # let path = std::env::temp_dir().join(format!("baton-example-cancel-{}", std::process::id()));
    /// # let file = mover.open(&FileSpec { paths: vec![path.clone()], bytes: 1 << 20, stripe_bytes: 1 << 20 })?;
    /// # let copies = vec![FileCopy { file: 0, memory: 0 }];
    /// # let write = FileBatch { direction: Direction::Write, file, memory, len: 1 << 20, copies };
    /// # let transfer = mover.prepare(vec![write])?;
    /// let id = mover.post(&transfer)?;
    /// mover.cancel(id);
    /// // From then on neither the files nor the memory are touched for it.
    /// let end = ends.recv_timeout(Duration::from_secs(60))?;
    /// assert_eq!(end.id, id);
    /// assert!(matches!(end.result, Ok(_) | Err(FileError::Cancelled)));
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, id: TransferId) {
        // Never refused. Emptied in every turn of the thread.
        self.shared.order(|orders| orders.cancelled.push(id));
    }
}

impl Drop for FileMover {
    fn drop(&mut self) {
        self.shared.order(|orders| orders.closed = true);
        let mover = &self.shared.config.name;
        if let Some(Err(Late)) = self.thread.take().map(|thread| thread.join(CLOSE_WAIT_MAX)) {
            // The thread keeps memory and files until what is under way has ended, and tells that then.
            tracing::error!(mover, "a device hangs: what is under way there is left behind");
        }
    }
}

impl Shared {
    fn order(&self, order: impl FnOnce(&mut Orders)) {
        let mut orders = lock(&self.orders);
        // Where nobody carries orders out, none are kept.
        if orders.broken.is_none() {
            order(&mut orders);
        }
        drop(orders);
        self.bell.wake();
    }

    fn end(&self, id: TransferId, plan: FilePlan, slot: Arc<FileSlot>, result: Result<FileReport, FileError>) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        slot.put(plan, result);
        // If its caller dropped it, its regions are let go of before anybody hears of its end.
        drop(slot);
        (self.sink)(FileEnd { id, result });
    }
}

#[cfg(test)]
mod tests;
