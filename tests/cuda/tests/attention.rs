//! Attention against numbers in f64, and the promise that a row's bits follow from its context alone.
//!
//! Wherever a row must not look, there is something that is no number: in other layers, in blocks that no table lists,
//! at positions that are not written yet, and before a window, where tables name no block either.

use cuda::kernels::{
    AttentionCache, AttentionDecode, AttentionLists, AttentionOperands, AttentionPrefill, AttentionRows,
    AttentionScoring, AttentionShape, AttentionSpan, DecodeArgs, PrefillArgs,
};
use half::bf16;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tests_cuda::{Buffer, Counted, Draw, Gpu, Watch, assert_moves_little};

/// Layers of the pool. Only one of them holds numbers.
const LAYERS: usize = 3;
const LAYER: usize = 1;

/// What a table says where a sequence has no block.
const NO_BLOCK: u32 = u32::MAX;

/// What multiplies products of queries and keys. It lets some scores stand out.
const SCALE: f32 = 0.15;

/// Half of the last place of bf16, relative to a number.
const HALF_PLACE: f64 = 1.0 / 256.0;

/// What one test is about: heads, blocks, scores, and contexts.
#[derive(Clone, Debug)]
struct World {
    kv_heads: usize,
    group: usize,
    dim: usize,
    block_tokens: usize,
    window: usize,
    cap: f32,
    sinks: Vec<f32>,
    /// Tokens of each sequence.
    contexts: Vec<usize>,
    seed: u64,
}

/// A position of a sequence.
type Row = (usize, usize);

/// Rows of a sequence that run in one step: the sequence, the first position, and how many.
type Run = (usize, usize, usize);

/// How a step is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Runs of at most so many rows go to decode.
    single_rows: u32,
    /// Blocks of either kernel.
    blocks: u32,
    /// Whether outputs replace queries.
    in_place: bool,
    /// What counters are before the step that the host sets to zero.
    tickets: u32,
}

const DECODE: Way = Way { single_rows: u32::MAX, blocks: 5, in_place: false, tickets: 0 };
const PREFILL: Way = Way { single_rows: 0, blocks: 2, in_place: false, tickets: 0 };

/// Outputs in bf16, by row: `[query heads][dim]`.
type Outputs = BTreeMap<Row, Vec<u16>>;

/// What a step wrote.
struct Step {
    outputs: Outputs,
    /// Of decode: `[piece][query heads][dim]`, and `[piece][query heads][largest score, mass]`.
    partials: Vec<f32>,
    masses: Vec<f32>,
    /// Of prefill.
    scratch: Vec<f32>,
}

impl World {
    fn new(kv_heads: usize, group: usize, dim: usize, contexts: &[usize]) -> Self {
        let (contexts, sinks) = (contexts.to_vec(), Vec::new());
        Self { kv_heads, group, dim, block_tokens: 16, window: 0, cap: 0.0, sinks, contexts, seed: 1 }
    }

    fn query_heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn shape(&self) -> AttentionShape {
        let [heads, kv_heads, dim] = [self.query_heads(), self.kv_heads, self.dim].map(|number| number as u32);
        AttentionShape::new(heads, kv_heads, dim).expect("a shape with a kernel")
    }

    /// Returns numbers between -2 and 2 that follow from what they are of.
    fn numbers(&self, what: u64, (sequence, position): Row, count: usize) -> Vec<bf16> {
        let mut seeds = Draw::new(self.seed ^ what << 60 ^ (sequence as u64) << 40 ^ position as u64);
        let mut draw = Draw::new(seeds.bits());
        let words = (0..count.div_ceil(4)).map(|_| draw.bits().to_le_bytes());
        let pairs =
            words.flat_map(|word| [[word[0], word[1]], [word[2], word[3]], [word[4], word[5]], [word[6], word[7]]]);
        pairs.take(count).map(|pair| bf16::from_f32(f32::from(i16::from_le_bytes(pair)) / 16384.0)).collect()
    }

    fn queries(&self, row: Row) -> Vec<bf16> {
        self.numbers(1, row, self.query_heads() * self.dim)
    }

