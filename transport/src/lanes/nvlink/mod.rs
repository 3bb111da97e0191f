//! The lane `nvlink`: memory of a device of another process of this host, mapped for a device of this one, which copies
//! out of it to its own. No byte goes through host memory.
//!
//! The owner passes what its driver exports over the Unix socket, and shows its progress word as over `shm`. The copy
//! threads watch the word and order what has been written of this process' copier ([`kv_memory::Copier::fetch`]).
//!
//! Between devices of one process the lane is `local`, which orders alike.
//!
//! What is deliberately absent: a driver. Each copier maps what its own kind of device exports. Memory of devices of
//! other hosts, too (fabric handles): no lane reads it yet.

mod fetches;

pub(crate) use fetches::{Fetches, Waker};

use crate::lanes::shm::progress_page::ProgressView;
use crate::net::control::hello::{Exported, Region, RegionPlace};
use crate::regions::{RegionId, take_note};
use crate::wire_error::WireError;
use kv_memory::{Copier, DeviceFile, DeviceId, DeviceKind, DevicePlace, Memory, PeerMemory};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The device of a reader, whose pools are all its memory.
#[derive(Clone)]
pub(crate) struct ReaderDevice {
    id: DeviceId,
    kind: DeviceKind,
    copier: Arc<dyn Copier>,
}

/// The way to memory of an owner's devices.
pub(crate) struct NvlinkWay {
    reader: ReaderDevice,
    progress: ProgressView,
    regions: Mutex<BTreeMap<RegionId, Arc<PeerMemory>>>,
}

/// Why the device of a reader does not read memory of a peer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotFetched {
    /// The reader has no memory.
    #[error("this worker has no memory of a device")]
    NothingHere,
    /// Memory of the reader is the host's.
    #[error("this worker's pool is in host memory")]
    HostHere,
    /// The reader has memory of more than one device.
    #[error("this worker's pools are in memory of {0} and {1}")]
    SeveralHere(DeviceId, DeviceId),
    /// The owner has no memory.
    #[error("the peer has no memory of a device")]
    NothingThere,
    /// Memory of the owner is the host's.
    #[error("the peer's pool is in host memory")]
    HostThere,
    /// The owner's driver gives memory to no other process.
    #[error("the peer's pool is in memory of {0}, whose driver exports it to no other process")]
    NotExported(DeviceId),
    /// Neither driver knows what the other one exports.
    #[error(
        "the peer's {device} is {}, and this worker's is {ours}",
        theirs.map_or("of an unknown kind", DeviceKind::name)
    )]
    OtherKind {
        /// The owner's device.
        device: DeviceId,
        /// What drives it.
        theirs: Option<DeviceKind>,
        /// What drives the reader's.
        ours: DeviceKind,
    },
    /// The reader's driver refuses to map it.
    #[error("memory of the peer's {device} cannot be mapped for this worker's {reader}: {error}")]
    NotMapped {
        /// The owner's device.
        device: DeviceId,
        /// The reader's device.
        reader: DeviceId,
        /// The error of the driver.
        error: io::Error,
    },
}

impl ReaderDevice {
    /// Returns the one device whose memory all the reader's memory is. Errors: there is none.
    pub(crate) fn of<'a>(regions: impl Iterator<Item = &'a Arc<dyn Memory>>) -> Result<Self, NotFetched> {
        let mut reader: Option<Self> = None;
        for memory in regions {
            let device = Self::of_memory(&**memory).ok_or(NotFetched::HostHere)?;
            let first = reader.get_or_insert_with(|| device.clone());
            if first.id != device.id {
                return Err(NotFetched::SeveralHere(first.id, device.id));
            }
        }
        reader.ok_or(NotFetched::NothingHere)
    }

    /// Returns the device whose memory it is. `None`: it is the host's.
    pub(crate) fn of_memory(memory: &dyn Memory) -> Option<Self> {
        let DevicePlace { id, kind, copier, .. } = memory.place().device()?;
        Some(Self { id, kind, copier: copier.clone() })
    }

    /// Returns the device's number.
    pub(crate) fn id(&self) -> DeviceId {
        self.id
    }

    /// Returns what copies for it.
    pub(crate) fn copier(&self) -> &Arc<dyn Copier> {
        &self.copier
    }

    /// Maps memory of a device of this process. `None`: it is of another kind, or its driver does not
    /// export it.
    /// Errors: of this device's driver.
    pub(crate) fn map_own(&self, memory: &dyn Memory) -> Option<io::Result<Arc<PeerMemory>>> {
        let DevicePlace { kind, exports, .. } = memory.place().device()?;
        let file = exports.file.filter(|_| kind == self.kind)?;
        Some(self.copier.import(file, memory.len()))
    }

    /// Maps a region of a peer; `file`: the descriptor that came along.
    pub(crate) fn map(&self, region: &Region, file: Option<OwnedFd>) -> Result<Arc<PeerMemory>, MapRegionError> {
        let (device, Exported { kind, offset, bytes }) = match region.place {
            RegionPlace::Host | RegionPlace::File(_) => return Err(NotFetched::HostThere.into()),
            RegionPlace::Device(device) => return Err(NotFetched::NotExported(device).into()),
            RegionPlace::Exported(device, exported) => (device, exported),
        };
        let file = file.ok_or(WireError::RegionWithoutFile)?;
        let theirs = DeviceKind::of_number(kind);
        if theirs != Some(self.kind) {
            return Err(NotFetched::OtherKind { device, theirs, ours: self.kind }.into());
        }
        if offset.checked_add(region.len).is_none_or(|end| end > bytes) {
            return Err(WireError::RegionOutside.into());
        }
        let len = usize::try_from(region.len).map_err(|_| WireError::RegionTooLarge)?;
        let mapped = self.copier.import(DeviceFile { file: file.as_fd(), bytes, offset }, len);
        Ok(mapped.map_err(|error| NotFetched::NotMapped { device, reader: self.id, error })?)
    }
}

