//! The operations of a step on the CPU: each divides its work into tasks for the pool.
//!
//! The plan was checked when it was taken (`check`), which is why rows, tokens and blocks are in range here.

mod attention;
mod hidden;

use super::batch::{Batch, InputRow, LogitsRow, MicroBatch};
use super::kernels::{self, CacheRow, CapRow, Form, Gated, PANEL, Preparation, Product, RmsNorm, RotaryRow};
use super::memory::{Address, Arena, Memory, Rows};
use super::model::CpuModel;
use super::progress::Progress;
use super::rotary::RotaryTables;
use super::simd::Isa;
use super::taps::Taps;
use super::thread_pool::ThreadPool;
use crate::clock::now;
use crate::device::PoolMemory;
use crate::locks::lock;
use crate::masks::{MaskBoard, StepMasks};
use crate::ops::{Axis, Buffer, Embedding, Linear, Norm, NormArgs, Ops, OpsResult};
use crate::pool::Pool;
use crate::sampling::{SampleContext, Sampler};
use crate::slots::DeviceSlots;
use crate::span_failure::SpanFailure;
use crate::spec::ModelSpec;
use domain::KvLayout;
use domain::plan::{BlockCopy, Sampled, StepPlan, TokenLogprobs};
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rows of one task of the operations that go row by row.
const ROWS_PER_TASK: usize = 8;
/// Rows of one task of a linear layer, at most: they share what is unpacked of a panel, and more would not fit the
/// L2 cache.
const LINEAR_ROWS_MAX: usize = 256;
/// Rows of one task of a linear layer, at least, if there are so many: two tiles. A multiple of it, since the
/// tiles are.
const LINEAR_ROWS_MIN: usize = 32;
/// Tasks of a linear layer for each thread, if rows can be divided so far: as many as let threads of different
/// speed end together.
const LINEAR_TASKS_PER_THREAD: usize = 8;

/// Activations that the leader prepares alone, since telling the pool would take longer.
const PREPARED_BY_LEADER: usize = 16 << 10;

/// What stays the same from step to step.
pub(super) struct Engine {
    pub(super) model: Arc<CpuModel>,
    pub(super) layout: KvLayout,
    pub(super) isa: Isa,
    pub(super) pools: Vec<Arc<Pool>>,
    pub(super) arena: Arena,
    /// Of each model layer: its KV group and its index there.
    pub(super) layers: Vec<(usize, usize)>,
    /// Cosines and sines of each row's position.
    pub(super) rotary: RotaryTables,
    /// Rows of activations, prepared for the linear layer that runs.
    pub(super) prepared: Memory,
    /// Softmax states of queries whose attention was cut.
    pub(super) kept: Memory,
    /// Sums of hidden states, one row of `hidden` i64 for each span that wants them.
    pub(super) hidden: Memory,
    /// One for each thread.
    pub(super) samplers: Vec<Mutex<Sampler>>,
    pub(super) progress: Progress,
    pub(super) taps: Taps,
}

impl Engine {
    /// Returns the address of the sums of the `number`-th span of a step that wants hidden states: `hidden` i64.
    pub(super) fn hidden_sums(&self, number: usize) -> Address {
        Address::new(self.hidden.as_ptr().wrapping_add(number * self.model.spec.hidden * size_of::<i64>()))
    }
}

/// Where a sampled token goes.
pub(super) type SampleSlot = Mutex<Option<Sampled>>;
/// Where the log probability of a scored token goes.
pub(super) type ScoreSlot = Mutex<Option<TokenLogprobs>>;
/// Why a span failed, if it did.
pub(super) type FailureSlot = Mutex<Option<SpanFailure>>;

/// What all tasks of a step read.
#[derive(Clone, Copy)]
pub(super) struct StepContext<'a> {
    pub(super) engine: &'a Engine,
    pub(super) plan: &'a StepPlan,
    /// The blocks and tokens of its sequences.
    pub(super) device_slots: &'a DeviceSlots,
    pub(super) batch: &'a Batch,
    /// Where its masks come.
    pub(super) masks: &'a MaskBoard,
    /// One for each sample of the plan.
    pub(super) slots: &'a [SampleSlot],
    /// One for each score of the plan.
    pub(super) scores: &'a [ScoreSlot],
    /// One for each span of the plan.
    pub(super) failures: &'a [FailureSlot],
}

/// One step.
pub(super) struct Step<'a> {
    pub(super) context: StepContext<'a>,
    pub(super) thread_pool: &'a mut ThreadPool,
    /// The rows that operations are about.
    pub(super) micro_batch: MicroBatch,
    /// Time spent in kernels so far.
    pub(super) in_kernels: Duration,
}