    /// Returns keys of a token, `[KV heads][dim]`.
    fn keys(&self, row: Row) -> Vec<bf16> {
        self.numbers(2, row, self.kv_heads * self.dim)
    }

    /// Returns values of a token, `[KV heads][dim]`.
    fn values(&self, row: Row) -> Vec<bf16> {
        self.numbers(3, row, self.kv_heads * self.dim)
    }

    fn first_visible(&self, position: usize) -> usize {
        if self.window == 0 { 0 } else { (position + 1).saturating_sub(self.window) }
    }

    fn blocks_max(&self) -> usize {
        self.contexts.iter().max().map_or(0, |&tokens| tokens.div_ceil(self.block_tokens)) + 1
    }

    /// Returns the numbers of a block's slice of a layer.
    fn slice_len(&self) -> usize {
        self.kv_heads * 2 * self.block_tokens * self.dim
    }

    /// Returns a pool and tables that hold of each sequence what the runs may see of it.
    fn memory(&self, runs: &[Run]) -> (Vec<bf16>, Vec<u32>) {
        let block_count = self.contexts.iter().map(|tokens| tokens.div_ceil(self.block_tokens)).sum::<usize>() + 2;
        let mut free: Vec<u32> = (0..block_count as u32).collect();
        let mut draw = Draw::new(self.seed);
        for at in (1..free.len()).rev() {
            free.swap(at, draw.below(at + 1));
        }
        let mut pool = vec![bf16::NAN; block_count * LAYERS * self.slice_len()];
        let mut tables = vec![NO_BLOCK; self.contexts.len() * self.blocks_max()];
        for (sequence, &tokens) in self.contexts.iter().enumerate() {
            let own = || runs.iter().filter(|run| run.0 == sequence);
            let begin = own().map(|run| self.first_visible(run.1)).min().unwrap_or(tokens);
            let end = own().map(|run| run.1 + run.2).max().unwrap_or(0);
            assert!(end <= tokens, "a run is of the context");
            for position in begin..end {
                let (number, within) = (position / self.block_tokens, position % self.block_tokens);
                let block = &mut tables[sequence * self.blocks_max() + number];
                if *block == NO_BLOCK {
                    *block = free.pop().expect("as many blocks");
                }
                let slice = (*block as usize * LAYERS + LAYER) * self.slice_len();
                let (keys, values) = (self.keys((sequence, position)), self.values((sequence, position)));
                for head in 0..self.kv_heads {
                    let part = head * self.dim..(head + 1) * self.dim;
                    let key = slice + (head * 2 * self.block_tokens + within) * self.dim;
                    let value = key + self.block_tokens * self.dim;
                    pool[key..key + self.dim].copy_from_slice(&keys[part.clone()]);
                    pool[value..value + self.dim].copy_from_slice(&values[part]);
                }
            }
        }
        (pool, tables)
    }

    /// Runs a step, and returns the outputs of its rows.
    fn run(&self, gpu: &Gpu, runs: &[Run], way: Way) -> Outputs {
        self.run_whole(gpu, runs, way).outputs
    }

    /// Runs a step, and returns all that it wrote.
    fn run_whole(&self, gpu: &Gpu, runs: &[Run], way: Way) -> Step {
        self.run_watched(gpu, runs, way, &mut None)
    }

