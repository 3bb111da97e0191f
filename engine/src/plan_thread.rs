//! The thread that executes a device's plans, one after the other, in the order of submission. A plan that was
//! submitted behind one that fails fails as well, without having run: its inputs, and the KV that it reads, may be
//! missing. What it changes of slots it changes all the same.
//!
//! What is deliberately absent: what a step does. That is the closure's business, which the thread owns.

use crate::check::Checker;
use crate::clock::now;
use crate::device::{MaskError, STEPS_IN_FLIGHT_MAX, SubmitError};
use crate::locks::lock;
use crate::masks::{MASKS_WAIT_MAX, MaskBoard};
use crate::slots::DeviceSlots;
use domain::StepId;
use domain::plan::{Mask, StepOutput, StepPlan};
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use threads::Doing;

/// A plan on its way to the thread.
pub(crate) struct Submitted {
    pub(crate) plan: Arc<StepPlan>,
    pub(crate) at: Instant,
    /// Where its masks come.
    pub(crate) masks: Arc<MaskBoard>,
    /// Steps that had failed, as far as the host knew.
    failures: u64,
}

/// Why a device is lost whose thread left no word.
const ENDED: &str = "the device's thread has ended";

/// Why a step fails that was submitted behind one that failed.
const BEHIND_FAILED: &str = "the step before it failed";

/// What the thread calls when a step has ended.
type Waker = Arc<Mutex<Option<Box<dyn Fn() + Send + Sync>>>>;

/// A device's side of the thread. The thread ends with it.
pub(crate) struct PlanThread {
    pub(crate) checker: Checker,
    masks: Arc<MaskBoard>,
    waker: Waker,
    /// Plans on their way; taken when the device is dropped, which ends the thread.
    submissions: Option<SyncSender<Submitted>>,
    /// Each output with the number of steps that had failed then.
    outputs: Receiver<(StepOutput, u64)>,
    /// Steps that have failed, as far as the host knows.
    failures: u64,
    in_flight: VecDeque<StepId>,
    /// Why the thread takes no more plans, once it has panicked.
    lost: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

/// Where the ends of steps are told, in the order of submission.
pub(crate) struct Ends {
    results: SyncSender<(StepOutput, u64)>,
    waker: Waker,
    lost: Arc<OnceLock<String>>,
    /// Steps that have failed.
    failures: u64,
}

impl Ends {
    /// Tells the end of a step, and wakes the host. Returns whether the device goes on.
    pub(crate) fn tell(&mut self, submitted: Submitted, output: StepOutput) -> bool {
        submitted.masks.forget(&submitted.plan);
        // Whoever hears of the end has the plan's tokens to itself again.
        drop(submitted);
        self.failures += u64::from(output.sampled.is_err());
        if self.results.send((output, self.failures)).is_err() {
            return false;
        }
        if let Some(wake) = lock(&self.waker).as_ref() {
            wake();
        }
        self.lost.get().is_none()
    }

    /// Says that the device takes no more steps, and returns the end of the one that it was lost in.
    pub(crate) fn lose(&self, submitted: &Submitted, reason: String) -> StepOutput {
        let failed = failed(submitted.plan.step, reason.clone(), now().duration_since(submitted.at));
        // Said before the step's end is, so that nobody takes the device for a good one after it.
        let _ = self.lost.set(reason);
        failed
    }
}

impl PlanThread {
    /// Starts a thread called `name`, which hands every plan that `checker` takes to `execute`. A panic there ends
    /// the thread, and with it the device: nobody knows what it left half done.
    pub(crate) fn start(
        name: &str,
        checker: Checker,
        mut execute: impl FnMut(&Submitted, &DeviceSlots) -> StepOutput + Send + 'static,
    ) -> io::Result<Self> {
        let mut slots = DeviceSlots::new(checker.limits.slots_max, checker.layout.groups.len());
        Self::over(checker, |plans, mut ends| {
            threads::spawn(name.to_owned(), move || {
                while let Ok(submitted) = threads::during(Doing::WaitsForStep, || plans.recv()) {
                    let step = submitted.plan.step;
                    let run = || {
                        slots.take_over(&submitted.plan);
                        if submitted.failures != ends.failures {
                            return failed(step, BEHIND_FAILED.to_owned(), Duration::ZERO);
                        }
                        tracing::trace!(target: "timeline", step = step.0, "step begins");
                        let output = threads::during(Doing::Computes, || execute(&submitted, &slots));
                        tracing::trace!(target: "timeline", step = step.0, "step ends");
                        output
                    };
                    let output = catch_unwind(AssertUnwindSafe(run));
                    let output = output.unwrap_or_else(|panic| ends.lose(&submitted, panic_message(&*panic)));
                    if !ends.tell(submitted, output) {
                        return;
                    }
                }
            })
        })
    }

