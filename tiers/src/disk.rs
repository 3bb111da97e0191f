//! A disk tier in folders of this host: preallocated files of slots, and beside them a log of which slot got which
//! record.

mod leftovers;
mod log;
mod slot_layout;

use crate::file_meters::FileMeters;
use crate::framed_store::{FRAMES_MAX, FramedStore, Store, frames};
use crate::model_key::ModelKey;
use crate::mover::{BACKLOG_MAX, SLOTS_MIN, TierEvent, TierMover, TierOwner, TierParts};
use crate::mover_thread::{MoveKind, MoverThread, Order, StoreOutcome, orders};
use crate::records::Records;
use crate::store_error::StoreError;
use domain::{BlockHash, GroupId, KvLayout, SeqKey, WorkerId};
use kv_manager::tiers::log::Replay;
use kv_manager::tiers::{Tier, TierConfig, TierRead, TierRecord, TierWrite, WritePolicy};
use log::LogFile;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use slot_layout::SlotLayout;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use telemetry::metrics::{Gauge, index_bytes, tier_leftover_bytes, tier_recovered};
use transport::{
    Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy, FileError, FileId, FileMover, FileSpec, Memory,
    PrivateMemory, RegionId, TransferId, make_own_folder, open_own_file,
};

/// Bytes that follow each other on one device.
const STRIPE_BYTES: u64 = 1 << 20;
/// Records being written at once: the rest of the frames is for those that somebody waits for.
const WRITES_MAX: usize = 2;

/// What is said of what is not this tier's.
const LEFT_ALONE: &str = "a folder of the disk tier has records of another model, encoding or version: they are left \
                          alone, and take room until they are removed";

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
        /// The folder or file that it is about.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

/// Opens a tier for this worker, whose pools have this layout. If a device fails, the tier is off from the beginning,
/// as it would be if the device had failed later. Errors: [`DiskError`], of what settings or the user can fix.
pub fn open_disk_tier(config: &DiskConfig, layout: &KvLayout, owner: &TierOwner) -> Result<TierParts, DiskError> {
    let events = owner.events.clone();
    let opened = over(config, layout, owner.pools.clone(), &owner.failure, move |event| events(event));
    opened.or_else(|error| {
        if !error.is_of_a_device() {
            return Err(error);
        }
        // This is the first event of the tier, so the worker asks it for nothing.
        (owner.events)(TierEvent::Off { tier: Tier::Disk, reason: error.to_string() });
        let slots = vec![0; layout.groups.len()];
        let size = TierConfig { slots, writes_max: 0, backlog_max: 0, write: WritePolicy::Never };
        Ok(TierParts { tier: Tier::Disk, mover: Box::new(Closed), config: size, records: Vec::new() })
    })
}

/// Takes the place of a tier that could not be opened and stays off.
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
    /// Returns whether a device, or the system behind it, fails, and no setting is wrong.
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

/// Opens a tier over pools in any memory. `sink` takes each event, on the tier's thread. It may wait, but not for ever.
fn over(
    config: &DiskConfig,
    layout: &KvLayout,
    pools: Vec<Arc<dyn Memory>>,
    failure: &Failure,
    sink: impl Fn(TierEvent) + Send + 'static,
) -> Result<TierParts, DiskError> {
    let slots_at = SlotLayout::of(config, layout)?;
    let locks = lock(&config.folders)?;
    let homes = homes(config, layout)?;
    let first = &homes[0];
    let (order, inbox) = orders();
    let mover = start_mover(config, failure, order.clone()).map_err(system(first))?;
    let paths = homes.iter().map(|home| home.join("records")).collect();
    let spec = FileSpec { paths, bytes: slots_at.bytes(), stripe_bytes: STRIPE_BYTES };
    // Before the log: files that are too large are refused here, and no log was written for them.
    let file = mover.open(&spec).map_err(system(first))?;
    let (log, records) = recover(config, layout, &slots_at, first)?;

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
    let meters = FileMeters::new(config.worker, Tier::Disk);
    meters.show(&mover.status());
    let index = ["used", "budget"].map(|kind| index_bytes(config.worker, "log", kind));
    let store = Files { slots_at, mover, meters, file, region, log, index, _locks: locks };
    store.show();
    let (name, blocks) = (config.name.clone(), Records::new(layout, pools));
    let work = FramedStore::new(name, blocks, Box::new(sink), inbox, store, memory, frame_bytes);
    let thread = format!("{}-disk", config.name);
    let mover = MoverThread::start(thread, failure, order, move || work.run()).map_err(system(first))?;
    Ok(TierParts { tier: Tier::Disk, mover: Box::new(mover), config: size, records })
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::System { path, source }
}

