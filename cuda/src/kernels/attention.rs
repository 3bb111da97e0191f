//! Attention over the block cache: of single rows, and of runs of rows.
//!
//! A row has the same bits by both kernels, however its prompt is cut, and whatever runs beside it. Which of the two
//! takes a span is therefore a question of time alone. What they work on lies in device memory, so that one graph
//! serves every step: [`AttentionLists`] makes it of a step's spans.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};
use std::cmp::Reverse;

/// Tokens of a piece: partial results are of the context between two multiples of it.
pub const PIECE_TOKENS: u32 = 512;

/// Tokens that are taken at a time.
const STEP_TOKENS: u32 = 32;

/// Rows of a tile of prefill: queries times the heads of a group.
const TILE_ROWS: u32 = 128;

/// Query heads of a KV head, at most.
const GROUP_MAX: u32 = 16;

/// Those that the narrow kernel of decode takes.
const GROUP_NARROW: u32 = 8;

/// Threads of a block of decode.
const DECODE_THREADS: u32 = 128;

/// Numbers from row to row of the scores that warps of decode exchange.
const SCORE_PITCH: u32 = STEP_TOKENS + 8;

/// Bytes of what a thread of prefill keeps for each tile of 8 dims.
const FRAGMENT_BYTES: usize = 16;

/// The sources for one size of heads.
pub(super) struct Sources {
    dim: u32,
    pub(super) decode: Source,
    pub(super) prefill: Source,
}

macro_rules! sources {
    ($dim:literal) => {
        Sources {
            dim: $dim,
            decode: source!("attention_decode.cu", DIM = $dim),
            prefill: source!("attention_prefill.cu", DIM = $dim),
        }
    };
}

/// Every size of heads that there are kernels for.
pub(super) const SIZES: &[Sources] = &[sources!(64), sources!(80), sources!(96), sources!(128), sources!(256)];

/// Instructions that both are fast by: copies past the first-level cache, matrices of shared memory, plain and
/// transposed, and tensor cores.
pub(super) const INSTRUCTIONS: &[&str] =
    &["LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "HMMA.16816.F32.BF16"];

/// The heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    kv_heads: u32,
    group: u32,
    dim: u32,
}

impl AttentionShape {
    /// Makes a shape. `None`: no kernel takes heads of `dim` numbers, or as many query heads for each KV head.
    pub fn new(query_heads: u32, kv_heads: u32, dim: u32) -> Option<Self> {
        let group = query_heads.checked_div(kv_heads)?;
        let has_kernel = SIZES.iter().any(|size| size.dim == dim);
        let is_even = query_heads.is_multiple_of(kv_heads) && (1..=GROUP_MAX).contains(&group);
        (has_kernel && is_even).then_some(Self { kv_heads, group, dim })
    }

    /// Returns the query heads of each KV head.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Returns the queries of a tile of prefill.
    pub fn tile_queries(&self) -> u32 {
        TILE_ROWS / self.group
    }

    /// Returns the bytes of [`DecodeArgs::partials`] for so many pieces in a step.
    pub fn partial_bytes(&self, pieces: usize) -> usize {
        pieces * self.query_heads() * self.dim as usize * size_of::<f32>()
    }

    /// Returns the bytes of [`DecodeArgs::masses`] for so many pieces in a step.
    pub fn mass_bytes(&self, pieces: usize) -> usize {
        pieces * self.query_heads() * size_of::<[f32; 2]>()
    }

    /// Returns the bytes of [`DecodeArgs::tickets`] for so many entries in a step.
    pub fn ticket_bytes(&self, entries: usize) -> usize {
        entries * self.kv_heads as usize * size_of::<u32>()
    }

    /// Returns the bytes of [`PrefillArgs::scratch`] for so many blocks.
    pub fn scratch_bytes(&self, blocks: u32) -> usize {
        // Two operands of 16 rows in each of four warps, or one in each of eight; beside the sums, two pairs of a
        // largest score and a mass.
        let fragments = 2 * TILE_ROWS as usize * (self.dim as usize / 8 + 1);
        blocks as usize * fragments * FRAGMENT_BYTES
    }

