//! The thread that executes a device's plans, one after the other, in the order of submission.
//!
//! What is deliberately absent: what a step does. That is the closure's business, which the thread owns.

use crate::check::Checker;
use crate::clock::now;
use crate::device::{STEPS_IN_FLIGHT_MAX, SubmitError};
use domain::StepId;
use domain::plan::{StepOutput, StepPlan};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A plan on its way to the thread.
pub(crate) struct Submitted {
    pub(crate) plan: Arc<StepPlan>,
    pub(crate) at: Instant,
}

/// What the thread calls when a step has ended.
type Waker = Arc<Mutex<Option<Box<dyn Fn() + Send + Sync>>>>;

/// A device's side of the thread. The thread ends with it.
pub(crate) struct PlanThread {
    pub(crate) checker: Checker,
    waker: Waker,
    /// Plans on their way; taken when the device is dropped, which ends the thread.
    submissions: Option<SyncSender<Submitted>>,
    outputs: Receiver<StepOutput>,
    in_flight: VecDeque<StepId>,
    thread: Option<JoinHandle<()>>,
}

impl PlanThread {
    /// Starts a thread called `name`, which hands every plan that `checker` takes to `execute`.
    pub(crate) fn start(
        name: &str,
        checker: Checker,
        mut execute: impl FnMut(&Submitted) -> StepOutput + Send + 'static,
    ) -> io::Result<Self> {
        let waker = Waker::default();
        let (submissions, plans) = sync_channel::<Submitted>(STEPS_IN_FLIGHT_MAX);
        let (results, outputs) = sync_channel(STEPS_IN_FLIGHT_MAX);
        let wake = waker.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(submitted) = plans.recv() {
                let step = submitted.plan.step.0;
                tracing::trace!(target: "timeline", step, "step begins");
                let output = execute(&submitted);
                tracing::trace!(target: "timeline", step, "step ends");
                if results.send(output).is_err() {
                    return;
                }
                if let Some(wake) = lock(&wake).as_ref() {
                    wake();
                }
            }
        })?;
        Ok(Self {
            checker,
            waker,
            submissions: Some(submissions),
            outputs,
            in_flight: VecDeque::with_capacity(STEPS_IN_FLIGHT_MAX),
            thread: Some(thread),
        })
    }

    /// As [`crate::device::Device::submit`].
    pub(crate) fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        if self.in_flight.len() == STEPS_IN_FLIGHT_MAX {
            return Err(SubmitError::Busy);
        }
        self.checker.check(&plan)?;
        let lost = || SubmitError::Lost("its thread has ended".to_owned());
        let submissions = self.submissions.as_ref().ok_or_else(lost)?;
        submissions.try_send(Submitted { plan: plan.clone(), at: now() }).map_err(|error| match error {
            TrySendError::Full(_) => SubmitError::Busy,
            TrySendError::Disconnected(_) => lost(),
        })?;
        self.checker.taken(&plan);
        self.in_flight.push_back(plan.step);
        Ok(())
    }

    /// As [`crate::device::Device::poll`].
    pub(crate) fn poll(&mut self) -> Option<StepOutput> {
        match self.outputs.try_recv() {
            Ok(output) => {
                self.in_flight.pop_front();
                Some(output)
            }
            Err(TryRecvError::Empty) => None,
            // Its steps still have their ends.
            Err(TryRecvError::Disconnected) => self.in_flight.pop_front().map(|step| StepOutput {
                step,
                sampled: Err("the device's thread has ended".to_owned()),
                failed: Vec::new(),
                elapsed: Duration::ZERO,
                in_kernels: Duration::ZERO,
            }),
        }
    }

    /// As [`crate::device::Device::set_waker`].
    pub(crate) fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        *lock(&self.waker) = Some(waker);
    }
}

impl Drop for PlanThread {
    fn drop(&mut self) {
        self.submissions = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened, by the hook.
            let _ = thread.join();
        }
    }
}

/// Locks what no panic leaves half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