    fn run_watched(&self, gpu: &Gpu, runs: &[Run], way: Way, watch: &mut Option<Watch>) -> Step {
        const GAP: usize = 8;
        let (shape, width) = (self.shape(), self.query_heads() * self.dim);
        let rows: Vec<Row> = runs
            .iter()
            .flat_map(|&(sequence, start, count)| (start..start + count).map(move |at| (sequence, at)))
            .collect();
        let (pool, tables) = self.memory(runs);
        let (pool, tables) = (gpu.upload(&pool), gpu.upload(&tables));
        // Behind the rows, there is one of padding; behind each row, numbers of something else.
        let stride = width + GAP;
        let mut queries = vec![bf16::NAN; (rows.len() + 1) * stride];
        for (at, &row) in rows.iter().enumerate() {
            queries[at * stride..][..width].copy_from_slice(&self.queries(row));
        }
        let queries = gpu.upload(&queries);
        let other = gpu.empty::<bf16>((rows.len() + 1) * stride);
        let out = if way.in_place { &queries } else { &other };
        let sinks = gpu.upload(&self.sinks);
        let heads = |buffer: &Buffer<'_, bf16>| AttentionRows { address: buffer.address(), stride: stride as u32 };
        let slice_bytes = (self.slice_len() * size_of::<bf16>()) as u64;
        let operands = AttentionOperands {
            queries: heads(&queries),
            out: heads(out),
            cache: AttentionCache {
                slice: pool.address() + LAYER as u64 * slice_bytes,
                record_bytes: LAYERS as u64 * slice_bytes,
                tables: tables.address(),
                blocks_max: self.blocks_max() as u32,
                block_tokens: self.block_tokens as u32,
            },
            scoring: AttentionScoring {
                scale: SCALE,
                cap: self.cap,
                window: self.window as u32,
                sinks: if self.sinks.is_empty() { 0 } else { sinks.address() },
            },
        };
        let mut lists = AttentionLists::default();
        let spans = runs.iter().map(|&(slot, start, count)| AttentionSpan {
            slot: slot as u32,
            start: start as u32,
            count: count as u32,
        });
        lists.fill(&shape, self.window as u32, way.single_rows, spans);
        if let Some(watch) = watch {
            watch.add(&pool, Counted::Each);
            watch.add(&tables, Counted::Once);
            watch.add(&queries, Counted::Once);
            // Prefill writes half a sector of a row at once. The second-level cache puts halves together.
            watch.add(&other, if way.single_rows == 0 { Counted::Once } else { Counted::Each });
            watch.add(&sinks, Counted::Once);
        }
        let (partials, masses) = self.launch_decode(gpu, operands, &lists, way, watch);
        let scratch = self.launch_prefill(gpu, operands, &lists, way, watch);
        let found = out.read();
        if let Some(written) = watch.as_ref().map(|watch| watch.of(&other)) {
            assert!(written.sectors <= 2 * written.unique_sectors, "outputs in pieces: {written:?}");
        }
        let (written, padding) = found.split_at(rows.len() * stride);
        assert!(padding.iter().all(|number| number.is_nan()), "a row of padding was written");
        let of_row = |(row, numbers): (&Row, &[bf16])| {
            let (own, gap) = numbers.split_at(width);
            assert!(gap.iter().all(|number| number.is_nan()), "something behind a row was written");
            (*row, own.iter().map(|number| number.to_bits()).collect())
        };
        let outputs = rows.iter().zip(written.chunks_exact(stride)).map(of_row).collect();
        Step { outputs, partials, masses, scratch }
    }

    /// Returns the kernels, which are loaded once for all tests.
    fn kernels(&self, gpu: &Gpu) -> (AttentionDecode, AttentionPrefill) {
        static LOADED: Mutex<BTreeMap<[usize; 3], (AttentionDecode, AttentionPrefill)>> = Mutex::new(BTreeMap::new());
        let mut loaded = LOADED.lock().expect("no test fails while it loads kernels");
        let load = || {
            let decode = AttentionDecode::load(&gpu.loader, self.shape()).expect("the kernel");
            (decode, AttentionPrefill::load(&gpu.loader, self.shape()).expect("the kernel"))
        };
        loaded.entry([self.kv_heads, self.group, self.dim]).or_insert_with(load).clone()
    }

