//! The device.

use super::error::CudaError;
use super::fast::{Fast, KernelSet, OWN_ROWS_MAX};
use super::inputs::Fixed;
use super::leader;
use super::machine::Machine;
use super::memory::{OutputPlaces, StepBytes, StepMemory, TAIL_BYTES};
use super::model::{CudaModel, check_shape};
use super::pool::CudaPool;
use super::progress::PinnedWord;
use super::step::Engine;
use crate::check::Checker;
use crate::device::{Device, DeviceLimits, MaskError, STEPS_IN_FLIGHT_MAX, SubmitError};
use crate::device_progress::DeviceProgress;
use crate::layer_places::layer_places;
use crate::plan_thread::PlanThread;
use crate::slots::DeviceSlots;
use cuda::{BLAS_WORKSPACE_BYTES, Stream, StreamPriority};
use domain::plan::{Mask, StepOutput, StepPlan};
use domain::{Dtype, KvKind, KvLayout, ProgressWord, StepId};
use kv_memory::Memory;
use std::sync::Arc;

/// A device on a card.
pub struct CudaDevice {
    threads: PlanThread,
    pools: Vec<Arc<CudaPool>>,
    progress: Arc<DeviceProgress>,
    description: String,
    set: KernelSet,
}

impl CudaDevice {
    /// Makes a device that runs `model` with kernels of the set `exact`, with pools for the blocks of its limits.
    /// Errors: [`CudaError`].
    pub fn new(model: Arc<CudaModel>, layout: KvLayout, limits: DeviceLimits) -> Result<Self, CudaError> {
        Self::with_kernels(model, layout, limits, KernelSet::Exact)
    }

    /// Makes a device as [`Self::new`] does, with kernels of a set. Errors: [`CudaError`].
    pub fn with_kernels(
        model: Arc<CudaModel>,
        layout: KvLayout,
        limits: DeviceLimits,
        set: KernelSet,
    ) -> Result<Self, CudaError> {
        check_config(&model, &layout, &limits)?;
        let card = model.card.clone();
        let stream = Stream::new(&card.context, StreamPriority::High)?;
        let mut pools = Vec::with_capacity(layout.groups.len());
        for (group, &blocks) in limits.blocks.iter().enumerate() {
            let part = layout.part(group);
            pools.push(Arc::new(CudaPool::new(&card, blocks as usize, layout.record_bytes(group), part)?));
        }
        let fixed = fixed(&model, &layout)?;
        let blocks_max = blocks_max(&layout, &limits);
        let bytes = StepBytes::of(&model, &fixed, &limits, blocks_max);
        let memory = StepMemory::new(&model, &bytes, &limits, &stream)?;
        let word = Arc::new(PinnedWord::new(&card.context)?);
        let at = word.device_address();
        let progress = Arc::new(DeviceProgress::over(word).map_err(CudaError::Threads)?);
        let fast = match set {
            KernelSet::Exact => None,
            KernelSet::Fast => {
                Some(Fast::new(&model, &limits, &stream).map_err(|error| CudaError::Fast(error.into()))?)
            }
        };
        let kernels = match &fast {
            None => "exact kernels, batch-invariant".to_owned(),
            Some(fast) => format!("fast kernels, with cublasLt {} beyond {OWN_ROWS_MAX} rows", fast.version()),
        };
        let description = format!(
            "cuda: {}, {kernels}, {} weights, {:?} KV in blocks of {} tokens",
            card.describe(),
            model.format,
            layout.dtype,
            layout.block_tokens
        );
        let slots = DeviceSlots::new(limits.slots_max, layout.groups.len());
        let vocab = model.spec().vocab;
        let engine = Engine {
            outputs: OutputPlaces::of(&limits, model.spec().hidden),
            layers: layer_places(&layout).expect("every layer is in a group"),
            pools: pools.clone(),
            layout: layout.clone(),
            fixed,
            memory,
            progress: at,
            slots_max: limits.slots_max,
            blocks_max,
            stream,
            fast,
            model,
        };
        let machine = Machine::new(engine, &limits, progress.word().clone())
            .map_err(|error| CudaError::Config(error.to_string()))?;
        let checker = Checker::new(layout, limits, vocab);
        let runs = progress.clone();
        let threads = PlanThread::over(checker, |plans, ends| leader::start(machine, slots, runs, plans, ends));
        let threads = threads.map_err(CudaError::Threads)?;
        Ok(Self { threads, pools, progress, description, set })
    }

