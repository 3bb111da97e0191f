//! Queries, keys and values on their way to attention, against numbers in f64, and every byte of the cache.

use cuda::Pinned;
use cuda::kernels::{HeadNorm, ProgressArgs, RopeCache, RopeCacheArgs};
use domain::{ProgressWord, StepId};
use half::bf16;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use tests_cuda::{Buffer, Draw, Gpu, assert_near, widened};

const EPS: f32 = 1e-5;
/// What rounding to bf16 is off by at most, and a bit for sums in f32.
const ROUNDING: f64 = 1.0 / 255.0;
/// Layers of a record, and the one that is written.
const LAYERS: usize = 2;
const LAYER: usize = 1;
const BLOCKS_MAX: usize = 5;
const SLOTS: usize = 5;
const PADDING: u32 = u32::MAX;
/// What is in memory that nothing wrote.
const UNWRITTEN: u16 = 0xFFFF;

/// Which heads a norm is over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Nothing,
    Heads,
    Width,
}

#[derive(Clone, Debug)]
struct Shape {
    query_heads: usize,
    kv_heads: usize,
    dim: usize,
    rotated: usize,
    block_tokens: usize,
    over: Over,
    grows: bool,
}

/// Rows of a step, and all that they need.
struct Case {
    shape: Shape,
    heads: Vec<bf16>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    ends: Vec<u32>,
    tables: Vec<u32>,
    rotary: Vec<f32>,
    growth: Vec<f32>,
    query_weight: Vec<f32>,
    key_weight: Vec<f32>,
}

/// What launches made, in bits: what nothing wrote is no number.
#[derive(PartialEq)]
struct Made {
    queries: Vec<u16>,
    pool: Vec<u16>,
    broken: Vec<u32>,
}

impl Shape {
    fn heads(&self) -> usize {
        self.query_heads + 2 * self.kv_heads
    }

    /// Numbers of a layer's slice.
    fn slice(&self) -> usize {
        2 * self.kv_heads * self.block_tokens * self.dim
    }

    fn context(&self) -> usize {
        BLOCKS_MAX * self.block_tokens
    }
}

