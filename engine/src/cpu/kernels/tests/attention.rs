//! Attention: as the reference says, in chunks as whole, and in pieces as by one thread.

use super::{Numbers, assert_close, dtype, encode, lines, on_all, seed};
use crate::cpu::kernels::*;
use crate::cpu::simd::Isa;
use crate::cpu::tests::effort::{cases, sizes};
use domain::{BlockId, Dtype};
use proptest::prelude::*;
use std::ops::Range;

/// A cache of one layer with random keys and values, in blocks that are out of order, and queries over it.
#[derive(Clone, Debug)]
struct Scene {
    seed: u64,
    dtype: Dtype,
    group: usize,
    kv_heads: usize,
    head_dim: usize,
    block_tokens: usize,
    window: usize,
    start: usize,
    rows: usize,
    cap: Option<f32>,
    /// Positions whose keys and values are no numbers.
    unwritten: Range<usize>,
}

fn scene() -> impl Strategy<Value = Scene> {
    let group = sizes(1usize..6, 1usize..3);
    let half_head = sizes(prop_oneof![1usize..40, Just(32), Just(64), Just(80), Just(128)], 1usize..20);
    let shape = (group, 1usize..3, half_head, prop_oneof![1usize..20, Just(32)]);
    // Miri looks at few positions, but at the end of a stretch as well.
    let window = sizes(prop_oneof![Just(usize::MAX), 1usize..50, 50usize..1200], 1usize..50);
    let start = prop_oneof![0usize..90, 90usize..400, STRETCH - 60..STRETCH + 60, 2 * STRETCH - 60..2 * STRETCH + 60];
    let start = sizes(start, prop_oneof![0usize..90, STRETCH - 4..STRETCH + 20]);
    let place = (window, start, sizes(1usize..100, 1usize..4), prop::option::of(0.1f32..5.0));
    (seed(), dtype(), shape, place).prop_map(|(seed, dtype, shape, place)| Scene {
        seed,
        dtype,
        group: shape.0,
        kv_heads: shape.1,
        head_dim: 2 * shape.2,
        block_tokens: shape.3,
        window: place.0,
        start: place.1,
        rows: place.2,
        cap: place.3,
        unwritten: 0..0,
    })
}

impl Scene {
    /// Numbers of a row of queries.
    fn width(&self) -> usize {
        self.group * self.kv_heads * self.head_dim
    }

