//! What the machine can do at best: reading memory, and multiplying.

use memmap2::MmapMut;
use std::hint::black_box;
use std::time::Instant;

/// Bytes that are read at once: about as many as the weights of the model that is measured, more than caches hold.
const READ_BYTES: usize = 384 << 20;
/// Rounds of fused multiply-adds.
const ROUNDS: usize = 400_000;
/// Vectors of 16 numbers that are worked on at once, to hide the latency of each.
const VECTORS: usize = 12;
/// As many as let some fall into a quiet moment of the host.
const REPEATS: usize = 40;

/// The machine's limits, with all its threads.
pub(crate) struct Limits {
    /// Bytes a second out of memory.
    pub(crate) read_bytes_per_s: f64,
    /// Single-precision operations a second; a fused multiply-add counts two.
    pub(crate) flops: f64,
}

impl Limits {
    pub(crate) fn measure(threads: usize) -> std::io::Result<Self> {
        let mut memory = MmapMut::map_anon(READ_BYTES)?;
        // Without huge pages the figure is one of the page tables.
        #[cfg(target_os = "linux")]
        memory.advise(memmap2::Advice::HugePage)?;
        memory.fill(1);
        let share = memory.len() / threads;
        let read = best(threads, |thread| {
            black_box(sum(&memory[thread * share..(thread + 1) * share]));
        });
        let multiply = best(threads, |_| {
            black_box(fused_multiply_adds());
        });
        Ok(Self {
            read_bytes_per_s: READ_BYTES as f64 / read,
            flops: (2 * 16 * VECTORS * ROUNDS * threads) as f64 / multiply,
        })
    }

    /// The better of two measurements, limit by limit.
    pub(crate) fn or_better(&self, other: &Self) -> Self {
        Self { read_bytes_per_s: self.read_bytes_per_s.max(other.read_bytes_per_s), flops: self.flops.max(other.flops) }
    }
}

/// Seconds that `work` takes on all threads at once.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn best(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let once = |_| {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            (0..threads).for_each(|thread| {
                drop(scope.spawn({
                    let work = &work;
                    move || work(thread)
                }))
            })
        });
        begin.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

/// Reads all of it, once, in order.
fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has it.
        return unsafe { sum_with_avx512(bytes) };
    }
    sum_words(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_with_avx512(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 64];
    for chunk in bytes.chunks_exact(64 * 8) {
        for (sum, word) in sums.iter_mut().zip(chunk.chunks_exact(8)) {
            *sum ^= u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        }
    }
    sums.into_iter().fold(0, |all, sum| all ^ sum)
}

fn fused_multiply_adds() -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has it.
            return unsafe { with_avx512() };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has both.
            return unsafe { with_avx2() };
        }
    }
    rounds()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512() -> f32 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (factor, term) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut lanes = [term; VECTORS];
    for _ in 0..ROUNDS {
        lanes.iter_mut().for_each(|lane| *lane = _mm512_fmadd_ps(*lane, factor, term));
    }
    lanes.into_iter().map(|lane| _mm512_reduce_add_ps(lane)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2() -> f32 {
    rounds()
}

#[inline(always)]
fn rounds() -> f32 {
    let (factor, term) = (black_box(0.999_f32), black_box(0.001_f32));
    let mut lanes = [[term; 16]; VECTORS];
    for _ in 0..ROUNDS {
        lanes.iter_mut().flatten().for_each(|lane| *lane = lane.mul_add(factor, term));
    }
    lanes.into_iter().flatten().sum()
}
