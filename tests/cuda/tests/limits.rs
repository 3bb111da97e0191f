//! The kernels that measure a card do what they are timed for: they read every byte, multiply every number, and run in
//! turn.

use cuda::Capture;
use cuda::kernels::{LimitKernels, PiecesArgs};
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_byte_of_every_piece_is_read_once(
        seed: u64, pieces in 0usize..9, accesses in prop_oneof![1usize..40, 2000usize..2100], gap in 0usize..40,
        blocks in 1u32..5,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (bytes, stride) = (accesses * 16, (accesses + gap) * 16);
        let mut draw = Draw::new(seed);
        let words: Vec<u32> = (0..(pieces * stride).max(16) / 4).map(|_| draw.bits() as u32).collect();
        let (from, total) = (gpu.upload(&words), gpu.upload(&[3_u32]));
        let args = PiecesArgs {
            from: from.address(),
            pieces: pieces as u64,
            piece_bytes: bytes as u64,
            stride: stride as u64,
            total: total.address(),
            blocks,
        };
        let kernels = LimitKernels::load(&gpu.loader).expect("the kernels");
        // SAFETY: the pieces are in the buffer.
        unsafe { kernels.read(&gpu.stream, &args) }.expect("a launch");
        let read = (0..pieces).flat_map(|piece| &words[piece * stride / 4..][..bytes / 4]);
        prop_assert_eq!(total.read(), [read.fold(3, |sum: u32, &word| sum.wrapping_add(word))]);
    }
}

/// The numbers that a lane holds, as the kernel makes them: exact in bf16.
fn numbers_of(lane: u32, part: u32) -> [f64; 2] {
    let bits = (lane * 7 + part * 13 + 5).wrapping_mul(2_654_435_761);
    [bits >> 28, bits >> 24 & 15].map(|eighths| f64::from(eighths) / 8.0 - 1.0)
}

/// What a thread has summed up of one product. PTX ISA, "mma.m16n8k16": which lane holds what.
fn sums_of_thread(lane: u32) -> f64 {
    let left = |row: u32, inner: u32| {
        let part = row / 8 + inner / 8 * 2;
        numbers_of(row % 8 * 4 + inner % 8 / 2, part)[inner as usize % 2]
    };
    let right = |inner: u32, column: u32| numbers_of(column * 4 + inner % 8 / 2, 4 + inner / 8)[inner as usize % 2];
    let product = |row, column| (0..16).map(|inner| left(row, inner) * right(inner, column)).sum::<f64>();
    let (row, column) = (lane / 4, lane % 4 * 2);
    [(row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1)]
        .map(|(r, c)| product(r, c))
        .iter()
        .sum()
}

#[test]
fn products_are_those_of_the_matrices() {
    let Some(gpu) = Gpu::open() else { return };
    let kernels = LimitKernels::load(&gpu.loader).expect("the kernels");
    let (rounds, blocks) = (5, 2);
    let out = gpu.empty::<f32>(LimitKernels::outputs(blocks));
    // SAFETY: there is a number for each thread.
    unsafe { kernels.multiply(&gpu.stream, out.address(), rounds, blocks) }.expect("a launch");
    for (thread, found) in out.read().into_iter().enumerate() {
        let exact = 8.0 * f64::from(rounds) * sums_of_thread(thread as u32 % 32);
        assert_eq!(f64::from(found), exact, "thread {thread}");
    }
    // 16 warps with 8 sums each, 5 times, of 16 x 8 sums of 16 products.
    assert_eq!(LimitKernels::operations(rounds, blocks), 16 * 8 * 5 * 4096);
}

#[test]
fn kernels_that_overlap_still_run_in_turn() {
    let Some(gpu) = Gpu::open() else { return };
    let kernels = LimitKernels::load(&gpu.loader).expect("the kernels");
    for overlaps in [false, true] {
        let count = gpu.upload(&[0_u32]);
        let capture = Capture::begin(&gpu.stream).expect("a capture");
        for _ in 0..50 {
            // SAFETY: the number is the kernel's alone.
            unsafe { kernels.count(&gpu.stream, count.address(), overlaps) }.expect("a launch");
        }
        let graph = capture.end().expect("a graph");
        // SAFETY: as above.
        unsafe { graph.launch(&gpu.stream) }.expect("a launch");
        assert_eq!(count.read(), [50]);
    }
}
