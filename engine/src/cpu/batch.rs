//! A plan laid out in rows: what the kernels of a step go by. Planned for the limits, refilled for every step.

use super::division::Division;
use super::kernels::QUERY_TILE;
use super::tiling::{QueryTile, Tiling};
use crate::device::DeviceLimits;
use domain::plan::{Input, Span, StepPlan};
use domain::{KvGroup, KvLayout, Token};
use std::ops::Range;

/// Rows of a micro-batch, at most. With fewer of them activations take less room and stay in caches, but weights are
/// read more often: on the `125m` shape prompts are as fast with 256 as without micro-batches, and 5% slower with 128.
/// Some more than that, so that a chunk of 256 or 512 and the sequences that decode beside it are no micro-batch more.
pub(super) const MICRO_BATCH_ROWS_MAX: usize = 288;
/// Rows of a micro-batch are a multiple of this, but for the last one: linear layers multiply so many at a time.
const MICRO_BATCH_ROWS_STEP: usize = 32;

/// An input row.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputRow {
    /// Its absolute position.
    pub(super) position: u32,
    /// Its span.
    pub(super) span: usize,
    /// Positions after it, in its block, that have no token yet and are this step's to zero.
    pub(super) zeroed: u32,
}

/// A row whose logits are wanted, for samples or scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogitsRow {
    /// Its span.
    pub(super) span: usize,
    /// Its input row.
    pub(super) row: usize,
    /// Its samples among those of the span.
    pub(super) samples: Range<usize>,
    /// Its scores among those of the span.
    pub(super) scores: Range<usize>,
    /// Number of the span's first sample among those of the step.
    pub(super) first_sample: usize,
    /// Number of the span's first score among those of the step.
    pub(super) first_score: usize,
}

/// A span whose hidden states are wanted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HiddenSpan {
    /// The span.
    pub(super) span: usize,
    /// The input rows that are added up.
    pub(super) rows: Range<usize>,
}

/// Some of the input rows, with the tiles of their queries and those of them whose logits are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MicroBatch {
    pub(super) rows: Range<usize>,
    pub(super) tiles: Range<usize>,
    pub(super) logits: Range<usize>,
}

/// The rows of a step.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: Vec<InputRow>,
    /// Of each row.
    pub(super) tokens: Vec<Token>,
    pub(super) tiles: Vec<QueryTile>,
    pub(super) logits: Vec<LogitsRow>,
    pub(super) hidden: Vec<HiddenSpan>,
    /// What a step is computed in: all rows, cut into micro-batches of about equal size.
    pub(super) micro_batches: Vec<MicroBatch>,
    /// Of each KV group: how attention is divided.
    pub(super) divisions: Vec<Division>,
    pub(super) tiling: Tiling,
    block_tokens: u32,
}

impl Batch {
    /// Room for the limits.
    pub(super) fn new(limits: &DeviceLimits, tiling: Tiling, layout: &KvLayout) -> Self {
        // n rows of a span and a micro-batch have n * group / QUERY_TILE tiles, rounded up: at most n times those of a
        // single row.
        let tiles_max = limits.rows_max * tiling.group.div_ceil(QUERY_TILE);
        let micro_batches_max = limits.rows_max.div_ceil(MICRO_BATCH_ROWS_MAX);
        let division = |group: &KvGroup| Division::new(tiling, group.window, tiles_max, micro_batches_max);
        Self {
            rows: Vec::with_capacity(limits.rows_max),
            tokens: Vec::with_capacity(limits.rows_max),
            tiles: Vec::with_capacity(tiles_max),
            logits: Vec::with_capacity(limits.outputs_max),
            hidden: Vec::with_capacity(limits.outputs_max),
            micro_batches: Vec::with_capacity(micro_batches_max),
            divisions: layout.groups.iter().map(division).collect(),
            tiling,
            block_tokens: layout.block_tokens,
        }
    }

