//! Memory that no other process maps. The kernel gives it huge pages where it may, without being asked to for memory
//! that is shared.

use crate::writable_mapping::WritableMapping;
use crate::{Memory, Place};
use std::io;

/// Zeroed memory of this process alone: what devices read and write in a few large pieces.
#[derive(Debug)]
pub struct PrivateMemory(WritableMapping);

impl PrivateMemory {
    /// Makes `len` zero bytes, at least one. Errors: of the system.
    ///
    /// ```
    /// use kv_memory::{Memory, PrivateMemory};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let frames = PrivateMemory::new(64 << 10)?;
    /// assert_eq!(frames.len(), 64 << 10);
    /// assert!(frames.file().is_none(), "no other process can map it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(len: usize) -> io::Result<Self> {
        WritableMapping::new(len.max(1), None::<std::os::fd::BorrowedFd<'_>>).map(Self)
    }

    /// Returns the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }
}

// SAFETY: the mapping is this value's own, stays as it is until it is dropped, and is readable and writable. No
// reference to its bytes is ever made here.
unsafe impl Memory for PrivateMemory {
    fn place(&self) -> Place<'_> {
        Place::Host(self.as_ptr())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_begins_with_a_huge_page_and_none_is_too_large_to_be_refused() {
        const HUGE_PAGE: usize = 2 << 20;
        for len in [1, 4096, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 64 * 200_704] {
            let memory = PrivateMemory::new(len).expect("there is memory");
            assert_eq!(memory.len(), len);
            assert!(len < HUGE_PAGE || memory.as_ptr().addr().is_multiple_of(HUGE_PAGE));
            // SAFETY: the memory is that long, and nobody else has it.
            unsafe {
                assert_eq!(memory.as_ptr().read(), 0);
                memory.as_ptr().add(len - 1).write(1);
            }
        }
        assert!(PrivateMemory::new(usize::MAX).is_err());
    }
}