    /// Returns how many blocks decode runs best with on a device of so many multiprocessors.
    pub fn decode_blocks(&self, multiprocessors: u32) -> u32 {
        multiprocessors * if self.dim <= 128 { 3 } else { 2 }
    }

    /// Returns how many blocks prefill runs best with on a device of so many multiprocessors.
    pub fn prefill_blocks(&self, multiprocessors: u32) -> u32 {
        multiprocessors * if self.dim <= 128 { 2 } else { 1 }
    }

    fn query_heads(&self) -> usize {
        self.kv_heads as usize * self.group as usize
    }

    fn sources(&self) -> &'static Sources {
        SIZES.iter().find(|size| size.dim == self.dim).expect("shapes have kernels")
    }

    /// Returns the bytes of a step's keys in shared memory: rows are 16 bytes longer than a head.
    fn step_bytes(&self) -> u32 {
        STEP_TOKENS * (self.dim * 2 + 16)
    }

    fn decode_shared_bytes(&self) -> u32 {
        let stages = match self.dim {
            ..65 => 6,
            65..97 => 5,
            97..129 => 4,
            _ => 2,
        };
        let rows = if self.group <= GROUP_NARROW { 8 } else { 16 };
        stages * 2 * self.step_bytes() + rows * SCORE_PITCH * 4
    }

    fn prefill_shared_bytes(&self) -> u32 {
        (TILE_ROWS / STEP_TOKENS + 2) * self.step_bytes()
    }

    /// Returns the threads of a block of prefill.
    fn prefill_threads(&self) -> u32 {
        if self.dim <= 128 { 128 } else { 256 }
    }
}

/// How a product of a query and a key becomes a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionScoring {
    /// Multiplies products.
    pub scale: f32,
    /// Bends scores: `cap * tanh(score / cap)`; 0: they stay.
    pub cap: f32,
    /// Positions that a row sees, itself included; 0: all up to itself.
    pub window: u32,
    /// A score for each query head in f32 that takes a share and adds nothing, in device memory; 0: none.
    pub sinks: u64,
}

/// Where a layer's keys and values lie, in device memory. The record of a block has, in the layer's slice, for each KV
/// head the keys and then the values of its tokens, in bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionCache {
    /// The layer's slice in the record of block 0.
    pub slice: u64,
    /// Bytes of a record, a multiple of 16.
    pub record_bytes: u64,
    /// Block tables: u32, `[slots][blocks_max]`.
    pub tables: u64,
    /// Blocks of a table.
    pub blocks_max: u32,
    /// Tokens of a block, a power of two.
    pub block_tokens: u32,
}

/// Rows of heads in bf16, in device memory, 16-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionRows {
    /// The first head of the first row.
    pub address: u64,
    /// Numbers from row to row, a multiple of 8.
    pub stride: u32,
}

/// What both kernels take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOperands {
    /// Queries, `[rows][query heads][dim]`.
    pub queries: AttentionRows,
    /// Outputs, as queries; may be the same memory.
    pub out: AttentionRows,
    /// Keys and values, those of this step's rows included.
    pub cache: AttentionCache,
    /// How they are scored.
    pub scoring: AttentionScoring,
}

/// Operands of decode, all in device memory.
#[derive(Clone, Copy, Debug)]
pub struct DecodeArgs {
    /// What both kernels take.
    pub operands: AttentionOperands,
    /// [`AttentionLists::rows`].
    pub rows: u64,
    /// [`AttentionLists::slots`].
    pub slots: u64,
    /// [`AttentionLists::lengths`].
    pub lengths: u64,
    /// [`AttentionLists::pieces`].
    pub pieces: u64,
    /// The number of entries, a u32.
    pub count: u64,
    /// Scratch of [`AttentionShape::partial_bytes`], 16-byte aligned.
    pub partials: u64,
    /// Scratch of [`AttentionShape::mass_bytes`], 8-byte aligned.
    pub masses: u64,
    /// Counters of [`AttentionShape::ticket_bytes`], which are zero between launches. Their owner fills them with
    /// zeros, and does so again behind a launch that has failed: [`Stream::fill`].
    pub tickets: u64,
    /// Blocks, at least one; outputs do not depend on it.
    pub blocks: u32,
}

