//! The checksum of bytes on their way: fast on vectors, equal everywhere.
//!
//! The bytes are taken as little-endian 32-bit words, the last one filled up with zeros. Word `i` goes to lane `i
//! % LANES`, and a lane takes its words in order: `lane = scramble((lane + word) * FACTOR)` modulo 2^32,
//! `scramble(x) = x ^ (x >> 15)`, from the initial value `lane's number + 1`. In a last round that is not full,
//! the lanes without a word keep their value. At the end the lanes are folded in order into 64 bits that begin as
//! the number of bytes: `sum = (sum ^ lane) * FOLD`, then `sum ^ (sum >> 29)`.
//!
//! Each step is a bijection of the lane for a given word and of the word for a given lane, so one changed word always
//! changes the sum; more of them are missed once in 2^32 at most. It is no defence against an adversary. A GPU computes
//! it with one thread per lane.

#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::copy::{GROUP, LINE, PAGE, copy_on, copy_racing_cached, fetch_ahead};

/// Lanes: four vectors of 16 words.
const LANES: usize = 64;
/// Odd, so that multiplying loses nothing. (A prime of xxHash.)
const FACTOR: u32 = 0x9E37_79B1;
/// Odd, likewise.
const FOLD: u64 = 0x9FB2_1C65_1E98_DF25;

/// Pages of a group.
const PAGES: usize = GROUP / PAGE;

/// Bytes of memory that may be written meanwhile are copied by the group, page by page, and the copy is summed up:
/// a page is whole rounds. Aligned, so that it may be copied on past the caches.
#[repr(align(64))]
struct Copied([u8; GROUP]);

/// Calls a function with the widest vectors that the processor has: the one of [`avx512`], or one that is inlined
/// and compiled for AVX2. It takes no closure, whose one body would be compiled for neither.
macro_rules! on_vectors {
    ($wide:ident, $plain:ident($($name:ident: $type:ty),*)) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2")]
            unsafe fn with_avx2($($name: $type),*) -> u64 {
                // SAFETY: as the caller says.
                unsafe { $plain($($name),*) }
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                // SAFETY: the processor has it; for the rest, as the caller says.
                return unsafe { avx512::$wide($($name),*) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has it; for the rest, as the caller says.
                return unsafe { with_avx2($($name),*) };
            }
        }
        // SAFETY: as the caller says.
        unsafe { $plain($($name),*) }
    }};
}

/// Returns the checksum of `bytes`.
///
/// ```
/// let sum = kv_memory::checksum(b"what is sent");
/// assert_eq!(kv_memory::checksum(b"what is sent"), sum);
/// assert_ne!(kv_memory::checksum(b"what is tent"), sum);
/// ```
pub fn checksum(bytes: &[u8]) -> u64 {
    let (from, len) = (bytes.as_ptr(), bytes.len());
    on_vectors!(racing, plain(from: *const u8, len: usize))
}

/// Returns the checksum of memory that another thread or process may be writing; then it is of no bytes in particular.
///
/// # Safety
/// `from` must be readable for `len` bytes.
pub unsafe fn checksum_racing(from: *const u8, len: usize) -> u64 {
    on_vectors!(racing, plain_racing(from: *const u8, len: usize))
}

/// Copies bytes and sums up what arrived, in one pass over memory: what another thread or process writes meanwhile
/// arrives torn, and the checksum is that of what did. Returns the checksum.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, the two must not overlap, and no other code may use the
/// destination meanwhile.
pub unsafe fn copy_summed(from: *const u8, to: *mut u8, len: usize) -> u64 {
    on_vectors!(copied, plain_copied(from: *const u8, to: *mut u8, len: usize))
}

/// A checksum that is being made. Inlined, so that it is compiled for the instructions of each of its callers.
struct Sum {
    lanes: [u32; LANES],
    bytes: u64,
}

impl Sum {
    #[inline(always)]
    fn new() -> Self {
        Self { lanes: std::array::from_fn(|lane| lane as u32 + 1), bytes: 0 }
    }

    /// Adds bytes; those before the last ones are whole rounds.
    #[inline(always)]
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let mut lanes = self.lanes;
        let mut rounds = bytes.chunks_exact(LANES * 4);
        for round in &mut rounds {
            for (lane, word) in lanes.iter_mut().zip(round.as_chunks::<4>().0) {
                *lane = step(*lane, *word);
            }
        }
        for (lane, word) in lanes.iter_mut().zip(rounds.remainder().chunks(4)) {
            let mut filled = [0; 4];
            filled[..word.len()].copy_from_slice(word);
            *lane = step(*lane, filled);
        }
        self.lanes = lanes;
    }

    #[inline(always)]
    fn end(self) -> u64 {
        self.lanes.into_iter().fold(self.bytes, |sum, lane| fold(sum, lane.into()))
    }
}

/// Sums up the bytes of a slice.
///
/// # Safety
/// The bytes are those of a slice.
#[inline(always)]
unsafe fn plain(from: *const u8, len: usize) -> u64 {
    let mut sum = Sum::new();
    // SAFETY: as the caller says.
    sum.add(unsafe { std::slice::from_raw_parts(from, len) });
    sum.end()
}

/// Sums up bytes that may change meanwhile.
///
/// # Safety
/// As [`checksum_racing`].
#[inline(always)]
unsafe fn plain_racing(from: *const u8, len: usize) -> u64 {
    // SAFETY: as the caller says.
    unsafe { sum_parts(from, len, |_, _| {}) }
}

