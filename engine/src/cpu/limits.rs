//! What the machine can do at best: reading memory, and multiplying with the instructions that the kernels use.
//!
//! What is deliberately absent: a verdict. Whoever measures a step beside its limits draws it.

mod arithmetic;
#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::cpu_topology::Host;
use super::memory::Slabs;
use super::numa;
use super::simd::{Isa, LANES, Plain, Simd};
use crate::clock::now;
pub use arithmetic::Arithmetic;
use arithmetic::{Products, sum_words};
use std::hint::black_box;
use std::io;
use std::slice;
use std::sync::Barrier;
use std::time::Duration;

/// Bytes that are read at once: more than a processor's own caches hold.
const READ_BYTES: usize = 384 << 20;
/// Rounds of multiplications.
const ROUNDS: usize = 200_000;
/// As many as let some fall into a quiet moment of the host.
const REPEATS: usize = 20;

/// The machine's limits, with as many threads as were asked for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes a second out of memory in huge pages, read in order.
    pub read_bytes_per_s: f64,
    /// Operations a second in f32; a fused multiply-add counts two, here and below.
    pub f32_per_s: f64,
    /// In bf16, with the products that the kernels use; `None`: the instruction set multiplies bf16 as f32.
    pub bf16_per_s: Option<f64>,
    /// In integers of 8 bits; `None`: the instruction set has no such products that the limit is known of.
    pub int8_per_s: Option<f64>,
}

impl Limits {
    /// Measures them. Errors: there is no memory to read.
    pub fn measure(threads: usize, isa: Isa) -> io::Result<Self> {
        // As weights: in huge pages, and in the node of the thread that reads them.
        let (memory, host) = (Slabs::default().part(READ_BYTES)?, numa::host());
        // SAFETY: the memory has these bytes, and nobody else knows of it.
        let bytes = unsafe { slice::from_raw_parts_mut(memory.as_ptr(), READ_BYTES) };
        let share = READ_BYTES.div_ceil(threads);
        std::thread::scope(|scope| {
            for (thread, part) in bytes.chunks_mut(share).enumerate() {
                let place = host.in_node(thread, threads);
                scope.spawn(move || {
                    numa::settle(&place);
                    // Pages that were never written are all the same one.
                    part.fill(1);
                });
            }
        });
        let parts: Vec<&[u8]> = bytes.chunks(share).collect();
        let fastest = |work: &(dyn Fn(usize) + Sync)| fastest(threads, &host, work);
        let read = fastest(&|thread| parts.get(thread).into_iter().for_each(|part| sum(isa, part)));
        let rate = |arithmetic| {
            let products = products_of(isa, arithmetic)?;
            let seconds = fastest(&|_| products.run(ROUNDS));
            Some((products.operations * ROUNDS * threads) as f64 / seconds)
        };
        Ok(Self {
            read_bytes_per_s: READ_BYTES as f64 / read,
            f32_per_s: rate(Arithmetic::F32).expect("every instruction set multiplies f32"),
            bf16_per_s: rate(Arithmetic::Bf16),
            int8_per_s: rate(Arithmetic::Int8),
        })
    }

    /// Returns the better of two measurements, limit by limit: what disturbs one only makes it slower.
    pub fn or_better(&self, other: &Self) -> Self {
        let better = |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        Self {
            read_bytes_per_s: self.read_bytes_per_s.max(other.read_bytes_per_s),
            f32_per_s: self.f32_per_s.max(other.f32_per_s),
            bf16_per_s: better(self.bf16_per_s, other.bf16_per_s),
            int8_per_s: better(self.int8_per_s, other.int8_per_s),
        }
    }

    /// Operations a second in this arithmetic; `None`: not known.
    pub fn operations_per_s(&self, arithmetic: Arithmetic) -> Option<f64> {
        match arithmetic {
            Arithmetic::F32 => Some(self.f32_per_s),
            Arithmetic::Bf16 => Some(self.bf16_per_s.unwrap_or(self.f32_per_s)),
            Arithmetic::Int8 => self.int8_per_s,
        }
    }
}

/// Returns the multiplications that kernels of this instruction set use.
fn products_of(isa: Isa, arithmetic: Arithmetic) -> Option<Products> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(s) => x86::products_of_avx512(s, arithmetic),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => x86::products_of_avx2(arithmetic),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(s) => arm::products_of_neon(s, arithmetic),
        Isa::Plain(_) => (arithmetic == Arithmetic::F32)
            .then_some(Products { operations: 2 * LANES * PLAIN_VECTORS, rounds: plain_multiply_adds }),
    }
}

/// Vectors of plain Rust that are worked on at once.
const PLAIN_VECTORS: usize = 4;

fn plain_multiply_adds(rounds: usize) {
    let (factor, term) = (Plain.splat(black_box(0.999)), Plain.splat(black_box(0.001)));
    let mut sums = [term; PLAIN_VECTORS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = Plain.fma(*sum, factor, term);
        }
    }
    black_box(sums);
}

/// Reads all of it, once, in order.
fn sum(isa: Isa, bytes: &[u8]) {
    let sum = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => x86::sum_with_avx512(bytes),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => x86::sum_with_avx2(bytes),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) => sum_words(bytes),
        Isa::Plain(_) => sum_words(bytes),
    };
    black_box(sum);
}

/// Seconds that `work` takes when all threads do it at once, those of the slowest of them; the best of some repeats.
fn fastest(threads: usize, host: &Host, work: &(dyn Fn(usize) + Sync)) -> f64 {
    let once = |_| {
        let barrier = Barrier::new(threads);
        let one = |thread| {
            numa::settle(&host.in_node(thread, threads));
            barrier.wait();
            let began = now();
            work(thread);
            now().duration_since(began)
        };
        let slowest = std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
            all.into_iter().map(|one| one.join().expect("no work panics")).max()
        });
        slowest.unwrap_or(Duration::ZERO).as_secs_f64()
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_has_limits_of_what_its_kernels_multiply() {
        for isa in Isa::available() {
            let limits = Limits::measure(1, isa).expect("there is memory");
            assert!(limits.read_bytes_per_s > 0.0 && limits.f32_per_s > 0.0, "{isa}");
            for arithmetic in [Arithmetic::Bf16, Arithmetic::Int8] {
                let rate = limits.operations_per_s(arithmetic);
                assert!(rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "{isa}, {arithmetic:?}: {rate:?}");
            }
        }
    }
}