impl Case {
    /// Spans of some slots, and padding rows between them.
    fn new(shape: Shape, seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let (mut positions, mut slots, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for slot in 0..1 + draw.below(3) {
            for _ in 0..draw.below(2) {
                positions.push(0);
                slots.push(PADDING);
                ends.push(0);
            }
            let start = draw.below(shape.context() - 1);
            let end = start + 1 + draw.below((2 * shape.block_tokens).min(shape.context() - start));
            for position in start..end {
                positions.push(position as u32);
                slots.push((slot * 2) as u32);
                ends.push(end as u32);
            }
        }
        // Every block of every slot is another one; those of slots that are not used are out of the pool.
        let mut blocks: Vec<u32> = (0..(SLOTS * BLOCKS_MAX) as u32).collect();
        (1..blocks.len()).for_each(|i| blocks.swap(i, draw.below(i + 1)));
        let is_used = |entry: usize| (entry / BLOCKS_MAX).is_multiple_of(2);
        let tables = (0..).zip(&blocks).map(|(entry, &block)| if is_used(entry) { block } else { u32::MAX });
        let mut weights = |count: usize| (0..count).map(|_| 1.0 + draw.normal() / 4.0).collect::<Vec<f32>>();
        let width = if shape.over == Over::Width { (shape.query_heads, shape.kv_heads) } else { (1, 1) };
        let (query_weight, key_weight) = (weights(width.0 * shape.dim), weights(width.1 * shape.dim));
        let half = shape.rotated / 2;
        let angle = |i: usize| (i / shape.rotated) as f64 * 100_f64.powf(-((i % half) as f64) / half as f64);
        let turn = |i: usize| if i % shape.rotated < half { angle(i).cos() } else { angle(i).sin() };
        Self {
            heads: draw.normals(positions.len() * shape.heads() * shape.dim, 2.0),
            tables: tables.collect(),
            rotary: (0..shape.context() * shape.rotated).map(|i| turn(i) as f32 * 1.25).collect(),
            growth: (0..shape.context()).map(|position| 1.0 + position as f32 / 64.0).collect(),
            query_weight,
            key_weight,
            positions,
            slots,
            ends,
            shape,
        }
    }

    fn rows(&self) -> usize {
        self.positions.len()
    }

    /// All rows in one launch.
    fn whole(&self) -> [Range<usize>; 1] {
        let rows = 0..self.rows();
        [rows]
    }

    fn pool_len(&self) -> usize {
        SLOTS * BLOCKS_MAX * LAYERS * self.shape.slice()
    }

    /// Where a row's keys or values of a head lie in the pool.
    fn cached(&self, row: usize, position: usize, plane: usize) -> Range<usize> {
        let Shape { block_tokens, dim, .. } = self.shape;
        let block = self.tables[self.slots[row] as usize * BLOCKS_MAX + position / block_tokens] as usize;
        let slice = (block * LAYERS + LAYER) * self.shape.slice();
        let from = slice + (plane * block_tokens + position % block_tokens) * dim;
        from..from + dim
    }

    /// Runs rows in launches of these, over one cache.
    fn run(&self, gpu: &Gpu, launches: &[Range<usize>]) -> Made {
        self.run_in(gpu, launches, u32::MAX)
    }

    /// Runs them in grids of so many blocks, at most.
    fn run_in(&self, gpu: &Gpu, launches: &[Range<usize>], grid_max: u32) -> Made {
        let cache = Cache { grid_max, ..Cache::new(gpu, self) };
        for rows in launches {
            cache.launch(self, rows.clone(), None);
        }
        cache.read()
    }

    /// The numbers of a head behind its norm and its rotation.
    fn head(&self, row: usize, head: usize) -> Vec<f64> {
        let Shape { query_heads, kv_heads, dim, rotated, over, .. } = self.shape;
        let width = self.shape.heads() * dim;
        let wide: Vec<f64> = self.heads[row * width..][..width].iter().map(|x| f64::from(x.to_f32())).collect();
        let own = head * dim..(head + 1) * dim;
        let (normed, weight, first) = if head < query_heads {
            (0..query_heads * dim, &self.query_weight, head)
        } else if head < query_heads + kv_heads {
            (query_heads * dim..(query_heads + kv_heads) * dim, &self.key_weight, head - query_heads)
        } else {
            return wide[own].to_vec();
        };
        let (normed, weight) = match over {
            Over::Nothing => (0..0, vec![1.0; dim]),
            Over::Heads => (own.clone(), weight.clone()),
            Over::Width => (normed, weight[first * dim..][..dim].to_vec()),
        };
        let mean = wide[normed.clone()].iter().map(|x| x * x).sum::<f64>() / normed.len().max(1) as f64;
        let scale = if over == Over::Nothing { 1.0 } else { 1.0 / (mean + f64::from(EPS)).sqrt() };
        let mut numbers: Vec<f64> = wide[own].iter().zip(weight).map(|(x, w)| x * scale * f64::from(w)).collect();
        let position = self.positions[row] as usize;
        for i in 0..rotated / 2 {
            let (a, b) = (numbers[i], numbers[i + rotated / 2]);
            let (cos, sin) = (self.rotary[position * rotated + i], self.rotary[position * rotated + rotated / 2 + i]);
            (numbers[i], numbers[i + rotated / 2]) =
                (a * f64::from(cos) - b * f64::from(sin), b * f64::from(cos) + a * f64::from(sin));
        }
        let grows = self.shape.grows && head < query_heads;
        numbers.iter().map(|x| x * if grows { f64::from(self.growth[position]) } else { 1.0 }).collect()
    }

    /// Compares all numbers, also those that are to stay as they are.
    fn check(&self, made: &Made) {
        let Shape { query_heads, kv_heads, dim, block_tokens, .. } = self.shape;
        let mut pool = vec![None; self.pool_len()];
        for row in 0..self.rows() {
            let queries = &made.queries[row * query_heads * dim..][..query_heads * dim];
            if self.slots[row] == PADDING {
                assert!(queries.iter().all(|x| *x == UNWRITTEN), "the queries of a padding row");
                continue;
            }
            let exact: Vec<f64> = (0..query_heads).flat_map(|head| self.head(row, head)).collect();
            let queries: Vec<bf16> = queries.iter().copied().map(bf16::from_bits).collect();
            assert_near(&widened(&queries), &exact, ROUNDING, 1e-5, "queries");
            let position = self.positions[row] as usize;
            for plane in 0..2 * kv_heads {
                let head = query_heads + plane / 2 + if plane % 2 == 0 { 0 } else { kv_heads };
                let own = self.cached(row, position, plane);
                pool[own].iter_mut().zip(self.head(row, head)).for_each(|(to, exact)| *to = Some(exact));
                if position.is_multiple_of(block_tokens) {
                    for later in (self.ends[row] as usize..position + block_tokens).filter(|later| *later > position) {
                        pool[self.cached(row, later, plane)].fill(Some(0.0));
                    }
                }
            }
        }
        for (at, (&found, exact)) in made.pool.iter().zip(pool).enumerate() {
            match exact {
                None => assert_eq!(found, UNWRITTEN, "number {at} of the pool is nobody's"),
                Some(0.0) => assert_eq!(found, 0, "number {at} of the pool is zero"),
                Some(exact) => assert_near(&[bf16::from_bits(found).to_f32()], &[exact], ROUNDING, 1e-5, "the cache"),
            }
        }
        assert_eq!(made.broken, vec![0; self.rows()]);
    }
}

/// A case on the device.
struct Cache<'a> {
    gpu: &'a Gpu,
    kernel: RopeCache,
    heads: Buffer<'a, bf16>,
    queries: Buffer<'a, u16>,
    pool: Buffer<'a, u16>,
    /// Where the kernel has the pool.
    pool_address: u64,
    grid_max: u32,
    positions: Buffer<'a, u32>,
    slots: Buffer<'a, u32>,
    ends: Buffer<'a, u32>,
    tables: Buffer<'a, u32>,
    rotary: Buffer<'a, f32>,
    growth: Buffer<'a, f32>,
    query_weight: Buffer<'a, f32>,
    key_weight: Buffer<'a, f32>,
    broken: Buffer<'a, u32>,
}