    /// Returns sums, and the largest score and mass of each, of all pieces.
    fn launch_decode(
        &self,
        gpu: &Gpu,
        operands: AttentionOperands,
        lists: &AttentionLists,
        way: Way,
        watch: &mut Option<Watch>,
    ) -> (Vec<f32>, Vec<f32>) {
        let shape = self.shape();
        // Lists may be longer than the step's: those of a graph are of its most entries.
        let padded = |list: &[u32]| gpu.upload(&[list, &[NO_BLOCK; 3]].concat());
        let (rows, slots, lengths) = (padded(&lists.rows), padded(&lists.slots), padded(&lists.lengths));
        let (pieces, count) = (padded(&lists.pieces), gpu.upload(&[lists.rows.len() as u32]));
        let partials = gpu.empty::<f32>(shape.partial_bytes(lists.piece_count()) / size_of::<f32>());
        let masses = gpu.empty::<f32>(shape.mass_bytes(lists.piece_count()) / size_of::<f32>());
        let ticket_bytes = shape.ticket_bytes(lists.rows.len());
        let tickets = gpu.upload(&vec![way.tickets; ticket_bytes / size_of::<u32>()]);
        // SAFETY: the buffer has so many bytes.
        unsafe { gpu.stream.fill(tickets.address(), 0, ticket_bytes) }.expect("a write");
        let args = DecodeArgs {
            operands,
            rows: rows.address(),
            slots: slots.address(),
            lengths: lengths.address(),
            pieces: pieces.address(),
            count: count.address(),
            partials: partials.address(),
            masses: masses.address(),
            tickets: tickets.address(),
            blocks: way.blocks,
        };
        if let Some(watch) = watch {
            for list in [&rows, &slots, &lengths, &pieces, &count] {
                watch.add(list, Counted::Once);
            }
            for scratch in [&partials, &masses] {
                watch.add(scratch, Counted::Each);
            }
            watch.add(&tickets, Counted::Each);
        }
        let (kernel, _) = self.kernels(gpu);
        // SAFETY: the buffers are as the arguments say.
        unsafe { kernel.launch(&gpu.stream, &args) }.expect("a launch");
        assert!(tickets.read().iter().all(|&arrivals| arrivals == 0), "tickets are not zero again");
        (partials.read(), masses.read())
    }

    /// Returns the scratch.
    fn launch_prefill(
        &self,
        gpu: &Gpu,
        operands: AttentionOperands,
        lists: &AttentionLists,
        way: Way,
        watch: &mut Option<Watch>,
    ) -> Vec<f32> {
        let shape = self.shape();
        let tiles: Vec<u32> = lists.tiles.iter().flat_map(|tile| tile.words()).chain([NO_BLOCK; 4]).collect();
        let (tiles, count) = (gpu.upload(&tiles), gpu.upload(&[lists.tiles.len() as u32]));
        let scratch = gpu.empty::<f32>(shape.scratch_bytes(way.blocks) / size_of::<f32>());
        let args = PrefillArgs {
            operands,
            tiles: tiles.address(),
            count: count.address(),
            scratch: scratch.address(),
            blocks: way.blocks,
        };
        if let Some(watch) = watch {
            watch.add(&tiles, Counted::Once);
            // Each block's part stays in the second-level cache.
            watch.add(&scratch, Counted::Once);
        }
        let (_, kernel) = self.kernels(gpu);
        // SAFETY: the buffers are as the arguments say.
        unsafe { kernel.launch(&gpu.stream, &args) }.expect("a launch");
        scratch.read()
    }

