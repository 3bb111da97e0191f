//! A disk tier in folders of this host: preallocated files of slots, and beside them a log of which slot got which
//! record.

mod log;
mod slot_layout;

use super::framed_store::{FRAMES_MAX, FramedStore, Store, frames};
use super::mover_thread::{Ended, MoverThread, Order, What, orders};
use super::records::Records;
use super::{BACKLOG_MAX, SLOTS_MIN, TierEnd, TierMover, TierOwner, TierParts};
use crate::file_meters::FileMeters;
use domain::{BlockHash, GroupId, KvLayout, SeqKey, WorkerId};
use kv_manager::tiers::{Tier, TierConfig, TierRead, TierRecord, TierWrite, WritePolicy};
use log::LogFile;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use slot_layout::SlotLayout;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use telemetry::metrics::{Gauge, index_bytes, tier_recovered};
use transport::{
    Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy, FileEnd, FileError, FileId, FileMover, FileSpec,
    Memory, PrivateMemory, RegionId, TransferId, make_own_folder, open_own_file,
};

/// Bytes that follow each other on one device.
const STRIPE_BYTES: u64 = 1 << 20;
/// Records being written at once: the rest of the frames is for those that somebody waits for.
const WRITES_MAX: usize = 2;

/// Settings of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Name for people.
    pub name: String,
    /// Whose it is.
    pub worker: WorkerId,
    /// Digest of the weights, on which records depend beside the layout.
    pub weights: [u8; 32],
    /// Its folders, at least one, of this tier and this user alone, one for each device. Made where they do not exist.
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

/// Opens a tier for this worker, whose pools have this layout. Where a device fails, the tier is off from the
/// beginning, as it would be had that happened later. Errors: [`DiskError`], of what its settings or its user can
/// fix.
pub fn open_disk_tier(config: &DiskConfig, layout: &KvLayout, owner: &TierOwner) -> Result<TierParts, DiskError> {
    let ends = owner.ends.clone();
    let opened = over(config, layout, owner.pools.clone(), &owner.failure, move |end| ends(end));
    opened.or_else(|error| {
        if !error.is_of_a_device() {
            return Err(error);
        }
        // The first that the worker hears of the tier, so it asks it for nothing.
        (owner.ends)(TierEnd::Off { tier: Tier::Disk, reason: error.to_string() });
        let slots = vec![0; layout.groups.len()];
        let size = TierConfig { slots, writes_max: 0, backlog_max: 0, write: WritePolicy::Never };
        Ok(TierParts { tier: Tier::Disk, mover: Box::new(Closed), config: size, records: Vec::new() })
    })
}

/// In place of a tier that could not be opened, which is off for ever.
struct Closed;

impl TierMover for Closed {
    fn write(&mut self, write: TierWrite) {
        panic!("{write:?} goes to a tier that is off");
    }

    fn read(&mut self, _: SeqKey, read: TierRead) {
        panic!("{read:?} is of a tier that is off");
    }

    fn cancel(&mut self, _: SeqKey) {}
}

impl DiskError {
    /// Whether a device, or the system behind it, fails, and no setting is wrong.
    fn is_of_a_device(&self) -> bool {
        const OF_DEVICES: [Errno; 8] = [
            Errno::IO,
            Errno::NOSPC,
            Errno::ROFS,
            Errno::NODEV,
            Errno::NXIO,
            Errno::DQUOT,
            Errno::STALE,
            Errno::UCLEAN,
        ];
        let Self::System { source, .. } = self else { return false };
        let of_a_device = |errno: Errno| match source.raw_os_error() {
            Some(raw) => raw == errno.raw_os_error(),
            // The mover of files tells the path in place of the number. Files that do not fit are too large by
            // their setting.
            None => errno != Errno::NOSPC && source.kind() == io::Error::from(errno).kind(),
        };
        OF_DEVICES.into_iter().any(of_a_device)
    }
}

