//! The device in real time. Nothing here asserts how long anything took.

use super::rig::{BLOCKS, SEED, TOKENS, block, known, layout, plan, prompt, span, vocabulary};
use crate::device::{Device, DeviceLimits, SubmitError};
use crate::sim::{Course, Oracle, SimConfig, SimDevice, SimError, StepTime, Vocabulary};
use domain::plan::{
    HiddenRows, HiddenSum, Input, Mask, Sample, Score, SlotChange, Span, StepOutput, StepPlan, TokenSet,
};
use domain::{Adapter, Choice, ProgressWord, SamplingParams, SeqKey, SlotId, StepId, Token};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

struct Rig {
    device: SimDevice,
    ended: Receiver<()>,
}

fn config(course: impl FnMut(&StepPlan) -> Course + Send + 'static) -> SimConfig {
    let limits = DeviceLimits { rows_max: 64, outputs_max: 4, context_max: 200, blocks: vec![BLOCKS], slots_max: 2 };
    SimConfig {
        layout: layout(None),
        limits,
        vocabulary: vocabulary(),
        adapters: Adapter::named("chess").into_iter().collect(),
        course: Box::new(course),
        torn: Arc::default(),
        guarded: false,
        describe: "test".to_owned(),
    }
}

impl Rig {
    fn new(course: impl FnMut(&StepPlan) -> Course + Send + 'static) -> Self {
        Self::of(config(course))
    }

    fn of(config: SimConfig) -> Self {
        let mut device = SimDevice::new(config).expect("the device starts");
        let (wake, ended) = channel();
        device.set_waker(Box::new(move || wake.send(()).unwrap_or_default()));
        Self { device, ended }
    }

    fn submit(&mut self, plan: StepPlan) {
        self.device.submit(Arc::new(plan)).expect("the plan is good");
    }

    fn output(&mut self) -> StepOutput {
        self.ended.recv_timeout(Duration::from_secs(60)).expect("the step ends");
        self.device.poll().expect("it has ended")
    }
}

#[test]
fn steps_run_in_order_and_take_sampled_tokens() {
    let layer = Duration::from_micros(500);
    let mut rig = Rig::new(move |_| Course { time: StepTime { layer, ..StepTime::default() }, ..Course::default() });
    let (layout, prompt) = (layout(None), prompt(10, 1));
    rig.submit(plan(&layout, 1, vec![span(0, known(&prompt), Some(0))]));
    rig.submit(plan(&layout, 2, vec![span(10, vec![Input::Sampled(0)], Some(1))]));
    let third = plan(&layout, 3, vec![span(11, vec![Input::Sampled(0)], None)]);
    assert_eq!(rig.device.submit(Arc::new(third)), Err(SubmitError::Busy));
    let outputs = [rig.output(), rig.output()];
    assert_eq!(outputs.each_ref().map(|output| output.step), [StepId(1), StepId(2)]);
    assert!(outputs.iter().all(|output| output.elapsed >= output.in_kernels && output.in_kernels >= 3 * layer));
    let said = outputs.map(|output| output.sampled.expect("the step succeeds")[0].token);
    let params = Arc::new(SamplingParams { max_tokens: 2, ..SamplingParams::default() });
    assert_eq!(said[..], Oracle::new(&layout, vocabulary()).text(&prompt, &params, SEED));
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(2), 2));
}

#[test]
fn a_failed_step_does_not_raise_the_word_and_the_device_goes_on() {
    let fails = |plan: &StepPlan| Course { fails_in: (plan.step == StepId(2)).then_some(1), ..Course::default() };
    let mut rig = Rig::new(fails);
    let (layout, prompt) = (layout(None), prompt(10, 1));
    rig.submit(plan(&layout, 1, vec![span(0, known(&prompt), Some(0))]));
    let first = rig.output().sampled.expect("the first succeeds")[0].token;
    rig.submit(plan(&layout, 2, vec![span(10, known(&[first]), Some(1))]));
    assert!(rig.output().sampled.is_err());
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(2), 0));
    rig.submit(plan(&layout, 3, vec![span(11, vec![Input::Sampled(0)], Some(2))]));
    let third = rig.output();
    assert_eq!(third.sampled, Ok(Vec::new()));
    assert!(third.failed[0].reason.contains("the step before"), "its input was never sampled");
    rig.submit(plan(&layout, 4, vec![span(10, known(&[first]), Some(1))]));
    let fourth = rig.output();
    assert!(fourth.sampled.is_ok() && fourth.failed.is_empty());
}