impl<'a> Step<'a> {
    /// Copies whole records, in order.
    pub(super) fn copy(&mut self, copies: &[BlockCopy]) {
        let began = now();
        for copy in copies {
            let group = usize::from(copy.group.0);
            let (pool, bytes) =
                (self.context.engine.pools[group].as_ptr(), self.context.engine.layout.record_bytes(group));
            // SAFETY: both blocks are in the pool and differ; nobody else writes either of them while the plan runs.
            unsafe {
                let from = pool.add(copy.from.0 as usize * bytes);
                pool.add(copy.to.0 as usize * bytes).copy_from_nonoverlapping(from, bytes);
            }
        }
        self.in_kernels += now().duration_since(began);
    }

    /// Computes the rotary tables of the step's positions.
    pub(super) fn prepare(&mut self) {
        let StepContext { engine, batch, .. } = self.context;
        self.each_row(batch.rows.len(), &|index| {
            // SAFETY: the row is in the batch, and only this task writes its tables.
            unsafe { engine.rotary.fill(index, batch.rows[index].position) };
        });
    }

    /// Runs tasks and takes the time.
    fn run(&mut self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let began = now();
        self.thread_pool.run(tasks, task);
        self.in_kernels += now().duration_since(began);
    }

    /// Runs `work` for each of `rows` rows.
    fn each_row(&mut self, rows: usize, work: &(dyn Fn(usize) + Sync)) {
        self.run(rows.div_ceil(ROWS_PER_TASK), &|_, task| {
            let first = task * ROWS_PER_TASK;
            (first..rows.min(first + ROWS_PER_TASK)).for_each(work);
        });
    }

    /// Prepares rows of activations for a form of weights: the first of them, and the bytes from one to the next.
    fn prepare_rows(&mut self, form: Form, inputs: usize, x: Rows, rows: usize) -> (Address, usize) {
        let engine = self.context.engine;
        let stride = form.prepared_bytes(inputs);
        if stride == 0 {
            // SAFETY: the arena has a first row.
            return (Address::new(unsafe { x.row(0) }.cast()), x.stride * size_of::<f32>());
        }
        let prepared = Address::new(engine.prepared.as_ptr());
        let prepare = |index: usize| {
            // SAFETY: the row is in the arena, and its place in the memory that was made for it is this task's.
            unsafe {
                let row = Preparation { x: x.row(index), inputs, to: prepared.add(index * stride) };
                form.prepare(engine.isa, &row);
            }
        };
        if rows * inputs <= PREPARED_BY_LEADER {
            let began = now();
            (0..rows).for_each(prepare);
            self.in_kernels += now().duration_since(began);
        } else {
            self.each_row(rows, &prepare);
        }
        (prepared, stride)
    }

    /// Returns how many rows of this axis an operation is about.
    fn count(&self, axis: Axis) -> usize {
        match axis {
            Axis::Inputs | Axis::MicroBatch => self.micro_batch.rows.len(),
            Axis::Logits => self.context.batch.logits.len(),
        }
    }

    /// Returns the rows of a buffer: those of the micro-batch, or all whose logits are wanted.
    fn rows(&self, buffer: Buffer) -> Rows {
        self.context.engine.arena.rows(buffer, self.micro_batch.rows.start)
    }

    /// Returns the input rows of the micro-batch.
    fn inputs(&self) -> &'a [InputRow] {
        &self.context.batch.rows[self.micro_batch.rows.clone()]
    }

    /// Spans of which a row is not finite in the residual stream fail, whether they sample or not: no later layer
    /// mends such a row, and what attends to it must not be cached for others. By a weight of zero it reaches
    /// earlier rows of its span too, so that all of them count and none is blamed.
    fn fail_spans_not_finite(&mut self, residual: Buffer) {
        let (context, residual, inputs) = (self.context, self.rows(residual), self.inputs());
        self.each_row(inputs.len(), &|index| {
            // SAFETY: the row is in the arena, is `hidden` wide, and nobody writes it now.
            let row = unsafe { slice::from_raw_parts(residual.row(index), context.engine.model.spec.hidden) };
            if !all_finite(row) {
                context.is_not_finite(inputs[index].span);
            }
        });
    }

    /// RMS norm of `count` rows of the residual stream: of each, which row of the micro-batch it is and which of the
    /// result.
    fn norm_rows(&mut self, args: NormArgs, count: usize, rows: &(dyn Fn(usize) -> (usize, usize) + Sync)) {
        let engine = self.context.engine;
        let (residual, out) = (self.rows(args.residual), self.rows(args.out));
        let add = args.add.map(|add| self.rows(add));
        let spec = &engine.model.spec;
        let weight = args.weight.map(|weight| engine.model.weights.norm(weight));
        self.each_row(count, &|index| {
            let (from, to) = rows(index);
            // SAFETY: both rows are in the arena; input rows differ between tasks, and so do result rows.
            unsafe {
                let norm = RmsNorm {
                    x: residual.row(from),
                    add: add.map_or(std::ptr::null(), |add| add.row(from).cast_const()),
                    add_scale: spec.residual_scale,
                    weight: weight.map_or(std::ptr::null(), <[f32]>::as_ptr),
                    out: out.row(to),
                    width: spec.hidden,
                    eps: spec.norm_eps,
                };
                kernels::rms_norm(engine.isa, &norm);
            }
        });
    }
}

