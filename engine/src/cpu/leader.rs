//! Executes plans, one after the other.

use super::batch::{Batch, MICRO_BATCH_ROWS_MAX, MicroBatch, sampled};
use super::division::KEPT_MAX;
use super::error::CpuError;
use super::kernels::{kept_numbers, queries_max};
use super::memory::{Arena, Memory};
use super::model::CpuModel;
use super::progress::Progress;
use super::rotary::RotaryTables;
use super::simd::Isa;
use super::step::{Engine, FailureSlot, SampleSlot, ScoreSlot, Step, StepContext};
use super::taps::Taps;
use super::thread_pool::ThreadPool;
use super::tiling::Tiling;
use crate::clock::now;
use crate::device::DeviceLimits;
use crate::layer_places::layer_places;
use crate::locks::lock;
use crate::ops::{Axis, OpsError};
use crate::plan_thread::Submitted;
use crate::pool::Pool;
use crate::sampling::Sampler;
use crate::slots::DeviceSlots;
use crate::span_failure::SpanFailure;
use crate::timed::Timed;
use domain::plan::{FailedSpan, HiddenSum, Input, Outputs, StepOutput, StepPlan};
use domain::{KvLayout, Token};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// All that a device needs to execute plans. Everything is allocated when it is made.
pub(super) struct Leader {
    engine: Engine,
    thread_pool: ThreadPool,
    batch: Batch,
    slots: Vec<SampleSlot>,
    scores: Vec<ScoreSlot>,
    failures: Vec<FailureSlot>,
    /// What the step before sampled: nothing where a span failed, no entry where all of it did.
    previous: Vec<Option<Token>>,
}

