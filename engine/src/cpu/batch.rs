//! A plan laid out in rows: what the kernels of a step go by. Planned for the limits, refilled for every step.

use super::division::Division;
use super::kernels::QUERY_TILE;
use super::tiling::{QueryTile, Tiling};
use crate::device::DeviceLimits;
use domain::plan::{Input, StepPlan};
use domain::{KvGroup, KvLayout, Token};
use std::ops::Range;

/// Rows of a part, at most. With fewer of them activations take less room and stay in caches, but weights are read
/// more often: on the `125m` shape prompts are as fast as without parts with 256, and 5% slower with 128. Some
/// more than that, so that a chunk of 256 or 512 and the sequences that decode beside it are no part more.
pub(super) const PART_ROWS_MAX: usize = 288;
/// Rows of a part are a multiple of this, but for the last part: linear layers multiply so many at a time.
const PART_ROWS_STEP: usize = 32;
/// An input row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its token.
    pub(super) token: Token,
    /// Its absolute position.
    pub(super) position: u32,
    /// Its span.
    pub(super) span: usize,
    /// Positions after it, in its block, that have no token yet and are this step's to zero.
    pub(super) zeroed: u32,
}

/// A span that samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    /// The span.
    pub(super) span: usize,
    /// Its last input row.
    pub(super) row: usize,
    /// Number of its first sample among those of the step.
    pub(super) first_sample: usize,
}

/// Some of the input rows, with the tiles of their queries and those of them that sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) rows: Range<usize>,
    pub(super) tiles: Range<usize>,
    pub(super) sampling: Range<usize>,
}

/// The rows of a step.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    pub(super) tiles: Vec<QueryTile>,
    pub(super) sampling: Vec<Sampling>,
    /// What a step is computed in: all rows, cut into parts of about equal size.
    pub(super) parts: Vec<Part>,
    /// Of each KV group: how attention is divided.
    pub(super) divisions: Vec<Division>,
    pub(super) tiling: Tiling,
    block_tokens: u32,
}

impl Batch {
    /// Room for the limits.
    pub(super) fn new(limits: &DeviceLimits, tiling: Tiling, layout: &KvLayout) -> Self {
        // n rows of a span and a part have n * group / QUERY_TILE tiles, rounded up: at most n times those of a
        // single row.
        let tiles_max = limits.rows_max * tiling.group.div_ceil(QUERY_TILE);
        let parts_max = limits.rows_max.div_ceil(PART_ROWS_MAX);
        let division = |group: &KvGroup| Division::new(tiling, group.window, tiles_max, parts_max);
        Self {
            rows: Vec::with_capacity(limits.rows_max),
            tiles: Vec::with_capacity(tiles_max),
            sampling: Vec::with_capacity(limits.samples_max),
            parts: Vec::with_capacity(parts_max),
            divisions: layout.groups.iter().map(division).collect(),
            tiling,
            block_tokens: layout.block_tokens,
        }
    }

    /// Lays out `plan`, a valid one. `previous`: what the step before sampled. For a token that it did not, any
    /// will do: the span fails.
    pub(super) fn fill(&mut self, plan: &StepPlan, previous: &[Option<Token>]) {
        self.rows.clear();
        self.tiles.clear();
        self.sampling.clear();
        self.parts.clear();
        self.divisions.iter_mut().for_each(Division::clear);
        let part_rows = part_rows(plan.spans.iter().map(|span| span.inputs.len()).sum());
        let (group, tile) = (self.tiling.group, self.tiling.tile(part_rows));
        let mut samples = 0;
        for (index, span) in plan.spans.iter().enumerate() {
            let row = self.rows.len();
            for (&input, position) in span.inputs.iter().zip(span.start..) {
                let token = match input {
                    Input::Token(token) => token,
                    Input::Sampled(sample) => sampled(previous, sample).unwrap_or(0),
                };
                self.rows.push(Row { token, position, span: index, zeroed: 0 });
            }
            let last = self.rows.len() - 1;
            // Who writes a block's first position makes the rest of it zero; later chunks only add to it.
            let (position, used) = (self.rows[last].position, self.rows[last].position % self.block_tokens);
            if position - used >= span.start {
                self.rows[last].zeroed = self.block_tokens - 1 - used;
            }
            let mut from = row;
            while from <= last {
                let to = (last + 1).min((from / part_rows + 1) * part_rows);
                let queries = (from - row) * group..(to - row) * group;
                for first in queries.clone().step_by(tile) {
                    let count = tile.min(queries.end - first);
                    let start = span.start as usize;
                    let positions = start + first / group..start + (first + count - 1) / group + 1;
                    self.tiles.push(QueryTile { span: index, row, first, count, positions });
                }
                from = to;
            }
            if !span.samples.is_empty() {
                self.sampling.push(Sampling { span: index, row: last, first_sample: samples });
                samples += span.samples.len();
            }
        }
        let mut part = Part::default();
        while part.rows.end < self.rows.len() {
            let end = self.rows.len().min(part.rows.end + part_rows);
            let tiles = self.tiles.partition_point(|tile| tile.row + tile.first / group < end);
            let sampling = self.sampling.partition_point(|sampling| sampling.row < end);
            part =
                Part { rows: part.rows.end..end, tiles: part.tiles.end..tiles, sampling: part.sampling.end..sampling };
            self.divisions.iter_mut().for_each(|it| it.divide(part.tiles.start, &self.tiles[part.tiles.clone()]));
            self.parts.push(part.clone());
        }
    }
}

