//! What a step does besides the arithmetic.

use super::rig::{BLOCKS, Logits, Rig, SEQUENCE_BLOCKS, files, key, model, model_without, sample, tokens};
use crate::checkpoint::CheckpointError;
use crate::cpu::{CpuModel, Isa, LogitsTap};
use crate::device::{Device, SubmitError};
use crate::models::bind::LoadError;
use crate::spec::{FeedForward, QkNorm};
use domain::plan::{BlockCopy, Input, Sample};
use domain::{BlockId, Dtype, GroupId, ProgressWord, SeqKey};
use kv_memory::Memory;
use std::sync::Arc;

fn rig() -> Rig {
    Rig::new(model("llama", "tiny", Dtype::F32), 16, 2, Isa::best())
}

/// Returns the first byte of a pool.
fn host(pool: &dyn Memory) -> *mut u8 {
    pool.place().host().expect("it is host memory")
}

/// Returns the numbers of a block's record in an f32 pool.
fn record(rig: &Rig, group: usize, block: u32) -> Vec<f32> {
    let bytes = rig.device.layout().record_bytes(group);
    let pool = rig.device.pool(group);
    assert_eq!(pool.len(), bytes * BLOCKS as usize);
    // SAFETY: the block is in the pool, and no step runs.
    let bytes = unsafe { std::slice::from_raw_parts(host(&*pool).add(block as usize * bytes), bytes) };
    bytes.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
}

/// Fills a block's record.
fn fill(rig: &Rig, group: usize, block: u32, byte: u8) {
    let bytes = rig.device.layout().record_bytes(group);
    // SAFETY: the block is in the pool, and no step runs.
    unsafe { host(&*rig.device.pool(group)).add(block as usize * bytes).write_bytes(byte, bytes) };
}

#[test]
fn positions_without_a_token_are_zero() {
    let mut rig = Rig::new(model("mistral", "tiny-window", Dtype::F32), 16, 2, Isa::best());
    let all = tokens(0, 14);
    for group in 0..rig.device.layout().groups.len() {
        fill(&rig, group, SEQUENCE_BLOCKS - 1, 0xff);
    }
    for (from, to) in [(0, 5), (5, 6), (6, 14)] {
        rig.run(vec![rig.span(0, from, &all[from as usize..to])]).0.sampled.expect("the step succeeds");
        for group in 0..rig.device.layout().groups.len() {
            let layout = rig.device.layout();
            let head_dim = layout.part(group).bytes() / (layout.block_tokens as usize * size_of::<f32>());
            for part in record(&rig, group, SEQUENCE_BLOCKS - 1).chunks(16 * head_dim) {
                assert!(part[..to * head_dim].iter().all(|x| x.is_finite() && *x != 0.0));
                assert!(part[to * head_dim..].iter().all(|x| x.to_bits() == 0));
            }
        }
    }
}

#[test]
fn the_progress_word_passes_every_layer_of_a_step() {
    let mut rig = rig();
    assert_eq!(rig.device.progress().get(), 0);
    rig.run(vec![rig.span(0, 0, &[1, 2, 3])]);
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(rig.step, 1));
    // A reader of a copied block waits for the end of the step that copies.
    let mut plan = rig.plan(Vec::new());
    plan.copies.push(BlockCopy { group: GroupId(0), from: BlockId(0), to: BlockId(1) });
    rig.submit(plan);
    assert_eq!(rig.output().sampled, Ok(Vec::new()));
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(rig.step, 1));
}

#[test]
fn a_copied_block_serves_as_the_original() {
    let mut rig = rig();
    rig.run(vec![rig.span(0, 0, &tokens(0, 9))]);
    let (_, expected) = rig.run(vec![rig.span(0, 9, &[7])]);
    // Sequence 1 begins with a copy of sequence 0's block; position 9, which was written since, is written over.
    let span = rig.span(1, 9, &[7]);
    let mut plan = rig.plan(vec![span]);
    let (from, to) = (BlockId(SEQUENCE_BLOCKS - 1), BlockId(2 * SEQUENCE_BLOCKS - 1));
    plan.copies.push(BlockCopy { group: GroupId(0), from, to });
    rig.submit(plan);
    rig.output().sampled.expect("the step succeeds");
    assert_eq!(rig.logits.lock().unwrap()[0].1, expected[0].1);
    assert_eq!(record(&rig, 0, from.0), record(&rig, 0, to.0));
}