impl<'a> Cache<'a> {
    fn new(gpu: &'a Gpu, case: &Case) -> Self {
        let pool = gpu.empty(case.pool_len());
        Self {
            gpu,
            kernel: RopeCache::load(&gpu.loader).expect("the kernel"),
            heads: gpu.upload(&case.heads),
            queries: gpu.empty(case.rows() * case.shape.query_heads * case.shape.dim),
            pool_address: pool.address(),
            grid_max: u32::MAX,
            pool,
            positions: gpu.upload(&case.positions),
            slots: gpu.upload(&case.slots),
            ends: gpu.upload(&case.ends),
            tables: gpu.upload(&case.tables),
            rotary: gpu.upload(&case.rotary),
            growth: gpu.upload(&case.growth),
            query_weight: gpu.upload(&case.query_weight),
            key_weight: gpu.upload(&case.key_weight),
            broken: gpu.upload(&vec![0_u32; case.rows()]),
        }
    }

    fn launch(&self, case: &Case, rows: Range<usize>, progress: Option<(ProgressArgs, u64)>) {
        let Shape { query_heads, kv_heads, dim, rotated, block_tokens, over, grows } = case.shape;
        let weights = (self.query_weight.address(), self.key_weight.address());
        let norm = match (over, weights) {
            (Over::Nothing, _) => HeadNorm::None,
            (Over::Heads, (query, key)) => HeadNorm::Heads { query, key },
            (Over::Width, (query, key)) => HeadNorm::Width { query, key },
        };
        let word = |buffer: &Buffer<u32>| buffer.address() + (rows.start * 4) as u64;
        let numbers = |address: u64, heads: usize| address + (rows.start * heads * dim * 2) as u64;
        let args = RopeCacheArgs {
            heads: numbers(self.heads.address(), case.shape.heads()),
            queries: numbers(self.queries.address(), query_heads),
            slices: self.pool_address + (LAYER * case.shape.slice() * 2) as u64,
            record_bytes: (LAYERS * case.shape.slice() * 2) as u64,
            tables: self.tables.address(),
            positions: word(&self.positions),
            slots: word(&self.slots),
            ends: word(&self.ends),
            rotary: self.rotary.address(),
            growth: if grows { self.growth.address() } else { 0 },
            norm,
            broken: word(&self.broken),
            rows: rows.len() as u32,
            query_heads: query_heads as u32,
            kv_heads: kv_heads as u32,
            dim: dim as u32,
            rotated: rotated as u32,
            block_tokens: block_tokens as u32,
            blocks_max: BLOCKS_MAX as u32,
            grid_max: self.grid_max,
            eps: EPS,
            progress,
        };
        // SAFETY: the buffers are as the arguments say.
        unsafe { self.kernel.launch(&self.gpu.stream, &args) }.expect("a launch");
    }

