//! The device's pools as memory that the transport reads and fills.

use domain::KvLayout;
use engine::device::{Device, PoolMemory};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use transport::Memory;

pub(crate) struct Pool(Arc<dyn PoolMemory>);

impl Pool {
    /// Those of all groups of `layout`, in order.
    pub(crate) fn all(device: &dyn Device, layout: &KvLayout) -> Vec<Arc<dyn Memory>> {
        (0..layout.groups.len()).map(|group| Arc::new(Self(device.pool(group))) as Arc<dyn Memory>).collect()
    }
}

// SAFETY: a pool's memory promises the same.
unsafe impl Memory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }
}