    /// Starts a device that has threads of its own: `spawn` makes the one that takes plans, which ends when it is given
    /// no more of them and has told the ends of all that it took.
    pub(crate) fn over(
        checker: Checker,
        spawn: impl FnOnce(Receiver<Submitted>, Ends) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let (waker, masks) = (Waker::default(), Arc::new(MaskBoard::new(checker.vocab, MASKS_WAIT_MAX)));
        let (submissions, plans) = sync_channel::<Submitted>(STEPS_IN_FLIGHT_MAX);
        let (results, outputs) = sync_channel(STEPS_IN_FLIGHT_MAX);
        let lost = Arc::<OnceLock<String>>::default();
        let thread = spawn(plans, Ends { results, waker: waker.clone(), lost: lost.clone(), failures: 0 })?;
        Ok(Self {
            checker,
            masks,
            waker,
            submissions: Some(submissions),
            outputs,
            failures: 0,
            in_flight: VecDeque::with_capacity(STEPS_IN_FLIGHT_MAX),
            lost,
            thread: Some(thread),
        })
    }

    /// As [`crate::device::Device::submit`].
    pub(crate) fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        let taken = self.try_submit(plan);
        if taken.is_err() {
            self.checker.close_slots();
        }
        taken
    }

    fn try_submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        if self.in_flight.len() == STEPS_IN_FLIGHT_MAX {
            return Err(SubmitError::Busy);
        }
        self.checker.take(&plan)?;
        // A thread that panicked may still be about to end, and would take the plan and do nothing.
        if let Some(reason) = self.lost() {
            return Err(SubmitError::Lost(reason.to_owned()));
        }
        let lost = || SubmitError::Lost(ENDED.to_owned());
        let submissions = self.submissions.as_ref().ok_or_else(lost)?;
        let (masks, failures) = (self.masks.clone(), self.failures);
        // The thread may come to its samples before this call has ended.
        masks.expect(&plan);
        let submitted = Submitted { plan: plan.clone(), at: now(), masks, failures };
        submissions.try_send(submitted).map_err(|error| {
            self.masks.forget(&plan);
            match error {
                TrySendError::Full(_) => SubmitError::Busy,
                TrySendError::Disconnected(_) => SubmitError::Lost(self.lost().unwrap_or(ENDED).to_owned()),
            }
        })?;
        self.in_flight.push_back(plan.step);
        Ok(())
    }

    /// As [`crate::device::Device::masks`].
    pub(crate) fn masks(&self, step: StepId, masks: Vec<Mask>) -> Result<(), MaskError> {
        self.masks.give(step, masks)
    }

    /// As [`crate::device::Device::poll`].
    pub(crate) fn poll(&mut self) -> Option<StepOutput> {
        match self.outputs.try_recv() {
            Ok((output, failures)) => {
                self.in_flight.pop_front();
                self.failures = failures;
                Some(output)
            }
            Err(TryRecvError::Empty) => None,
            // Its steps still have their ends.
            Err(TryRecvError::Disconnected) => {
                let reason = self.lost().unwrap_or(ENDED).to_owned();
                self.in_flight.pop_front().map(|step| failed(step, reason, Duration::ZERO))
            }
        }
    }

    /// As [`crate::device::Device::lost`].
    pub(crate) fn lost(&self) -> Option<&str> {
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished).then_some(ENDED);
        self.lost.get().map(String::as_str).or(ended)
    }

    /// As [`crate::device::Device::set_waker`].
    pub(crate) fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        *lock(&self.waker) = Some(waker);
    }
}

impl Drop for PlanThread {
    fn drop(&mut self) {
        self.submissions = None;
        self.masks.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened, by the hook.
            let _ = thread.join();
        }
    }
}

/// The output of a step that failed as a whole.
fn failed(step: StepId, reason: String, elapsed: Duration) -> StepOutput {
    StepOutput::new(step, Err(reason), elapsed, Duration::ZERO)
}

/// Returns what a panic said.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("a step panicked: {}", said.unwrap_or("without a message"))
}