    /// Returns the bytes of the card's memory that a device of these limits allocates in addition to its pools and the
    /// weights: what steps compute in, and their lists. Graphs and what the driver keeps are not counted. Errors: the
    /// kernels cannot do the model's shape.
    pub fn step_bytes(
        model: &CudaModel,
        layout: &KvLayout,
        limits: &DeviceLimits,
        set: KernelSet,
    ) -> Result<u64, CudaError> {
        let bytes = StepBytes::of(model, &fixed(model, layout)?, limits, blocks_max(layout, limits));
        let library = match set {
            KernelSet::Exact => 0,
            KernelSet::Fast => BLAS_WORKSPACE_BYTES,
        };
        Ok((bytes.total() + STEPS_IN_FLIGHT_MAX * TAIL_BYTES + library) as u64)
    }
}

/// Returns what is the same in all steps of a model.
fn fixed(model: &CudaModel, layout: &KvLayout) -> Result<Fixed, CudaError> {
    let attention = check_shape(model.spec()).map_err(|error| CudaError::Config(error.to_string()))?;
    let windows = layout.groups.iter().map(|group| group.window.unwrap_or(0)).collect();
    Ok(Fixed { attention, windows, vocab: model.spec().vocab })
}

/// Returns the blocks of the longest sequence.
fn blocks_max(layout: &KvLayout, limits: &DeviceLimits) -> usize {
    limits.context_max.div_ceil(layout.block_tokens as usize)
}

fn check_config(model: &CudaModel, layout: &KvLayout, limits: &DeviceLimits) -> Result<(), CudaError> {
    let refuse = |reason: String| Err(CudaError::Config(reason));
    if layout.dtype != Dtype::Bf16 {
        return refuse(format!("KV in {:?}; model.kv_dtype must be bf16 on the cuda device", layout.dtype));
    }
    if layout.groups != model.spec().kv_groups() {
        return refuse("the cache layout is another model's".to_owned());
    }
    if !layout.groups.iter().all(|group| matches!(group.kind, KvKind::Heads { .. })) || !layout.is_whole() {
        return refuse("the cache has what the cuda device has no kernels for".to_owned());
    }
    if !layout.block_tokens.is_power_of_two() {
        let tokens = layout.block_tokens;
        return refuse(format!("blocks of {tokens} tokens; engine.block_tokens must be a power of two"));
    }
    if limits.blocks.len() != layout.groups.len() || limits.blocks.contains(&0) {
        return refuse(format!("pools of {:?} blocks for {} KV groups", limits.blocks, layout.groups.len()));
    }
    if [limits.rows_max, limits.outputs_max, limits.context_max, limits.slots_max].contains(&0) {
        return refuse("a limit is zero".to_owned());
    }
    Ok(())
}

impl Device for CudaDevice {
    fn layout(&self) -> &KvLayout {
        &self.threads.checker.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.threads.checker.limits
    }

    fn vocab(&self) -> usize {
        self.threads.checker.vocab
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        self.threads.submit(plan)
    }

    fn masks(&mut self, step: StepId, masks: Vec<Mask>) -> Result<(), MaskError> {
        self.threads.masks(step, masks)
    }

    fn poll(&mut self) -> Option<StepOutput> {
        self.threads.poll()
    }

    fn lost(&self) -> Option<&str> {
        self.threads.lost()
    }

    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        self.threads.set_waker(waker);
    }

    fn progress(&self) -> ProgressWord {
        self.progress.word().clone()
    }

    fn pool(&self, group: usize) -> Arc<dyn Memory> {
        self.pools[group].clone()
    }

    fn batch_invariant(&self) -> bool {
        self.set == KernelSet::Exact
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