/// Why a region is not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapRegionError {
    /// It cannot be.
    #[error(transparent)]
    NotFetched(#[from] NotFetched),
    /// Its owner breaks the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl NvlinkWay {
    /// `regions`: those of the owner, mapped for `reader`.
    pub(crate) fn new(
        reader: ReaderDevice,
        progress: ProgressView,
        regions: BTreeMap<RegionId, Arc<PeerMemory>>,
    ) -> Self {
        Self { reader, progress, regions: Mutex::new(regions) }
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<RegionId, Arc<PeerMemory>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the owner's progress word.
    pub(crate) fn progress(&self) -> &ProgressView {
        &self.progress
    }

    /// Returns a region.
    pub(crate) fn region(&self, id: RegionId) -> Option<Arc<PeerMemory>> {
        self.regions().get(&id).cloned()
    }

    /// Returns whether what is mapped is read into this memory.
    pub(crate) fn reads_into(&self, memory: &dyn Memory) -> bool {
        memory.place().device().is_some_and(|place| (place.kind, place.id) == (self.reader.kind, self.reader.id))
    }

    /// Maps a region that came later than the others.
    pub(crate) fn add_region(&self, region: &Region, file: Option<OwnedFd>) -> Result<(), MapRegionError> {
        let mapped = self.reader.map(region, file)?;
        Ok(take_note(&mut self.regions(), region.id, mapped)?)
    }

    /// Forgets a region. Transfers that were prepared keep it mapped.
    pub(crate) fn withdraw_region(&self, id: RegionId) {
        // Dropped without the lock: unmapping may wait for the device.
        let withdrawn = self.regions().remove(&id);
        drop(withdrawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_memory::{GuardedMemory, SealedMemory};

    const LEN: usize = 1 << 16;

    fn guarded() -> Arc<dyn Memory> {
        Arc::new(GuardedMemory::new(LEN, None).expect("memory"))
    }

    fn file(memory: &dyn Memory) -> OwnedFd {
        let place = memory.place().device().expect("it is as a device's");
        place.exports.file.expect("it is exported").file.try_clone_to_owned().expect("descriptors are left")
    }

    #[test]
    fn a_region_is_mapped_where_it_lies_and_not_beyond_its_allocation() {
        let (owner, reader) = (guarded(), guarded());
        let reader = ReaderDevice::of(std::iter::once(&reader)).expect("it is one device's");
        let exported = |offset, bytes| Exported { kind: DeviceKind::Guarded.number(), offset, bytes };
        let map = |len, exported, file| {
            let place = RegionPlace::Exported(DeviceId(0), exported);
            reader.map(&Region { id: RegionId(0), len, place }, file)
        };
        let (half, all) = (LEN as u64 / 2, LEN as u64);
        let mapped = map(half, exported(half, all), Some(file(&*owner))).expect("it is inside");
        assert_eq!(mapped.len() as u64, half);
        for (len, exported) in [(half + 1, exported(half, all)), (1, exported(u64::MAX, all)), (all, exported(0, half))]
        {
            let refused = map(len, exported, Some(file(&*owner)));
            assert!(matches!(refused, Err(MapRegionError::Wire(WireError::RegionOutside))), "{refused:?}");
        }
        let without = map(half, exported(0, all), None);
        assert!(matches!(without, Err(MapRegionError::Wire(WireError::RegionWithoutFile))), "{without:?}");
        // The owner says so, and its file has fewer bytes.
        let longer = map(2 * all, exported(0, 2 * all), Some(file(&*owner)));
        assert!(matches!(longer, Err(MapRegionError::NotFetched(NotFetched::NotMapped { .. }))), "{longer:?}");
        let unknown = map(half, Exported { kind: 200, ..exported(0, all) }, Some(file(&*owner)));
        let unknown = unknown.expect_err("nobody knows that kind").to_string();
        assert_eq!(unknown, "the peer's device 0 is of an unknown kind, and this worker's is guarded");
    }

    #[test]
    fn a_reader_has_one_device() {
        let host: Arc<dyn Memory> = Arc::new(SealedMemory::new("test", LEN).expect("memory"));
        let reason = |regions: &[Arc<dyn Memory>]| match ReaderDevice::of(regions.iter()) {
            Ok(reader) => reader.id().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(reason(&[guarded(), guarded()]), "device 0");
        assert_eq!(reason(&[]), "this worker has no memory of a device");
        assert_eq!(reason(&[guarded(), host]), "this worker's pool is in host memory");
    }
}
