//! The checksum, and the copy that is summed up, on processors with AVX-512: each byte is read once, into the
//! register from which it is both written and summed up. In two passes over some pages, which stay in the caches
//! in between, reads and writes of memory would take turns.

use super::{FACTOR, LANES, Sum};
use crate::copy::{GROUP, LINE, PAGE, copy_racing_cached, fetch_ahead, order_stores};
use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_srli_epi32, _mm512_storeu_si512,
    _mm512_xor_si512,
};

/// Bytes of a round: a word for each lane, in vectors of a line each.
const ROUND: usize = LANES * 4;
const VECTORS: usize = ROUND / LINE;
const PAGES: usize = GROUP / PAGE;

/// What becomes of the bytes that are summed up.
const SUMMED: u8 = 0;
const COPIED: u8 = 1;
/// Past the caches.
const STREAMED: u8 = 2;

/// Sums up bytes that may change meanwhile.
///
/// # Safety
/// As [`checksum_racing`](super::checksum_racing). The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn racing(from: *const u8, len: usize) -> u64 {
    // SAFETY: as the caller says; nothing is written.
    unsafe { pass::<SUMMED>(from, std::ptr::null_mut(), len) }
}

/// Copies bytes, and sums up the copy.
///
/// # Safety
/// As [`copy_summed`](super::copy_summed). The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn copied(from: *const u8, to: *mut u8, len: usize) -> u64 {
    if len < GROUP || !to.addr().is_multiple_of(LINE) {
        // SAFETY: as the caller says.
        return unsafe { pass::<COPIED>(from, to, len) };
    }
    order_stores();
    // SAFETY: as the caller says; lines are written where they begin.
    let sum = unsafe { pass::<STREAMED>(from, to, len) };
    order_stores();
    sum
}

/// Sums up bytes, and copies them if it is told to.
///
/// # Safety
/// As [`racing`] and, where bytes are copied, [`copied`]. Where they are streamed `to` is aligned to lines.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pass<const TO: u8>(from: *const u8, to: *mut u8, len: usize) -> u64 {
    let mut sum = Sum::new();
    let whole = len - len % ROUND;
    // SAFETY: each vector is inside what the caller promises, and the lanes are as many vectors.
    unsafe {
        let factor = _mm512_set1_epi32(FACTOR.cast_signed());
        let mut lanes: [__m512i; VECTORS] = std::array::from_fn(|v| load(sum.lanes.as_ptr().add(v * LINE / 4).cast()));
        for at in (0..whole).step_by(ROUND) {
            // A line of each page of the next group: more reads are under way at once then than the order of
            // addresses would allow.
            let next = at - at % GROUP + GROUP + at % GROUP / PAGES;
            for page in 0..PAGES {
                fetch_ahead(from.wrapping_add(next + page * PAGE));
            }
            for (v, lane) in lanes.iter_mut().enumerate() {
                let at = at + v * LINE;
                let words = load(from.add(at));
                match TO {
                    STREAMED => stream(to.add(at), words),
                    COPIED => _mm512_storeu_si512(to.add(at).cast(), words),
                    _ => {}
                }
                let product = _mm512_mullo_epi32(_mm512_add_epi32(*lane, words), factor);
                *lane = _mm512_xor_si512(product, _mm512_srli_epi32::<15>(product));
            }
        }
        for (v, lane) in lanes.into_iter().enumerate() {
            _mm512_storeu_si512(sum.lanes.as_mut_ptr().add(v * LINE / 4).cast(), lane);
        }
    }
    sum.bytes = whole as u64;
    let mut rest = [0; ROUND];
    let rest = &mut rest[..len - whole];
    // SAFETY: these are the last bytes of what the caller promises; the copy is this function's own.
    unsafe {
        copy_racing_cached(from.add(whole), rest.as_mut_ptr(), rest.len());
        if TO != SUMMED {
            std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(whole), rest.len());
        }
    }
    sum.add(rest);
    sum.end()
}

/// Loads a line that may be written meanwhile: see [`copy`](crate::copy).
///
/// # Safety
/// It must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(at: *const u8) -> __m512i {
    let words;
    // SAFETY: as the caller says.
    unsafe { asm!("vmovdqu64 {}, [{}]", out(zmm_reg) words, in(reg) at, options(nostack, preserves_flags, readonly)) };
    words
}

/// Stores a line past the caches.
///
/// # Safety
/// The line must be writable and aligned.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn stream(at: *mut u8, words: __m512i) {
    // SAFETY: as the caller says.
    unsafe { asm!("vmovntdq [{}], {}", in(reg) at, in(zmm_reg) words, options(nostack, preserves_flags)) };
}