    fn from(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Keys and values as `[position][kv_head][k|v][head_dim]`; queries as `[row][head][head_dim]`.
    fn numbers(&self) -> (Vec<f32>, Vec<f32>) {
        let mut numbers = Numbers(self.seed);
        let cache = numbers.vec((self.start + self.rows) * self.kv_heads * 2 * self.head_dim);
        (cache, numbers.vec(self.rows * self.width()))
    }

    /// Returns the kernel's result, in chunks of `chunk` rows, with blocks of `block_tokens`; in pieces of so many
    /// stretches, from the last one to the first, or by one call.
    fn attend(&self, isa: Isa, block_tokens: usize, chunk: usize, piece: Option<usize>) -> Vec<f32> {
        let (cache, queries) = self.numbers();
        let end = self.start + self.rows;
        // What is out of the window of all queries has no block; block `i` of the table is block `count - 1 - i`.
        let first_block = self.from(self.start) / block_tokens;
        let count = end.div_ceil(block_tokens) - first_block;
        let blocks: Vec<BlockId> = (0..count as u32).rev().map(BlockId).collect();
        let record = self.kv_heads * 2 * block_tokens * self.head_dim;
        // What nobody wrote is poison.
        let mut pool = vec![f32::NAN; count * record];
        for position in (first_block * block_tokens..end).filter(|position| !self.unwritten.contains(position)) {
            let block = blocks[position / block_tokens - first_block].0 as usize;
            for part in 0..2 * self.kv_heads {
                let to = block * record + (part * block_tokens + position % block_tokens) * self.head_dim;
                let from = (position * 2 * self.kv_heads + part) * self.head_dim;
                pool[to..to + self.head_dim].copy_from_slice(&cache[from..from + self.head_dim]);
            }
        }
        let (bytes, _) = encode(&pool, self.dtype);
        let mut out = vec![f32::NAN; queries.len()];
        let tile = queries_max(isa, self.dtype, self.head_dim);
        for row in (0..self.rows).step_by(chunk) {
            let total = chunk.min(self.rows - row) * self.group;
            for head in 0..self.kv_heads {
                for first in (0..total).step_by(tile) {
                    let heads_before = row * self.width() + head * self.group * self.head_dim;
                    let attention_args = Attention {
                        queries: queries[heads_before..].as_ptr(),
                        query_stride: self.width(),
                        out: out[heads_before..].as_mut_ptr(),
                        out_stride: self.width(),
                        first,
                        count: tile.min(total - first),
                        group: self.group,
                        head_dim: self.head_dim,
                        start: self.start + row,
                        window: self.window,
                        scale: 0.3,
                        cap: self.cap,
                        pool: bytes
                            .as_ptr()
                            .cast::<u8>()
                            .wrapping_add(head * 2 * block_tokens * self.head_dim * self.dtype.bytes()),
                        record_bytes: record * self.dtype.bytes(),
                        block_tokens,
                        blocks: &blocks,
                        first_block,
                    };
                    match piece {
                        // SAFETY: the blocks hold all positions, and the heads are in their rows.
                        None => unsafe { attention(isa, self.dtype, &attention_args) },
                        Some(piece) => self.attend_in_pieces(isa, &attention_args, piece),
                    }
                }
            }
        }
        out
    }

    /// Attends in pieces of so many stretches.
    fn attend_in_pieces(&self, isa: Isa, a: &Attention<'_>, piece: usize) {
        let (first, last) = (a.start + a.first / a.group, a.start + (a.first + a.count - 1) / a.group);
        let stretches = self.from(first) / STRETCH..last / STRETCH + 1;
        let stride = a.count.div_ceil(KEPT_QUERIES) * kept_numbers(isa, self.dtype, a.head_dim);
        // What nobody kept is poison.
        let mut memory = lines(stretches.len() * stride * size_of::<f32>(), 0xff);
        let first = memory.as_mut_ptr().cast::<f32>();
        let kept = |stretch: usize| KeptStates { first: first.wrapping_add(stretch * stride), stride };
        // SAFETY: as for `attend`; there is room for every stretch.
        unsafe {
            for begin in stretches.clone().step_by(piece).rev() {
                let end = stretches.end.min(begin + piece);
                attend_stretches(isa, self.dtype, a, begin..end, kept(begin - stretches.start));
            }
            join(isa, self.dtype, a, stretches.len(), kept(0));
        }
    }

    fn expected(&self) -> Vec<f64> {
        let (cache, queries) = self.numbers();
        let (_, cache) = encode(&cache, self.dtype);
        let at = |position: usize, head: usize, values: usize| {
            let from = ((position * self.kv_heads + head) * 2 + values) * self.head_dim;
            cache[from..from + self.head_dim].iter().map(|x| f64::from(*x))
        };
        let mut out = Vec::new();
        for (i, query) in queries.chunks(self.head_dim).enumerate() {
            let (row, head) = (i / (self.group * self.kv_heads), i % (self.group * self.kv_heads) / self.group);
            let positions = self.from(self.start + row)..self.start + row + 1;
            let score = |p| at(p, head, 0).zip(query).map(|(k, q)| k * f64::from(*q)).sum::<f64>() * f64::from(0.3f32);
            let score = |p| self.cap.map_or(score(p), |cap| f64::from(cap) * (score(p) / f64::from(cap)).tanh());
            let weights: Vec<f64> = positions.clone().map(|p| score(p).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sums = vec![0.0; self.head_dim];
            for (p, weight) in positions.zip(weights) {
                sums.iter_mut().zip(at(p, head, 1)).for_each(|(sum, v)| *sum += v * weight / total);
            }
            out.extend(sums);
        }
        out
    }
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn attention_attends(scene in scene()) {
        let expected = scene.expected();
        let attend = |isa| scene.attend(isa, scene.block_tokens, scene.rows, None);
        if scene.dtype == Dtype::Bf16 {
            // Processors have their own dot products of bf16; the softmax's weights are rounded to it too.
            Isa::available().into_iter().for_each(|isa| assert_close(&attend(isa), &expected, 4e-3));
        } else {
            assert_close(&on_all(attend), &expected, 3e-6);
        }
    }

    #[test]
    fn attention_does_not_depend_on_chunks_blocks_or_pieces(
        scene in scene(),
        chunk in 1usize..20,
        block_tokens in 1usize..70,
        piece in 1usize..3,
        isa in prop::sample::select(Isa::available()),
    ) {
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let whole = bits(scene.attend(isa, scene.block_tokens, scene.rows, None));
        prop_assert_eq!(&bits(scene.attend(isa, scene.block_tokens, chunk, None)), &whole);
        prop_assert_eq!(&bits(scene.attend(isa, block_tokens, scene.rows, None)), &whole);
        prop_assert_eq!(&bits(scene.attend(isa, scene.block_tokens, scene.rows, Some(piece))), &whole);
        prop_assert_eq!(&bits(scene.attend(isa, scene.block_tokens, chunk, Some(piece))), &whole);
    }
}

#[test]
fn what_is_no_number_in_one_stretch_is_none_in_the_result() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        // A stretch without any number; one position of a stretch before the end, and of the last one.
        for unwritten in [0..STRETCH, 7..8, STRETCH + 5..STRETCH + 6] {
            let scene = Scene {
                seed: 1,
                dtype,
                group: 3,
                kv_heads: 1,
                head_dim: 32,
                block_tokens: 16,
                window: usize::MAX,
                start: STRETCH + 10,
                rows: 2,
                cap: None,
                unwritten: unwritten.clone(),
            };
            for (isa, piece) in Isa::available().into_iter().flat_map(|isa| [(isa, None), (isa, Some(1))]) {
                let found = scene.attend(isa, scene.block_tokens, scene.rows, piece);
                assert!(found.iter().all(|x| x.is_nan()), "{dtype:?} on {isa}, {unwritten:?}, {piece:?}");
            }
        }
    }
}
