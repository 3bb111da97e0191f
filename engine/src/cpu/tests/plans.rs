//! Plans and configurations that are refused.

use super::rig::{BLOCKS, Rig, config, key, model, sample, tokens};
use crate::cpu::{CpuConfig, CpuDevice, CpuError, Isa};
use crate::device::{Device, SubmitError};
use domain::plan::{BlockCopy, HiddenRows, Input, Score, SlotChange, StepPlan, TableChange};
use domain::{BlockId, Dtype, GroupId, KvKind, KvLayout, ModelLayout, SamplingParams, Shard, SlotId, StepId, Tokens};
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
    check(Some(0), "needs positions", |plan| table(plan, 0).blocks.truncate(1));
    check(Some(0), "needs positions", |plan| {
        let table = table(plan, 0);
        (table.first, table.from) = (table.first + 1, table.from + 1);
    });
    check(None, "b160 of group 0", |plan| plan.copies[0].to = BlockId(BLOCKS));
    check(None, "onto itself", |plan| plan.copies[0].to = plan.copies[0].from);
    check(None, "a copy in g9", |plan| plan.copies[0].group = GroupId(9));
}

/// What a plan tells of the blocks of sequence `n`.
fn table(plan: &mut StepPlan, n: u32) -> &mut TableChange {
    let tables = plan.changes.iter_mut().filter_map(|change| match change {
        SlotChange::Table { slot: SlotId(slot), group: GroupId(0), change } if *slot == n => Some(change),
        _ => None,
    });
    tables.last().expect("all blocks are told")
}

#[test]
fn changes_of_slots_that_cannot_be_are_refused() {
    let add = |plan: &mut StepPlan, change| plan.changes.push(change);
    check(None, "slot 8 of 8", |plan| add(plan, SlotChange::Close { slot: SlotId(8) }));
    check(None, "a change of slot 1, which is closed", |plan| drop(plan.changes.remove(2)));
    check(None, "blocks in g7, of 1 groups", |plan| {
        let change = TableChange { first: 0, from: 0, blocks: Vec::new() };
        add(plan, SlotChange::Table { slot: SlotId(0), group: GroupId(7), change });
    });
    check(None, "b160 of group 0, which has 160 blocks", |plan| table(plan, 1).blocks[0] = BlockId(BLOCKS));
    check(None, "slot 1 keeps blocks 0..3 of g0, and has 0..2", |plan| {
        let change = TableChange { first: 0, from: 3, blocks: Vec::new() };
        add(plan, SlotChange::Table { slot: SlotId(1), group: GroupId(0), change });
    });
    check(None, "161 blocks of a table, the limit is 160", |plan| {
        let change = TableChange { first: 0, from: 0, blocks: vec![BlockId(0); BLOCKS as usize + 1] };
        add(plan, SlotChange::Table { slot: SlotId(1), group: GroupId(0), change });
    });
    check(None, "blocks of a table", |plan| {
        let change = TableChange { first: u32::MAX, from: u32::MAX, blocks: vec![BlockId(0)] };
        add(plan, SlotChange::Table { slot: SlotId(1), group: GroupId(0), change });
    });
    check(None, "2049 tokens of a slot, the limit is 2048", |plan| {
        let tokens = Tokens::new(vec![1; 2000].into(), &[]);
        add(plan, SlotChange::History { slot: SlotId(0), tokens });
        add(plan, SlotChange::Tokens { slot: SlotId(0), tokens: vec![1; 49] });
    });
    check(Some(0), "slot 0 is not its own", |plan| add(plan, SlotChange::Close { slot: SlotId(0) }));
    check(Some(1), "slot 1 is not its own", |plan| plan.spans[1].key = key(3));
    check(Some(1), "slot 8 is not its own", |plan| plan.spans[1].slot = SlotId(8));
}

