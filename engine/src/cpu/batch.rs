//! A plan laid out in rows: what the kernels of a step go by. Planned for the limits, refilled for every step.

use super::kernels::QUERY_TILE;
use crate::device::DeviceLimits;
use domain::Token;
use domain::plan::{Input, StepPlan};

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

/// Queries of a span that one task attends with, for each KV head.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryTile {
    /// The span.
    pub(super) span: usize,
    /// Its first input row.
    pub(super) row: usize,
    /// The first query; see `kernels::Attention`.
    pub(super) first: usize,
    /// Queries.
    pub(super) count: usize,
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

/// The rows of a step.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    pub(super) tiles: Vec<QueryTile>,
    pub(super) sampling: Vec<Sampling>,
    /// Query heads per KV head.
    group: usize,
    block_tokens: u32,
}

impl Batch {
    /// Room for the limits.
    pub(super) fn new(limits: &DeviceLimits, group: usize, block_tokens: u32) -> Self {
        Self {
            rows: Vec::with_capacity(limits.rows_max),
            // A span of n rows has n * group / QUERY_TILE tiles, rounded up: at most n times those of a single row.
            tiles: Vec::with_capacity(limits.rows_max * group.div_ceil(QUERY_TILE)),
            sampling: Vec::with_capacity(limits.samples_max),
            group,
            block_tokens,
        }
    }

    /// Lays out `plan`, a valid one. `previous`: what the step before sampled.
    pub(super) fn fill(&mut self, plan: &StepPlan, previous: &[Token]) {
        self.rows.clear();
        self.tiles.clear();
        self.sampling.clear();
        let mut samples = 0;
        for (index, span) in plan.spans.iter().enumerate() {
            let row = self.rows.len();
            for (&input, position) in span.inputs.iter().zip(span.start..) {
                let token = match input {
                    Input::Token(token) => token,
                    Input::Sampled(sample) => previous[sample as usize],
                };
                self.rows.push(Row { token, position, span: index, zeroed: 0 });
            }
            let last = self.rows.len() - 1;
            // Who writes a block's first position makes the rest of it zero; later chunks only add to it.
            let (position, used) = (self.rows[last].position, self.rows[last].position % self.block_tokens);
            if position - used >= span.start {
                self.rows[last].zeroed = self.block_tokens - 1 - used;
            }
            let queries = span.inputs.len() * self.group;
            for first in (0..queries).step_by(QUERY_TILE) {
                self.tiles.push(QueryTile { span: index, row, first, count: QUERY_TILE.min(queries - first) });
            }
            if !span.samples.is_empty() {
                self.sampling.push(Sampling { span: index, row: last, first_sample: samples });
                samples += span.samples.len();
            }
        }
    }
}
