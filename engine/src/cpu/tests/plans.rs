//! Plans and configurations that are refused.

use super::rig::{BLOCKS, Rig, config, model, sample, tokens};
use crate::cpu::{CpuConfig, CpuDevice, CpuError, Isa};
use crate::device::{Device, SubmitError};
use domain::plan::{BlockCopy, HiddenRows, Input, Score, StepPlan};
use domain::{BlockId, Dtype, GroupId, KvKind, KvLayout, ModelLayout, Shard, StepId};
use std::sync::Arc;

/// A sound plan with one change is refused, with these words and for this span.
#[track_caller]
fn check(span: Option<usize>, words: &str, change: impl FnOnce(&mut StepPlan)) {
    let mut rig = Rig::new(model("mistral", "tiny-window", Dtype::F32), 16, 1, Isa::best());
    rig.run(vec![rig.span(0, 0, &tokens(0, 40))]).0.sampled.expect("the step succeeds");
    let mut plan = rig.plan(vec![rig.span(0, 40, &[1, 2, 3]), rig.span(1, 0, &tokens(1, 20))]);
    let copy = BlockCopy { group: GroupId(0), from: BlockId(100), to: BlockId(101) };
    plan.copies.push(copy);
    let sound = plan.clone();
    change(&mut plan);
    match rig.device.submit(Arc::new(plan.clone())) {
        Err(SubmitError::Invalid { step, span: at_fault, reason }) => {
            assert_eq!((step, at_fault), (plan.step, span), "{reason}");
            assert!(reason.to_string().contains(words), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // It counts for nothing.
    rig.submit(sound);
    assert!(rig.output().sampled.is_ok());
}

#[test]
fn unsound_plans_are_refused() {
    check(None, "submitted before", |plan| plan.step = StepId(1));
    check(None, "nothing to do", |plan| *plan = StepPlan { step: plan.step, ..StepPlan::default() });
    check(None, "321 rows, the limit is 320", |plan| plan.spans[1].inputs = vec![Input::Token(0); 318]);
    check(None, "9 outputs, the limit is 8", |plan| plan.spans[1].samples = vec![sample(1, 0.0, 0); 8]);
    check(Some(0), "without inputs", |plan| plan.spans[0].inputs.clear());
    check(Some(0), "positions, the limit is 2048", |plan| plan.spans[0].start = 2046);
    check(Some(0), "token 512 of a vocabulary of 512", |plan| plan.spans[0].inputs[1] = Input::Token(512));
    check(Some(0), "sample 1 of a step that has 1", |plan| plan.spans[0].inputs[0] = Input::Sampled(1));
    check(Some(0), "row 3 of a span of 3", |plan| plan.spans[0].samples[0].row = 3);
    check(Some(0), "row 0 of a span of 3, in which rows rise", |plan| {
        let first = sample(0, 0.0, 0);
        plan.spans[0].samples.push(first);
    });
    check(Some(0), "row 3 of a span of 3", |plan| plan.spans[0].scores = vec![Score { row: 3, token: 1, top: 0 }]);
    check(Some(0), "token 512 of", |plan| plan.spans[0].scores = vec![Score { row: 0, token: 512, top: 0 }]);
    check(None, "9 outputs, the limit is 8", |plan| {
        plan.spans[0].scores = vec![Score { row: 0, token: 1, top: 0 }; 6];
        plan.spans[1].hidden = Some(HiddenRows::All);
    });
    check(Some(0), "0 block tables", |plan| plan.spans[0].tables.clear());
    check(Some(0), "needs positions", |plan| plan.spans[0].tables[0].blocks.truncate(1));
    check(Some(0), "needs positions", |plan| plan.spans[0].tables[0].first += 1);
    check(Some(1), "b160 of group 0, which has 160 blocks", |plan| plan.spans[1].tables[0].blocks[0] = BlockId(BLOCKS));
    check(None, "b160 of group 0", |plan| plan.copies[0].to = BlockId(BLOCKS));
    check(None, "onto itself", |plan| plan.copies[0].to = plan.copies[0].from);
    check(None, "a copy in g9", |plan| plan.copies[0].group = GroupId(9));
}

/// The block of sequence `n` that holds its block `index`.
fn block(plan: &StepPlan, n: usize, index: usize) -> BlockId {
    plan.spans[n].tables[0].blocks[index]
}

#[test]
fn spans_that_write_the_same_block_are_refused() {
    // Span 0 writes position 40 on, which is its third block; span 1 writes all of its two blocks.
    let index = |plan: &StepPlan| 2 - plan.spans[0].tables[0].first as usize;
    check(Some(1), "is written twice", |plan| plan.spans[1].tables[0].blocks[1] = block(plan, 0, index(plan)));
    check(Some(1), "is written twice", |plan| plan.spans[1].tables[0].blocks[1] = block(plan, 1, 0));
    check(Some(1), "a second span of the same sequence", |plan| plan.spans[1].key = plan.spans[0].key);
}

#[test]
fn a_span_that_writes_what_another_reads_is_refused() {
    // Whichever of them comes first: the writer is at fault.
    check(Some(1), "is written, and", |plan| {
        let at = 1 - plan.spans[0].tables[0].first as usize;
        plan.spans[1].tables[0].blocks[0] = block(plan, 0, at);
    });
    check(Some(0), "is written, and", |plan| {
        plan.spans.swap(0, 1);
        let at = 1 - plan.spans[1].tables[0].first as usize;
        plan.spans[0].tables[0].blocks[0] = block(plan, 1, at);
    });
    // Its own, too: what it reads is not to change while it runs.
    check(Some(0), "is written, and", |plan| {
        let at = 2 - plan.spans[0].tables[0].first as usize;
        plan.spans[0].tables[0].blocks[at] = block(plan, 0, at - 1);
    });
}

#[test]
fn spans_may_read_the_same_blocks() {
    let mut rig = Rig::new(model("llama", "tiny", Dtype::F32), 16, 1, Isa::best());
    rig.run(vec![rig.span(0, 0, &tokens(0, 32))]).0.sampled.expect("the step succeeds");
    let (one, mut other) = (rig.span(0, 32, &[1]), rig.span(1, 32, &[2]));
    other.tables[0].blocks[..2].copy_from_slice(&one.tables[0].blocks[..2]);
    assert!(rig.run(vec![one, other]).0.sampled.is_ok());
}

/// Changes the layout of the whole model.
fn change_layout(config: &mut CpuConfig, change: impl FnOnce(&mut ModelLayout)) {
    let mut model = config.layout.model().clone();
    change(&mut model);
    config.layout = KvLayout::whole(model);
}

#[test]
fn configurations_that_contradict_the_model_are_refused() {
    let model = model("llama", "tiny", Dtype::F32);
    let check = |words: &str, change: &dyn Fn(&mut CpuConfig)| {
        let mut config = config(&model, 16, 1, Isa::best());
        change(&mut config);
        match CpuDevice::new(model.clone(), config).err() {
            Some(CpuError::Config(reason)) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    };
    check("another model's", &|config| change_layout(config, |model| model.groups[0].kind = KvKind::of_heads(1, 8)));
    check("no tokens", &|config| change_layout(config, |model| model.block_tokens = 0));
    let wide = KvKind::Heads { heads: 2, k_dim: 24, v_dim: 16 };
    let kinds = [(wide, "keys of 24 numbers and values of 16"), (KvKind::Latent { width: 64, rope: 8 }, "latents")];
    for (kind, words) in kinds.into_iter().chain([(KvKind::State { bytes: 64 }, "states")]) {
        check(words, &|config| change_layout(config, |model| model.groups[0].kind = kind));
    }
    check("a part of one", &|config| {
        let model = config.layout.model().clone();
        let shard = Shard { layers: 0..1, ..config.layout.shard().clone() };
        config.layout = KvLayout::of(model, shard).expect("the model has several layers");
    });
    check("pools of", &|config| config.limits.blocks = vec![0]);
    check("pools of", &|config| config.limits.blocks = vec![1, 1]);
    check("zero", &|config| config.limits.outputs_max = 0);
    check("a context of 4096", &|config| config.limits.context_max = 4096);
    check("threads", &|config| config.threads = 0);
}

#[test]
fn a_device_describes_itself() {
    let model = model("llama", "tiny", Dtype::Bf16);
    let device = CpuDevice::new(model.clone(), config(&model, 16, 2, Isa::best())).expect("it starts");
    let description = device.describe();
    assert!(description.contains(&Isa::best().to_string()) && description.contains("2 thread(s)"), "{description}");
    assert_eq!(description.contains("batch-invariant"), device.batch_invariant(), "{description}");
}
