//! The CPU device: our own kernels over a small pool of threads.
//!
//! A plan that was checked and queued by `crate::plan_thread` is laid out in rows by `batch`, its attention is
//! divided by `division`, and it runs as the operations of `step`, whose inner loops are in `kernels`, over the
//! instruction sets of `simd`. One thread leads and executes plans in the order of submission; `thread_pool` helps
//! it. A step allocates nothing but the lists of its outputs.
//!
//! The bits of a row depend on its own sequence and the instruction set alone: not on the batch, on chunks, on
//! threads or on the block size.
//!
//! What is deliberately absent: which sequences run and which blocks they have; the plan says so.

mod batch;
mod cpu_topology;
mod division;
mod error;
mod exercise;
mod kernels;
mod leader;
mod limits;
mod memory;
mod model;
mod numa;
mod packed;
mod plan;
mod progress;
mod rotary;
mod simd;
mod step;
mod taps;
#[cfg(test)]
mod tests;
mod thread_pool;
mod tiling;

pub use cpu_topology::Pinning;
pub use error::CpuError;
pub use exercise::{AttentionShape, Exercise, Fork};
pub use limits::{Arithmetic, Limits};
pub use model::CpuModel;
pub use numa::own_node;
pub use plan::{LoadPlan, RepackedShare};
pub use simd::Isa;
pub use taps::LogitsTap;
pub use thread_pool::{Task, ThreadPool};

use crate::check::Checker;
use crate::device::{Device, DeviceLimits, MaskError, PoolMemory, SubmitError};
use crate::locks::lock;
use crate::plan_thread::PlanThread;
use crate::pool::Pool;
use crate::timed::OperationTap;
use domain::plan::{Mask, StepOutput, StepPlan};
use domain::{KvKind, KvLayout, ProgressWord, StepId};
use kv_memory::Memory;
use leader::Leader;
use progress::Progress;
use std::sync::{Arc, Once};
use taps::Taps;
use thread_pool::THREADS_MAX;

/// How a CPU device is made.
#[derive(Clone, Debug)]
pub struct CpuConfig {
    /// Cache layout; its groups are those of the model, its number format is free.
    pub layout: KvLayout,
    /// Limits of plans, and blocks of the pools.
    pub limits: DeviceLimits,
    /// Threads that compute, at least 1. They make no difference to the result.
    pub threads: usize,
    /// Whether they stay on processors of their own.
    pub pinning: Pinning,
    /// Whether its pools are as a device's that the host cannot touch ([`GuardedMemory`](kv_memory::GuardedMemory)).
    /// Then it stores its progress word as a device does.
    pub guarded: bool,
    /// Instruction set of the kernels. It makes a difference to the last bits of bf16 models alone.
    pub isa: Isa,
}

/// A device on the CPU.
pub struct CpuDevice {
    leader: PlanThread,
    pools: Vec<Arc<Pool>>,
    progress: Progress,
    taps: Taps,
    description: String,
}