/// Operands of prefill, all in device memory.
#[derive(Clone, Copy, Debug)]
pub struct PrefillArgs {
    /// What both kernels take.
    pub operands: AttentionOperands,
    /// [`AttentionLists::tiles`], 16-byte aligned.
    pub tiles: u64,
    /// The number of tiles, a u32.
    pub count: u64,
    /// Scratch of [`AttentionShape::scratch_bytes`], 16-byte aligned.
    pub scratch: u64,
    /// Blocks, at least one; outputs do not depend on it.
    pub blocks: u32,
}

impl AttentionOperands {
    /// Begins the arguments of a kernel.
    fn words(&self, shape: &AttentionShape) -> Args {
        let Self { queries, out, cache, scoring } = self;
        let words = Args::new().address(queries.address).address(out.address);
        let words = words.number(queries.stride).number(out.stride).number(shape.kv_heads).number(shape.group);
        let words = words.address(cache.slice).address(cache.tables).address(cache.record_bytes);
        let words = words.number(cache.blocks_max).number(cache.block_tokens.trailing_zeros());
        // Weights are powers of two. A cap is written as cap - 2 cap / (1 + e^(2 score / cap)).
        let log2_e = std::f32::consts::LOG2_E;
        let slope = if scoring.cap == 0.0 { 0.0 } else { 2.0 * log2_e * scoring.scale / scoring.cap };
        let words = words.float(scoring.scale * log2_e).float(scoring.cap * log2_e).float(slope);
        words.number(scoring.window).address(scoring.sinks)
    }
}

/// The kernel for single rows, each of another sequence or position: the context is split over blocks.
#[derive(Clone, Debug)]
pub struct AttentionDecode {
    function: Function,
    shape: AttentionShape,
}

impl AttentionDecode {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader, shape: AttentionShape) -> Result<Self, LoadError> {
        let name = if shape.group <= GROUP_NARROW { "attention_decode" } else { "attention_decode_wide" };
        let function = loader.module(&shape.sources().decode)?.function(name)?;
        function.set_shared_bytes(shape.decode_shared_bytes())?;
        Ok(Self { function, shape })
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`DecodeArgs`] says, and nothing else may use what is written. The scratch must be of
    /// as many pieces and entries as the lists have.
    pub unsafe fn launch(&self, stream: &Stream, args: &DecodeArgs) -> Result<(), DriverError> {
        let &DecodeArgs { rows, slots, lengths, pieces, count, partials, masses, tickets, blocks, .. } = args;
        let words = args.operands.words(&self.shape).address(rows).address(slots).address(lengths);
        let words = words.address(pieces).address(count).address(partials).address(masses).address(tickets);
        let shared_bytes = self.shape.decode_shared_bytes();
        let grid = Grid { shared_bytes, overlaps: true, ..Grid::of(blocks, DECODE_THREADS) };
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.function, grid, words) }
    }
}

/// The kernel for runs of rows: each key is read once for all heads of a group and many queries.
#[derive(Clone, Debug)]
pub struct AttentionPrefill {
    function: Function,
    shape: AttentionShape,
}

impl AttentionPrefill {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader, shape: AttentionShape) -> Result<Self, LoadError> {
        let function = loader.module(&shape.sources().prefill)?.function("attention_prefill")?;
        function.set_shared_bytes(shape.prefill_shared_bytes())?;
        Ok(Self { function, shape })
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`PrefillArgs`] says, and nothing else may use what is written. The scratch must be of
    /// as many blocks, and the tiles of a group as this one's.
    pub unsafe fn launch(&self, stream: &Stream, args: &PrefillArgs) -> Result<(), DriverError> {
        let &PrefillArgs { tiles, count, scratch, blocks, .. } = args;
        let words = args.operands.words(&self.shape).address(tiles).address(count).address(scratch);
        let shared_bytes = self.shape.prefill_shared_bytes();
        let grid = Grid { shared_bytes, overlaps: true, ..Grid::of(blocks, self.shape.prefill_threads()) };
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.function, grid, words) }
    }
}