/// Copies bytes, and sums up the copy.
///
/// # Safety
/// As [`copy_summed`].
#[inline(always)]
unsafe fn plain_copied(from: *const u8, to: *mut u8, len: usize) -> u64 {
    // SAFETY: as the caller says; what is taken is part of the copy.
    unsafe { sum_parts(from, len, |at, part| copy_on(part, to.add(at))) }
}

/// Sums up `len` bytes by way of a copy of some pages, each of which `take` gets with its place.
///
/// # Safety
/// As [`checksum_racing`].
#[inline(always)]
unsafe fn sum_parts(from: *const u8, len: usize, mut take: impl FnMut(usize, &[u8])) -> u64 {
    let mut sum = Sum::new();
    let mut copied = Copied([0; GROUP]);
    for group in (0..len).step_by(GROUP) {
        let copied = &mut copied.0[..GROUP.min(len - group)];
        for (number, page) in copied.chunks_mut(PAGE).enumerate() {
            // A quarter of the lines of each page of the next group: more reads are under way at once then than
            // the order of addresses would allow.
            let next = group + GROUP + number * (PAGE / PAGES);
            for line in (0..PAGE / PAGES).step_by(LINE) {
                for ahead in 0..PAGES {
                    fetch_ahead(from.wrapping_add(next + ahead * PAGE + line));
                }
            }
            // SAFETY: the caller's promise covers the bytes, and the copy is this function's own.
            unsafe { copy_racing_cached(from.add(group + number * PAGE), page.as_mut_ptr(), page.len()) };
            sum.add(page);
        }
        take(group, copied);
    }
    sum.end()
}

#[inline(always)]
fn step(lane: u32, word: [u8; 4]) -> u32 {
    let product = lane.wrapping_add(u32::from_le_bytes(word)).wrapping_mul(FACTOR);
    product ^ (product >> 15)
}

/// Folds a part into a sum. Also how the sums of several pieces become one.
#[inline(always)]
pub fn fold(sum: u64, part: u64) -> u64 {
    let product = (sum ^ part).wrapping_mul(FOLD);
    product ^ (product >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what the module's text says, word by word.
    fn by_the_book(bytes: &[u8]) -> u64 {
        let mut lanes: Vec<u32> = (1..=64).collect();
        for (i, word) in bytes.chunks(4).enumerate() {
            let word = word.iter().rev().fold(0_u32, |word, &byte| (word << 8) | u32::from(byte));
            let x = (u64::from(lanes[i % 64]) + u64::from(word)) % (1 << 32) * 0x9E37_79B1 % (1 << 32);
            lanes[i % 64] = (x ^ (x >> 15)) as u32;
        }
        lanes.iter().fold(bytes.len() as u64, |sum, &lane| {
            let x = (u128::from(sum ^ u64::from(lane)) * 0x9FB2_1C65_1E98_DF25 % (1 << 64)) as u64;
            x ^ (x >> 29)
        })
    }

    #[test]
    fn it_never_changes() {
        // What other implementations are checked against.
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 + 3) as u8).collect();
        assert_eq!([0, 1, 255, 256, 1000].map(|len| checksum(&bytes[..len])), GOLDEN);
    }

    const GOLDEN: [u64; 5] = [
        11_722_351_811_329_838_711,
        832_962_760_164_066_042,
        16_789_286_387_987_463_359,
        11_196_624_123_227_617_850,
        6_162_109_333_960_201_080,
    ];

    proptest! {
        #[test]
        fn every_build_of_it_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(checksum(&bytes), by_the_book(&bytes));
            // SAFETY: it is a slice.
            prop_assert_eq!(unsafe { plain(bytes.as_ptr(), bytes.len()) }, by_the_book(&bytes));
        }

        #[test]
        fn summing_up_what_may_change_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
            for sum in [checksum_racing, plain_racing] {
                // SAFETY: it is a slice.
                prop_assert_eq!(unsafe { sum(bytes.as_ptr(), bytes.len()) }, by_the_book(&bytes));
            }
        }

        #[test]
        fn what_is_copied_and_summed_up_arrives_as_a_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..40_000), from in 0..100_usize,
            beside in prop_oneof![Just(0_usize), 0..100_usize],
        ) {
            let wanted = &bytes[from.min(bytes.len())..];
            for copy in [copy_summed, plain_copied] {
                let mut arrived = vec![0xAA; wanted.len() + 200];
                // Where a line begins, or not far from there.
                let to = arrived.as_ptr().align_offset(LINE) + beside;
                // SAFETY: both vectors are longer than what is copied, and apart.
                let sum = unsafe { copy(wanted.as_ptr(), arrived[to..].as_mut_ptr(), wanted.len()) };
                prop_assert_eq!(sum, by_the_book(wanted));
                prop_assert!(arrived[to..to + wanted.len()] == *wanted);
                prop_assert!(arrived[..to].iter().chain(&arrived[to + wanted.len()..]).all(|&byte| byte == 0xAA));
            }
        }

        #[test]
        fn a_changed_byte_is_seen(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..2000), at in any::<prop::sample::Index>(), flip in 1..=255_u8,
        ) {
            let (before, at) = (checksum(&bytes), at.index(bytes.len()));
            bytes[at] ^= flip;
            prop_assert_ne!(checksum(&bytes), before);
            bytes[at] ^= flip;
            bytes.push(0);
            prop_assert_ne!(checksum(&bytes), before, "the length counts");
        }
    }
}
