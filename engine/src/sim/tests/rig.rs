//! Plans for one sequence, in blocks that are not in order.

use crate::sim::Vocabulary;
use domain::plan::{BlockTable, Input, Sample, Span, StepPlan};
use domain::{
    BlockId, Choice, Dtype, Encoding, Epoch, KvGroup, KvKind, KvLayout, ModelLayout, RequestId, SamplingParams, SeqKey,
    SlotId, StepId, Token,
};
use std::sync::Arc;

/// Blocks of each pool.
pub(super) const BLOCKS: u32 = 64;
pub(super) const SEED: u64 = 17;

pub(super) const SLOT: SlotId = SlotId(0);
pub(super) const KEY: SeqKey = SeqKey { request: RequestId(1), epoch: Epoch(1), choice: Choice(0) };

/// Three layers; with a window, the middle one has it.
pub(super) fn layout(window: Option<u32>) -> KvLayout {
    let group = |layers: Vec<u16>, window| KvGroup { layers, kind: KvKind::of_heads(1, 2), window };
    let groups = match window {
        None => vec![group(vec![0, 1, 2], None)],
        window => vec![group(vec![0, 2], None), group(vec![1], window)],
    };
    KvLayout::whole(ModelLayout { block_tokens: 4, dtype: Dtype::F32, encoding: Encoding::Exact, groups })
}

/// Five layers of three groups: heads whose values are wider than their keys, latents, and states.
pub(super) fn layout_of_all_kinds() -> KvLayout {
    let group = |layers: Vec<u16>, kind| KvGroup { layers, kind, window: None };
    let groups = vec![
        group(vec![0, 3], KvKind::Heads { heads: 1, k_dim: 2, v_dim: 4 }),
        group(vec![1], KvKind::Latent { width: 6, rope: 2 }),
        group(vec![2, 4], KvKind::State { bytes: 40 }),
    ];
    KvLayout::whole(ModelLayout { block_tokens: 4, dtype: Dtype::F32, encoding: Encoding::Exact, groups })
}

/// So many that two tokens are never the same by chance.
pub(super) const TOKENS: u32 = 1 << 31;

pub(super) fn vocabulary() -> Vocabulary {
    Vocabulary::new(TOKENS, [3]).expect("tokens are left")
}

pub(super) fn prompt(len: u32, salt: u32) -> Vec<Token> {
    (0..len).map(|i| (i * 31 + salt * 7 + 1) % 997).collect()
}

/// The block that holds block `index` of the sequence.
pub(super) fn block(index: u32) -> BlockId {
    BlockId((index * 29 + 11) % BLOCKS)
}

/// Computes `inputs` at `start`; with `index`, samples the token of this index.
pub(super) fn span(start: u32, inputs: Vec<Input>, index: Option<u32>) -> Span {
    let samples = index.map(|index| Sample {
        key: KEY,
        row: inputs.len() as u32 - 1,
        params: Arc::new(SamplingParams::default()),
        seed: SEED,
        index,
        masked: false,
    });
    let samples = samples.into_iter().collect();
    Span { key: KEY, slot: SLOT, start, inputs, samples, scores: Vec::new(), hidden: None, adapter: None }
}

/// Returns a plan that tells the blocks which its spans need: other ones for another slot.
pub(super) fn plan(layout: &KvLayout, step: u64, spans: Vec<Span>) -> StepPlan {
    let size = layout.block_tokens;
    let tables = |span: &Span| {
        let end = span.start + span.inputs.len() as u32;
        let table = |group| {
            let first = layout.window_start(group, span.start) / size;
            BlockTable {
                first,
                blocks: (first..end.div_ceil(size)).map(|index| block(index + 20 * span.slot.0)).collect(),
            }
        };
        (0..layout.groups.len()).map(table).collect()
    };
    let spans = spans.into_iter().map(|span| (span.clone(), tables(&span)));
    StepPlan::opening(StepId(step), Vec::new(), spans)
}

pub(super) fn known(tokens: &[Token]) -> Vec<Input> {
    tokens.iter().copied().map(Input::Token).collect()
}