    fn read(&self) -> Made {
        Made { queries: self.queries.read(), pool: self.pool.read(), broken: self.broken.read() }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let dims = prop_oneof![Just(8_usize), Just(24), Just(64), Just(80), Just(96), Just(128), Just(256)];
    let overs = prop_oneof![Just(Over::Nothing), Just(Over::Heads), Just(Over::Width)];
    let tokens = prop_oneof![Just(8_usize), Just(16)];
    (1usize..4, 1usize..3, dims, 0usize..5, tokens, overs, any::<bool>()).prop_map(
        |(query_heads, kv_heads, dim, quarters, block_tokens, over, grows)| {
            // Nothing is turned, or halves that are not whole steps of 8 numbers, or all.
            let rotated = dim * quarters / 4;
            Shape { query_heads, kv_heads, dim, rotated, block_tokens, over, grows }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(14))]
    #[test]
    fn heads_are_normed_turned_and_cached(shape in shapes(), seed: u64) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::new(shape, seed);
        let made = case.run(gpu, &case.whole());
        case.check(&made);
        // Micro-batches, and rows by themselves in any order, have the same bits.
        let mut draw = Draw::new(seed);
        let cut = draw.below(case.rows() + 1);
        let parts: Vec<Range<usize>> = [0..cut, cut..case.rows()].into_iter().filter(|rows| !rows.is_empty()).collect();
        prop_assert!(case.run(gpu, &parts) == made, "micro-batches");
        prop_assert!(case.run_in(gpu, &case.whole(), 1 + draw.below(3) as u32) == made, "few blocks");
        let one = draw.below(case.rows());
        let others = (0..case.rows()).filter(|row| *row != one).chain([one]);
        prop_assert!(case.run(gpu, &others.map(|row| row..row + 1).collect::<Vec<_>>()) == made, "rows alone");
    }
}

fn llama() -> Shape {
    Shape { query_heads: 4, kv_heads: 1, dim: 64, rotated: 64, block_tokens: 16, over: Over::Nothing, grows: false }
}

#[test]
fn rows_with_what_is_no_number_are_told() {
    let Some(gpu) = Gpu::open() else { return };
    for over in [Over::Nothing, Over::Heads, Over::Width] {
        let mut case = Case::new(Shape { over, ..llama() }, 3);
        let width = case.shape.heads() * case.shape.dim;
        case.slots[0] = PADDING;
        for row in 0..case.rows() {
            let at = row * 64 % width + row % 64;
            case.heads[row * width + at] = if row % 2 == 0 { bf16::NAN } else { bf16::NEG_INFINITY };
        }
        let broken = case.run(gpu, &case.whole()).broken;
        let exact: Vec<u32> = case.slots.iter().map(|&slot| u32::from(slot != PADDING)).collect();
        assert_eq!(broken, exact, "{over:?}");
    }
}