/// Makes the folders where there are none, and locks them. Another process that uses one of them is an error.
fn lock(folders: &[PathBuf]) -> Result<Vec<OwnedFd>, DiskError> {
    let mut locks = Vec::new();
    for folder in folders {
        make_own_folder(folder).map_err(system(folder))?;
        let path = folder.join("lock");
        let lock = open_own_file(&path, OFlags::RDWR | OFlags::CREATE).map_err(system(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => DiskError::InUse { folder: folder.clone() },
            errno => DiskError::System { path: path.clone(), source: errno.into() },
        })?;
        locks.push(lock);
    }
    Ok(locks)
}

/// Makes the folders of this model and version in those of the tier, and says what lies beside them.
fn homes(config: &DiskConfig, layout: &KvLayout) -> Result<Vec<PathBuf>, DiskError> {
    let home = ModelKey::of(layout, &config.weights).joined('-');
    let found = leftovers::find(&config.folders, &home);
    for leftover in &found {
        let (tier, bytes, command) = (&config.name, leftover.bytes, leftover.removal());
        tracing::warn!(tier, bytes, %command, "{LEFT_ALONE}");
    }
    let bytes: u64 = found.iter().map(|leftover| leftover.bytes).sum();
    tier_leftover_bytes(config.worker, Tier::Disk.name()).set(bytes as f64);
    let homes: Vec<_> = config.folders.iter().map(|folder| folder.join(&home)).collect();
    homes.iter().try_for_each(|home| make_own_folder(home).map_err(system(home)))?;
    Ok(homes)
}

/// Starts the mover of the files. It tells the tier's thread of each end.
fn start_mover(config: &DiskConfig, failure: &Failure, order: Sender<Order>) -> io::Result<FileMover> {
    let files = FileConfig { name: config.name.clone(), depth: config.depth, posted_max: FRAMES_MAX, io_uring: true };
    // An error says that the tier is closed.
    FileMover::start(files, failure, Box::new(move |end| drop(order.send(Order::Ended(end.id, ended(end.result))))))
}

/// Opens the log, and says what the files hold from an earlier run.
fn recover(
    config: &DiskConfig,
    layout: &KvLayout,
    slots_at: &SlotLayout,
    first: &Path,
) -> Result<(LogFile, Vec<TierRecord>), DiskError> {
    let name = &config.name;
    let (path, folder) = (first.join("log"), first.display());
    let slots = slots_at.slots as usize * layout.groups.len();
    let (log, replay) = LogFile::open(path.clone(), slots_at.shape(layout, config), slots).map_err(system(&path))?;
    let Replay { records, corrupt, torn, foreign, .. } = replay;
    if foreign {
        tracing::warn!(tier = name, %folder, "what the disk tier held is of another size or list of folders: it is not used");
    }
    let counts = [("known", records.len()), ("corrupt", corrupt), ("torn", torn.into()), ("foreign", foreign.into())];
    for (result, count) in counts {
        tier_recovered(config.worker, Tier::Disk.name(), result).absolute(count as u64);
    }
    let bytes = slots_at.bytes();
    tracing::info!(tier = name, %folder, bytes, records = records.len(), corrupt, torn, slots, "the disk tier is open");
    Ok((log, records))
}

fn ended<T>(result: Result<T, FileError>) -> StoreOutcome {
    match result {
        Ok(_) => StoreOutcome::Done,
        Err(FileError::Cancelled) => StoreOutcome::Cancelled,
        Err(error) => StoreOutcome::Failed(error.into()),
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
    /// Publishes how much memory the log takes.
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

    fn begin(&mut self, kind: &MoveKind, at: u64, len: usize) -> Result<TransferId, StoreError> {
        let (direction, slot) = match kind {
            MoveKind::Write(write) => (Direction::Write, write.place.slot),
            MoveKind::Read(_, read) => (Direction::Read, read.place.slot),
            MoveKind::Lift(_, lift) => (Direction::Read, lift.from.slot),
            MoveKind::Land(..) => return Err(StoreError::NoLiftTarget),
        };
        let batch = FileBatch {
            direction,
            file: self.file,
            memory: self.region,
            len: len.next_multiple_of(FILE_ALIGN as usize),
            copies: vec![FileCopy { file: self.slots_at.offset(slot), memory: at }],
        };
        let transfer = self.mover.prepare(vec![batch])?;
        let begun = self.mover.post(&transfer);
        // The mover's status changes without an event, so it is looked at with each move.
        self.meters.show(&self.mover.status());
        Ok(begun?)
    }

    fn cancel(&mut self, id: TransferId) {
        self.mover.cancel(id);
    }

    fn note_written(&mut self, write: &TierWrite) -> Result<(), StoreError> {
        let &TierWrite { place, hash, tenant, .. } = write;
        let noted = self.log.append(TierRecord { slot: place.slot, hash, tenant });
        self.show();
        noted.map_err(StoreError::Log)
    }

    fn discard_wrong(&mut self, _: GroupId, _: BlockHash) {
        // Its slot is written anew when its turn comes.
    }

    fn on_off(&mut self) {
        self.meters.show(&self.mover.status());
    }

    // Nobody else writes here, and a disk that failed is not tried again: it never looks.
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod tests;
