//! The fake model in real time: a thread that executes plans, raises the progress word layer by layer, and sleeps as
//! long as a course says that each part of a step takes.

use super::cost::StepTime;
use super::model::SimModel;
use super::tags::Vocabulary;
use crate::check::Checker;
use crate::clock::now;
use crate::device::{Device, DeviceLimits, MaskError, PoolMemory, SubmitError};
use crate::device_progress::DeviceProgress;
use crate::plan_thread::{PlanThread, Submitted};
use crate::pool::Pool;
use crate::slots::DeviceSlots;
use domain::plan::{Mask, Outputs, StepOutput, StepPlan};
use domain::{Adapter, KvLayout, ProgressWord, StepId};
use kv_memory::Memory;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How a step goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// How long its parts take.
    pub time: StepTime,
    /// The layer in which it fails, before that layer writes anything.
    pub fails_in: Option<u16>,
    /// The span that fails alone, by its number in the plan.
    pub span_fails: Option<usize>,
}

/// How a simulated device is made.
pub struct SimConfig {
    /// Cache layout, of slots with two words; [`super::layout`] makes one.
    pub layout: KvLayout,
    /// Limits of plans, and blocks of the pools.
    pub limits: DeviceLimits,
    /// The tokens that it says.
    pub vocabulary: Vocabulary,
    /// What it computes with, beside the model alone; rising.
    pub adapters: Vec<Adapter>,
    /// How each step goes; asked when the step begins.
    pub course: Box<dyn FnMut(&StepPlan) -> Course + Send>,
    /// Counts slots that were read though their words did not belong together: always 0 where everybody keeps to the
    /// rules.
    pub torn: Arc<AtomicU64>,
    /// Whether its pools are as a device's that the host cannot touch ([`GuardedMemory`](kv_memory::GuardedMemory)).
    pub guarded: bool,
    /// What it simulates, in words.
    pub describe: String,
}

/// Why a device cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The configuration contradicts itself.
    #[error("the sim device cannot be made so: {0}")]
    Config(String),
    /// No memory.
    #[error("cannot allocate {bytes} bytes for KV blocks")]
    Memory {
        /// Bytes of the pool of one KV group.
        bytes: usize,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start the device's thread")]
    Thread(#[source] io::Error),
}

/// A simulated device.
pub struct SimDevice {
    thread: PlanThread,
    pools: Vec<Arc<Pool>>,
    progress: Arc<DeviceProgress>,
    description: String,
}

impl SimDevice {
    /// Makes a device with pools of its own. Their memory is mapped here, and touched when it is used.
    pub fn new(config: SimConfig) -> Result<Self, SimError> {
        let SimConfig { layout, limits, vocabulary, adapters, course, torn, guarded, describe } = config;
        if limits.blocks.len() != layout.groups.len() || limits.blocks.contains(&0) {
            let reason = format!("pools of {:?} blocks for {} KV groups", limits.blocks, layout.groups.len());
            return Err(SimError::Config(reason));
        }
        let mut pools = Vec::with_capacity(limits.blocks.len());
        for (group, &blocks) in limits.blocks.iter().enumerate() {
            let bytes = layout.record_bytes(group) * blocks as usize;
            pools.push(Arc::new(
                Pool::new(bytes, layout.part(group), guarded).map_err(|source| SimError::Memory { bytes, source })?,
            ));
        }
        let shared = pools.iter().map(|pool| pool.clone() as Arc<dyn PoolMemory>).collect();
        let checker = Checker::new(layout.clone(), limits, vocabulary.size() as usize).with_adapters(adapters);
        let description = format!("sim: {describe}, batch-invariant, KV in blocks of {} tokens", layout.block_tokens);
        let model = SimModel::new(layout, vocabulary, shared)
            .ok_or_else(|| SimError::Config("the cache layout has no room for tags".to_owned()))?;
        let progress = Arc::new(DeviceProgress::over(Arc::new(AtomicU64::new(0))).map_err(SimError::Thread)?);
        let mut runner = Runner { model, course, progress: progress.clone(), torn, free_at: now() };
        let thread = PlanThread::start("baton-sim", checker, move |submitted, slots| runner.execute(submitted, slots));
        Ok(Self { thread: thread.map_err(SimError::Thread)?, pools, progress, description })
    }
}

impl Device for SimDevice {
    fn layout(&self) -> &KvLayout {
        &self.thread.checker.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.thread.checker.limits
    }

    fn vocab(&self) -> usize {
        self.thread.checker.vocab
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        self.thread.submit(plan)
    }

    fn masks(&mut self, step: StepId, masks: Vec<Mask>) -> Result<(), MaskError> {
        self.thread.masks(step, masks)
    }

    fn poll(&mut self) -> Option<StepOutput> {
        self.thread.poll()
    }

    fn lost(&self) -> Option<&str> {
        self.thread.lost()
    }

    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        self.thread.set_waker(waker);
    }

    fn progress(&self) -> ProgressWord {
        self.progress.word().clone()
    }

    fn pool(&self, group: usize) -> Arc<dyn Memory> {
        self.pools[group].clone()
    }

    fn adapters(&self) -> &[Adapter] {
        &self.thread.checker.adapters
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

/// A step failed, since [`Course::fails_in`] says so.
#[derive(Debug, thiserror::Error)]
#[error("the step was made to fail in layer {layer}")]
struct MadeToFail {
    layer: u16,
}

/// What the thread owns.
struct Runner {
    model: SimModel,
    course: Box<dyn FnMut(&StepPlan) -> Course + Send>,
    /// What it stores as layers are written, as a card does.
    progress: Arc<DeviceProgress>,
    torn: Arc<AtomicU64>,
    /// When the card has done what it was given.
    free_at: Instant,
}

impl Runner {
    fn execute(&mut self, submitted: &Submitted, slots: &DeviceSlots) -> StepOutput {
        let plan = &*submitted.plan;
        // Deadlines count from when the card could begin, not from when this thread woke up: late wake-ups do not
        // add up.
        let begin = submitted.at.max(self.free_at);
        let course = (self.course)(plan);
        let progress = self.progress.clone();
        let running = progress.step();
        let computed = self.compute(submitted, slots, &course, begin);
        if computed.is_ok() {
            self.free_at = begin + course.time.total(self.model.layers());
            sleep_until(self.free_at);
        } else {
            self.model.fail();
        }
        drop(running);
        self.torn.store(self.model.torn(), Ordering::Relaxed);
        let elapsed = now().duration_since(begin);
        StepOutput::new(plan.step, computed, elapsed, elapsed)
    }

    fn compute(
        &mut self,
        submitted: &Submitted,
        slots: &DeviceSlots,
        course: &Course,
        begin: Instant,
    ) -> Result<Outputs, MadeToFail> {
        let plan = &*submitted.plan;
        self.model.begin(plan, course.span_fails);
        for layer in 0..self.model.layers() {
            sleep_until(begin + course.time.written(layer));
            if course.fails_in == Some(layer) {
                return Err(MadeToFail { layer });
            }
            self.model.write_layer(plan, slots, layer);
            self.progress.written(plan.step, layer);
            tracing::trace!(target: "timeline", step = plan.step.0, layer, "layer written");
        }
        let masks = submitted.masks.take(plan, |span| self.model.fails(span));
        Ok(self.model.outputs(plan, slots, &masks))
    }
}

/// Sleeps, unless the time has passed.
fn sleep_until(deadline: Instant) {
    let left = deadline.saturating_duration_since(now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}
