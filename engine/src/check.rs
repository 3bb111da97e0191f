//! What a plan must fulfil before a device takes it. The unsafe code of a step stands on this.

use crate::device::{BlockError, DeviceLimits, LimitError, PlanError, SpanError, SubmitError};
use domain::plan::{BlockCopy, Input, Span, StepPlan};
use domain::{Adapter, BlockId, KvLayout, SeqKey, StepId};

/// What plans are checked against. A check allocates nothing, so that it may run in every step.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) layout: KvLayout,
    pub(crate) limits: DeviceLimits,
    pub(crate) vocab: usize,
    /// What the device computes with, beside the model alone.
    pub(crate) adapters: Vec<Adapter>,
    /// The last plan that was taken.
    last: StepId,
    /// Samples of that plan.
    last_samples: usize,
    /// The blocks of each group that the plan under check writes.
    written: Vec<BlockSet>,
    /// The sequences of the plan under check, each with the number of its span.
    keys: Vec<(SeqKey, usize)>,
}

/// A set of the blocks of a pool, one bit each.
#[derive(Debug)]
struct BlockSet(Vec<u64>);

/// The rule that a plan breaks, and the number of the span that alone is at fault.
struct Refusal {
    span: Option<usize>,
    reason: PlanError,
}

impl Checker {
    pub(crate) fn new(layout: KvLayout, limits: DeviceLimits, vocab: usize) -> Self {
        let written = limits.blocks.iter().map(|&blocks| BlockSet::new(blocks)).collect();
        // A span has a row at least.
        let keys = Vec::with_capacity(limits.rows_max);
        Self { layout, limits, vocab, adapters: Vec::new(), last: StepId(0), last_samples: 0, written, keys }
    }

    /// Checks a plan that would be submitted next.
    pub(crate) fn check(&mut self, plan: &StepPlan) -> Result<(), SubmitError> {
        self.plan(plan).map_err(|Refusal { span, reason }| SubmitError::Invalid { step: plan.step, span, reason })
    }

    /// The plan was taken.
    pub(crate) fn taken(&mut self, plan: &StepPlan) {
        self.last = plan.step;
        self.last_samples = plan.samples();
    }

    fn plan(&mut self, plan: &StepPlan) -> Result<(), Refusal> {
        self.whole(plan).map_err(|reason| Refusal { span: None, reason })?;
        let mut spans = plan.spans.iter().enumerate();
        spans.try_for_each(|(number, span)| self.span(span).map_err(|reason| refusal(plan, number, reason)))?;
        self.keys_differ(plan)?;
        self.blocks_are_apart(plan)
    }

    /// Checks what is no single span's.
    fn whole(&self, plan: &StepPlan) -> Result<(), PlanError> {
        if plan.step <= self.last {
            return Err(PlanError::OldStep { last: self.last });
        }
        if plan.spans.is_empty() && plan.copies.is_empty() {
            return Err(PlanError::Empty);
        }
        at_most("rows", plan.rows(), self.limits.rows_max)?;
        at_most("outputs", plan.outputs(), self.limits.outputs_max)?;
        plan.copies.iter().try_for_each(|copy| self.copy(copy))
    }

    fn copy(&self, copy: &BlockCopy) -> Result<(), PlanError> {
        let group = usize::from(copy.group.0);
        if group >= self.layout.groups.len() {
            return Err(PlanError::UnknownGroup { group: copy.group, groups: self.layout.groups.len() });
        }
        if copy.from == copy.to {
            return Err(PlanError::CopyOntoItself { block: copy.from });
        }
        self.block(group, copy.from)?;
        Ok(self.block(group, copy.to)?)
    }

    fn block(&self, group: usize, block: BlockId) -> Result<(), BlockError> {
        let blocks = self.limits.blocks[group];
        if block.0 < blocks { Ok(()) } else { Err(BlockError { group, block, blocks }) }
    }

    fn span(&self, span: &Span) -> Result<(), SpanError> {
        if span.inputs.is_empty() {
            return Err(SpanError::NoInputs);
        }
        if let Some(adapter) = span.adapter.as_ref().filter(|adapter| !self.adapters.contains(adapter)) {
            return Err(SpanError::UnknownAdapter { adapter: adapter.clone() });
        }
        let end = span.start as usize + span.inputs.len();
        at_most("positions", end, self.limits.context_max)?;
        self.outputs(span)?;
        for input in &span.inputs {
            match *input {
                Input::Token(token) if token as usize >= self.vocab => {
                    return Err(SpanError::UnknownToken { token, vocab: self.vocab });
                }
                Input::Sampled(sample) if sample as usize >= self.last_samples => {
                    return Err(SpanError::UnknownSample { sample, samples: self.last_samples });
                }
                _ => {}
            }
        }
        if span.tables.len() != self.layout.groups.len() {
            return Err(SpanError::Tables { tables: span.tables.len(), groups: self.layout.groups.len() });
        }
        let size = self.layout.block_tokens as usize;
        for (group, table) in span.tables.iter().enumerate() {
            table.blocks.iter().try_for_each(|&block| self.block(group, block))?;
            let from = table.first as usize * size;
            let to = from + table.blocks.len() * size;
            let needed = self.layout.window_start(group, span.start) as usize;
            if needed < from || end > to {
                return Err(SpanError::Uncovered { group, needed: needed..end, held: from..to });
            }
        }
        Ok(())
    }

