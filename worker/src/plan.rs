//! From a schedule to the plan of a step. The sequences add the tokens, the KV manager adds the blocks.

use crate::state::WorkerState;
use domain::plan::{BlockCopy, Input, Span, StepPlan};
use domain::{SeqKey, StepId};
use scheduler::Work;
use std::collections::HashMap;

impl WorkerState {
    /// Makes the plan of step `step` for `work`. `previous`: the work of the step in flight before it, which samples
    /// the tokens that the sequences do not have yet.
    pub(crate) fn plan(&mut self, step: StepId, copies: Vec<BlockCopy>, work: &[Work], previous: &[Work]) -> StepPlan {
        let changes = self.slots.changes(step, work, &self.sequences, &mut self.kv);
        let numbers = sample_numbers(previous);
        let span = |work: &Work| {
            let sequence = &self.sequences[&work.key];
            let (known, end) = (sequence.tokens.len(), (work.start + work.count) as usize);
            let tokens = sequence.tokens.at(work.start as usize..end.min(known));
            let pending = (end > known).then(|| numbers[&work.key]);
            let known = sequence.outputs() + u32::from(pending.is_some());
            Span {
                key: work.key,
                slot: self.slots.slot(work.key),
                adapter: sequence.adapter.clone(),
                start: work.start,
                inputs: tokens.iter().map(|&token| Input::Token(token)).chain(pending.map(Input::Sampled)).collect(),
                samples: if work.samples > 0 { sequence.samples(work.key, work.count - 1, known) } else { Vec::new() },
                scores: Vec::new(),
                hidden: None,
            }
        };
        StepPlan { step, changes, copies, spans: work.iter().map(span).collect() }
    }
}

/// Returns the number of each sequence's first sample in a step.
fn sample_numbers(work: &[Work]) -> HashMap<SeqKey, u32> {
    let first = |next: &mut u32, work: &Work| {
        let number = *next;
        *next += u32::from(work.samples);
        Some((work.key, number))
    };
    work.iter().scan(0, first).collect()
}