#[test]
fn the_last_block_raises_the_progress_of_the_layer_where_somebody_listens() {
    let Some(gpu) = Gpu::open() else { return };
    let word = Pinned::new(gpu.context(), size_of::<u64>()).expect("memory");
    let read = || {
        gpu.stream.synchronize().expect("what was queued");
        // SAFETY: the word is this test's, and nothing writes it now.
        unsafe { word.as_ptr().cast::<u64>().read() }
    };
    // A step number that does not fit into 32 bits.
    let step = StepId(0x12_3456_789A);
    let mark = ProgressWord::mark(step, 0) - 1;
    for over in [Over::Heads, Over::Width] {
        let case = Case::new(Shape { over, ..llama() }, 4);
        let cache = Cache::new(gpu, &case);
        let ticket = gpu.upload(&[0_u32]);
        let progress = |listens: u64, layer: u32| {
            let on_step = gpu.upload(&[mark, listens]);
            let args = ProgressArgs { step: on_step.address(), word: word.device_address(), layer };
            (on_step, args)
        };
        let before = read();
        let (_unheard, args) = progress(0, 7);
        cache.launch(&case, 0..case.rows(), Some((args, ticket.address())));
        // SAFETY: the addresses are as it says.
        unsafe { cache.kernel.raise(&gpu.stream, &args) }.expect("a launch");
        assert_eq!(read(), before, "nobody listens");
        let (_heard, args) = progress(1, 7);
        cache.launch(&case, 0..case.rows(), None);
        assert_eq!(read(), before, "another launch writes the layer too");
        for layer in [7, 8] {
            let args = ProgressArgs { layer, ..args };
            cache.launch(&case, 0..case.rows(), Some((args, ticket.address())));
            assert_eq!((read(), ticket.read()), (ProgressWord::mark(step, layer as u16), vec![0]));
        }
        // SAFETY: the addresses are as it says.
        unsafe { cache.kernel.raise(&gpu.stream, &ProgressArgs { layer: 9, ..args }) }.expect("a launch");
        assert_eq!(read(), ProgressWord::mark(step, 9));
        case.check(&cache.read());
        // SAFETY: the word is this test's, and nothing writes it now.
        unsafe { word.as_ptr().cast::<u64>().write(0) };
    }
}

#[test]
fn who_sees_the_progress_sees_the_whole_layer() {
    let Some(gpu) = Gpu::open() else { return };
    for (seed, over) in [(5, Over::Heads), (6, Over::Width), (7, Over::Nothing)] {
        let case = Case::new(Shape { over, query_heads: 9, kv_heads: 5, ..llama() }, seed);
        let mut cache = Cache::new(gpu, &case);
        // The pool is memory that this thread can read while the kernel runs.
        let pool = Pinned::new(gpu.context(), case.pool_len() * size_of::<u16>()).expect("memory");
        // SAFETY: the memory is this test's, and the device has not heard of it.
        unsafe { pool.as_ptr().write_bytes(0xFF, pool.len()) };
        cache.pool_address = pool.device_address();
        let word = Pinned::new(gpu.context(), size_of::<u64>()).expect("memory");
        let (mark, ticket) = (ProgressWord::mark(StepId(3), 0), gpu.upload(&[0_u32]));
        let on_step = gpu.upload(&[mark - 1, 1]);
        let progress = ProgressArgs { step: on_step.address(), word: word.device_address(), layer: 0 };
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // SAFETY: the word lives, and is aligned.
                let raised = unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) };
                while raised.load(Ordering::Acquire) != mark {
                    std::hint::spin_loop();
                }
                // SAFETY: what the kernel writes there it has written.
                unsafe { std::slice::from_raw_parts(pool.as_ptr().cast::<u16>(), case.pool_len()) }.to_vec()
            });
            cache.launch(&case, 0..case.rows(), Some((progress, ticket.address())));
            reader.join().expect("the reader")
        });
        case.check(&Made { pool: seen, ..cache.read() });
    }
}
