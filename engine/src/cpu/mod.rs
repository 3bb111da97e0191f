//! The CPU device: our own kernels over a small crew of threads.
//!
//! A plan goes through `check` (is it possible?), is laid out in rows by `batch`, and runs as the operations of `step`,
//! whose inner loops are in `kernels`, over the instruction sets of `simd`. One thread leads and executes plans in the
//! order of submission; `crew` helps it. A step allocates nothing but the list of its samples.
//!
//! The bits of a row depend on its own sequence alone: not on the batch, on chunks, on threads, on the block size or on
//! the instruction set.
//!
//! What is deliberately absent: which sequences run and which blocks they have; the plan says so.

mod batch;
mod check;
mod clock;
mod crew;
mod kernels;
mod leader;
mod memory;
mod model;
mod simd;
mod step;
#[cfg(test)]
mod tests;

pub use model::CpuModel;
pub use simd::Isa;

use crate::device::{Device, DeviceLimits, PoolMemory, STEPS_IN_FLIGHT_MAX, SubmitError};
use check::Checker;
use clock::now;
use crew::{Crew, THREADS_MAX};
use domain::plan::{StepOutput, StepPlan};
use domain::{KvLayout, ProgressWord, SeqKey, StepId};
use leader::{Leader, Submitted};
use memory::Memory;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use step::lock;

/// How a CPU device is made.
#[derive(Clone, Debug)]
pub struct CpuConfig {
    /// Cache layout; its groups are those of the model, its number format is free.
    pub layout: KvLayout,
    /// Limits of plans, and blocks of the pools.
    pub limits: DeviceLimits,
    /// Threads that compute, at least 1. They make no difference to the result.
    pub threads: usize,
    /// Instruction set of the kernels. It makes no difference to the result.
    pub isa: Isa,
}

/// Sees the logits that samples are taken from; for tests and measurements.
pub trait LogitsTap: Send {
    /// The logits (`[vocab]`) of the last row of the span of sequence `key`. Called once for each span that samples, in
    /// plan order, on the device's thread.
    fn logits(&mut self, key: SeqKey, logits: &[f32]);
}

/// Why a device cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The configuration contradicts itself or the model.
    #[error("the cpu device cannot be made so: {0}")]
    Config(String),
    /// No memory.
    #[error("cannot allocate {bytes} bytes for {what}")]
    Memory {
        /// What for.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No threads.
    #[error("cannot start the device's threads")]
    Threads(#[source] io::Error),
}

/// The tap, where one is set.
type SharedTap = Arc<Mutex<Option<Box<dyn LogitsTap>>>>;

/// What the leader calls when a step has ended.
type Waker = Arc<Mutex<Option<Box<dyn Fn() + Send + Sync>>>>;

/// A device on the CPU.
pub struct CpuDevice {
    checker: Checker,
    pools: Vec<Arc<Memory>>,
    progress: ProgressWord,
    waker: Waker,
    tap: SharedTap,
    /// Plans on their way; taken when the device is dropped, which ends the leader.
    submissions: Option<SyncSender<Submitted>>,
    outputs: Receiver<StepOutput>,
    in_flight: VecDeque<StepId>,
    leader: Option<JoinHandle<()>>,
    description: String,
}

impl CpuDevice {
    /// A device that runs `model`. Its memory is mapped here, and touched when it is used.
    pub fn new(model: Arc<CpuModel>, config: CpuConfig) -> Result<Self, CpuError> {
        let CpuConfig { layout, limits, threads, isa } = config;
        check_config(&model, &layout, &limits, threads)?;
        let mut pools = Vec::with_capacity(layout.groups.len());
        for (group, &blocks) in limits.blocks.iter().enumerate() {
            let bytes = layout.record_bytes(group) * blocks as usize;
            let memory =
                Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "KV blocks", bytes, source })?;
            pools.push(Arc::new(memory));
        }
        let spec = model.spec();
        let description = format!(
            "cpu: {isa} kernels on {threads} thread(s), {:?} weights, {:?} KV in blocks of {} tokens",
            spec.dtype, layout.dtype, layout.block_tokens
        );
        let crew = Crew::new(threads, "baton-cpu").map_err(CpuError::Threads)?;
        let (progress, tap) = (ProgressWord::new(), Arc::new(Mutex::new(None)));
        let checker = Checker::new(layout.clone(), limits.clone(), spec.vocab);
        let leader = Leader::new(model, layout, &limits, isa, pools.clone(), crew, progress.clone(), tap.clone())?;

        let waker = Waker::default();
        let (submissions, plans) = sync_channel::<Submitted>(STEPS_IN_FLIGHT_MAX);
        let (results, outputs) = sync_channel(STEPS_IN_FLIGHT_MAX);
        let wake = waker.clone();
        let leader = std::thread::Builder::new()
            .name("baton-cpu-0".to_owned())
            .spawn(move || lead(leader, &plans, &results, &wake))
            .map_err(CpuError::Threads)?;
        Ok(Self {
            checker,
            pools,
            progress,
            waker,
            tap,
            submissions: Some(submissions),
            outputs,
            in_flight: VecDeque::with_capacity(STEPS_IN_FLIGHT_MAX),
            leader: Some(leader),
            description,
        })
    }

    /// Shows the logits of all later steps to `tap`.
    pub fn set_logits_tap(&mut self, tap: Box<dyn LogitsTap>) {
        *lock(&self.tap) = Some(tap);
    }
}