    /// Checks that all that is wanted is of rows of the span, in their order.
    fn outputs(&self, span: &Span) -> Result<(), SpanError> {
        let rows = span.inputs.len();
        let rise = |last: u32, row: u32| {
            if row < last || row as usize >= rows { Err(SpanError::OutputRow { row, rows }) } else { Ok(row) }
        };
        span.samples.iter().map(|sample| sample.row).try_fold(0, rise)?;
        span.scores.iter().map(|score| score.row).try_fold(0, rise)?;
        match span.scores.iter().find(|score| score.token as usize >= self.vocab) {
            Some(score) => Err(SpanError::UnknownToken { token: score.token, vocab: self.vocab }),
            None => Ok(()),
        }
    }

    /// Checks that no sequence has two spans.
    fn keys_differ(&mut self, plan: &StepPlan) -> Result<(), Refusal> {
        self.keys.clear();
        self.keys.extend(plan.spans.iter().enumerate().map(|(number, span)| (span.key, number)));
        self.keys.sort_unstable();
        match self.keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(()),
            Some(pair) => Err(refusal(plan, pair[1].1, SpanError::SecondOfSequence)),
        }
    }

    /// Checks that each block is written by one span at most, and that no span reads a block that another one
    /// writes. The spans are sound each for itself.
    fn blocks_are_apart(&mut self, plan: &StepPlan) -> Result<(), Refusal> {
        self.written.iter_mut().for_each(BlockSet::clear);
        for (number, span) in plan.spans.iter().enumerate() {
            for group in 0..self.layout.groups.len() {
                for &block in written(&self.layout, group, span) {
                    if !self.written[group].insert(block) {
                        return Err(refusal(plan, number, SpanError::WrittenTwice { group, block }));
                    }
                }
            }
        }
        for span in &plan.spans {
            for group in 0..self.layout.groups.len() {
                let read = read(&self.layout, group, span);
                let Some(&block) = read.iter().find(|block| self.written[group].contains(**block)) else { continue };
                // Only the writer harms others: the block may be one that many sequences share.
                let writes = |span: &Span| written(&self.layout, group, span).contains(&block);
                let writer = plan.spans.iter().position(writes).expect("a span that writes the block was found above");
                return Err(refusal(plan, writer, SpanError::WritesWhatIsRead { group, block, reader: span.key }));
            }
        }
        Ok(())
    }
}

impl BlockSet {
    /// Room for a pool of so many blocks; empty.
    fn new(blocks: u32) -> Self {
        Self(vec![0; blocks.div_ceil(u64::BITS) as usize])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Adds a block; whether it is new.
    fn insert(&mut self, block: BlockId) -> bool {
        let (word, bit) = Self::place(block);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    fn contains(&self, block: BlockId) -> bool {
        let (word, bit) = Self::place(block);
        self.0[word] & bit != 0
    }

    fn place(block: BlockId) -> (usize, u64) {
        ((block.0 / u64::BITS) as usize, 1 << (block.0 % u64::BITS))
    }
}

/// A span alone is at fault.
fn refusal(plan: &StepPlan, span: usize, reason: SpanError) -> Refusal {
    Refusal { span: Some(span), reason: PlanError::Span { key: plan.spans[span].key, reason } }
}

/// Returns the blocks of group `group` that a sound span writes: those of its inputs.
fn written<'a>(layout: &KvLayout, group: usize, span: &'a Span) -> &'a [BlockId] {
    let table = &span.tables[group];
    let end = (span.start as usize + span.inputs.len()).div_ceil(layout.block_tokens as usize);
    &table.blocks[(span.start / layout.block_tokens - table.first) as usize..end - table.first as usize]
}

/// The blocks of group `group` that a sound span reads and does not write: those before its inputs, as far as the
/// window reaches.
fn read<'a>(layout: &KvLayout, group: usize, span: &'a Span) -> &'a [BlockId] {
    let table = &span.tables[group];
    let from = layout.window_start(group, span.start) / layout.block_tokens;
    &table.blocks[(from - table.first) as usize..(span.start / layout.block_tokens - table.first) as usize]
}

fn at_most(what: &'static str, count: usize, limit: usize) -> Result<(), LimitError> {
    if count <= limit { Ok(()) } else { Err(LimitError { what, count, limit }) }
}
