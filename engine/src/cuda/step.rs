//! The operations of a step as launches. This is the only place that knows which kernels an operation is made of.
//!
//! What a launch depends on is fixed for a device, or follows from the sizes of a step, or lies in the slab. So the
//! same code records a graph and runs a step.

use super::fast::{self, Fast, Target};
use super::inputs::{Fixed, MicroSections, Sections, Sizes};
use super::memory::{OutputPlaces, StepMemory};
use super::model::CudaModel;
use super::pool::CudaPool;
use super::slab::Section;
use super::weights::Matrix;
use crate::ops::{Buffer, Embedding, Linear, MlpArgs, Norm, NormArgs, Ops, OpsError, OpsResult};
use crate::spec::{self, ModelSpec};
use cuda::kernels::{
    self as of, AttentionCache, AttentionOperands, AttentionRows, AttentionScoring, CapLogitsArgs, DecodeArgs,
    EmbedArgs, Finish, GateOrder, GatedArgs, HeadNorm, HiddenSumsArgs, PrefillArgs, ProductArgs, ProgressArgs,
    RopeCacheArgs,
};
use cuda::{DriverError, Stream};
use domain::KvLayout;
use half::bf16;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a multiprocessor that bring heads to the cache.
const HEAD_BLOCKS: u32 = 8;

/// What stays the same from step to step.
pub(super) struct Engine {
    pub(super) model: Arc<CudaModel>,
    pub(super) layout: KvLayout,
    pub(super) fixed: Fixed,
    pub(super) pools: Vec<Arc<CudaPool>>,
    pub(super) memory: StepMemory,
    pub(super) outputs: OutputPlaces,
    /// Of each model layer: its KV group and its index there.
    pub(super) layers: Vec<(usize, usize)>,
    /// The card's address of the progress word.
    pub(super) progress: u64,
    /// Slots, and entries of a block table.
    pub(super) slots_max: usize,
    pub(super) blocks_max: usize,
    pub(super) stream: Stream,
    /// Of the set `fast`.
    pub(super) fast: Option<Fast>,
}

impl Engine {
    /// Returns what makes the product of a matrix in place of our own kernels.
    fn fast_for(&self, matrix: &Matrix, rows: usize) -> Option<&Fast> {
        self.fast.as_ref().filter(|_| fast::is_taken(matrix, rows))
    }

    /// Returns the card's address of a list in the slab.
    fn at(&self, section: Section) -> u64 {
        self.memory.slab.address() + section.at as u64
    }

    /// Returns the card's address of the words that tell which rows are broken.
    pub(super) fn broken(&self) -> u64 {
        self.memory.outputs.address() + self.outputs.broken as u64
    }
}

/// The launches of one step, or of a graph.
pub(super) struct Step<'a> {
    engine: &'a Engine,
    sizes: Sizes,
    sections: &'a Sections,
    /// The rows of logits that each micro-batch begins with, and behind the last one how many there are.
    logits: &'a [usize],
    /// The micro-batch that operations are about.
    micro_batch: usize,
}

impl From<DriverError> for OpsError {
    fn from(error: DriverError) -> Self {
        Self(error.to_string())
    }
}

impl<'a> Step<'a> {
    pub(super) fn new(engine: &'a Engine, sizes: Sizes, sections: &'a Sections, logits: &'a [usize]) -> Self {
        Self { engine, sizes, sections, logits, micro_batch: 0 }
    }