    /// Fails unless outputs are within the roundings of weights and of outputs of exact ones.
    fn assert_exact(&self, outputs: &Outputs) {
        let mut tokens: BTreeMap<Row, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        let widened = |numbers: Vec<bf16>| numbers.into_iter().map(f64::from).collect::<Vec<f64>>();
        for (&(sequence, position), found) in outputs {
            let first = self.first_visible(position);
            for at in first..=position {
                let row = (sequence, at);
                tokens.entry(row).or_insert_with(|| (widened(self.keys(row)), widened(self.values(row))));
            }
            let queries = widened(self.queries((sequence, position)));
            let context: Vec<_> =
                tokens.range((sequence, first)..=(sequence, position)).map(|(_, token)| token).collect();
            for head in 0..self.query_heads() {
                let own = head * self.dim..(head + 1) * self.dim;
                let from = head / self.group * self.dim;
                let keys = context.iter().map(|token| &token.0[from..from + self.dim]);
                let scores: Vec<f64> = keys.map(|key| self.exact_score(&queries[own.clone()], key)).collect();
                let sink = self.sinks.get(head).map_or(f64::NEG_INFINITY, |&sink| f64::from(sink));
                let top = scores.iter().copied().fold(sink, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let mass = weights.iter().sum::<f64>() + (sink - top).exp();
                // Sums of weighed values, and of their sizes.
                let mut sums = vec![(0.0, 0.0); self.dim];
                for (weight, token) in weights.iter().zip(&context) {
                    for (sum, value) in sums.iter_mut().zip(&token.1[from..from + self.dim]) {
                        *sum = (sum.0 + weight * value, sum.1 + weight * value.abs());
                    }
                }
                for (dim, (&bits, sum)) in found[own].iter().zip(sums).enumerate() {
                    let (found, exact, size) = (f64::from(bf16::from_bits(bits)), sum.0 / mass, sum.1 / mass);
                    let bound = (size + exact.abs()) * HALF_PLACE * 1.02 + 1e-5;
                    let is_near = (found - exact).abs() <= bound;
                    assert!(
                        is_near,
                        "{self:?}: {position} of {sequence}, head {head}, dim {dim}: {found} for {exact} +- {bound:e}"
                    );
                }
            }
        }
    }

    fn exact_score(&self, query: &[f64], key: &[f64]) -> f64 {
        let product = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * f64::from(SCALE);
        if self.cap == 0.0 { product } else { f64::from(self.cap) * (product / f64::from(self.cap)).tanh() }
    }
}

/// Runs rows by decode and by prefill, fails unless both are exact and of the same bits, and returns them.
fn assert_both(gpu: &Gpu, world: &World, runs: &[Run]) -> Outputs {
    let outputs = world.run(gpu, runs, PREFILL);
    assert_eq!(world.run(gpu, runs, DECODE), outputs, "{world:?}: decode is not prefill");
    world.assert_exact(&outputs);
    outputs
}

#[test]
fn contexts_of_all_lengths_are_exact() {
    let Some(gpu) = Gpu::open() else { return };
    let lengths = [1, 31, 32, 33, 511, 512, 513, 1100];
    let world = World::new(2, 4, 128, &lengths);
    let last: Vec<Run> = lengths.iter().enumerate().map(|(sequence, &tokens)| (sequence, tokens - 1, 1)).collect();
    assert_both(gpu, &world, &last);
}

#[test]
fn heads_of_all_sizes_and_groups_are_exact() {
    let Some(gpu) = Gpu::open() else { return };
    for (kv_heads, group, dim, block_tokens) in [
        (2, 1, 64, 8),
        (3, 2, 80, 16),
        (1, 7, 96, 32),
        (2, 8, 128, 64),
        (1, 4, 256, 16),
        (1, 12, 80, 8),
        (1, 16, 128, 16),
    ] {
        let world = World { block_tokens, ..World::new(kv_heads, group, dim, &[21, 545]) };
        assert_both(gpu, &world, &[(1, 542, 3), (0, 0, 2)]);
    }
}

#[test]
fn windows_caps_and_sinks_are_exact() {
    let Some(gpu) = Gpu::open() else { return };
    for (window, cap, with_sinks) in
        [(1, 0.0, false), (32, 2.0, false), (33, 0.0, true), (513, 1.5, true), (600, 0.0, false)]
    {
        let mut world = World { window, cap, ..World::new(1, 4, 64, &[70, 1100]) };
        if with_sinks {
            world.sinks = vec![0.7, -3.0, 8.0, 2.0];
        }
        // The runs cross edges of steps and pieces, with the last position that they see and with the first.
        assert_both(gpu, &world, &[(0, 30, 3), (1, 1023, 2), (0, 62, 4), (1, 1094, 6)]);
    }
}

/// Cuts the context of a sequence at random, and returns the runs.
fn cut(draw: &mut Draw, sequence: usize, tokens: usize, run_max: usize) -> Vec<Run> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < tokens {
        let count = (1 + draw.below(run_max)).min(tokens - at);
        runs.push((sequence, at, count));
        at += count;
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn bits_follow_from_the_context_alone(
        seed: u64,
        kind in 0usize..4,
        tokens in 1usize..1200,
        tail in 1usize..90,
        window in prop_oneof![Just(0), 1usize..700],
        cap in prop_oneof![Just(0.0_f32), 1.0_f32..4.0],
        block_shift in 3u32..7,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (group, dim) = [(4, 128), (1, 64), (7, 80), (2, 256)][kind];
        let mut world = World::new(1, group, dim, &[tokens, 40]);
        (world.seed, world.window, world.cap, world.block_tokens) = (seed, window, cap, 1 << block_shift);
        let mut draw = Draw::new(seed);
        world.sinks = (0..world.query_heads()).map(|_| draw.normal() * 2.0).collect();
        let start = tokens.saturating_sub(tail);

        // One run, and another sequence beside it.
        let whole = world.run(gpu, &[(1, 3, 20), (0, start, tokens - start)], PREFILL);
        prop_assert!(whole.values().flatten().all(|&bits| !bf16::from_bits(bits).is_nan()));
        // The same rows in runs of any size, each a step of its own; the short ones are for decode.
        for (_, at, count) in cut(&mut draw, 0, tokens - start, 40) {
            let way = Way { single_rows: 6, blocks: 1 + draw.below(3) as u32, in_place: true, tickets: 0 };
            for (row, bits) in world.run(gpu, &[(0, start + at, count)], way) {
                prop_assert_eq!(&bits, &whole[&row], "{:?} in a run of {}", row, count);
            }
        }
    }
}

/// The rows at the edges of pieces, of one sequence of each of 1, 2 and 3 pieces.
#[test]
fn decode_is_prefill_at_every_piece() {
    let Some(gpu) = Gpu::open() else { return };
    let world = World::new(1, 4, 128, &[512, 1024, 1536]);
    let runs = [(0, 509, 3), (1, 510, 4), (1, 1021, 3), (2, 1022, 4), (2, 1533, 3)];
    assert_eq!(world.run(gpu, &runs, DECODE), world.run(gpu, &runs, PREFILL));
}

/// Outputs are rounded to bf16, which hides almost all differences of f32. So what rows of two pieces kept of their
/// first one is compared too. Prefill has it in the first block's scratch: `[operand of 16 rows][tile of 8
/// dims][thread][4]`.
#[test]
fn partial_results_of_decode_are_those_of_prefill() {
    let Some(gpu) = Gpu::open() else { return };
    const DIM: usize = 128;
    const DIM_TILES: usize = DIM / 8;
    const GROUP: usize = 4;
    const ROWS: usize = 9;
    const THREADS: usize = 128;
    let world = World { cap: 3.0, ..World::new(1, GROUP, DIM, &[600]) };
    let runs = [(0, 600 - ROWS, ROWS)];
    let prefill = world.run_whole(gpu, &runs, PREFILL);
    let decode = world.run_whole(gpu, &runs, DECODE);
    assert_eq!(decode.outputs, prefill.outputs);
    for row in 0..ROWS * GROUP {
        // A lane has two neighbouring dims, of a row in the upper and of one in the lower half of 16.
        let (warp, operand, half, lane) = (row / 32, row % 32 / 16, row % 16 / 8, row % 8 * 4);
        let kept = |tile: usize, lane: usize| {
            let thread = (operand * (DIM_TILES + 1) + tile) * THREADS + warp * 32 + lane;
            &prefill.scratch[thread * 4 + half * 2..][..2]
        };
        // Each entry of decode has two pieces.
        let first = row / GROUP * 2 * GROUP + row % GROUP;
        assert_eq!(kept(DIM_TILES, lane), &decode.masses[first * 2..][..2], "largest score and mass of row {row}");
        for dim in (0..DIM).step_by(2) {
            let sums = &decode.partials[first * DIM + dim..][..2];
            assert_eq!(kept(dim / 8, lane + dim % 8 / 2), sums, "dims {dim} and one more of row {row}");
        }
    }
}

#[test]
fn entries_together_are_as_alone() {
    let Some(gpu) = Gpu::open() else { return };
    // More entries than lanes look at in one round of the search.
    let contexts: Vec<usize> = (0..41).map(|at| [3, 700, 40, 520, 1100][at % 5] + at).collect();
    let world = World::new(1, 2, 64, &contexts);
    let last: Vec<Run> = contexts.iter().enumerate().map(|(sequence, &tokens)| (sequence, tokens - 1, 1)).collect();
    let together = world.run(gpu, &last, DECODE);
    for run in [0, 1, 4, 31, 32, 39, 40].map(|sequence| last[sequence]) {
        for (row, bits) in world.run(gpu, &[run], Way { blocks: 1, in_place: true, ..DECODE }) {
            assert_eq!(bits, together[&row], "{row:?}");
        }
    }
}

#[test]
fn tickets_of_a_failed_step_are_set_back() {
    let Some(gpu) = Gpu::open() else { return };
    let world = World::new(2, 2, 64, &[600, 1030]);
    let runs = [(0, 599, 1), (1, 1029, 1)];
    let expected = world.run(gpu, &runs, DECODE);
    for tickets in [1, u32::MAX] {
        assert_eq!(world.run(gpu, &runs, Way { tickets, ..DECODE }), expected);
    }
}

#[test]
fn steps_without_rows_write_nothing() {
    let Some(gpu) = Gpu::open() else { return };
    let world = World::new(1, 1, 64, &[1]);
    assert!(world.run(gpu, &[], DECODE).is_empty());
}

/// Bytes of keys and values of so many tokens, and of the queries and outputs of so many rows.
fn least_bytes(world: &World, tokens: usize, rows: usize) -> [usize; 3] {
    let width = world.query_heads() * world.dim * size_of::<bf16>();
    [tokens * 2 * world.kv_heads * world.dim * size_of::<bf16>(), rows * width, rows * width]
}

#[test]
fn decode_moves_each_context_once() {
    let Some(gpu) = Gpu::open() else { return };
    for (group, dim) in [(1, 64), (4, 64), (8, 64), (1, 128), (4, 128), (8, 128)] {
        for (window, context) in [(0, 333), (0, 512), (0, 1531), (600, 1531)] {
            let mut watch = Watch::begin();
            if watch.is_none() {
                return;
            }
            let contexts = [context, context - 7, context - 100];
            let world = World { window, ..World::new(2, group, dim, &contexts) };
            let runs: Vec<Run> = (0..contexts.len()).map(|at| (at, contexts[at] - 1, 1)).collect();
            world.run_watched(gpu, &runs, DECODE, &mut watch);
            let seen = contexts.iter().map(|&context| context - world.first_visible(context - 1)).sum();
            let least = least_bytes(&world, seen, runs.len());
            let what = format!("decode, group of {group}, {dim} dims, contexts up to {context}, window {window}");
            assert_moves_little(watch.expect("it was begun").moved(), &least, &what);
        }
    }
}

#[test]
fn prefill_moves_the_context_of_each_tile_once() {
    let Some(gpu) = Gpu::open() else { return };
    for (group, dim) in [(1, 64), (4, 64), (8, 64), (1, 128), (4, 128), (8, 128)] {
        for (window, start, count) in [(0, 0, 150), (0, 700, 77), (600, 900, 50)] {
            let mut watch = Watch::begin();
            if watch.is_none() {
                return;
            }
            // One block takes all heads, as those of a card take many: scratch is that of one.
            let world = World { window, ..World::new(3, group, dim, &[start + count]) };
            world.run_watched(gpu, &[(0, start, count)], Way { blocks: 1, ..PREFILL }, &mut watch);
            let tile = world.shape().tile_queries() as usize;
            let firsts = (start..start + count).step_by(tile);
            let seen = firsts.map(|at| (at + tile).min(start + count) - world.first_visible(at)).sum();
            let least = least_bytes(&world, seen, count);
            let what = format!("prefill, group of {group}, {dim} dims, {count} rows from {start}, window {window}");
            assert_moves_little(watch.expect("it was begun").moved(), &least, &what);
        }
    }
}
