//! Host memory that copiers copy to and from.

use crate::writable_mapping::WritableMapping;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Host memory that a copier copies to and from. It is its holder's alone.
pub struct Frame {
    first: NonNull<u8>,
    len: usize,
    /// What keeps the memory mapped.
    _memory: Box<dyn Send + Sync>,
}

// SAFETY: the memory is the frame's alone, and mapped as long as that lives.
unsafe impl Send for Frame {}
// SAFETY: as above; without `&mut` it is only read.
unsafe impl Sync for Frame {}

impl Frame {
    /// Makes a frame of zeros. Errors: of the system.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let memory = WritableMapping::new(bytes.max(1), None::<BorrowedFd<'_>>)?;
        let first = NonNull::new(memory.as_ptr()).expect("the kernel maps nothing at address zero");
        Ok(Self { first, len: memory.len(), _memory: Box::new(memory) })
    }

    /// Makes a frame of memory that is there: `len` bytes from `first` on. `memory` is dropped with the frame.
    ///
    /// # Safety
    /// So many bytes must be mapped, readable, written once and not used by anything else, until the frame is dropped;
    /// those that are only scattered need not be writable.
    pub unsafe fn over(first: NonNull<u8>, len: usize, memory: Box<dyn Send + Sync>) -> Self {
        Self { first, len, _memory: memory }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped as long as the frame, which alone has it, and is borrowed.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped as long as the frame, which alone has it, and is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("first", &self.first).field("len", &self.len).finish_non_exhaustive()
    }
}
