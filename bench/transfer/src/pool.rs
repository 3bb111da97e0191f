//! The memory that is read, and what it is full of.

use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, KvPart, ModelLayout};
use std::io;
use std::sync::{Arc, LazyLock};
use transport::{Memory, SealedMemory};

/// Bytes of what a pool is made of.
pub(crate) const PART_BYTES: usize = 4 << 10;
/// What it is made of, for lanes that bring KV encoded: the keys, or the values, of 16 tokens of a head of 128 numbers.
static PART: LazyLock<KvPart> = LazyLock::new(|| {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 128), window: None }];
    KvLayout::whole(ModelLayout { block_tokens: 16, dtype: Dtype::Bf16, encoding: Encoding::Int8, groups }).part(0)
});
/// Words of those numbers that share a scale, the first of which is the largest of them.
const GROUP_WORDS: usize = 4 * 128 / 4;
/// The number of each code, as it is after it was encoded beside the largest: so that it comes as it is however it
/// comes.
static NUMBERS: LazyLock<[u16; 256]> = LazyLock::new(|| {
    let exact = |code: usize| f32::from((code as u8 as i8).max(-127)) / 127.0;
    let numbers = (0..PART.bytes() / 2).map(|at| (exact(at % 256).to_bits() >> 16) as u16);
    let mut part: Vec<u8> = numbers.flat_map(u16::to_le_bytes).collect();
    let mut stored = vec![0; PART.stored_bytes()];
    PART.encode(&part, &mut stored);
    PART.decode(&stored, &mut part);
    let number = |at: usize| u16::from_le_bytes([part[2 * at], part[2 * at + 1]]);
    std::array::from_fn(number)
});
/// The code of the largest number.
const LARGEST: usize = 127;

/// Memory that both ends can have.
pub(crate) type Pool = Arc<SealedMemory>;

/// Makes memory, touched and full of what the owner has.
pub(crate) fn pool(bytes: usize) -> io::Result<Pool> {
    let pool = Arc::new(SealedMemory::new("bench", bytes)?.of_parts(*PART));
    // SAFETY: the places are inside the pool and aligned; see `places`.
    places(&pool).for_each(|(n, at)| unsafe { at.write(word(n)) });
    Ok(pool)
}

/// Returns the word at place `n` of a full pool: four numbers, drawn at random.
pub(crate) fn word(n: usize) -> u64 {
    let drawn = ((n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).to_le_bytes();
    let mut codes = [drawn[0], drawn[1], drawn[2], drawn[3]].map(usize::from);
    if n.is_multiple_of(GROUP_WORDS) {
        codes[0] = LARGEST;
    }
    codes.into_iter().rev().fold(0, |word, code| word << 16 | u64::from(NUMBERS[code]))
}

/// Returns the place of each word of a pool. Only this thread touches the pool then: the reader between its passes,
/// the owner before it says where it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pool_is_full_of_comes_as_it_is_encoded_or_not() {
        let pool = pool(64 * PART.bytes()).expect("memory can be had");
        assert!(is_filled(&pool));
        // SAFETY: it is as long, and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pool.as_ptr(), pool.len()) };
        let before = bytes.to_vec();
        let mut stored = vec![0; PART.stored_bytes_of(bytes.len())];
        PART.encode(bytes, &mut stored);
        PART.decode(&stored, bytes);
        assert!(is_filled(&pool) && bytes == before);
        bytes.rotate_left(GROUP_WORDS * 8);
        assert!(!is_filled(&pool), "bytes out of their places are seen");
    }
}
