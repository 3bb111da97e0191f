//! From a schedule to the plan of a step. The sequences add the tokens, the KV manager adds the block tables.

use crate::sequence::Sequence;
use domain::plan::{BlockCopy, Input, Span, StepPlan};
use domain::{SeqKey, StepId};
use kv_manager::KvManager;
use scheduler::Work;
use std::collections::HashMap;

/// Makes the plan of step `step` for `work`.
pub(crate) fn plan(
    step: StepId,
    copies: Vec<BlockCopy>,
    work: &[Work],
    sequences: &HashMap<SeqKey, Sequence>,
    kv: &KvManager,
) -> StepPlan {
    let span = |work: &Work| {
        let sequence = &sequences[&work.key];
        let range = work.start as usize..(work.start + work.count) as usize;
        Span {
            key: work.key,
            start: work.start,
            inputs: sequence.tokens.at(range).iter().map(|&token| Input::Token(token)).collect(),
            tables: kv.tables(work.key),
            samples: if work.samples > 0 { sequence.samples(work.key) } else { Vec::new() },
        }
    };
    StepPlan { step, copies, spans: work.iter().map(span).collect() }
}