impl CpuDevice {
    /// A device that runs `model`. Its memory is mapped here, and touched when it is used.
    pub fn new(model: Arc<CpuModel>, config: CpuConfig) -> Result<Self, CpuError> {
        let CpuConfig { layout, limits, threads, pinning, guarded, isa } = config;
        check_config(&model, &layout, &limits, threads)?;
        let host = numa::host();
        let mut pools = Vec::with_capacity(layout.groups.len());
        for (group, &blocks) in limits.blocks.iter().enumerate() {
            let bytes = layout.record_bytes(group) * blocks as usize;
            let memory = Pool::new(bytes, layout.part(group), guarded).map_err(|source| CpuError::Memory {
                what: "KV blocks",
                bytes,
                source,
            })?;
            numa::interleave(memory.as_ptr(), memory.len(), &host.memory_nodes());
            pools.push(Arc::new(memory));
        }
        let spec = model.spec();
        let places = host.thread_places(threads, pinning);
        let how = if places.pinned { "pinned" } else { "not pinned" };
        tracing::info!("threads of the cpu device: {threads}, {how}, since {}", places.why);
        tracing::debug!(memory_nodes = ?host.memory_nodes(), threads = ?places.threads, "processors of the cpu device");
        let description = format!(
            "cpu: {isa} kernels on {threads} thread(s), {how}, batch-invariant, {} weights, {:?} KV in blocks of {} tokens",
            model.format, layout.dtype, layout.block_tokens
        );
        let (leaders, settled) = (places.threads[0].clone(), Once::new());
        let thread_pool = ThreadPool::new(places.threads, "baton-cpu").map_err(CpuError::Threads)?;
        let (progress, taps) = (Progress::new(guarded).map_err(CpuError::Threads)?, Taps::default());
        let checker = Checker::new(layout.clone(), limits.clone(), spec.vocab);
        let mut leader =
            Leader::new(model, layout, &limits, isa, pools.clone(), thread_pool, progress.clone(), taps.clone())?;

        let stored = progress.clone();
        let leader = PlanThread::start("baton-cpu-0", checker, move |submitted, slots| {
            settled.call_once(|| numa::settle(&leaders));
            stored.during(|| leader.execute(submitted, slots))
        });
        let leader = leader.map_err(CpuError::Threads)?;
        Ok(Self { leader, pools, progress, taps, description })
    }

    /// Shows the logits of all later steps to `tap`.
    pub fn set_logits_tap(&mut self, tap: Box<dyn LogitsTap>) {
        *lock(&self.taps.logits) = Some(tap);
    }

    /// Tells `tap` how long the operations of all later steps take.
    pub fn set_operation_tap(&mut self, tap: Box<dyn OperationTap>) {
        *lock(&self.taps.operations) = Some(tap);
    }
}

fn check_config(model: &CpuModel, layout: &KvLayout, limits: &DeviceLimits, threads: usize) -> Result<(), CpuError> {
    let refuse = |reason: String| Err(CpuError::Config(reason));
    for (group, of) in layout.groups.iter().enumerate() {
        match of.kind {
            KvKind::Heads { k_dim, v_dim, .. } if k_dim == v_dim => {}
            KvKind::Heads { k_dim, v_dim, .. } => {
                let dims = format!("keys of {k_dim} numbers and values of {v_dim}");
                return refuse(format!("KV group {group} has {dims}, and the cpu device needs them equal"));
            }
            KvKind::Latent { .. } => {
                return refuse(format!("KV group {group} is of latents: the cpu device has no kernels for it"));
            }
            KvKind::State { .. } => {
                return refuse(format!("KV group {group} is of states: the cpu device has no kernels for it"));
            }
        }
    }
    if !layout.is_whole() {
        return refuse(
            "the cpu device holds all layers and heads of a model, and the layout is a part of one".to_owned(),
        );
    }
    if layout.groups != model.spec().kv_groups() {
        return refuse("the cache layout is another model's".to_owned());
    }
    if layout.block_tokens == 0 {
        return refuse("blocks of no tokens".to_owned());
    }
    if limits.blocks.len() != layout.groups.len() || limits.blocks.contains(&0) {
        return refuse(format!("pools of {:?} blocks for {} KV groups", limits.blocks, layout.groups.len()));
    }
    if [limits.rows_max, limits.outputs_max, limits.context_max, limits.slots_max].contains(&0) {
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
        &self.leader.checker.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.leader.checker.limits
    }

    fn vocab(&self) -> usize {
        self.leader.checker.vocab
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        self.leader.submit(plan)
    }

    fn masks(&mut self, step: StepId, masks: Vec<Mask>) -> Result<(), MaskError> {
        self.leader.masks(step, masks)
    }

    fn poll(&mut self) -> Option<StepOutput> {
        self.leader.poll()
    }

    fn lost(&self) -> Option<&str> {
        self.leader.lost()
    }

    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        self.leader.set_waker(waker);
    }

    fn progress(&self) -> ProgressWord {
        self.progress.word().clone()
    }

    fn pool(&self, group: usize) -> Arc<dyn Memory> {
        self.pools[group].clone()
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