impl StepContext<'_> {
    /// Writes keys or values of a row into its block.
    ///
    /// # Safety
    /// `from` has `kv_heads * head_dim` numbers; nobody else uses the row's positions of the block.
    unsafe fn cache(&self, group: usize, layer: usize, row: &InputRow, values: bool, from: *const f32) {
        let Engine { layout, isa, pools, model, .. } = self.engine;
        let table = self.device_slots.table(self.plan.spans[row.span].slot, group);
        let block = table.blocks[(row.position / layout.block_tokens - table.first) as usize];
        let size = layout.dtype.bytes();
        let head_dim = model.spec.head_dim;
        let part = layout.block_tokens as usize * head_dim * size;
        let offset = block.0 as usize * layout.record_bytes(group)
            + layout.slice_range(group, layer).start
            + (row.position % layout.block_tokens) as usize * head_dim * size
            + if values { part } else { 0 };
        // SAFETY: the offset is inside the block's record, and so are the heads, which are two parts apart.
        unsafe {
            let to = pools[group].as_ptr().add(offset);
            let heads = model.spec.kv_heads;
            let cache = CacheRow { from, to, head_stride: 2 * part, heads, head_dim, zeroed: row.zeroed as usize };
            kernels::cache_row(*isa, layout.dtype, &cache);
        }
    }

    /// Samples and scores of one row of logits.
    fn sample_row(&self, thread: usize, wanted: &LogitsRow, logits: &[f32], masks: &StepMasks) {
        if !all_finite(logits) {
            return self.is_not_finite(wanted.span);
        }
        let span = &self.plan.spans[wanted.span];
        let mut sampler = lock(&self.engine.samplers[thread]);
        for i in wanted.samples.clone() {
            let (sample, number) = (&span.samples[i], wanted.first_sample + i);
            let allowed = masks.get(number).and_then(Option::as_deref);
            if sample.masked && allowed.is_none() {
                self.fail(wanted.span, SpanFailure::NoMask);
                continue;
            }
            let history = self.device_slots.history(span.slot);
            // The inputs up to its row that the slot does not have. Where one is missing, the span has failed.
            let known = history.len().saturating_sub(span.start as usize);
            let first = wanted.row - sample.row as usize;
            let pending = self.batch.tokens.get(first + known..=wanted.row).unwrap_or_default();
            let (prompt, output) = (history.prompt(), history.output());
            match sampler.sample(logits, sample, SampleContext { prompt, output, pending, allowed }) {
                Ok(sampled) => *lock(&self.slots[number]) = Some(sampled),
                Err(error) => self.fail(wanted.span, error.into()),
            }
        }
        for i in wanted.scores.clone() {
            match sampler.score(logits, span.key, &span.scores[i]) {
                Ok(logprobs) => *lock(&self.scores[wanted.first_score + i]) = Some(logprobs),
                Err(error) => self.fail(wanted.span, error.into()),
            }
        }
    }

    /// A span fails alone; the first reason counts.
    fn fail(&self, span: usize, failure: SpanFailure) {
        lock(&self.failures[span]).get_or_insert(failure);
    }

    /// A span fails, since the model has no numbers for it.
    fn is_not_finite(&self, span: usize) {
        self.fail(span, SpanFailure::not_finite(&self.plan.spans[span]));
    }

    /// Logits of row `index` of those that are wanted.
    fn logits_row(&self, logits: Rows, index: usize) -> &[f32] {
        // SAFETY: the row is in the arena, has `vocab` numbers, and nothing writes it while samples are taken.
        unsafe { slice::from_raw_parts(logits.row(index), self.engine.model.spec.vocab) }
    }
}