/// The leader's thread, until the device is dropped.
fn lead(mut leader: Leader, plans: &Receiver<Submitted>, results: &SyncSender<StepOutput>, waker: &Waker) {
    while let Ok(submitted) = plans.recv() {
        if results.send(leader.execute(&submitted)).is_err() {
            return;
        }
        if let Some(wake) = lock(waker).as_ref() {
            wake();
        }
    }
}

fn check_config(model: &CpuModel, layout: &KvLayout, limits: &DeviceLimits, threads: usize) -> Result<(), CpuError> {
    let refuse = |reason: String| Err(CpuError::Config(reason));
    if layout.groups != model.spec().kv_groups() {
        return refuse("the cache layout is another model's".to_owned());
    }
    if layout.block_tokens == 0 {
        return refuse("blocks of no tokens".to_owned());
    }
    if limits.blocks.len() != layout.groups.len() || limits.blocks.contains(&0) {
        return refuse(format!("pools of {:?} blocks for {} KV groups", limits.blocks, layout.groups.len()));
    }
    if limits.rows_max == 0 || limits.samples_max == 0 || limits.context_max == 0 {
        return refuse("a limit is zero".to_owned());
    }
    if limits.context_max > model.spec().context {
        return refuse(format!("a context of {}, the model has {}", limits.context_max, model.spec().context));
    }
    if threads == 0 || threads > THREADS_MAX {
        return refuse(format!("{threads} threads, 1 to {THREADS_MAX} are possible"));
    }
    Ok(())
}

impl Device for CpuDevice {
    fn layout(&self) -> &KvLayout {
        &self.checker.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.checker.limits
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        if self.in_flight.len() == STEPS_IN_FLIGHT_MAX {
            return Err(SubmitError::Busy);
        }
        self.checker.check(&plan)?;
        let Some(submissions) = &self.submissions else {
            return Err(SubmitError::Lost("its thread has ended".to_owned()));
        };
        let step = plan.step;
        match submissions.try_send(Submitted { plan: plan.clone(), at: now() }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(SubmitError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                return Err(SubmitError::Lost("its thread has ended".to_owned()));
            }
        }
        self.checker.taken(&plan);
        self.in_flight.push_back(step);
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
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
                elapsed: Duration::ZERO,
                in_kernels: Duration::ZERO,
            }),
        }
    }

    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        *lock(&self.waker) = Some(waker);
    }

    fn progress(&self) -> ProgressWord {
        self.progress.clone()
    }

    fn pool(&self, group: usize) -> Arc<dyn PoolMemory> {
        self.pools[group].clone()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.submissions = None;
        if let Some(leader) = self.leader.take() {
            // A panic of the leader was reported when it happened, by the hook.
            let _ = leader.join();
        }
    }
}