/// Rows of one sequence in a step. Spans lie in the step's buffers one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSpan {
    /// The slot of its block table.
    pub slot: u32,
    /// The position of its first row.
    pub start: u32,
    /// Rows.
    pub count: u32,
}

/// Rows of prefill that a block takes at a time, as the kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillTile {
    /// The first row in the step's buffers.
    pub row: u32,
    /// The slot of its block table.
    pub slot: u32,
    /// The position of the first row.
    pub position: u32,
    /// Rows, at most [`AttentionShape::tile_queries`].
    pub queries: u32,
}

impl PrefillTile {
    /// Returns the words of it in device memory.
    pub fn words(&self) -> [u32; 4] {
        [self.row, self.slot, self.position, self.queries]
    }

    /// Returns how many steps over the context it takes.
    fn steps(&self, window: u32) -> u32 {
        let begin = first_visible(self.position, window) / STEP_TOKENS;
        (self.position + self.queries).div_ceil(STEP_TOKENS) - begin
    }
}

/// Returns the first position that the row at `position` sees.
fn first_visible(position: u32, window: u32) -> u32 {
    if window == 0 { 0 } else { (position + 1).saturating_sub(window) }
}

/// What the two kernels work on in a step, for layers of one window. Each list goes to device memory as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttentionLists {
    /// Rows of decode: where in the step's buffers.
    pub rows: Vec<u32>,
    /// The slot of each.
    pub slots: Vec<u32>,
    /// The position of each, plus one.
    pub lengths: Vec<u32>,
    /// Pieces that all rows before it see, for each row, and behind the last one those of all.
    pub pieces: Vec<u32>,
    /// Tiles of prefill, the longest first.
    pub tiles: Vec<PrefillTile>,
}

impl AttentionLists {
    /// Replaces the lists by those of a step's spans. Spans of at most `single_rows` rows go to decode row by row, all
    /// others to prefill.
    ///
    /// A row of decode reads its whole context, but by many blocks at a time. It pays for the single rows of running
    /// sequences, and for a few rows behind a long context.
    pub fn fill(
        &mut self,
        shape: &AttentionShape,
        window: u32,
        single_rows: u32,
        spans: impl IntoIterator<Item = AttentionSpan>,
    ) {
        let Self { rows, slots, lengths, pieces, tiles } = self;
        for list in [&mut *rows, &mut *slots, &mut *lengths, &mut *pieces] {
            list.clear();
        }
        tiles.clear();
        pieces.push(0);
        let (mut row, mut piece) = (0, 0);
        for AttentionSpan { slot, start, count } in spans {
            if count <= single_rows {
                for at in 0..count {
                    let position = start + at;
                    piece += position / PIECE_TOKENS - first_visible(position, window) / PIECE_TOKENS + 1;
                    rows.push(row + at);
                    slots.push(slot);
                    lengths.push(position + 1);
                    pieces.push(piece);
                }
            } else {
                let most = shape.tile_queries();
                tiles.extend((0..count).step_by(most as usize).map(|at| {
                    let queries = most.min(count - at);
                    PrefillTile { row: row + at, slot, position: start + at, queries }
                }));
            }
            row += count;
        }
        tiles.sort_by_key(|tile| Reverse(tile.steps(window)));
    }

