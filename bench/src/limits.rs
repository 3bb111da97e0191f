//! What the machine can do at best: reading memory, and multiplying.

use std::hint::black_box;
use std::time::Instant;

/// Bytes that are read at once; far more than any cache holds.
const READ_BYTES: usize = 1 << 30;
/// Rounds of fused multiply-adds.
const ROUNDS: usize = 4_000_000;
/// Vectors of 16 numbers that are worked on at once, to hide the latency of each.
const VECTORS: usize = 12;
const REPEATS: usize = 5;

/// The machine's limits, with all its threads.
pub(crate) struct Limits {
    /// Bytes a second out of memory.
    pub(crate) read_bytes_per_s: f64,
    /// Single-precision operations a second; a fused multiply-add counts two.
    pub(crate) flops: f64,
}

impl Limits {
    pub(crate) fn measure(threads: usize) -> Self {
        let memory = vec![1_u64; READ_BYTES / 8];
        let share = memory.len() / threads;
        let read = best(threads, |thread| {
            let mut sums = [0_u64; 32];
            for words in memory[thread * share..(thread + 1) * share].chunks_exact(32) {
                sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            }
            black_box(sums);
        });
        let multiply = best(threads, |_| {
            black_box(fused_multiply_adds());
        });
        Self {
            read_bytes_per_s: READ_BYTES as f64 / read,
            flops: (2 * 16 * VECTORS * ROUNDS * threads) as f64 / multiply,
        }
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