    /// Lays out `plan`, a valid one. `previous`: what the step before sampled. For a token that it did not, any
    /// will do: the span fails.
    pub(super) fn fill(&mut self, plan: &StepPlan, previous: &[Option<Token>]) {
        self.rows.clear();
        self.tokens.clear();
        self.tiles.clear();
        self.logits.clear();
        self.hidden.clear();
        self.micro_batches.clear();
        self.divisions.iter_mut().for_each(Division::clear);
        let micro_batch_rows = micro_batch_rows(plan.spans.iter().map(|span| span.inputs.len()).sum());
        let (group, tile) = (self.tiling.group, self.tiling.tile(micro_batch_rows));
        let (mut samples, mut scores) = (0, 0);
        for (index, span) in plan.spans.iter().enumerate() {
            let row = self.rows.len();
            for (&input, position) in span.inputs.iter().zip(span.start..) {
                let token = match input {
                    Input::Token(token) => token,
                    Input::Sampled(sample) => sampled(previous, sample).unwrap_or(0),
                };
                self.rows.push(InputRow { position, span: index, zeroed: 0 });
                self.tokens.push(token);
            }
            let last = self.rows.len() - 1;
            // Who writes a block's first position makes the rest of it zero; later chunks only add to it.
            let (position, used) = (self.rows[last].position, self.rows[last].position % self.block_tokens);
            if position - used >= span.start {
                self.rows[last].zeroed = self.block_tokens - 1 - used;
            }
            let mut from = row;
            while from <= last {
                let to = (last + 1).min((from / micro_batch_rows + 1) * micro_batch_rows);
                let queries = (from - row) * group..(to - row) * group;
                for first in queries.clone().step_by(tile) {
                    let count = tile.min(queries.end - first);
                    let start = span.start as usize;
                    let positions = start + first / group..start + (first + count - 1) / group + 1;
                    self.tiles.push(QueryTile { span: index, row, first, count, positions });
                }
                from = to;
            }
            self.take_logits(index, span, row, samples, scores);
            samples += span.samples.len();
            scores += span.scores.len();
            if let Some(wanted) = span.hidden {
                let wanted = wanted.of(span.inputs.len());
                self.hidden.push(HiddenSpan { span: index, rows: row + wanted.start..row + wanted.end });
            }
        }
        self.cut(micro_batch_rows);
    }

    /// Adds the rows of a span whose logits are wanted. `first_row`: its first input row; `first_sample`,
    /// `first_score`: the numbers of its first sample and score among those of the step.
    fn take_logits(&mut self, index: usize, span: &Span, first_row: usize, first_sample: usize, first_score: usize) {
        let (mut samples, mut scores) = (0..0, 0..0);
        loop {
            let next = [span.samples.get(samples.end).map(|it| it.row), span.scores.get(scores.end).map(|it| it.row)];
            let Some(row) = next.into_iter().flatten().min() else { return };
            let of_row = span.samples[samples.end..].iter().take_while(|sample| sample.row == row).count();
            samples = samples.end..samples.end + of_row;
            let of_row = span.scores[scores.end..].iter().take_while(|score| score.row == row).count();
            scores = scores.end..scores.end + of_row;
            let (row, samples, scores) = (first_row + row as usize, samples.clone(), scores.clone());
            self.logits.push(LogitsRow { span: index, row, samples, scores, first_sample, first_score });
        }
    }

    /// Cuts the rows into micro-batches, and divides the attention of each.
    fn cut(&mut self, micro_batch_rows: usize) {
        let group = self.tiling.group;
        let mut before = MicroBatch::default();
        while before.rows.end < self.rows.len() {
            let end = self.rows.len().min(before.rows.end + micro_batch_rows);
            let tiles = self.tiles.partition_point(|tile| tile.row + tile.first / group < end);
            let logits = self.logits.partition_point(|wanted| wanted.row < end);
            let (rows, tiles) = (before.rows.end..end, before.tiles.end..tiles);
            self.divisions.iter_mut().for_each(|it| it.divide(tiles.start, &self.tiles[tiles.clone()]));
            before = MicroBatch { rows, tiles, logits: before.logits.end..logits };
            self.micro_batches.push(before.clone());
        }
    }
}

/// The token that the step before sampled as its `n`-th, if its span did not fail.
pub(super) fn sampled(previous: &[Option<Token>], n: u32) -> Option<Token> {
    previous.get(n as usize).copied().flatten()
}