    /// Returns the pieces of all rows of decode, which its scratch must hold.
    pub fn piece_count(&self) -> usize {
        self.pieces.last().map_or(0, |&count| count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(group: u32) -> AttentionShape {
        AttentionShape::new(2 * group, 2, 128).expect("a shape")
    }

    fn span(slot: u32, start: u32, count: u32) -> AttentionSpan {
        AttentionSpan { slot, start, count }
    }

    #[test]
    fn shapes_without_a_kernel_are_refused() {
        for (query_heads, kv_heads, dim) in [(8, 2, 112), (8, 3, 128), (34, 2, 128), (0, 2, 128), (8, 0, 128)] {
            assert_eq!(AttentionShape::new(query_heads, kv_heads, dim), None);
        }
        assert_eq!(AttentionShape::new(32, 2, 64).map(|shape| shape.group()), Some(16));
    }

    #[test]
    fn single_rows_go_to_decode_with_their_pieces() {
        let mut lists = AttentionLists::default();
        lists.fill(&shape(4), 0, 1, [span(5, 0, 1), span(3, 511, 1), span(9, 512, 1), span(1, 1100, 1)]);
        assert_eq!(lists.rows, [0, 1, 2, 3]);
        assert_eq!(lists.slots, [5, 3, 9, 1]);
        assert_eq!(lists.lengths, [1, 512, 513, 1101]);
        assert_eq!(lists.pieces, [0, 1, 2, 4, 7]);
        assert_eq!((lists.piece_count(), lists.tiles.len()), (7, 0));
    }

    #[test]
    fn a_window_begins_at_the_piece_of_its_first_position() {
        let mut lists = AttentionLists::default();
        // The row at 1023 sees 512 positions: 512 to 1023, all of one piece. With 513 it sees one more.
        for (window, pieces) in [(0, 2), (512, 1), (513, 2), (1, 1), (5000, 2)] {
            lists.fill(&shape(4), window, 1, [span(0, 1023, 1)]);
            assert_eq!(lists.pieces, [0, pieces], "a window of {window}");
        }
    }

    #[test]
    fn runs_are_cut_into_tiles_with_the_longest_first() {
        let mut lists = AttentionLists::default();
        lists.fill(&shape(4), 0, 1, [span(7, 40, 1), span(2, 0, 70), span(4, 1000, 3), span(6, 0, 0)]);
        let tile = |row, slot, position, queries| PrefillTile { row, slot, position, queries };
        assert_eq!(lists.tiles, [tile(71, 4, 1000, 3), tile(65, 2, 64, 6), tile(33, 2, 32, 32), tile(1, 2, 0, 32)]);
        assert_eq!((lists.rows.as_slice(), lists.lengths.as_slice()), ([0].as_slice(), [41].as_slice()));
        // Groups that do not divide a tile leave rows of it empty. Tiles of as many steps stay in order.
        lists.fill(&shape(7), 0, 1, [span(0, 0, 37)]);
        assert_eq!(lists.tiles, [tile(18, 0, 18, 18), tile(36, 0, 36, 1), tile(0, 0, 0, 18)]);
    }

    #[test]
    fn a_window_shortens_tiles() {
        let mut lists = AttentionLists::default();
        lists.fill(&shape(4), 64, 1, [span(0, 4096, 32), span(1, 64, 64)]);
        let steps: Vec<u32> = lists.tiles.iter().map(|tile| tile.steps(64)).collect();
        // 4033 to 4127 begins within a step; so does 1 to 95, and 33 to 127.
        assert_eq!(steps, [3, 3, 3]);
    }

    #[test]
    fn short_runs_may_go_to_decode() {
        let mut lists = AttentionLists::default();
        lists.fill(&shape(4), 0, 3, [span(2, 510, 3), span(1, 0, 4)]);
        assert_eq!(lists.rows, [0, 1, 2]);
        assert_eq!(lists.slots, [2, 2, 2]);
        assert_eq!(lists.lengths, [511, 512, 513]);
        assert_eq!(lists.pieces, [0, 1, 2, 4]);
        assert_eq!(lists.tiles.len(), 1);
        lists.fill(&shape(4), 0, 3, []);
        assert_eq!(lists, AttentionLists { pieces: vec![0], ..AttentionLists::default() });
    }

    #[test]
    fn blocks_fit_into_shared_memory() {
        // What blocks have together on an H100, where each takes 1 KiB more; what one may have on an RTX 4090.
        let (together, alone) = (228 * 1024, 99 * 1024);
        for size in SIZES {
            for group in [8, 16] {
                let shape = AttentionShape::new(group, 1, size.dim).expect("a shape");
                let (decode, prefill) = (shape.decode_shared_bytes(), shape.prefill_shared_bytes());
                assert!((decode + 1024) * shape.decode_blocks(1) <= together, "decode of {} dims", size.dim);
                assert!((prefill + 1024) * shape.prefill_blocks(1) <= together, "prefill of {} dims", size.dim);
                assert!(decode.max(prefill) <= alone, "{} dims", size.dim);
            }
        }
    }
}