#[test]
fn a_step_behind_one_that_failed_does_not_run() {
    let (began, begins) = channel();
    let course = move |plan: &StepPlan| {
        begins.recv().expect("the test says when");
        Course { fails_in: (plan.step == StepId(1)).then_some(1), ..Course::default() }
    };
    let mut rig = Rig::new(course);
    let (layout, prompt) = (layout(None), prompt(10, 1));
    rig.submit(plan(&layout, 1, vec![span(0, known(&prompt[..8]), None)]));
    rig.submit(plan(&layout, 2, vec![span(8, known(&prompt[8..]), Some(0))]));
    began.send(()).expect("the device runs");
    assert!(rig.output().sampled.expect_err("it was made to fail").contains("layer 1"));
    // Behind the second one, which has failed and is not known to have.
    rig.submit(plan(&layout, 3, vec![span(8, known(&prompt[8..]), Some(0))]));
    for _ in 0..2 {
        assert!(rig.output().sampled.expect_err("it did not run").contains("the step before it failed"));
    }
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(1), 0));
    rig.submit(plan(&layout, 4, vec![span(0, known(&prompt), Some(0))]));
    began.send(()).expect("the device runs");
    assert!(rig.output().sampled.is_ok());
}

#[test]
fn an_adapter_changes_the_text_and_one_that_is_not_there_is_refused() {
    let mut rig = Rig::new(|_| Course::default());
    let (layout, prompt) = (layout(None), prompt(10, 1));
    let with = |name: &str| Span { adapter: Adapter::named(name), ..span(0, known(&prompt), Some(0)) };
    let said = |rig: &mut Rig, step, span: Span| {
        rig.submit(plan(&layout, step, vec![span]));
        rig.output().sampled.expect("the step succeeds")[0].token
    };
    let text = |name: &str| {
        let oracle = Oracle::new(&layout, vocabulary()).with(Adapter::named(name).as_ref());
        oracle.text(&prompt, &Arc::default(), SEED)[0]
    };
    let (alone, adapted) = (said(&mut rig, 1, with("")), said(&mut rig, 2, with("chess")));
    assert_eq!((alone, adapted), (text(""), text("chess")));
    assert_ne!(alone, adapted);
    let refused = rig.device.submit(Arc::new(plan(&layout, 3, vec![with("poetry")])));
    let said = refused.expect_err("it is not there").to_string();
    assert!(said.contains("adapter poetry, which the device does not have"), "{said}");
}

#[test]
fn a_span_that_fails_alone_leaves_the_others_as_they_are() {
    let fails = |plan: &StepPlan| Course { span_fails: (plan.step == StepId(1)).then_some(1), ..Course::default() };
    let mut rig = Rig::new(fails);
    let (layout, prompt) = (layout(None), prompt(10, 1));
    let alone = span(0, known(&prompt), Some(0));
    let others = Span { key: SeqKey { choice: Choice(1), ..alone.key }, slot: SlotId(1), ..alone };
    rig.submit(plan(&layout, 1, vec![span(0, known(&prompt), Some(0)), others.clone()]));
    let first = rig.output();
    assert_eq!(first.failed.iter().map(|failed| failed.span).collect::<Vec<_>>(), [1]);
    let [said] = &first.sampled.expect("the step succeeds")[..] else { panic!("the other span sampled") };
    let text = Oracle::new(&layout, vocabulary()).text(&prompt, &Arc::default(), SEED);
    assert_eq!(said.token, text[0]);
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(1), 2));
    // What the failed span wrote is not what it should have written.
    let samples = others.samples.iter().map(|sample| Sample { row: 0, ..sample.clone() }).collect();
    rig.submit(plan(&layout, 2, vec![Span { start: 9, inputs: known(&prompt[9..]), samples, ..others }]));
    assert_ne!(rig.output().sampled.expect("the step succeeds")[0].token, text[0]);
}

