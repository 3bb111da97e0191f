//! The memory that is read, and what it is full of.

use std::io;
use std::sync::Arc;
use transport::{Memory, SealedMemory};

/// Memory that both ends can have.
pub(crate) type Pool = Arc<SealedMemory>;

/// Memory, touched and full of what the owner has.
pub(crate) fn pool(bytes: usize) -> io::Result<Pool> {
    let pool = Arc::new(SealedMemory::new("haul", bytes)?);
    // SAFETY: the places are inside the pool and aligned; see `places`.
    places(&pool).for_each(|(n, at)| unsafe { at.write(word(n)) });
    Ok(pool)
}

/// The word at place `n` of a full pool.
fn word(n: usize) -> u64 {
    (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The place of each word of a pool. Only this thread touches it then: the reader between its passes, the owner before it
/// says where it is.
fn places(pool: &Pool) -> impl Iterator<Item = (usize, *mut u64)> {
    let first = pool.as_ptr().cast::<u64>();
    (0..pool.len() / 8).map(move |n| (n, first.wrapping_add(n)))
}

pub(crate) fn clear(pool: &Pool) {
    // SAFETY: as above.
    places(pool).for_each(|(_, at)| unsafe { at.write(0) });
}

pub(crate) fn is_filled(pool: &Pool) -> bool {
    // SAFETY: as above.
    places(pool).all(|(n, at)| unsafe { at.read() } == word(n))
}