#[test]
fn a_refused_plan_closes_all_slots() {
    let mut rig = Rig::new(model("llama", "tiny", Dtype::F32), 16, 1, Isa::best());
    rig.run(vec![rig.span(0, 0, &tokens(0, 20))]).0.sampled.expect("the step succeeds");
    let next = rig.span(0, 20, &[1]);
    let mut refused = rig.plan(vec![next.clone()]);
    refused.spans[0].inputs.clear();
    assert!(rig.device.submit(Arc::new(refused)).is_err());
    let told = rig.plan(vec![next]);
    let untold = StepPlan { changes: Vec::new(), ..told.clone() };
    let refused = rig.device.submit(Arc::new(untold)).expect_err("its slot is closed").to_string();
    assert!(refused.contains("slot 0 is not its own"), "{refused}");
    rig.submit(told);
    assert!(rig.output().sampled.is_ok());
}

#[test]
fn a_token_is_sampled_by_all_before_it() {
    let penalized = |plan: &mut StepPlan, told: Option<u32>| {
        let params = SamplingParams { frequency_penalty: 1.0, ..SamplingParams::default() };
        plan.spans[0].samples[0].params = Arc::new(params);
        let tokens = told.map(|told| Tokens::new(vec![1; told as usize].into(), &[]));
        plan.changes.extend(tokens.map(|tokens| SlotChange::History { slot: SlotId(0), tokens }));
    };
    // Its inputs are at the positions 40 to 42.
    check(Some(0), "the token behind row 2, at position 43, is sampled by 0 tokens", |plan| penalized(plan, None));
    check(Some(0), "sampled by 39 tokens", |plan| penalized(plan, Some(39)));
    check(Some(0), "sampled by 44 tokens", |plan| penalized(plan, Some(44)));
    for told in [40, 42, 43] {
        let mut rig = Rig::new(model("llama", "tiny", Dtype::F32), 16, 1, Isa::best());
        rig.run(vec![rig.span(0, 0, &tokens(0, 40))]).0.sampled.expect("the step succeeds");
        let mut plan = rig.plan(vec![rig.span(0, 40, &[1, 2, 3])]);
        penalized(&mut plan, Some(told));
        rig.submit(plan);
        assert!(rig.output().sampled.is_ok(), "{told} tokens");
    }
}

#[test]
fn spans_that_write_the_same_block_are_refused() {
    // Span 0 writes position 40 on, which is its third block; span 1 writes all of its two blocks.
    check(Some(0), "is written, and is in tables 2 times", |plan| {
        let first = table(plan, 0).first;
        table(plan, 1).blocks[1] = table(plan, 0).blocks[2 - first as usize];
    });
    check(Some(1), "is written, and is in tables 2 times", |plan| {
        table(plan, 1).blocks[1] = table(plan, 1).blocks[0];
    });
    check(Some(1), "a second span of the same sequence", |plan| plan.spans[1] = plan.spans[0].clone());
}

#[test]
fn a_span_that_writes_what_another_reads_is_refused() {
    // Whichever of them comes first: the writer is at fault.
    for swapped in [false, true] {
        check(Some(usize::from(!swapped)), "is written, and is in tables 2 times", |plan| {
            let first = table(plan, 0).first;
            table(plan, 1).blocks[0] = table(plan, 0).blocks[1 - first as usize];
            if swapped {
                plan.spans.swap(0, 1);
            }
        });
    }
    // Its own, too: what it reads is not to change while it runs.
    check(Some(0), "is written, and is in tables 2 times", |plan| {
        let at = 2 - table(plan, 0).first as usize;
        table(plan, 0).blocks[at] = table(plan, 0).blocks[at - 1];
    });
}

#[test]
fn spans_may_read_the_same_blocks() {
    let mut rig = Rig::new(model("llama", "tiny", Dtype::F32), 16, 1, Isa::best());
    rig.run(vec![rig.span(0, 0, &tokens(0, 32))]).0.sampled.expect("the step succeeds");
    let mut plan = rig.plan(vec![rig.span(0, 32, &[1]), rig.span(1, 32, &[2])]);
    let shared = table(&mut plan, 0).blocks[..2].to_vec();
    table(&mut plan, 1).blocks[..2].copy_from_slice(&shared);
    rig.submit(plan);
    assert!(rig.output().sampled.is_ok());
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