#[test]
fn a_plan_may_take_tokens_that_are_not_sampled_yet() {
    let mut rig = rig();
    let (output, _) = rig.run(vec![rig.span(0, 0, &[5, 6]), rig.span(1, 0, &tokens(1, 20))]);
    let first: Vec<_> = output.sampled.unwrap().iter().map(|sampled| sampled.token).collect();
    let (_, expected) = rig.run(vec![rig.span(1, 20, &first[1..]), rig.span(0, 2, &first[..1])]);

    let first = rig.plan(vec![rig.span(0, 0, &[5, 6]), rig.span(1, 0, &tokens(1, 20))]);
    let mut second = rig.plan(vec![rig.span(1, 20, &[0]), rig.span(0, 2, &[0])]);
    second.spans[0].inputs[0] = Input::Sampled(1);
    second.spans[1].inputs[0] = Input::Sampled(0);
    let third = rig.plan(vec![rig.span(0, 3, &[0])]);
    rig.submit(first);
    rig.submit(second);
    assert_eq!(rig.device.submit(Arc::new(third.clone())), Err(SubmitError::Busy));
    assert!(rig.output().sampled.is_ok() && rig.output().sampled.is_ok());
    assert_eq!(rig.logits.lock().unwrap()[2..], expected);
    rig.submit(third);
    assert!(rig.output().sampled.is_ok());
}

#[test]
fn several_samples_of_a_row_come_in_the_order_of_the_plan() {
    let mut rig = rig();
    let mut forked = rig.span(0, 0, &tokens(0, 4));
    forked.samples =
        [sample(7, 0.0, 0), sample(8, 5.0, 1), sample(9, 5.0, 2)].map(|it| Sample { row: 3, ..it }).to_vec();
    let mut silent = rig.span(1, 0, &tokens(1, 4));
    silent.samples.clear();
    let (output, logits) = rig.run(vec![forked, silent, rig.span(2, 0, &tokens(0, 4))]);
    let sampled = output.sampled.unwrap();
    assert_eq!(sampled.iter().map(|sampled| sampled.key).collect::<Vec<_>>(), [7, 8, 9, 2].map(key));
    assert_eq!(logits.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(0), key(2)]);
    // Greedy: the same prompt twice. Hot: other tokens (with these seeds).
    assert_eq!(sampled[0].token, sampled[3].token);
    assert!(sampled[1].token != sampled[0].token && sampled[2].token != sampled[1].token);
}

#[test]
fn a_sequence_that_fails_says_so_and_the_device_goes_on() {
    let mut rig = rig();
    let (_, expected) = rig.run(vec![rig.span(1, 0, &tokens(1, 4))]);
    // All bits set is NaN: what the step reads of the cache is not finite.
    fill(&rig, 0, SEQUENCE_BLOCKS - 1, 0xff);
    let first = rig.plan(vec![rig.span(0, 3, &[1])]);
    let mut second = rig.plan(vec![rig.span(0, 4, &[0])]);
    second.spans[0].inputs[0] = Input::Sampled(0);
    rig.submit(first);
    rig.submit(second);
    for reason in ["not finite", "the step before"] {
        let output = rig.output();
        assert_eq!(output.sampled, Ok(Vec::new()));
        assert!(output.failed[0].reason.contains(reason), "{}", output.failed[0].reason);
    }
    rig.logits.lock().unwrap().clear();
    let (output, logits) = rig.run(vec![rig.span(1, 0, &tokens(1, 4))]);
    assert!(output.sampled.is_ok());
    assert_eq!(logits, expected);
}

