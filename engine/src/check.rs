//! What a plan must fulfil before a device takes it. The unsafe code of a step stands on this.

use crate::device::{DeviceLimits, SubmitError};
use domain::plan::{BlockCopy, Input, Span, StepPlan};
use domain::{BlockId, KvLayout, StepId};

/// What plans are checked against.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) layout: KvLayout,
    pub(crate) limits: DeviceLimits,
    pub(crate) vocab: usize,
    /// The last plan that was taken.
    last: StepId,
    /// Samples of that plan.
    last_samples: usize,
}

impl Checker {
    pub(crate) fn new(layout: KvLayout, limits: DeviceLimits, vocab: usize) -> Self {
        Self { layout, limits, vocab, last: StepId(0), last_samples: 0 }
    }

    /// Checks a plan that would be submitted next.
    pub(crate) fn check(&self, plan: &StepPlan) -> Result<(), SubmitError> {
        self.plan(plan).map_err(|reason| SubmitError::Invalid { step: plan.step, reason })
    }

    /// The plan was taken.
    pub(crate) fn taken(&mut self, plan: &StepPlan) {
        self.last = plan.step;
        self.last_samples = plan.samples();
    }

    fn plan(&self, plan: &StepPlan) -> Result<(), String> {
        if plan.step <= self.last {
            return Err(format!("step {} was submitted before", self.last));
        }
        if plan.spans.is_empty() && plan.copies.is_empty() {
            return Err("there is nothing to do".to_owned());
        }
        at_most("rows", plan.rows(), self.limits.rows_max)?;
        at_most("samples", plan.samples(), self.limits.samples_max)?;
        plan.copies.iter().try_for_each(|copy| self.copy(copy))?;
        plan.spans.iter().try_for_each(|span| self.span(span).map_err(|reason| format!("{}: {reason}", span.key)))
    }

    fn copy(&self, copy: &BlockCopy) -> Result<(), String> {
        let group = usize::from(copy.group.0);
        if group >= self.layout.groups.len() {
            return Err(format!("a copy in {}, of {} groups", copy.group, self.layout.groups.len()));
        }
        if copy.from == copy.to {
            return Err(format!("a copy of {} onto itself", copy.from));
        }
        self.block(group, copy.from)?;
        self.block(group, copy.to)
    }

    fn block(&self, group: usize, block: BlockId) -> Result<(), String> {
        let blocks = self.limits.blocks[group];
        if block.0 < blocks { Ok(()) } else { Err(format!("{block} of group {group}, which has {blocks} blocks")) }
    }

    fn span(&self, span: &Span) -> Result<(), String> {
        if span.inputs.is_empty() {
            return Err("a span without inputs".to_owned());
        }
        let end = span.start as usize + span.inputs.len();
        at_most("positions", end, self.limits.context_max)?;
        for input in &span.inputs {
            match *input {
                Input::Token(token) if token as usize >= self.vocab => {
                    return Err(format!("token {token} of a vocabulary of {}", self.vocab));
                }
                Input::Sampled(sample) if sample as usize >= self.last_samples => {
                    return Err(format!("sample {sample} of a step that has {}", self.last_samples));
                }
                _ => {}
            }
        }
        if span.tables.len() != self.layout.groups.len() {
            return Err(format!("{} block tables for {} groups", span.tables.len(), self.layout.groups.len()));
        }
        let size = self.layout.block_tokens as usize;
        for (group, table) in span.tables.iter().enumerate() {
            table.blocks.iter().try_for_each(|&block| self.block(group, block))?;
            let from = table.first as usize * size;
            let to = from + table.blocks.len() * size;
            let needed = self.layout.window_start(group, span.start) as usize;
            if needed < from || end > to {
                return Err(format!("group {group} needs positions {needed}..{end}, its blocks hold {from}..{to}"));
            }
        }
        Ok(())
    }
}

fn at_most(what: &str, count: usize, limit: usize) -> Result<(), String> {
    if count <= limit { Ok(()) } else { Err(format!("{count} {what}, the limit is {limit}")) }
}
