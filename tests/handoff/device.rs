//! The simulated device, with knobs for what a test does to it while it runs. A lost, swapped, torn or
//! early-reused block changes its text.

use domain::plan::{StepOutput, StepPlan};
use domain::{KvLayout, ProgressWord, Token};
use engine::device::{Device, DeviceLimits, SubmitError};
use engine::sim::{Course, Oracle, SimConfig, SimDevice, StepTime, Vocabulary};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tests::cluster::Asked;
use transport::Memory;

/// What a test can do to a device while it runs, and see of it.
#[derive(Default)]
pub(crate) struct Knobs {
    /// Microseconds that a layer takes.
    pub(crate) layer_us: AtomicU64,
    /// The step that fails as a whole, in one layer or another; 0: none.
    pub(crate) failing_step: AtomicU64,
    /// Requests with which a step fails as a whole.
    pub(crate) culprits: Mutex<BTreeSet<u64>>,
    /// A plan that is to fail as a whole is refused.
    pub(crate) refuses: AtomicBool,
    /// Steps that failed as a whole, or were refused.
    pub(crate) failed_steps: AtomicU64,
    /// The next step panics.
    pub(crate) panics: AtomicBool,
    /// The last span of the next step that has several fails alone.
    pub(crate) one_fails: AtomicBool,
    /// The last span of the next step that has several is refused.
    pub(crate) one_refused: AtomicBool,
    /// What a test does as soon as a step was submitted, on the thread of the worker.
    pub(crate) submitted: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// The step that runs is seen to have ended at this look, and not before; 0: as soon as it has.
    pub(crate) looks: AtomicU64,
    /// Rows of all steps.
    pub(crate) rows: AtomicU64,
    /// The most spans that a step had.
    pub(crate) spans_seen: AtomicU64,
    /// Slots that were read and whose words did not belong together.
    pub(crate) torn: Arc<AtomicU64>,
}

impl Knobs {
    /// Whether there is nothing to be had of the plan.
    fn fails(&self, plan: &StepPlan) -> bool {
        let culprits = self.culprits.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = plan.spans.iter().any(|span| culprits.contains(&span.key.request.0))
            || self.failing_step.load(Ordering::Relaxed) == plan.step.0;
        self.failed_steps.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }

    /// Steps with these requests fail from now on.
    pub(crate) fn fail_with(&self, culprits: &[u64]) {
        *self.culprits.lock().unwrap_or_else(PoisonError::into_inner) = culprits.iter().copied().collect();
    }
}

/// Tokens of the model.
pub(crate) const VOCABULARY: u32 = 1000;

fn vocabulary() -> Vocabulary {
    Vocabulary::new(VOCABULARY, []).expect("there are tokens")
}

/// A device that refuses a span when a test says so.
struct Refusing {
    device: SimDevice,
    knobs: Arc<Knobs>,
}

impl Refusing {
    /// Refuses a plan, as the device does with one in which there is nothing to do.
    fn refuse(&mut self, plan: &StepPlan, span: Option<usize>) -> SubmitError {
        let empty = Arc::new(StepPlan { step: plan.step, ..StepPlan::default() });
        match self.device.submit(empty) {
            Err(SubmitError::Invalid { step, reason, .. }) => SubmitError::Invalid { step, span, reason },
            other => panic!("{other:?}"),
        }
    }
}

impl Device for Refusing {
    fn layout(&self) -> &KvLayout {
        self.device.layout()
    }

    fn limits(&self) -> &DeviceLimits {
        self.device.limits()
    }

    fn vocab(&self) -> usize {
        self.device.vocab()
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        if plan.spans.len() > 1 && self.knobs.one_refused.swap(false, Ordering::Relaxed) {
            let span = Some(plan.spans.len() - 1);
            return Err(self.refuse(&plan, span));
        }
        if self.knobs.refuses.load(Ordering::Relaxed) && self.knobs.fails(&plan) {
            return Err(self.refuse(&plan, None));
        }
        self.device.submit(plan)?;
        if let Some(submitted) = &mut *self.knobs.submitted.lock().unwrap_or_else(PoisonError::into_inner) {
            submitted();
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
        match self.knobs.looks.load(Ordering::Relaxed) {
            0 => return self.device.poll(),
            looks => self.knobs.looks.store(looks - 1, Ordering::Relaxed),
        }
        let mut output = None;
        while self.knobs.looks.load(Ordering::Relaxed) == 0 && output.is_none() {
            std::thread::yield_now();
            output = self.device.poll();
        }
        output
    }

    fn lost(&self) -> Option<&str> {
        self.device.lost()
    }

    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        self.device.set_waker(waker);
    }

    fn progress(&self) -> ProgressWord {
        self.device.progress()
    }

    fn pool(&self, group: usize) -> Arc<dyn Memory> {
        self.device.pool(group)
    }

    fn batch_invariant(&self) -> bool {
        self.device.batch_invariant()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

pub(crate) fn device(layout: KvLayout, limits: DeviceLimits, knobs: Arc<Knobs>) -> Box<dyn Device> {
    let (torn, refusing) = (knobs.torn.clone(), knobs.clone());
    let course = move |plan: &StepPlan| {
        knobs.rows.fetch_add(plan.rows() as u64, Ordering::Relaxed);
        knobs.spans_seen.fetch_max(plan.spans.len() as u64, Ordering::Relaxed);
        assert!(!knobs.panics.load(Ordering::Relaxed), "planted");
        let layer = Duration::from_micros(knobs.layer_us.load(Ordering::Relaxed));
        let fails = knobs.fails(plan);
        // K and V of a layer are written at its end, so that the next one takes as long as its reads may.
        let time = StepTime { layer, layer_written: layer, ..StepTime::default() };
        let one_fails = plan.spans.len() > 1 && knobs.one_fails.swap(false, Ordering::Relaxed);
        let last = one_fails.then(|| plan.spans.len() - 1);
        Course { time, fails_in: fails.then_some((plan.step.0 % 3) as u16), span_fails: last }
    };
    let describe = "knobs".to_owned();
    let config = SimConfig {
        layout,
        limits,
        vocabulary: vocabulary(),
        adapters: Vec::new(),
        course: Box::new(course),
        torn,
        guarded: false,
        describe,
    };
    Box::new(Refusing { device: SimDevice::new(config).expect("the device starts"), knobs: refusing })
}

/// The text of a sequence of `request` that an undisturbed run gives, after the committed tokens.
pub(crate) fn expected(layout: &KvLayout, request: &Asked, choice: u16) -> Vec<Token> {
    let (params, seed) = (Arc::new(request.params.clone()), domain::Request::seed(request.seed, choice));
    let mut text = Oracle::new(layout, vocabulary()).text(&request.prompt, &params, seed);
    text.split_off(request.committed.len())
}
