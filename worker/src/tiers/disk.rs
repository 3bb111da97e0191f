//! A disk tier in folders of this host: a [`thread`] that carries records between blocks and slots, sums them up, and keeps the log.
//!
//! A record is moved through a frame, memory that the file mover knows: direct reads and writes want alignment that a block
//! need not have, and what is read is verified before it gets into a block. What the disk does is never relied on: a record
//! that is not what it should be is told so, and a disk that fails again and again is given up.

mod log;
mod shelves;
mod thread;

use super::{TierEnd, TierMover, TierParts};
use crate::inbox::Inbox;
use crate::memory::Pool;
use domain::{KvLayout, SeqKey};
use engine::device::Device;
use kv_manager::tiers::{Tier, TierConfig, TierRead, TierWrite, WritePolicy};
use log::LogFile;
use rustix::fs::{FlockOperation, flock};
use shelves::Shelves;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use thread::{Order, Work, now};
use transport::{FileConfig, FileMover, FileSpec, Memory, SealedMemory};

/// Bytes that follow each other on one device.
const STRIPE_BYTES: u64 = 1 << 20;
/// Memory of all frames, about.
const FRAMES_BYTES: usize = 32 << 20;
/// Frames, at least and at most: records under way.
const FRAMES_MIN: usize = 4;
const FRAMES_MAX: usize = 64;
/// Records being written at once: the rest of the frames is for those that somebody waits for.
const WRITES_MAX: usize = 2;
/// Blocks that wait to be written.
const BACKLOG_MAX: usize = 4096;
/// Fewest slots that a tier is worth having with.
const SLOTS_MIN: u64 = 4;

/// Settings of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Name for people.
    pub name: String,
    /// Its folders, at least one, of this tier alone, one for each device. Made where they do not exist.
    pub folders: Vec<PathBuf>,
    /// Bytes that it may take, in all folders together.
    pub bytes: u64,
    /// What is written.
    pub write: WritePolicy,
    /// Reads and writes under way at once, of all devices together.
    pub depth: u32,
}

/// Why a tier could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is no room for anything.
    #[error("a disk tier of {bytes} bytes holds {slots} blocks of {each} bytes; give it {}", each * SLOTS_MIN)]
    TooSmall {
        /// What it was given.
        bytes: u64,
        /// What that holds.
        slots: u64,
        /// What a block takes, with its header.
        each: u64,
    },
    /// Another process has it.
    #[error("{} is used by another process: each worker needs a folder of its own", folder.display())]
    InUse {
        /// Which folder.
        folder: PathBuf,
    },
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A disk tier that is open. Dropping it ends what is under way.
pub struct DiskTier {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl TierMover for DiskTier {
    fn write(&mut self, write: TierWrite) {
        self.order(Order::Write(write, now()));
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.order(Order::Read(key, read, now()));
    }

    fn cancel(&mut self, key: SeqKey) {
        self.order(Order::Cancel(key));
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.order(Order::Close);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a disk tier panicked");
        }
    }
}

impl DiskTier {
    /// Opens a tier for the pools of `device`, which have this layout, and the worker with this inbox. Errors: [`DiskError`].
    pub fn open(
        config: &DiskConfig,
        layout: &KvLayout,
        device: &dyn Device,
        inbox: &Inbox,
    ) -> Result<TierParts, DiskError> {
        let pools = Pool::all(device, layout);
        let input = inbox.input();
        Self::over(config, layout, pools, move |end| input.tier_ended(end))
    }

    /// The same for pools in any memory. `sink` gets the end of each move, from the tier's thread; it may wait, but not for ever.
    fn over(
        config: &DiskConfig,
        layout: &KvLayout,
        pools: Vec<Arc<dyn Memory>>,
        sink: impl Fn(TierEnd) + Send + 'static,
    ) -> Result<TierParts, DiskError> {
        let shelves = Shelves::of(config, layout)?;
        let system = |path: &PathBuf| {
            let path = path.clone();
            move |source| DiskError::System { path, source }
        };
        let mut locks = Vec::new();
        for folder in &config.folders {
            fs::create_dir_all(folder).map_err(system(folder))?;
            let path = folder.join("lock");
            let lock = File::create(&path).map_err(system(&path))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
                rustix::io::Errno::WOULDBLOCK => DiskError::InUse { folder: folder.clone() },
                errno => DiskError::System { path: path.clone(), source: errno.into() },
            })?;
            locks.push(lock);
        }
        let first = &config.folders[0];
        let log = first.join("log");
        let slots = shelves.slots as usize * layout.groups.len();
        let (log, replay) = LogFile::open(log.clone(), shelves.shape(layout), slots).map_err(system(&log))?;
        if replay.foreign {
            let name = &config.name;
            tracing::warn!(tier = name, folder = %first.display(), "what the disk tier held is of another model or size: it is not used");
        }
        let (records, corrupt, torn) = (replay.records.len(), replay.corrupt, replay.torn);
        tracing::info!(tier = config.name, records, corrupt, torn, slots, "the disk tier is open");

        let (orders, inbox) = channel();
        let ends = orders.clone();
        let mover =
            FileConfig { name: config.name.clone(), depth: config.depth, posted_max: FRAMES_MAX, io_uring: true };
        // An error says that the tier is closed.
        let mover =
            FileMover::start(mover, Box::new(move |end| drop(ends.send(Order::Ended(end))))).map_err(system(first))?;
        let paths = config.folders.iter().map(|folder| folder.join("records")).collect();
        let spec = FileSpec { paths, bytes: shelves.bytes(), stripe_bytes: STRIPE_BYTES };
        let file = mover.open(&spec).map_err(system(first))?;
        let frame_bytes = shelves.frame_bytes();
        let frames = (FRAMES_BYTES / frame_bytes).clamp(FRAMES_MIN, FRAMES_MAX);
        let memory =
            SealedMemory::new(&format!("{}-frames", config.name), frames * frame_bytes).map_err(system(first))?;
        let memory: Arc<dyn Memory> = Arc::new(memory);
        let region = mover.register(memory.clone());

        let size = TierConfig {
            slots: vec![shelves.slots; layout.groups.len()],
            writes_max: WRITES_MAX,
            backlog_max: BACKLOG_MAX,
            write: config.write,
        };
        let name = config.name.clone();
        let work = Work {
            name: name.clone(),
            shelves,
            fingerprint: layout.fingerprint(),
            pools,
            sink: Box::new(sink),
            inbox,
            mover,
            file,
            memory,
            region,
            free: (0..frames).collect(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            under_way: HashMap::new(),
            failures: 0,
            off: false,
            log,
            _locks: locks,
        };
        let thread = std::thread::Builder::new()
            .name(format!("{name}-disk"))
            .spawn(move || work.run())
            .map_err(system(first))?;
        let mover = Box::new(Self { orders, thread: Some(thread) });
        Ok(TierParts { tier: Tier::Disk, mover, config: size, records: replay.records })
    }

    fn order(&self, order: Order) {
        // The thread outlives this value, unless it panicked, which is told then.
        let _ = self.orders.send(order);
    }
}

#[cfg(test)]
mod tests;
