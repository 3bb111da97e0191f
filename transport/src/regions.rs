//! Registered memory.

use crate::wire_error::WireError;
use domain::KvPart;
use kv_memory::{Memory, Place};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Regions of one agent, at one time, that others take note of.
pub(crate) const REGIONS_MAX: usize = 4096;

/// A region of one agent, in the order of registration from 0; peers of one layout register alike. A number is
/// never given twice in a life, so whoever knows an old one does not read what came after it.
///
/// Whoever registers memory gives it away for as long as a transfer may hold it, so what ends sooner cannot be
/// registered:
///
/// ```compile_fail,E0597
/// # use transport::*;
/// # use std::sync::Arc;
/// struct Borrowed<'a>(&'a [u8]);
/// # // SAFETY: it is never registered.
/// unsafe impl Memory for Borrowed<'_> {
///     fn place(&self) -> Place<'_> {
///         Place::Host(self.0.as_ptr().cast_mut())
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
/// And what one kind of mover prepared no other one takes:
///
/// ```compile_fail,E0308
/// # use transport::*;
/// fn post(agent: &Agent, transfer: &FileTransfer) {
///     let _ = agent.post(transfer);
/// }
/// ```
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
    fn place(&self) -> Place<'_> {
        self.0.place()
    }

    fn len(&self) -> usize {
        self.0.len()
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
