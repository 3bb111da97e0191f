//! What a plan must fulfil before a device takes it. The unsafe code of a step stands on this.

use crate::device::{BlockError, DeviceLimits, PlanError, SpanError, SubmitError, at_most};
use crate::slots::{Slot, SlotTables};
use domain::plan::{BlockCopy, BlockTable, Input, Sample, Span, StepPlan};
use domain::{Adapter, BlockId, KvLayout, SeqKey, StepId};

/// What plans are checked against. What a check costs depends on what a plan has, and not on how long its contexts are.
#[derive(Debug)]
pub struct Checker {
    pub(crate) layout: KvLayout,
    pub(crate) limits: DeviceLimits,
    pub(crate) vocab: usize,
    /// What the device computes with, beside the model alone.
    pub(crate) adapters: Vec<Adapter>,
    /// The last plan that was taken.
    last: StepId,
    /// Samples of that plan.
    last_samples: usize,
    /// What the slots have when the device has come to the end of that plan.
    slots: SlotTables,
    /// In how many places of these tables each block of each KV group is.
    holders: Vec<Vec<u32>>,
    /// The sequences of the plan under check, each with the number of its span.
    keys: Vec<(SeqKey, usize)>,
}

/// The rule that a plan breaks, and the number of the span that alone is at fault.
struct Refusal {
    span: Option<usize>,
    reason: PlanError,
}

impl Checker {
    /// Makes what plans for a device of these limits are checked against. No plan has been taken yet.
    ///
    /// # Panics
    /// If the limits are of another number of KV groups than the layout.
    pub fn new(layout: KvLayout, limits: DeviceLimits, vocab: usize) -> Self {
        assert_eq!(limits.blocks.len(), layout.groups.len(), "one pool for each KV group");
        let holders = limits.blocks.iter().map(|&blocks| vec![0; blocks as usize]).collect();
        let slots = SlotTables::new(limits.slots_max, limits.blocks.clone(), limits.context_max);
        let keys = Vec::with_capacity(limits.slots_max);
        let adapters = Vec::new();
        Self { layout, limits, vocab, adapters, last: StepId(0), last_samples: 0, slots, holders, keys }
    }

    /// Makes the same for a device that computes with these adapters, too.
    pub fn with_adapters(self, adapters: Vec<Adapter>) -> Self {
        Self { adapters, ..self }
    }

    /// Checks a plan that would be submitted next, and takes it over if it is sound. Errors: it is refused, and all
    /// slots are closed.
    pub fn take(&mut self, plan: &StepPlan) -> Result<(), SubmitError> {
        self.plan(plan).map_err(|Refusal { span, reason }| {
            self.close_slots();
            SubmitError::Invalid { step: plan.step, span, reason }
        })?;
        self.last = plan.step;
        self.last_samples = plan.samples();
        Ok(())
    }

    /// Closes all slots, as a device does that refuses a plan.
    pub fn close_slots(&mut self) {
        let holders = &mut self.holders;
        self.slots.close_all(|group, block| holders[group][block.0 as usize] -= 1);
    }

    fn plan(&mut self, plan: &StepPlan) -> Result<(), Refusal> {
        self.whole(plan).map_err(|reason| Refusal { span: None, reason })?;
        let mut spans = plan.spans.iter().enumerate();
        spans.try_for_each(|(number, span)| self.span(span).map_err(|reason| refusal(plan, number, reason)))?;
        self.keys_differ(plan)
    }

    /// Checks what is no single span's, and changes the slots.
    fn whole(&mut self, plan: &StepPlan) -> Result<(), PlanError> {
        if plan.step <= self.last {
            return Err(PlanError::OldStep { last: self.last });
        }
        if plan.spans.is_empty() && plan.copies.is_empty() {
            return Err(PlanError::Empty);
        }
        at_most("rows", plan.rows(), self.limits.rows_max)?;
        at_most("spans", plan.spans.len(), self.limits.slots_max)?;
        at_most("outputs", plan.outputs(), self.limits.outputs_max)?;
        plan.copies.iter().try_for_each(|copy| self.copy(copy))?;
        let Self { slots, holders, .. } = self;
        let mut moves = |group: usize, block: BlockId, comes: bool| {
            let times = &mut holders[group][block.0 as usize];
            *times = if comes { *times + 1 } else { *times - 1 };
        };
        Ok(plan.changes.iter().try_for_each(|change| slots.take_over(change, &mut moves))?)
    }