#[test]
fn outputs_of_any_row_are_made_of_what_it_reads() {
    let (layout, prompt) = (layout(Some(5)), prompt(30, 1));
    let mut config = config(|_| Course::default());
    (config.layout, config.limits.blocks) = (layout.clone(), vec![BLOCKS; 2]);
    let mut rig = Rig::of(config);
    let scores = [3, 9, 29].map(|row| Score { row, token: 7, top: 0 }).to_vec();
    let whole = Span { scores, hidden: Some(HiddenRows::All), ..span(0, known(&prompt), None) };
    rig.submit(plan(&layout, 1, vec![whole]));
    let whole = rig.output();
    // In chunks, and with one token that is another one.
    let mut in_chunks = |tokens: &[Token], step: u64| {
        let (mut scored, mut sum) = (Vec::new(), HiddenSum::new(1));
        for (at, (start, rows, scored_row)) in
            [(0, 8, Some(3)), (8, 2, Some(1)), (10, 20, Some(19))].into_iter().enumerate()
        {
            let inputs = known(&tokens[start as usize..][..rows]);
            let scores = scored_row.map(|row| Score { row, token: 7, top: 0 }).into_iter().collect();
            let chunk = Span { scores, hidden: Some(HiddenRows::All), ..span(start, inputs, None) };
            rig.submit(plan(&layout, step + at as u64, vec![chunk]));
            let output = rig.output();
            scored.extend(output.scored);
            sum.add(&output.hidden[0]);
        }
        (scored, sum)
    };
    assert_eq!(in_chunks(&prompt, 2), (whole.scored.clone(), whole.hidden[0].clone()));
    let mut other = prompt.clone();
    other[9] += 1;
    let (scored, sum) = in_chunks(&other, 5);
    assert_eq!(scored[0], whole.scored[0]);
    assert!(scored[1] != whole.scored[1] && sum != whole.hidden[0], "{scored:?}");
}

#[test]
fn a_mask_is_waited_for_and_decides() {
    let (layout, prompt) = (layout(None), prompt(10, 1));
    let vocabulary = Vocabulary::new(1000, [3]).expect("tokens are left");
    let mut rig = Rig::of(SimConfig { vocabulary, ..config(|_| Course::default()) });
    let mut masked = span(0, known(&prompt), Some(0));
    masked.samples[0].masked = true;
    rig.submit(plan(&layout, 1, vec![masked]));
    let allowed = Arc::new(TokenSet::of(1000, [5]));
    assert_eq!(rig.device.masks(StepId(1), vec![Mask { sample: 0, allowed }]), Ok(()));
    assert_eq!(rig.output().sampled.expect("the step succeeds")[0].token, 5);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut pools = config(|_| Course::default());
    pools.limits.blocks = vec![1, 1];
    assert!(matches!(SimDevice::new(pools), Err(SimError::Config(_))));
    let mut rig = Rig::new(|_| Course::default());
    let foreign = plan(&layout(None), 1, vec![span(0, known(&[TOKENS]), None)]);
    assert!(matches!(rig.device.submit(Arc::new(foreign)), Err(SubmitError::Invalid { span: Some(0), .. })));
}

#[test]
fn spans_that_write_the_same_blocks_are_refused() {
    let mut rig = Rig::new(|_| Course::default());
    let one = span(0, known(&prompt(10, 1)), Some(0));
    let other = Span { slot: SlotId(1), ..one.clone() };
    let mut both = plan(&layout(None), 1, vec![one, other]);
    let (_, others) = both.changes.split_at_mut(2);
    let SlotChange::Table { change, .. } = &mut others[1] else { panic!("one group") };
    change.blocks[2] = block(1);
    let refused = rig.device.submit(Arc::new(both));
    assert!(matches!(refused, Err(SubmitError::Invalid { span: Some(0), .. })), "{refused:?}");
}