/// Rows of a micro-batch where there are so many in all.
fn micro_batch_rows(rows: usize) -> usize {
    rows.div_ceil(rows.div_ceil(MICRO_BATCH_ROWS_MAX).max(1))
        .next_multiple_of(MICRO_BATCH_ROWS_STEP)
        .max(MICRO_BATCH_ROWS_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::plan::Sample;
    use domain::{Dtype, Encoding, SamplingParams, StepId};
    use domain::{KvKind, ModelLayout, SeqKey, SlotId};
    use std::sync::Arc;

    /// Query heads per KV head.
    const GROUP: usize = 3;

    /// Returns the batch of spans of so many rows, each of which samples, for so many threads.
    fn batch(spans: &[usize], threads: usize) -> Batch {
        let sample = |key, row| Sample {
            key,
            row,
            params: Arc::new(SamplingParams::default()),
            seed: 0,
            index: 0,
            masked: false,
        };
        let span = |&rows: &usize| Span {
            key: SeqKey::default(),
            slot: SlotId(0),
            start: 0,
            inputs: vec![Input::Token(1); rows],
            samples: vec![sample(SeqKey::default(), rows as u32 - 1)],
            scores: Vec::new(),
            adapter: None,
            hidden: None,
        };
        let rows_max = spans.iter().sum();
        let (outputs_max, slots_max) = (spans.len(), spans.len());
        let limits = DeviceLimits { rows_max, outputs_max, context_max: rows_max, blocks: Vec::new(), slots_max };
        let tiling = Tiling { group: GROUP, kv_heads: 4, queries_max: 256, threads, kept_numbers: 16 };
        let group = KvGroup { layers: vec![0], kind: KvKind::of_heads(4, 16), window: None };
        let layout = KvLayout::whole(ModelLayout {
            block_tokens: 16,
            dtype: Dtype::F32,
            encoding: Encoding::Exact,
            groups: vec![group],
        });
        let mut batch = Batch::new(&limits, tiling, &layout);
        let room = (batch.tiles.capacity(), batch.micro_batches.capacity());
        let spans = spans.iter().map(span).collect();
        batch.fill(&StepPlan { step: StepId(1), spans, ..StepPlan::default() }, &[]);
        assert_eq!(room, (batch.tiles.capacity(), batch.micro_batches.capacity()), "a step allocates nothing");
        batch
    }

    #[test]
    fn micro_batches_have_all_rows_queries_and_samples_once() {
        let spans = [&[1][..], &[256], &[257], &[1, 255, 1, 1], &[40; 7], &[1000, 1, 23], &[1; 300]];
        for (spans, threads) in spans.into_iter().flat_map(|spans| [1, 2, 4, 64].map(|threads| (spans, threads))) {
            let Batch { rows, tiles, logits, micro_batches, .. } = batch(spans, threads);
            let mut queries = vec![0; rows.len() * GROUP];
            let mut last = MicroBatch::default();
            for micro_batch in &micro_batches {
                assert!(
                    micro_batch.rows.len() <= MICRO_BATCH_ROWS_MAX && micro_batch.rows.start == last.rows.end,
                    "{spans:?}: {micro_batch:?}"
                );
                assert_eq!(
                    (micro_batch.tiles.start, micro_batch.logits.start),
                    (last.tiles.end, last.logits.end),
                    "{spans:?}"
                );
                for tile in &tiles[micro_batch.tiles.clone()] {
                    let first = tile.row * GROUP + tile.first;
                    assert!(tile.count <= 256);
                    let (head, tail) = (first / GROUP, (first + tile.count - 1) / GROUP);
                    assert!(
                        micro_batch.rows.contains(&head) && micro_batch.rows.contains(&tail),
                        "{spans:?}: {tile:?} of {micro_batch:?}"
                    );
                    queries[first..first + tile.count].iter_mut().for_each(|times| *times += 1);
                }
                let wanted = &logits[micro_batch.logits.clone()];
                assert!(wanted.iter().all(|wanted| micro_batch.rows.contains(&wanted.row)));
                last = micro_batch.clone();
            }
            assert_eq!((last.rows.end, last.tiles.end, last.logits.end), (rows.len(), tiles.len(), spans.len()));
            assert!(queries.iter().all(|&times| times == 1), "{spans:?}: {queries:?}");
            // No micro-batch is left with a few rows, for which all weights would be read.
            assert!(
                micro_batches.len() == 1 || last.rows.len() >= MICRO_BATCH_ROWS_MAX / 4,
                "{spans:?}: {micro_batches:?}"
            );
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