    fn copy(&self, copy: &BlockCopy) -> Result<(), PlanError> {
        let group = usize::from(copy.group.0);
        if group >= self.layout.groups.len() {
            return Err(PlanError::UnknownGroup { group: copy.group, groups: self.layout.groups.len() });
        }
        if copy.from == copy.to {
            return Err(PlanError::CopyOntoItself { block: copy.from });
        }
        let blocks = self.limits.blocks[group];
        let outside = [copy.from, copy.to].into_iter().find(|block| block.0 >= blocks);
        outside.map_or(Ok(()), |block| Err(BlockError { group, block, blocks }.into()))
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
        let slot = self.slots.get(span.slot).filter(|slot| slot.key == Some(span.key));
        let slot = slot.ok_or(SpanError::ForeignSlot { slot: span.slot })?;
        self.outputs(span, slot)?;
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
        slot.tables.iter().enumerate().try_for_each(|(group, table)| self.blocks(span, group, table))
    }

    /// Checks that all that is wanted is of rows of the span, in their order, and that the tokens are there which it
    /// depends on.
    fn outputs(&self, span: &Span, slot: &Slot) -> Result<(), SpanError> {
        let rows = span.inputs.len();
        let rise = |last: u32, row: u32| {
            if row < last || row as usize >= rows { Err(SpanError::OutputRow { row, rows }) } else { Ok(row) }
        };
        span.samples.iter().map(|sample| sample.row).try_fold(0, rise)?;
        span.scores.iter().map(|score| score.row).try_fold(0, rise)?;
        if let Some(score) = span.scores.iter().find(|score| score.token as usize >= self.vocab) {
            return Err(SpanError::UnknownToken { token: score.token, vocab: self.vocab });
        }
        let held = slot.tokens;
        for &Sample { row, .. } in span.samples.iter().filter(|sample| sample.params.needs_history()) {
            let needed = span.start as usize + row as usize + 1;
            if held < span.start as usize || held > needed {
                return Err(SpanError::History { row, needed, held });
            }
        }
        Ok(())
    }

    /// Checks that a table covers all positions that the span reads and writes, and that the blocks that it writes are
    /// in no other one. So no other span of the step writes or reads them.
    fn blocks(&self, span: &Span, group: usize, table: &BlockTable) -> Result<(), SpanError> {
        let (size, start) = (self.layout.block_tokens as usize, span.start as usize);
        let end = start + span.inputs.len();
        let needed = self.layout.window_start(group, span.start) as usize..end;
        let held = table.first as usize * size..table.end() as usize * size;
        if needed.start < held.start || needed.end > held.end {
            return Err(SpanError::Uncovered { group, needed, held });
        }
        let first = table.first as usize;
        for &block in &table.blocks[start / size - first..end.div_ceil(size) - first] {
            let times = self.holders[group][block.0 as usize];
            if times != 1 {
                return Err(SpanError::WritesShared { group, block, times });
            }
        }
        Ok(())
    }

    /// Checks that no sequence has two spans, in one slot or in two.
    fn keys_differ(&mut self, plan: &StepPlan) -> Result<(), Refusal> {
        self.keys.clear();
        self.keys.extend(plan.spans.iter().enumerate().map(|(number, span)| (span.key, number)));
        self.keys.sort_unstable();
        match self.keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(()),
            Some(pair) => Err(refusal(plan, pair[1].1, SpanError::SecondOfSequence)),
        }
    }
}

/// A span alone is at fault.
fn refusal(plan: &StepPlan, span: usize, reason: SpanError) -> Refusal {
    Refusal { span: Some(span), reason: PlanError::Span { key: plan.spans[span].key, reason } }
}
