//! Registered memory.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Host memory that an agent may read from (as a peer's) or read into (as its own). Mapped as long as the value lives.
pub trait Memory: Send + Sync {
    /// First byte.
    fn as_ptr(&self) -> *mut u8;
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The sealed memfd behind it and where in that it begins, a multiple of the page size: what other processes of the
    /// host map. `None`: they cannot.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

/// Regions of one agent that others take note of.
pub(crate) const REGIONS_MAX: usize = 4096;

/// A region of one agent, in the order of registration from 0; peers of one layout register alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// The regions of an agent. Registration happens once, at start; regions live as long as any transfer that reads them.
#[derive(Default)]
pub(crate) struct Regions(Vec<Arc<dyn Memory>>);

impl Regions {
    pub(crate) fn add(&mut self, memory: Arc<dyn Memory>) -> RegionId {
        self.0.push(memory);
        RegionId(self.0.len() as u32 - 1)
    }

    pub(crate) fn get(&self, id: RegionId) -> Option<Arc<dyn Memory>> {
        self.0.get(id.0 as usize).cloned()
    }

    /// Those from the `from`-th on.
    pub(crate) fn since(&self, from: usize) -> &[Arc<dyn Memory>] {
        &self.0[from.min(self.0.len())..]
    }
}