/// The token that the step before sampled as its `n`-th, if its span did not fail.
pub(super) fn sampled(previous: &[Option<Token>], n: u32) -> Option<Token> {
    previous.get(n as usize).copied().flatten()
}

/// Rows of a part where there are so many in all.
fn part_rows(rows: usize) -> usize {
    rows.div_ceil(rows.div_ceil(PART_ROWS_MAX).max(1)).next_multiple_of(PART_ROWS_STEP).max(PART_ROWS_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SeqKey;
    use domain::plan::{Sample, Span};
    use domain::{Dtype, Encoding, SamplingParams, StepId};
    use std::sync::Arc;

    /// Query heads per KV head.
    const GROUP: usize = 3;

    /// The batch of spans of so many rows, each of which samples, for so many threads.
    fn batch(spans: &[usize], threads: usize) -> Batch {
        let sample =
            |key| Sample { key, params: Arc::new(SamplingParams::default()), seed: 0, index: 0, history: None };
        let span = |&rows: &usize| Span {
            key: SeqKey::default(),
            start: 0,
            inputs: vec![Input::Token(1); rows],
            tables: Vec::new(),
            samples: vec![sample(SeqKey::default())],
        };
        let rows_max = spans.iter().sum();
        let limits = DeviceLimits { rows_max, samples_max: spans.len(), context_max: rows_max, blocks: Vec::new() };
        let tiling = Tiling { group: GROUP, kv_heads: 4, queries_max: 256, threads, kept_numbers: 16 };
        let group = KvGroup { layers: vec![0], kv_heads: 4, head_dim: 16, window: None };
        let layout = KvLayout { block_tokens: 16, dtype: Dtype::F32, encoding: Encoding::Exact, groups: vec![group] };
        let mut batch = Batch::new(&limits, tiling, &layout);
        let room = (batch.tiles.capacity(), batch.parts.capacity());
        batch.fill(&StepPlan { step: StepId(1), copies: Vec::new(), spans: spans.iter().map(span).collect() }, &[]);
        assert_eq!(room, (batch.tiles.capacity(), batch.parts.capacity()), "{spans:?}: a step allocates nothing");
        batch
    }

    #[test]
    fn parts_have_all_rows_queries_and_samples_once() {
        let spans = [&[1][..], &[256], &[257], &[1, 255, 1, 1], &[40; 7], &[1000, 1, 23], &[1; 300]];
        for (spans, threads) in spans.into_iter().flat_map(|spans| [1, 2, 4, 64].map(|threads| (spans, threads))) {
            let Batch { rows, tiles, sampling, parts, .. } = batch(spans, threads);
            let mut queries = vec![0; rows.len() * GROUP];
            let mut last = Part::default();
            for part in &parts {
                assert!(part.rows.len() <= PART_ROWS_MAX && part.rows.start == last.rows.end, "{spans:?}: {part:?}");
                assert_eq!((part.tiles.start, part.sampling.start), (last.tiles.end, last.sampling.end), "{spans:?}");
                for tile in &tiles[part.tiles.clone()] {
                    let first = tile.row * GROUP + tile.first;
                    assert!(tile.count <= 256);
                    let (head, tail) = (first / GROUP, (first + tile.count - 1) / GROUP);
                    assert!(part.rows.contains(&head) && part.rows.contains(&tail), "{spans:?}: {tile:?} of {part:?}");
                    queries[first..first + tile.count].iter_mut().for_each(|times| *times += 1);
                }
                assert!(sampling[part.sampling.clone()].iter().all(|sampling| part.rows.contains(&sampling.row)));
                last = part.clone();
            }
            assert_eq!((last.rows.end, last.tiles.end, last.sampling.end), (rows.len(), tiles.len(), spans.len()));
            assert!(queries.iter().all(|&times| times == 1), "{spans:?}: {queries:?}");
            // No part is left with a few rows, for which all weights would be read.
            assert!(parts.len() == 1 || last.rows.len() >= PART_ROWS_MAX / 4, "{spans:?}: {parts:?}");
        }
    }

    #[test]
    fn tiles_are_smaller_where_many_threads_share_them() {
        let sizes = |threads: usize| {
            let count = batch(&[256], threads).tiles.into_iter().map(|tile| tile.count).max();
            count.expect("there are tiles")
        };
        assert_eq!([1, 2, 3, 4, 6, 7, 64].map(sizes), [256, 256, 256, 128, 128, 64, 64]);
    }
}