#[test]
fn a_token_without_numbers_fails_its_own_sequence_and_changes_no_bit_of_others() {
    let bits = |logits: Logits| -> Vec<_> {
        logits.into_iter().map(|(key, row)| (key, row.iter().map(|x| x.to_bits()).collect::<Vec<_>>())).collect()
    };
    let (prompt, other) = (tokens(0, 80), tokens(2, 30));
    let token = (0..512).find(|token| !prompt.contains(token) && !other.contains(token)).expect("a token is left");
    for (dtype, isa) in [Dtype::F32, Dtype::Bf16]
        .into_iter()
        .flat_map(|dtype| Isa::available().into_iter().map(move |isa| (dtype, isa)))
    {
        let mut whole = Rig::new(model("llama", "tiny", dtype), 16, 2, isa);
        let mut broken = Rig::new(model_without(token, dtype), 16, 2, isa);
        let steps = |rig: &Rig| {
            let mut chunk = rig.span(1, 0, &[tokens(1, 70), vec![token], tokens(3, 9)].concat());
            chunk.samples.clear();
            let first = [rig.span(0, 0, &prompt), chunk, rig.span(2, 0, &other)];
            let second = [rig.span(2, 30, &[5]), rig.span(3, 0, &[token]), rig.span(0, 80, &[6])];
            [first, second]
        };
        for (spans, failing) in steps(&broken).into_iter().zip([1, 1]) {
            let others = (0..).zip(&spans).filter(|(number, _)| *number != failing).map(|(_, span)| span.clone());
            let (expected, logits) = whole.run(others.collect());
            let (output, mut found) = broken.run(spans.to_vec());
            assert_eq!(output.sampled, expected.sampled, "{dtype:?} on {isa}");
            assert_eq!(output.failed.iter().map(|failed| failed.span).collect::<Vec<_>>(), [failing]);
            assert!(output.failed[0].reason.contains("is not finite"), "{:?}", output.failed);
            found.retain(|(key, _)| *key != spans[failing].key);
            assert!(bits(found) == bits(logits), "{dtype:?} on {isa}");
        }
        // Its failure is no sample that a later step could take.
        let mut plan = broken.plan(vec![broken.span(2, 31, &[0]), broken.span(3, 1, &[0])]);
        (plan.spans[0].inputs[0], plan.spans[1].inputs[0]) = (Input::Sampled(0), Input::Sampled(1));
        broken.submit(plan);
        let output = broken.output();
        assert_eq!((output.sampled.map(|sampled| sampled.len()), output.failed.len()), (Ok(1), 1));
    }
}

#[test]
fn a_step_that_panics_says_so_and_the_device_is_lost() {
    struct Panics;
    impl LogitsTap for Panics {
        fn logits(&mut self, _: SeqKey, _: u32, _: &[f32]) {
            panic!("planted");
        }
    }
    let mut rig = rig();
    assert_eq!(rig.device.lost(), None);
    rig.device.set_logits_tap(Box::new(Panics));
    let reason = rig.run(vec![rig.span(0, 0, &[1])]).0.sampled.unwrap_err();
    assert!(reason.contains("panicked") && reason.contains("planted"), "{reason}");
    assert_eq!(rig.device.lost(), Some(reason.as_str()));
    let plan = rig.plan(vec![rig.span(0, 0, &[1])]);
    assert_eq!(rig.device.submit(plan.into()), Err(SubmitError::Lost(reason)));
}

#[test]
fn time_in_kernels_is_part_of_the_time() {
    let mut rig = rig();
    let (output, _) = rig.run(vec![rig.span(0, 0, &tokens(0, 200))]);
    assert!(!output.in_kernels.is_zero() && output.in_kernels <= output.elapsed);
}

#[test]
fn a_device_that_is_dropped_finishes_its_steps_first() {
    let mut rig = rig();
    let progress = rig.device.progress();
    let plan = rig.plan(vec![rig.span(0, 0, &tokens(0, 200))]);
    let step = plan.step;
    rig.submit(plan);
    let Rig { device, .. } = rig;
    drop(device);
    assert_eq!(progress.get(), ProgressWord::mark(step, 1));
}

#[test]
fn a_checkpoint_that_does_not_fit_its_config_is_refused_by_name() {
    let load = |change: fn(&mut crate::spec::ModelSpec)| {
        let files = files("llama", "tiny", Dtype::Bf16);
        let mut spec = files.spec;
        change(&mut spec);
        CpuModel::load(spec, &files.checkpoint, &mut |_| {}).err().expect("it is refused")
    };
    match load(|spec| spec.feed_forward[0] = FeedForward::Dense { width: 100 }) {
        LoadError::Shape { name, expected, found } => {
            assert_eq!(name, "model.layers.0.mlp.gate_proj.weight");
            assert_eq!((expected, found), (vec![100, 64], vec![160, 64]));
        }
        error => panic!("{error}"),
    }
    match load(|spec| spec.qk_norm = QkNorm::Heads) {
        LoadError::Checkpoint(CheckpointError::NoTensor { tensor, .. }) => {
            assert_eq!(tensor, "model.layers.0.self_attn.q_norm.weight");
        }
        error => panic!("{error}"),
    }
    assert!(matches!(load(|spec| spec.head_dim = 512), LoadError::Unsupported(_)));
}

#[test]
fn loading_tells_how_far_it_is() {
    let files = files("llama", "tiny", Dtype::F32);
    let mut seen = Vec::new();
    CpuModel::load(files.spec, &files.checkpoint, &mut |done| seen.push(done)).expect("it loads");
    assert!(seen.is_sorted() && seen[0] == 0.0 && seen[seen.len() - 1] == 1.0 && seen.len() > 3, "{seen:?}");
}