    fn spec(&self) -> &'a ModelSpec {
        &self.engine.model.spec
    }

    /// Returns the rows that operations are about.
    fn rows(&self) -> Range<usize> {
        self.sizes.micro_batch(self.micro_batch)
    }

    fn micro(&self) -> &'a MicroSections {
        &self.sections.micro[self.micro_batch]
    }

    /// Returns the address of the micro-batch's first row in a buffer of all rows of the step.
    fn of_all(&self, buffer: Buffer, width: usize) -> u64 {
        self.engine.memory.buffer(buffer) + (self.rows().start * width * size_of::<bf16>()) as u64
    }

    fn broken(&self) -> u64 {
        self.engine.broken() + (self.rows().start * size_of::<u32>()) as u64
    }

    /// Returns the address of the micro-batch's first word in a list of all rows of the step.
    fn list(&self, section: Section) -> u64 {
        self.engine.at(section) + (self.rows().start * size_of::<u32>()) as u64
    }

    fn norm_args(&self, args: NormArgs, out: u64, rows: usize) -> of::NormArgs {
        let (engine, spec) = (self.engine, self.spec());
        let residual = match engine.model.decoder.is_of_all_rows(args.residual) {
            true => self.of_all(args.residual, spec.hidden),
            false => engine.memory.buffer(args.residual),
        };
        of::NormArgs {
            residual,
            add: args.add.map_or(0, |add| engine.memory.buffer(add)),
            weight: args.weight.map_or(0, |weight| engine.model.weights.norms[weight.0].weights.address()),
            out,
            broken: self.broken(),
            from: 0,
            rows: rows as u32,
            width: spec.hidden as u32,
            eps: spec.norm_eps,
            residual_scale: spec.residual_scale,
        }
    }

    /// Queues the products of a layer's matrices, which write their columns of the rows of `out`.
    fn product(&self, linear: Linear, x: u64, out: u64, rows: usize, finish: Finish) -> OpsResult {
        let engine = self.engine;
        let linear = &engine.model.weights.linears[linear.0];
        let stride = finish.width(linear.outputs as u32);
        let number_bytes = if finish == Finish::F32 { size_of::<f32>() } else { size_of::<bf16>() } as u64;
        let mut out = out;
        for matrix in &linear.matrices {
            let outputs = matrix.outputs as u32;
            let to = out;
            out += u64::from(finish.width(outputs)) * number_bytes;
            if let Some(fast) = engine.fast_for(matrix, rows) {
                let target = Target { out: to, stride, finish };
                // SAFETY: as below.
                unsafe { fast.launch(&engine.stream, linear, matrix, (x, rows), target) }?;
                continue;
            }
            let args = ProductArgs {
                out: to,
                weights: matrix.weights.address(),
                x,
                bias: matrix.bias.as_ref().map_or(0, |bias| bias.address()),
                rows: rows as u32,
                outputs,
                inputs: linear.inputs as u32,
                stride,
                finish,
            };
            let products = engine.model.kernels.products(matrix.form);
            // SAFETY: the buffers have room for the step's rows, and rows of a layer lie one behind the other.
            unsafe { products.launch(&engine.stream, &args) }?;
        }
        Ok(())
    }

    /// Queues gates and ups, and what becomes of them.
    fn gate_up(&self, args: &MlpArgs, rows: usize) -> OpsResult {
        let (engine, spec) = (self.engine, self.spec());
        let (memory, linear) = (&engine.memory, &engine.model.weights.linears[args.gate_up.0]);
        let (x, gated) = (memory.buffer(args.norm.out), memory.gated.address());
        let (finish, activation) = match spec.activation {
            spec::Activation::Silu => (Finish::SiluGated, of::Activation::Silu),
            spec::Activation::GeluTanh => (Finish::GeluGated, of::Activation::GeluTanh),
        };
        let is_whole = linear.matrices.len() == 1;
        if is_whole && engine.fast_for(&linear.matrices[0], rows).is_none() {
            return self.product(args.gate_up, x, gated, rows, finish);
        }
        // Gates and ups of two forms, of which neither product has both; or of a product that activates nothing.
        let both = memory.buffer(args.gate_up_out);
        self.product(args.gate_up, x, both, rows, Finish::Bf16)?;
        let args = GatedArgs {
            gates_ups: both,
            out: gated,
            broken: self.broken(),
            rows: rows as u32,
            width: linear.outputs as u32 / 2,
            activation,
            order: if is_whole { GateOrder::Groups } else { GateOrder::Halves },
        };
        // SAFETY: the buffers have room for the micro-batch.
        Ok(unsafe { engine.model.kernels.gated.launch(&engine.stream, &args) }?)
    }

    fn progress(&self, layer: u16) -> ProgressArgs {
        let is_last = usize::from(layer) + 1 == self.engine.layers.len();
        // The last layer is told to whoever may have come meanwhile.
        let step = self.engine.at(if is_last { self.sections.last_step } else { self.sections.step });
        ProgressArgs { step, word: self.engine.progress, layer: layer.into() }
    }

    /// Returns the heads' norms as their kernel wants them.
    fn head_norm_of(&self, norms: Option<(Norm, Norm)>) -> HeadNorm {
        let Some((query, key)) = norms else { return HeadNorm::None };
        let norm = |norm: Norm| &self.engine.model.weights.norms[norm.0];
        let (query, key) = (norm(query), norm(key));
        let is_by_head = query.width == self.spec().head_dim;
        let (query, key) = (query.weights.address(), key.weights.address());
        if is_by_head { HeadNorm::Heads { query, key } } else { HeadNorm::Width { query, key } }
    }

    /// Queues everything between the projection of heads and their attention.
    fn rope(&self, layer: u16, qkv: Buffer, queries: Buffer, norms: Option<(Norm, Norm)>) -> OpsResult {
        let (engine, spec) = (self.engine, self.spec());
        let (group, index) = engine.layers[usize::from(layer)];
        let memory = &engine.memory;
        let is_alone = self.sizes.micro_batches() == 1;
        let args = RopeCacheArgs {
            heads: memory.buffer(qkv),
            queries: self.of_all(queries, spec.heads * spec.head_dim),
            slices: self.slice(group, index),
            record_bytes: engine.layout.record_bytes(group) as u64,
            tables: self.tables(group),
            positions: self.list(self.sections.positions),
            slots: self.list(self.sections.slots),
            ends: self.list(self.sections.ends),
            rotary: memory.rotary(layer),
            growth: memory.growth.as_ref().map_or(0, |growth| growth.address()),
            norm: self.head_norm_of(norms),
            broken: self.broken(),
            rows: self.rows().len() as u32,
            query_heads: spec.heads as u32,
            kv_heads: spec.kv_heads as u32,
            dim: spec.head_dim as u32,
            rotated: spec.ropes[usize::from(layer)].dims as u32,
            block_tokens: engine.layout.block_tokens,
            blocks_max: engine.blocks_max as u32,
            eps: spec.norm_eps,
            grid_max: engine.model.card.multiprocessors * HEAD_BLOCKS,
            // With several micro-batches it rises behind the last of them.
            progress: is_alone.then(|| (self.progress(layer), memory.ticket.address())),
        };
        // SAFETY: the plan was checked: tables have a block for each position, and no two rows write the same place.
        Ok(unsafe { engine.model.kernels.rope_cache.launch(&engine.stream, &args) }?)
    }

    /// Returns the address of a layer's slice in the record of block 0.
    fn slice(&self, group: usize, index: usize) -> u64 {
        self.engine.pools[group].address() + self.engine.layout.slice_range(group, index).start as u64
    }

    /// Returns the address of a KV group's block tables.
    fn tables(&self, group: usize) -> u64 {
        let words = group * self.engine.slots_max * self.engine.blocks_max;
        self.engine.memory.tables.address() + (words * size_of::<u32>()) as u64
    }

    /// Norms the rows of the micro-batch whose logits are wanted.
    fn norm_logits(&self, args: NormArgs) -> OpsResult {
        let (engine, own) = (self.engine, &self.logits[self.micro_batch..]);
        let (first, rows) = (own[0], own[1] - own[0]);
        if rows == 0 {
            return Ok(());
        }
        let out = engine.memory.buffer(args.out) + (first * self.spec().hidden * size_of::<bf16>()) as u64;
        let from = engine.at(self.sections.logits) + (first * size_of::<u32>()) as u64;
        let args = of::NormArgs { from, ..self.norm_args(args, out, rows) };
        // SAFETY: the list names rows of the micro-batch, and there is room for the logits of a step.
        Ok(unsafe { engine.model.kernels.norm.launch(&engine.stream, &args) }?)
    }

    /// Norms all rows of the micro-batch, and adds up those whose hidden states are wanted.
    fn add_hidden(&self, args: NormArgs, scratch: Buffer) -> OpsResult {
        let (engine, rows) = (self.engine, self.rows().len());
        let out = engine.memory.buffer(scratch);
        let count = engine.at(self.sections.hidden_counts) + (self.micro_batch * size_of::<u32>()) as u64;
        let sums = HiddenSumsArgs {
            normed: out,
            lists: engine.at(self.micro().hidden),
            count,
            sums: engine.memory.outputs.address() + engine.outputs.hidden as u64,
            broken: self.broken(),
            width: self.spec().hidden as u32,
        };
        let kernels = &engine.model.kernels;
        // SAFETY: the buffer has room for the rows, the lists name some of them, and sums are of the step alone.
        unsafe {
            kernels.norm.launch(&engine.stream, &self.norm_args(args, out, rows))?;
            Ok(kernels.hidden_sums.launch(&engine.stream, &sums)?)
        }
    }
}

