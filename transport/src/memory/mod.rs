//! Registered memory.

pub(crate) mod checksum;
pub(crate) mod copy;
pub(crate) mod encoding;
pub(crate) mod private;
pub(crate) mod sealed;
pub(crate) mod writable_mapping;

use crate::wire_error::WireError;
use domain::KvPart;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How network cards get at the memory of a device, a GPU say.
#[derive(Clone, Copy, Debug)]
pub enum DeviceMemory<'a> {
    /// By the dma-buf that its driver exports, from `offset` on.
    DmaBuf {
        /// The dma-buf.
        file: BorrowedFd<'a>,
        /// Where in it the memory begins, in bytes.
        offset: u64,
    },
    /// By its address, which a module of the kernel knows (`nvidia_peermem`).
    Peer,
}

/// Memory that an agent may read from (as a peer's) or read into (as its own): the host's, or a device's.
///
/// # Safety
/// Lanes copy by address, and check offsets against [`Memory::len`] alone. For as long as the value lives:
///
/// - [`Memory::as_ptr`] and [`Memory::len`] always answer the same, from any thread;
/// - so many bytes from there on are mapped and readable, and writable if anything reads into them; by network
///   cards alone if [`Memory::device`] says so, which always answers the same, too;
/// - no reference to any of them is alive while a transfer reads into it. Bytes that are read while their owner
///   writes them arrive torn, which whoever reads expects;
/// - what [`Memory::file`] tells of has as many bytes from there on, and cannot shrink.
///
/// # What cannot be done wrong
/// Whoever registers memory gives it away for as long as a transfer may hold it, so what ends sooner cannot be
/// registered:
///
/// ```compile_fail,E0597
/// # use std::sync::Arc;
/// # use transport::*;
/// struct Borrowed<'a>(&'a [u8]);
/// # // SAFETY: it is never registered.
/// unsafe impl Memory for Borrowed<'_> {
///     fn as_ptr(&self) -> *mut u8 {
///         self.0.as_ptr().cast_mut()
///     }
///     fn len(&self) -> usize {
///         self.0.len()
///     }
/// }
/// fn register(mover: &FileMover) {
///     let bytes = vec![0; 4096];
///     mover.register(Arc::new(Borrowed(&bytes)));
/// }
/// ```
///
/// Nobody gets a reference to bytes that a transfer may be reading into. There is their address alone, and who
/// uses it promises, by `unsafe`, that no such transfer is under way:
///
/// ```compile_fail,E0133
/// # use transport::*;
/// # fn main() -> std::io::Result<()> {
/// let memory = SealedMemory::new("pool", 4096)?;
/// memory.as_ptr().write(7);
/// # Ok(())
/// # }
/// ```
///
/// And what one kind of mover prepared no other one takes:
///
/// ```compile_fail,E0308
/// # use transport::*;
/// fn post(agent: &Agent, transfer: &FileTransfer) {
///     let _ = agent.post(transfer);
/// }
/// ```
pub unsafe trait Memory: Send + Sync {
    /// First byte.
    fn as_ptr(&self) -> *mut u8;
    /// Returns bytes.
    fn len(&self) -> usize;
    /// Returns whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The sealed memfd behind it and where in that it begins, a multiple of the page size: what other processes of the
    /// host map. `None`: they cannot.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
    /// Returns how network cards get at it, if it is a device's. Nobody else does then, so that lanes other than `rdma`
    /// neither read out of it nor into it. `None`: it is the host's.
    fn device(&self) -> Option<DeviceMemory<'_>> {
        None
    }
    /// Returns what it is made of, where that is KV which may travel encoded; alike at both ends of a read. `None`: it
    /// travels as it is.
    fn part(&self) -> Option<KvPart> {
        None
    }
}

/// Regions of one agent, at one time, that others take note of.
pub(crate) const REGIONS_MAX: usize = 4096;

/// A region of one agent, in the order of registration from 0; peers of one layout register alike. A number is
/// never given twice in a life, so whoever knows an old one does not read what came after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// Takes note of a region of a peer. Errors: it is known already, or there are too many.
pub(crate) fn take_note<T>(regions: &mut BTreeMap<RegionId, T>, id: RegionId, region: T) -> Result<(), WireError> {
    if regions.contains_key(&id) {
        return Err(WireError::RegionTwice(id.0));
    }
    if regions.len() == REGIONS_MAX {
        return Err(WireError::TooManyRegions(REGIONS_MAX));
    }
    regions.insert(id, region);
    Ok(())
}

/// Why a region stays registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeregisterError {
    /// It was never registered, or is no more.
    #[error("region {0:?} is not registered")]
    Unknown(RegionId),
    /// Prepared transfers of this process read into it or out of it, or bytes of it are on their way to a peer.
    #[error("region {region:?} is in use: {uses} transfers hold it; drop them, or wait for their ends")]
    InUse {
        /// The region that stays registered.
        region: RegionId,
        /// Transfers that hold it.
        uses: usize,
    },
}

/// The regions of an agent. They live as long as any transfer that holds them.
#[derive(Default)]
pub(crate) struct Regions {
    registered: BTreeMap<RegionId, Region>,
    next: u32,
}

struct Region {
    /// As its owner gave it.
    memory: Arc<dyn Memory>,
    /// What is given to transfers: who holds it besides this one uses the region.
    lent: Arc<RegionGuard>,
}

/// A memory that a transfer holds.
struct RegionGuard(Arc<dyn Memory>);

// SAFETY: it answers what the memory that it holds does.
unsafe impl Memory for RegionGuard {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        self.0.device()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }

    fn part(&self) -> Option<KvPart> {
        self.0.part()
    }
}

impl Regions {
    pub(crate) fn add(&mut self, memory: Arc<dyn Memory>) -> RegionId {
        let id = RegionId(self.next);
        self.next = self.next.checked_add(1).expect("fewer than 2^32 regions are registered in a life");
        let lent = Arc::new(RegionGuard(memory.clone()));
        self.registered.insert(id, Region { memory, lent });
        id
    }

    /// Gives a region back that nobody uses.
    pub(crate) fn remove(&mut self, id: RegionId) -> Result<Arc<dyn Memory>, DeregisterError> {
        let region = self.registered.get(&id).ok_or(DeregisterError::Unknown(id))?;
        // Others are lent only by `get`, and not while this value is borrowed; so what is not in use stays so.
        let uses = Arc::strong_count(&region.lent) - 1;
        if uses > 0 {
            return Err(DeregisterError::InUse { region: id, uses });
        }
        Ok(self.registered.remove(&id).expect("it was looked at above").memory)
    }

    pub(crate) fn get(&self, id: RegionId) -> Option<Arc<dyn Memory>> {
        self.registered.get(&id).map(|region| region.lent.clone() as Arc<dyn Memory>)
    }

    /// Returns whether it was registered, and is no more.
    pub(crate) fn is_withdrawn(&self, id: RegionId) -> bool {
        id.0 < self.next && !self.registered.contains_key(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (RegionId, &Arc<dyn Memory>)> {
        self.registered.iter().map(|(&id, region)| (id, &region.memory))
    }
}
