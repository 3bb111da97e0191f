//! The device's pools as memory that the transport reads and fills.

use engine::device::PoolMemory;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(crate) struct Pool(pub(crate) Arc<dyn PoolMemory>);

impl transport::Memory for Pool {
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