impl Ops for Step<'_> {
    fn micro_batches(&self) -> usize {
        self.context.batch.micro_batches.len()
    }

    fn begin_micro_batch(&mut self, index: usize) {
        self.micro_batch = self.context.batch.micro_batches[index].clone();
    }

    fn embed(&mut self, table: Embedding, out: Buffer) -> OpsResult {
        let engine = self.context.engine;
        let (tokens, out) = (&self.context.batch.tokens[self.micro_batch.rows.clone()], self.rows(out));
        self.each_row(tokens.len(), &|index| {
            // SAFETY: the token is in the vocabulary, and only this task writes this row, which is `hidden` wide.
            unsafe {
                engine.model.weights.embed(table, tokens[index] as usize, out.row(index));
                let row = slice::from_raw_parts_mut(out.row(index), engine.model.spec.hidden);
                row.iter_mut().for_each(|x| *x *= engine.model.spec.embedding_scale);
            }
        });
        Ok(())
    }

    fn rms_norm(&mut self, args: NormArgs) -> OpsResult {
        self.norm_rows(args, self.micro_batch.rows.len(), &|index| (index, index));
        Ok(())
    }

    fn linear(&mut self, weights: Linear, x: Buffer, out: Buffer) -> OpsResult {
        let engine = self.context.engine;
        let linear = engine.model.weights.linear(weights);
        let (x, out) = (self.rows(x), self.rows(out));
        let rows = self.count(x.axis);
        for (form, panels) in linear.passes() {
            let (prepared, x_stride) = self.prepare_rows(form, linear.inputs, x, rows);
            let wanted = (LINEAR_TASKS_PER_THREAD * self.thread_pool.threads()).div_ceil(panels.len());
            let rows_per_task =
                rows.div_ceil(wanted).next_multiple_of(LINEAR_ROWS_MIN).clamp(LINEAR_ROWS_MIN, LINEAR_ROWS_MAX);
            let parts = rows.div_ceil(rows_per_task);
            self.run(panels.len() * parts, &|_, task| {
                let (index, row) = (panels.start + task / parts, task % parts * rows_per_task);
                let panel = linear.panel(index);
                // SAFETY: rows are prepared, and in the arena, which has room for whole panels; only this task writes
                // this panel's outputs of these rows.
                unsafe {
                    let product = Product {
                        x: prepared.add(row * x_stride),
                        x_stride,
                        rows: rows_per_task.min(rows - row),
                        inputs: linear.inputs,
                        weights: panel.weights,
                        start: panel.start,
                        out: out.row(row).add(index * PANEL),
                        out_stride: out.stride,
                    };
                    panel.form.multiply(engine.isa, &product);
                }
            });
        }
        Ok(())
    }

    fn head_norm(&mut self, query: Norm, key: Norm, qkv: Buffer) -> OpsResult {
        let engine = self.context.engine;
        let spec = &engine.model.spec;
        let qkv = self.rows(qkv);
        let (query, key) = (engine.model.weights.norm(query), engine.model.weights.norm(key));
        self.each_row(self.micro_batch.rows.len(), &|index| {
            let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
            for (first, numbers, weight) in [(0, queries, query), (queries, keys, key)] {
                for from in (first..first + numbers).step_by(weight.len()) {
                    // SAFETY: the numbers are in the row, which is this task's: the weights are as many as a head
                    // has, or as all heads together.
                    unsafe {
                        let x = qkv.row(index).add(from);
                        let norm = RmsNorm {
                            x,
                            add: std::ptr::null(),
                            add_scale: 1.0,
                            weight: weight.as_ptr(),
                            out: x,
                            width: weight.len(),
                            eps: spec.norm_eps,
                        };
                        kernels::rms_norm(engine.isa, &norm);
                    }
                }
            }
        });
        Ok(())
    }

    fn rope_cache(&mut self, layer: u16, qkv: Buffer, queries: Buffer) -> OpsResult {
        let context = self.context;
        let engine = context.engine;
        let spec = &engine.model.spec;
        let (group, index) = engine.layers[usize::from(layer)];
        let (qkv, queries) = (self.rows(qkv), self.rows(queries));
        let (first, inputs) = (self.micro_batch.rows.start, self.inputs());
        self.each_row(inputs.len(), &|row| {
            // SAFETY: the heads are in the row, which is this task's, as are its queries and its positions in its
            // block: spans of a plan write different blocks, and rows of a span different positions.
            unsafe {
                let heads = qkv.row(row);
                let keys = heads.add(spec.heads * spec.head_dim);
                let values = keys.add(spec.kv_heads * spec.head_dim);
                let (table, dims) = engine.rotary.row(layer, first + row);
                let (count, head_dim) = (spec.heads + spec.kv_heads, spec.head_dim);
                kernels::rotary(engine.isa, &RotaryRow { heads, count, head_dim, dims, table });
                if let Some(growth) = spec.query_growth {
                    grow(slice::from_raw_parts_mut(heads, spec.heads * head_dim), growth.at(inputs[row].position));
                }
                queries.row(row).copy_from_nonoverlapping(heads, spec.heads * head_dim);
                context.cache(group, index, &inputs[row], false, keys);
                context.cache(group, index, &inputs[row], true, values);
            }
        });
        Ok(())
    }

    fn kv_written(&mut self, layer: u16) -> OpsResult {
        let step = self.context.plan.step;
        self.context.engine.progress.written(step, layer);
        tracing::trace!(target: "timeline", step = step.0, layer, "layer written");
        Ok(())
    }

    fn attention(&mut self, layer: u16, queries: Buffer) -> OpsResult {
        self.attend(layer, queries);
        Ok(())
    }

    fn gated(&mut self, layer: u16, gate_up: Buffer) -> OpsResult {
        let engine = self.context.engine;
        let spec = &engine.model.spec;
        let width = spec.feed_forward[usize::from(layer)].width();
        let gate_up = self.rows(gate_up);
        self.each_row(self.micro_batch.rows.len(), &|index| {
            // SAFETY: the row is in the arena, and only this task uses it.
            unsafe {
                let row = gate_up.row(index);
                let gated = Gated { activation: spec.activation, gate_up: row, out: row, width };
                kernels::gated(engine.isa, &gated);
            }
        });
        Ok(())
    }

    fn all_reduce(&mut self, _: Buffer) -> OpsResult {
        // One rank has all of it.
        Ok(())
    }

    fn last_norm(&mut self, args: NormArgs, scratch: Buffer) -> OpsResult {
        let batch = self.context.batch;
        let MicroBatch { rows, logits, .. } = self.micro_batch.clone();
        self.fail_spans_not_finite(args.residual);
        self.norm_rows(args, logits.len(), &|index| {
            let index = logits.start + index;
            (batch.logits[index].row - rows.start, index)
        });
        if !batch.hidden.is_empty() {
            self.add_hidden(args, scratch);
        }
        Ok(())
    }

    fn logits(&mut self, head: Linear, x: Buffer, out: Buffer) -> OpsResult {
        self.linear(head, x, out)?;
        let StepContext { engine, batch, .. } = self.context;
        let &ModelSpec { vocab, logits_scale, logits_cap, .. } = &engine.model.spec;
        if logits_scale != 1.0 || logits_cap.is_some() {
            let out = self.rows(out);
            self.each_row(batch.logits.len(), &|index| {
                // SAFETY: the row is in the arena and has `vocab` numbers, and only this task uses it.
                unsafe {
                    let row = CapRow { x: out.row(index), width: vocab, scale: logits_scale, cap: logits_cap };
                    kernels::cap_row(engine.isa, &row);
                }
            });
        }
        Ok(())
    }

    fn sample(&mut self, logits: Buffer) -> OpsResult {
        let context = self.context;
        let StepContext { engine, batch, plan, .. } = context;
        let logits = self.rows(logits);
        if let Some(tap) = lock(&engine.taps.logits).as_mut() {
            for (index, wanted) in batch.logits.iter().enumerate() {
                tap.logits(
                    plan.spans[wanted.span].key,
                    batch.rows[wanted.row].position,
                    context.logits_row(logits, index),
                );
            }
        }
        let masks = context.masks.take(plan, |span| lock(&context.failures[span]).is_some());
        self.run(batch.logits.len(), &|thread, index| {
            context.sample_row(thread, &batch.logits[index], context.logits_row(logits, index), &masks);
        });
        Ok(())
    }
}

/// Multiplies all numbers.
fn grow(numbers: &mut [f32], factor: f32) {
    numbers.iter_mut().for_each(|number| *number *= factor);
}

/// Returns whether all numbers are. To the end in any case, so that it is a loop over vectors.
fn all_finite(numbers: &[f32]) -> bool {
    // Without its sign, a number that is not finite is the larger one in bits too.
    let largest = numbers.iter().fold(0, |largest: i32, x| largest.max((x.to_bits() & 0x7fff_ffff) as i32));
    largest < f32::INFINITY.to_bits() as i32
}