/// The same for pools in any memory. `sink` gets the end of each move, from the tier's thread; it may wait, but
/// not for ever.
fn over(
    config: &DiskConfig,
    layout: &KvLayout,
    pools: Vec<Arc<dyn Memory>>,
    failure: &Failure,
    sink: impl Fn(TierEnd) + Send + 'static,
) -> Result<TierParts, DiskError> {
    let slots_at = SlotLayout::of(config, layout)?;
    let system = |path: &PathBuf| {
        let path = path.clone();
        move |source| DiskError::System { path, source }
    };
    let mut locks = Vec::new();
    for folder in &config.folders {
        make_own_folder(folder).map_err(system(folder))?;
        let path = folder.join("lock");
        let lock = open_own_file(&path, OFlags::RDWR | OFlags::CREATE).map_err(system(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => DiskError::InUse { folder: folder.clone() },
            errno => DiskError::System { path: path.clone(), source: errno.into() },
        })?;
        locks.push(lock);
    }
    let first = &config.folders[0];
    let (order, inbox) = orders();
    let ends = order.clone();
    let mover = FileConfig { name: config.name.clone(), depth: config.depth, posted_max: FRAMES_MAX, io_uring: true };
    // An error says that the tier is closed.
    let mover =
        FileMover::start(mover, failure, Box::new(move |end| drop(ends.send(Order::Ended(end.id, ended(&end))))));
    let mover = mover.map_err(system(first))?;
    let paths = config.folders.iter().map(|folder| folder.join("records")).collect();
    let spec = FileSpec { paths, bytes: slots_at.bytes(), stripe_bytes: STRIPE_BYTES };
    // Before the log: what is too large is found here, and nothing was written for it.
    let file = mover.open(&spec).map_err(system(first))?;
    let log = first.join("log");
    let slots = slots_at.slots as usize * layout.groups.len();
    let shape = slots_at.shape(layout, config);
    let (log, replay) = LogFile::open(log.clone(), shape, slots).map_err(system(&log))?;
    if replay.foreign {
        let name = &config.name;
        tracing::warn!(tier = name, folder = %first.display(), "what the disk tier held is of another model, size or list of folders: it is not used");
    }
    let (records, corrupt, torn) = (replay.records.len(), replay.corrupt, replay.torn);
    for (result, count) in
        [("known", records), ("corrupt", corrupt), ("torn", torn.into()), ("foreign", replay.foreign.into())]
    {
        tier_recovered(config.worker, Tier::Disk.name(), result).absolute(count as u64);
    }
    let (folder, bytes) = (first.display(), slots_at.bytes());
    tracing::info!(tier = config.name, %folder, bytes, records, corrupt, torn, slots, "the disk tier is open");

    let frame_bytes = slots_at.frame_bytes();
    let memory = PrivateMemory::new(frames(frame_bytes) * frame_bytes);
    let memory: Arc<dyn Memory> = Arc::new(memory.map_err(system(first))?);
    let region = mover.register(memory.clone());
    let size = TierConfig {
        slots: vec![slots_at.slots; layout.groups.len()],
        writes_max: WRITES_MAX,
        backlog_max: BACKLOG_MAX,
        write: config.write,
    };
    let (name, records) = (config.name.clone(), Records::new(layout, pools));
    let meters = FileMeters::new(config.worker, Tier::Disk);
    meters.show(&mover.status());
    let index = ["used", "budget"].map(|kind| index_bytes(config.worker, "log", kind));
    let store = Files { slots_at, mover, meters, file, region, log, index, _locks: locks };
    store.show();
    let work = FramedStore::new(name.clone(), records, Box::new(sink), inbox, store, memory, frame_bytes);
    let mover =
        MoverThread::start(format!("{name}-disk"), failure, order, move || work.run()).map_err(system(first))?;
    Ok(TierParts { tier: Tier::Disk, mover: Box::new(mover), config: size, records: replay.records })
}

fn ended(end: &FileEnd) -> Ended {
    match &end.result {
        Ok(_) => Ended::Done,
        Err(FileError::Cancelled) => Ended::Cancelled,
        Err(error) => Ended::Failed(error.to_string()),
    }
}

/// The files, and what they hold.
struct Files {
    slots_at: SlotLayout,
    mover: FileMover,
    meters: FileMeters,
    file: FileId,
    region: RegionId,
    log: LogFile,
    /// Bytes that the log takes in memory, and may take.
    index: [Gauge; 2],
    /// Held as long as the folders are used.
    _locks: Vec<OwnedFd>,
}

impl Files {
    /// Tells how much memory the log takes.
    fn show(&self) {
        for (gauge, bytes) in self.index.iter().zip(self.log.index_bytes()) {
            gauge.set(bytes as f64);
        }
    }
}

impl Store for Files {
    const TIER: Tier = Tier::Disk;
    const RECORD_AT: usize = FILE_ALIGN as usize;
    const FAILURES_MAX: u32 = 8;
    // The slot is given up with its record; if that is written again, it is elsewhere.
    const UNREADABLE_MAX: usize = 0;

    fn begin(&mut self, what: &What, at: u64, len: usize) -> Result<TransferId, String> {
        let (direction, slot) = match what {
            What::Write(write) => (Direction::Write, write.place.slot),
            What::Read(_, read) => (Direction::Read, read.place.slot),
            What::Lift(_, lift) => (Direction::Read, lift.from.slot),
            What::Land(..) => return Err("records are lifted to the host tier alone".to_owned()),
        };
        let batch = FileBatch {
            direction,
            file: self.file,
            memory: self.region,
            len: len.next_multiple_of(FILE_ALIGN as usize),
            copies: vec![FileCopy { file: self.slots_at.offset(slot), memory: at }],
        };
        let transfer = self.mover.prepare(vec![batch]).map_err(|error| error.to_string())?;
        let begun = self.mover.post(&transfer).map_err(|error| error.to_string());
        // Memory is registered behind one's back, and a mover breaks without a word to those who ask it for nothing.
        self.meters.show(&self.mover.status());
        begun
    }

    fn cancel(&mut self, id: TransferId) {
        self.mover.cancel(id);
    }

    fn wrote(&mut self, write: &TierWrite) -> Result<(), String> {
        let &TierWrite { place, hash, tenant, .. } = write;
        let noted = self.log.append(TierRecord { slot: place.slot, hash, tenant });
        self.show();
        noted.map_err(|error| format!("the log cannot be written: {error}"))
    }

    fn wrong(&mut self, _: GroupId, _: BlockHash) {
        // Its slot is written anew when its turn comes.
    }

    fn failed(&mut self) {
        self.meters.show(&self.mover.status());
    }

    // Nobody else writes here, and a disk that failed is not tried again: it never looks.
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod tests;
