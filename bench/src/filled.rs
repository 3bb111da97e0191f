//! Memory that is full of one byte, so that what was not read into it is seen.

use transport::{Memory, SealedMemory};

/// What files and objects are full of.
pub(crate) const FILLED: u8 = 0xB7;

/// Fills the memory. Nobody else may touch it: no transfer is open.
pub(crate) fn fill(memory: &SealedMemory, byte: u8) {
    // SAFETY: the range is the memory's, and its caller's alone while nothing is open.
    unsafe { std::ptr::write_bytes(memory.as_ptr(), byte, memory.len()) };
}

/// Whether all of it is [`FILLED`]. Nobody else may touch it.
pub(crate) fn is_filled(memory: &SealedMemory) -> bool {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) }.iter().all(|byte| *byte == FILLED)
}