impl Ops for Step<'_> {
    fn micro_batches(&self) -> usize {
        self.sizes.micro_batches()
    }

    fn begin_micro_batch(&mut self, index: usize) {
        self.micro_batch = index;
    }

    fn embed(&mut self, table: Embedding, out: Buffer) -> OpsResult {
        let (engine, spec) = (self.engine, self.spec());
        let args = EmbedArgs {
            table: engine.model.weights.tables[table.0].rows.address(),
            tokens: self.list(self.sections.tokens),
            sampled: engine.memory.sampled.address(),
            out: self.of_all(out, spec.hidden),
            broken: self.broken(),
            rows: self.rows().len() as u32,
            width: spec.hidden as u32,
            vocab: spec.vocab as u32,
            scale: spec.embedding_scale,
        };
        // SAFETY: the buffer has room for the step's rows.
        Ok(unsafe { engine.model.kernels.embed.launch(&engine.stream, &args) }?)
    }

    fn rms_norm(&mut self, args: NormArgs) -> OpsResult {
        let engine = self.engine;
        let args = self.norm_args(args, engine.memory.buffer(args.out), self.rows().len());
        // SAFETY: the buffers have room for the micro-batch.
        Ok(unsafe { engine.model.kernels.norm.launch(&engine.stream, &args) }?)
    }

    fn linear(&mut self, weights: Linear, x: Buffer, out: Buffer) -> OpsResult {
        // What attention made is in a buffer of all rows.
        let width = self.engine.model.weights.linears[weights.0].inputs;
        let x = match self.engine.model.decoder.is_of_all_rows(x) {
            true => self.of_all(x, width),
            false => self.engine.memory.buffer(x),
        };
        self.product(weights, x, self.engine.memory.buffer(out), self.rows().len(), Finish::Bf16)
    }

    fn head_norm(&mut self, _: Norm, _: Norm, _: Buffer) -> OpsResult {
        Err(OpsError("norms of heads are part of what writes the cache".to_owned()))
    }

    fn rope_cache(&mut self, layer: u16, qkv: Buffer, queries: Buffer) -> OpsResult {
        self.rope(layer, qkv, queries, None)
    }

    fn norm_qkv_rope_cache(&mut self, args: crate::ops::QkvArgs) -> OpsResult {
        self.rms_norm(args.norm)?;
        self.linear(args.projection, args.norm.out, args.qkv)?;
        self.rope(args.layer, args.qkv, args.queries, args.head_norms)
    }

    fn kv_written(&mut self, layer: u16) -> OpsResult {
        let engine = self.engine;
        if self.sizes.micro_batches() == 1 {
            return Ok(());
        }
        // SAFETY: the word and the slab live as long as the device.
        Ok(unsafe { engine.model.kernels.rope_cache.raise(&engine.stream, &self.progress(layer)) }?)
    }

    fn attention(&mut self, layer: u16, queries: Buffer) -> OpsResult {
        let (engine, spec) = (self.engine, self.spec());
        let (group, index) = engine.layers[usize::from(layer)];
        let (memory, own) = (&engine.memory, self.micro().attention[group]);
        let width = spec.heads * spec.head_dim;
        let rows = AttentionRows { address: self.of_all(queries, width), stride: width as u32 };
        let cache = AttentionCache {
            slice: self.slice(group, index),
            record_bytes: engine.layout.record_bytes(group) as u64,
            tables: self.tables(group),
            blocks_max: engine.blocks_max as u32,
            block_tokens: engine.layout.block_tokens,
        };
        let cap = spec.attention_cap.unwrap_or(0.0);
        let scoring =
            AttentionScoring { scale: spec.attention_scale, cap, window: engine.fixed.windows[group], sinks: 0 };
        let operands = AttentionOperands { queries: rows, out: rows, cache, scoring };
        let (shape, multiprocessors) = (&engine.fixed.attention, engine.model.card.multiprocessors);
        let decode = DecodeArgs {
            operands,
            rows: engine.at(own.rows),
            slots: engine.at(own.slots),
            lengths: engine.at(own.lengths),
            pieces: engine.at(own.pieces),
            count: engine.at(own.counts),
            partials: memory.partials.address(),
            masses: memory.masses.address(),
            tickets: memory.tickets.address(),
            blocks: shape.decode_blocks(multiprocessors),
        };
        let prefill = PrefillArgs {
            operands,
            tiles: engine.at(own.tiles),
            count: engine.at(own.counts) + size_of::<u32>() as u64,
            scratch: memory.prefill.address(),
            blocks: shape.prefill_blocks(multiprocessors),
        };
        let kernels = &engine.model.kernels;
        // SAFETY: the lists are of this micro-batch, tables have blocks for all positions, and scratch is large enough.
        unsafe {
            kernels.decode.launch(&engine.stream, &decode)?;
            if !self.sizes.is_all_decoding {
                kernels.prefill.launch(&engine.stream, &prefill)?;
            }
        }
        Ok(())
    }

    fn gated(&mut self, _: u16, _: Buffer) -> OpsResult {
        Err(OpsError("gates are activated by the product that makes them".to_owned()))
    }

    fn mlp(&mut self, args: MlpArgs) -> OpsResult {
        self.rms_norm(args.norm)?;
        let (memory, rows) = (&self.engine.memory, self.rows().len());
        self.gate_up(&args, rows)?;
        let gated = memory.gated.address();
        self.product(args.down, gated, memory.buffer(args.out), rows, Finish::Bf16)?;
        self.all_reduce(args.out)
    }

    fn all_reduce(&mut self, _: Buffer) -> OpsResult {
        // One rank has all of it.
        Ok(())
    }

    fn last_norm(&mut self, args: NormArgs, scratch: Buffer) -> OpsResult {
        self.norm_logits(args)?;
        if self.sizes.hidden > 0 { self.add_hidden(args, scratch) } else { Ok(()) }
    }

    fn logits(&mut self, head: Linear, x: Buffer, out: Buffer) -> OpsResult {
        let (engine, spec) = (self.engine, self.spec());
        let rows = self.sizes.logits;
        if rows == 0 {
            return Ok(());
        }
        let out = engine.memory.buffer(out);
        self.product(head, engine.memory.buffer(x), out, rows, Finish::F32)?;
        if spec.logits_scale == 1.0 && spec.logits_cap.is_none() {
            return Ok(());
        }
        let count = (rows * spec.vocab) as u64;
        let cap = spec.logits_cap.unwrap_or(0.0);
        let args = CapLogitsArgs { logits: out, count, scale: spec.logits_scale, cap };
        // SAFETY: the buffer has as many logits.
        Ok(unsafe { engine.model.kernels.cap_logits.launch(&engine.stream, &args) }?)
    }

    fn sample(&mut self, _: Buffer) -> OpsResult {
        // It waits for masks, and is queued behind the graph.
        Ok(())
    }
}