impl Leader {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        model: Arc<CpuModel>,
        layout: KvLayout,
        limits: &DeviceLimits,
        isa: Isa,
        pools: Vec<Arc<Pool>>,
        thread_pool: ThreadPool,
        progress: Progress,
        taps: Taps,
    ) -> Result<Self, CpuError> {
        let spec = model.spec();
        let micro_batch_rows = limits.rows_max.min(MICRO_BATCH_ROWS_MAX);
        let arena = Arena::new(model.decoder.arena(), |axis| match axis {
            Axis::Inputs => limits.rows_max,
            Axis::MicroBatch => micro_batch_rows,
            Axis::Logits => limits.outputs_max,
        })?;
        let rotary = RotaryTables::new(&spec.ropes, limits.rows_max)?;
        let bytes = micro_batch_rows.max(limits.outputs_max) * model.weights.prepared_bytes_max();
        let prepared =
            Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "prepared activations", bytes, source })?;
        // In small pages, which are not there until something is kept.
        let bytes = KEPT_MAX * size_of::<f32>();
        let kept = Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "attention", bytes, source })?;
        let bytes = limits.outputs_max * spec.hidden * size_of::<i64>();
        let hidden =
            Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "hidden states", bytes, source })?;
        let layers = layer_places(&layout).expect("every layer is in a group");
        let samplers = (0..thread_pool.threads()).map(|_| Mutex::new(Sampler::new(spec.vocab))).collect();
        let tiling = Tiling {
            group: spec.heads / spec.kv_heads,
            kv_heads: spec.kv_heads,
            queries_max: queries_max(isa, layout.dtype, spec.head_dim),
            threads: thread_pool.threads(),
            kept_numbers: kept_numbers(isa, layout.dtype, spec.head_dim),
        };
        let batch = Batch::new(limits, tiling, &layout);
        let engine = Engine {
            model,
            layout,
            isa,
            pools,
            arena,
            layers,
            rotary,
            prepared,
            kept,
            hidden,
            samplers,
            progress,
            taps,
        };
        Ok(Self {
            engine,
            thread_pool,
            batch,
            slots: (0..limits.outputs_max).map(|_| Mutex::new(None)).collect(),
            scores: (0..limits.outputs_max).map(|_| Mutex::new(None)).collect(),
            // A span has a row at least.
            failures: (0..limits.rows_max).map(|_| Mutex::new(None)).collect(),
            previous: Vec::with_capacity(limits.outputs_max),
        })
    }

    /// Executes a checked plan. A step that fails has an output as well, and the device goes on.
    pub(super) fn execute(&mut self, submitted: &Submitted, device_slots: &DeviceSlots) -> StepOutput {
        let (plan, begin) = (&*submitted.plan, now());
        let mut in_kernels = Duration::ZERO;
        let computed = self.compute(submitted, device_slots, &mut in_kernels);
        let (elapsed, step) = (now().duration_since(begin), plan.step);
        if computed.is_err() {
            self.previous.clear();
        }
        StepOutput::new(step, computed, elapsed, in_kernels)
    }

    fn compute(
        &mut self,
        submitted: &Submitted,
        device_slots: &DeviceSlots,
        in_kernels: &mut Duration,
    ) -> Result<Outputs, OpsError> {
        let (plan, masks) = (&*submitted.plan, &*submitted.masks);
        let Self { engine, thread_pool, batch, slots, scores, failures, previous } = self;
        batch.fill(plan, previous);
        let (slots, failures) = (&slots[..plan.samples()], &failures[..plan.spans.len()]);
        let scores = &scores[..plan.scores()];
        slots.iter().for_each(|slot| *lock(slot) = None);
        scores.iter().for_each(|slot| *lock(slot) = None);
        for number in 0..batch.hidden.len() {
            // SAFETY: there is room for as many as a plan may want, and no task runs.
            unsafe { hidden_sums(engine, number) }.fill(0);
        }
        fail_without_inputs(plan, previous, failures);
        let context = StepContext { engine, plan, device_slots, batch, masks, slots, scores, failures };
        let mut step = Step { context, thread_pool, micro_batch: MicroBatch::default(), in_kernels: Duration::ZERO };
        step.copy(&plan.copies);
        if batch.rows.is_empty() {
            // A reader of what was copied waits for the whole step.
            engine.progress.written(plan.step, (engine.layers.len() - 1) as u16);
            *in_kernels = step.in_kernels;
            previous.clear();
            return Ok(Outputs::default());
        }
        step.prepare();
        let decoder = &engine.model.decoder;
        let done = match lock(&engine.taps.operations).as_deref_mut() {
            Some(tap) => decoder.forward(&mut Timed::new(&mut step, tap, |linear| decoder.role(linear))),
            None => decoder.forward(&mut step),
        };
        *in_kernels = step.in_kernels;
        done?;
        previous.clear();
        let mut outputs = Outputs {
            sampled: Vec::with_capacity(slots.len()),
            scored: Vec::with_capacity(scores.len()),
            hidden: Vec::with_capacity(batch.hidden.len()),
            failed: Vec::new(),
        };
        let (mut slots, mut scores, mut hidden) = (slots.iter(), scores.iter(), batch.hidden.iter().enumerate());
        for (number, span) in plan.spans.iter().enumerate() {
            let own = slots.by_ref().take(span.samples.len()).map(|slot| lock(slot).take());
            let scored = scores.by_ref().take(span.scores.len()).map(|slot| lock(slot).take());
            let hidden = span.hidden.and_then(|_| hidden.next());
            if let Some(failure) = lock(&failures[number]).take() {
                outputs.failed.push(FailedSpan { span: number, reason: failure.to_string() });
                previous.extend(own.map(|_| None));
                scored.for_each(drop);
                continue;
            }
            for slot in own {
                let one = slot.expect("every sample of a span without failure was taken");
                previous.push(Some(one.token));
                outputs.sampled.push(one);
            }
            outputs.scored.extend(scored.map(|slot| slot.expect("as every sample")));
            if let Some((number, wanted)) = hidden {
                // SAFETY: as above.
                let sums = unsafe { hidden_sums(engine, number) }.to_vec();
                outputs.hidden.push(HiddenSum { rows: wanted.rows.len() as u32, sums });
            }
        }
        Ok(outputs)
    }
}

/// Notes which spans of a plan fail, since the step before did not sample one of their inputs.
fn fail_without_inputs(plan: &StepPlan, previous: &[Option<Token>], failures: &[FailureSlot]) {
    for (failure, span) in failures.iter().zip(&plan.spans) {
        let is_missing = |input: &Input| matches!(*input, Input::Sampled(n) if sampled(previous, n).is_none());
        let missing = span.inputs.iter().any(is_missing);
        *lock(failure) = missing.then_some(SpanFailure::Input);
    }
}

/// Returns the sums of the `number`-th span of a step that wants hidden states.
///
/// # Safety
/// The number is below the limit of outputs, and nothing else uses the sums meanwhile.
#[allow(clippy::mut_from_ref)]
unsafe fn hidden_sums(engine: &Engine, number: usize) -> &mut [i64] {
    let sums = engine.hidden_sums(number);
    // SAFETY: as the caller says; a mapping begins at a page, and rows are multiples of 8 bytes.
    unsafe { std::slice::from_raw_parts_mut(sums.add(0).cast(), engine.model.spec().hidden) }
}
