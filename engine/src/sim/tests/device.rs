//! The device in real time. Nothing here asserts how long anything took.

use super::rig::{BLOCKS, SEED, TOKENS, known, layout, plan, prompt, span, vocabulary};
use crate::device::{Device, DeviceLimits, SubmitError};
use crate::sim::{Course, Oracle, SimConfig, SimDevice, SimError, StepTime};
use domain::plan::{BlockTable, Input, Span, StepOutput, StepPlan};
use domain::{BlockId, Choice, ProgressWord, SamplingParams, SeqKey, StepId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

struct Rig {
    device: SimDevice,
    ended: Receiver<()>,
}

fn config(course: impl FnMut(&StepPlan) -> Course + Send + 'static) -> SimConfig {
    let limits = DeviceLimits { rows_max: 64, samples_max: 4, context_max: 200, blocks: vec![BLOCKS] };
    SimConfig {
        layout: layout(None),
        limits,
        vocabulary: vocabulary(),
        course: Box::new(course),
        torn: Arc::default(),
        describe: "test".to_owned(),
    }
}

impl Rig {
    fn new(course: impl FnMut(&StepPlan) -> Course + Send + 'static) -> Self {
        let mut device = SimDevice::new(config(course)).expect("the device starts");
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
    rig.submit(plan(1, vec![span(&layout, 0, known(&prompt), Some(0))]));
    rig.submit(plan(2, vec![span(&layout, 10, vec![Input::Sampled(0)], Some(1))]));
    let third = plan(3, vec![span(&layout, 11, vec![Input::Sampled(0)], None)]);
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
    rig.submit(plan(1, vec![span(&layout, 0, known(&prompt), Some(0))]));
    let first = rig.output().sampled.expect("the first succeeds")[0].token;
    rig.submit(plan(2, vec![span(&layout, 10, known(&[first]), Some(1))]));
    assert!(rig.output().sampled.is_err());
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(2), 0));
    rig.submit(plan(3, vec![span(&layout, 11, vec![Input::Sampled(0)], Some(2))]));
    let third = rig.output();
    assert_eq!(third.sampled, Ok(Vec::new()));
    assert!(third.failed[0].reason.contains("the step before"), "its input was never sampled");
    rig.submit(plan(4, vec![span(&layout, 10, known(&[first]), Some(1))]));
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
    rig.submit(plan(1, vec![span(&layout, 0, known(&prompt[..8]), None)]));
    rig.submit(plan(2, vec![span(&layout, 8, known(&prompt[8..]), Some(0))]));
    began.send(()).expect("the device runs");
    assert!(rig.output().sampled.expect_err("it was made to fail").contains("layer 1"));
    // Behind the second one, which has failed and is not known to have.
    rig.submit(plan(3, vec![span(&layout, 8, known(&prompt[8..]), Some(0))]));
    for _ in 0..2 {
        assert!(rig.output().sampled.expect_err("it did not run").contains("the step before it failed"));
    }
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(1), 0));
    rig.submit(plan(4, vec![span(&layout, 0, known(&prompt), Some(0))]));
    began.send(()).expect("the device runs");
    assert!(rig.output().sampled.is_ok());
}

#[test]
fn a_span_that_fails_alone_leaves_the_others_as_they_are() {
    let fails = |plan: &StepPlan| Course { span_fails: (plan.step == StepId(1)).then_some(1), ..Course::default() };
    let mut rig = Rig::new(fails);
    let (layout, prompt) = (layout(None), prompt(10, 1));
    let alone = span(&layout, 0, known(&prompt), Some(0));
    let others = Span {
        key: SeqKey { choice: Choice(1), ..alone.key },
        tables: vec![BlockTable { first: 0, blocks: (50..54).map(BlockId).collect() }],
        ..alone
    };
    rig.submit(plan(1, vec![span(&layout, 0, known(&prompt), Some(0)), others.clone()]));
    let first = rig.output();
    assert_eq!(first.failed.iter().map(|failed| failed.span).collect::<Vec<_>>(), [1]);
    let [said] = &first.sampled.expect("the step succeeds")[..] else { panic!("the other span sampled") };
    let text = Oracle::new(&layout, vocabulary()).text(&prompt, &Arc::default(), SEED);
    assert_eq!(said.token, text[0]);
    assert_eq!(rig.device.progress().get(), ProgressWord::mark(StepId(1), 2));
    // What the failed span wrote is not what it should have written.
    rig.submit(plan(2, vec![Span { start: 9, inputs: known(&prompt[9..]), ..others }]));
    assert_ne!(rig.output().sampled.expect("the step succeeds")[0].token, text[0]);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut pools = config(|_| Course::default());
    pools.limits.blocks = vec![1, 1];
    assert!(matches!(SimDevice::new(pools), Err(SimError::Config(_))));
    let mut rig = Rig::new(|_| Course::default());
    let foreign = plan(1, vec![span(&layout(None), 0, known(&[TOKENS]), None)]);
    assert!(matches!(rig.device.submit(Arc::new(foreign)), Err(SubmitError::Invalid { span: Some(0), .. })));
}

#[test]
fn spans_that_write_the_same_blocks_are_refused() {
    let mut rig = Rig::new(|_| Course::default());
    let one = span(&layout(None), 0, known(&prompt(10, 1)), Some(0));
    let mut other = one.clone();
    other.key.request.0 += 1;
    let refused = rig.device.submit(Arc::new(plan(1, vec![one, other])));
    assert!(matches!(refused, Err(SubmitError::Invalid { span: Some(1), .. })), "{refused:?}");
}
