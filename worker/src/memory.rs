//! The device's pools as memory that the transport reads and fills.

use domain::{KvLayout, KvPart};
use engine::device::{Device, PoolMemory};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use transport::Memory;

pub(crate) struct Pool {
    memory: Arc<dyn PoolMemory>,
    part: KvPart,
}

impl Pool {
    /// Returns those of all groups of `layout`, in order.
    pub(crate) fn all(device: &dyn Device, layout: &KvLayout) -> Vec<Arc<dyn Memory>> {
        let pool = |group| Self { memory: device.pool(group), part: layout.part(group) };
        (0..layout.groups.len()).map(|group| Arc::new(pool(group)) as Arc<dyn Memory>).collect()
    }
}

// SAFETY: a pool's memory promises the same.
unsafe impl Memory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
    fn len(&self) -> usize {
        self.memory.len()
    }
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.memory.file()
    }
    fn part(&self) -> Option<KvPart> {
        Some(self.part)
    }
}
