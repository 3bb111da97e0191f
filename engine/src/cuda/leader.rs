//! The two threads of a device: one queues steps, the other waits for their ends and tells them.

use super::machine::{Machine, Queued, Ring};
use super::memory::OutputPlaces;
use crate::device::STEPS_IN_FLIGHT_MAX;
use crate::device_progress::{DeviceProgress, RunningStep};
use crate::locks::lock;
use crate::ops::OpsError;
use crate::plan_thread::{Ends, Submitted};
use crate::sampling::SampleError;
use crate::slots::DeviceSlots;
use crate::span_failure::SpanFailure;
use cuda::DriverError;
use cuda::kernels::SampleResult;
use domain::plan::{FailedSpan, HiddenSum, Input, Outputs, Sampled, StepOutput, StepPlan, TokenLogprobs};
use domain::planted_bugs::{self, Bug};
use domain::{StepId, Token};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use threads::Doing;

/// A step on its way from one thread to the other.
struct Running {
    submitted: Submitted,
    /// What it was queued with; or why it was not.
    queued: Result<(Arc<Ring>, RunningStep), StepError>,
    /// Samples whose mask did not come, by their numbers.
    unmasked: Vec<usize>,
}

/// Why a step fails as a whole. The device is lost then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum StepError {
    /// It could not be queued.
    #[error(transparent)]
    Queue(#[from] OpsError),
    /// The card did not come to its end.
    #[error(transparent)]
    Card(#[from] DriverError),
    /// The thread that queues panicked.
    #[error("a step panicked")]
    Panic,
}

/// What the last step that has ended sampled, for those that wait for masks.
#[derive(Default)]
struct Last {
    state: Mutex<(StepId, Vec<Option<Token>>)>,
    changed: Condvar,
}

impl Last {
    fn set(&self, step: StepId, sampled: Vec<Option<Token>>) {
        *lock(&self.state) = (step, sampled);
        self.changed.notify_all();
    }

    /// Waits until a step has ended, and returns what it sampled.
    fn wait_for(&self, step: StepId) -> Vec<Option<Token>> {
        let waits = |state: &mut (StepId, Vec<Option<Token>>)| state.0 < step;
        self.changed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

/// Starts both threads. The one that is returned ends with the plans. Errors: the system starts none.
pub(super) fn start(
    mut machine: Machine,
    mut slots: DeviceSlots,
    progress: Arc<DeviceProgress>,
    plans: Receiver<Submitted>,
    ends: Ends,
) -> io::Result<JoinHandle<()>> {
    let (running, begun) = sync_channel(STEPS_IN_FLIGHT_MAX);
    let last = Arc::new(Last::default());
    let context = machine.engine.stream.context().clone();
    let ender = Ender {
        places: machine.engine.outputs,
        hidden: machine.engine.model.spec().hidden,
        previous: Vec::new(),
        last: last.clone(),
    };
    let waits = threads::spawn("baton-cuda-ends".to_owned(), move || {
        // A context that cannot be made current fails the first step too.
        let _ = context.bind();
        ender.run(&begun, ends);
    })?;
    threads::spawn("baton-cuda".to_owned(), move || {
        let _ = machine.engine.stream.context().bind();
        let mut before = StepId(0);
        while let Ok(submitted) = threads::during(Doing::WaitsForStep, || plans.recv()) {
            let queue = || {
                slots.take_over(&submitted.plan);
                threads::during(Doing::Computes, || queue(&mut machine, &submitted, &slots, &progress, &last, before))
            };
            let queued = catch_unwind(AssertUnwindSafe(queue)).unwrap_or(Err(StepError::Panic));
            let (queued, unmasked) = match queued {
                Ok((ring, running, unmasked)) => (Ok((ring, running)), unmasked),
                Err(reason) => (Err(reason), Vec::new()),
            };
            before = submitted.plan.step;
            if running.send(Running { submitted, queued, unmasked }).is_err() {
                break;
            }
        }
        drop(running);
        // A panic of the thread was reported when it happened, by the hook.
        let _ = waits.join();
    })
}

/// Queues all of a step. Returns its memory, and which of its samples lack their mask.
fn queue(
    machine: &mut Machine,
    submitted: &Submitted,
    slots: &DeviceSlots,
    progress: &Arc<DeviceProgress>,
    last: &Last,
    before: StepId,
) -> Result<(Arc<Ring>, RunningStep, Vec<usize>), StepError> {
    let plan = &*submitted.plan;
    let running = progress.step();
    let queued: Queued = machine.queue(plan, slots)?;
    let is_masked = plan.spans.iter().flat_map(|span| &span.samples).any(|sample| sample.masked);
    let mut masks = Vec::new();
    if is_masked {
        // Masks may depend on what the step before samples; where that failed, none comes.
        let sampled = last.wait_for(before);
        masks = submitted.masks.take(plan, |span| lacks_input(plan, span, &sampled));
    }
    machine.sample(plan, &queued, &masks)?;
    let samples = plan.spans.iter().flat_map(|span| &span.samples).enumerate();
    let lacks = |number: usize| masks.get(number).is_none_or(Option::is_none);
    let unmasked = samples.filter(|(number, sample)| sample.masked && lacks(*number)).map(|(number, _)| number);
    Ok((machine.ring(&queued), running, unmasked.collect()))
}

/// Returns whether an input of a span is a token that the step before did not sample.
fn lacks_input(plan: &StepPlan, span: usize, sampled: &[Option<Token>]) -> bool {
    let is_missing = |input: &Input| match *input {
        Input::Sampled(sample) => sampled.get(sample as usize).copied().flatten().is_none(),
        Input::Token(_) => false,
    };
    plan.spans[span].inputs.iter().any(is_missing)
}

/// The thread that waits for the ends of steps.
struct Ender {
    places: OutputPlaces,
    hidden: usize,
    /// What the step before sampled.
    previous: Vec<Option<Token>>,
    last: Arc<Last>,
}

impl Ender {
    fn run(mut self, begun: &Receiver<Running>, mut ends: Ends) {
        while let Ok(Running { submitted, queued, unmasked }) = begun.recv() {
            let step = submitted.plan.step;
            let ended = queued.and_then(|(ring, running)| {
                let elapsed = if planted_bugs::is(Bug::EndToldEarly) { Duration::ZERO } else { ring.wait()? };
                // Readers see all that it wrote before they hear of its end.
                drop(running);
                Ok((ring, elapsed))
            });
            let output = match ended {
                Ok((ring, elapsed)) => self.output(&submitted.plan, &ring, &unmasked, elapsed),
                Err(reason) => {
                    self.previous.clear();
                    ends.lose(&submitted, reason.to_string())
                }
            };
            self.last.set(step, self.previous.clone());
            if !ends.tell(submitted, output) {
                // Steps behind it have their ends with the channel.
                drop(ends);
                begun.iter().for_each(drop);
                return;
            }
        }
    }

    /// Reads what a step gave.
    fn output(&mut self, plan: &StepPlan, ring: &Ring, unmasked: &[usize], elapsed: Duration) -> StepOutput {
        // SAFETY: the step has ended, so that the card writes there no more, and the next one that does is not queued.
        let bytes = unsafe { std::slice::from_raw_parts(ring.outputs.as_ptr(), self.places.bytes) };
        let requests = plan.samples() + plan.scores();
        let results = SampleResult::read(&bytes[self.places.results..][..requests * size_of::<SampleResult>()]);
        let broken = bytes[self.places.broken..].as_chunks::<{ size_of::<u32>() }>().0;
        let sums = &bytes[self.places.hidden..];
        let mut outputs = Outputs::default();
        let mut sampled = Vec::with_capacity(plan.samples());
        let (mut row, mut sample, mut score, mut hidden) = (0, 0, plan.samples(), 0);
        for (number, span) in plan.spans.iter().enumerate() {
            let is_broken = broken[row..row + span.inputs.len()].iter().any(|word| u32::from_le_bytes(*word) != 0);
            let own = &results[sample..sample + span.samples.len()];
            let scored = &results[score..score + span.scores.len()];
            let lacks_mask = (sample..sample + span.samples.len()).any(|number| unmasked.contains(&number));
            let failure = match () {
                () if lacks_input(plan, number, &self.previous) => Some(SpanFailure::Input),
                () if is_broken || own.iter().chain(scored).any(|result| result.is_broken != 0) => {
                    Some(SpanFailure::not_finite(span))
                }
                () if lacks_mask => Some(SpanFailure::NoMask),
                () => own.iter().chain(scored).find_map(|result| refused(result, span.key)).map(SpanFailure::from),
            };
            let wanted = span.hidden.map(|wanted| wanted.of(span.inputs.len()).len() as u32);
            match failure {
                Some(failure) => {
                    outputs.failed.push(FailedSpan { span: number, reason: failure.to_string() });
                    sampled.extend(own.iter().map(|_| None));
                }
                None => {
                    for (result, sample) in own.iter().zip(&span.samples) {
                        sampled.push(Some(result.token));
                        let logprobs = sample.params.logprobs.map(|_| logprobs(result));
                        outputs.sampled.push(Sampled { key: sample.key, token: result.token, logprobs });
                    }
                    outputs.scored.extend(scored.iter().map(logprobs));
                    if let Some(rows) = wanted {
                        let row = self.hidden * size_of::<i64>();
                        let own = sums[hidden * row..][..row].as_chunks().0;
                        let sums = own.iter().map(|number| i64::from_le_bytes(*number)).collect();
                        outputs.hidden.push(HiddenSum { rows, sums });
                    }
                }
            }
            row += span.inputs.len();
            sample += span.samples.len();
            score += span.scores.len();
            hidden += usize::from(wanted.is_some());
        }
        self.previous = sampled;
        StepOutput::new(plan.step, Ok::<_, String>(outputs), elapsed, elapsed)
    }
}

/// Returns why a result has no token.
fn refused(result: &SampleResult, key: domain::SeqKey) -> Option<SampleError> {
    match result.status {
        SampleResult::NO_MAXIMUM => Some(SampleError::Maximum { key, max: result.max }),
        SampleResult::NOTHING_ALLOWED => Some(SampleError::NothingAllowed { key }),
        _ => None,
    }
}

fn logprobs(result: &SampleResult) -> TokenLogprobs {
    let top = result.top_tokens.iter().copied().zip(result.top_logprobs).take(result.top_len as usize);
    TokenLogprobs { logprob: result.logprob, top: top.collect() }
}
