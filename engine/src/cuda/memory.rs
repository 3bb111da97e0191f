//! What a device has in its card's memory beside weights and KV.

use super::error::CudaError;
use super::inputs::{Fixed, MICRO_BATCH_ROWS_MAX, PIECES_MAX, Sections, Sizes};
use super::model::CudaModel;
use crate::device::DeviceLimits;
use crate::ops::{Axis, Buffer, BufferShape};
use crate::rope_angles::Rotations;
use crate::spec::{QueryGrowth, Rope};
use cuda::kernels::{SampleResult, Sampling};
use cuda::{Context, DeviceBytes, Stream};
use half::bf16;
use std::sync::Arc;

/// Bytes of the lists whose length has no bound, for which there is room from the start. More are allocated when a step
/// has more, which happens when many long sequences begin at once.
pub(super) const TAIL_BYTES: usize = 1 << 20;

/// Blocks of a grid of decode that share the tickets; a word of zero that launches share.
const TICKET_BYTES: usize = 16;

/// Memory that steps compute in. Addresses never change, so that graphs can have them.
pub(super) struct StepMemory {
    /// One for each buffer of the definition.
    buffers: Vec<DeviceBytes>,
    /// Gated activations of a micro-batch.
    pub(super) gated: DeviceBytes,
    /// The slab.
    pub(super) slab: DeviceBytes,
    /// Rows of logits that bias, masks and penalties change.
    pub(super) adjusted: DeviceBytes,
    /// Marks of histories, one row of words for each slot.
    pub(super) marks: DeviceBytes,
    /// Bits of masks, one row for each sample.
    pub(super) masks: DeviceBytes,
    /// Block tables, `[groups][slots][blocks_max]`.
    pub(super) tables: DeviceBytes,
    /// What the last step sampled.
    pub(super) sampled: DeviceBytes,
    pub(super) sampling: DeviceBytes,
    /// What goes to the host.
    pub(super) outputs: DeviceBytes,
    pub(super) partials: DeviceBytes,
    pub(super) masses: DeviceBytes,
    pub(super) tickets: DeviceBytes,
    /// Scratch of prompts' attention.
    pub(super) prefill: DeviceBytes,
    /// A word of zero that kernels share which never run at once.
    pub(super) ticket: DeviceBytes,
    /// Tables of cosines and sines, one for each rotary embedding.
    rotary: Vec<DeviceBytes>,
    /// Which of them each layer has.
    rotary_of_layer: Vec<usize>,
    /// Growth of queries by position.
    pub(super) growth: Option<DeviceBytes>,
}

/// Where the parts of what goes to the host lie, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputPlaces {
    /// One [`SampleResult`] for each request.
    pub(super) results: usize,
    /// One word for each row.
    pub(super) broken: usize,
    /// One row of i64 for each span whose hidden states are wanted.
    pub(super) hidden: usize,
    /// All of it.
    pub(super) bytes: usize,
}

impl OutputPlaces {
    /// Returns where they lie for steps within limits.
    pub(super) fn of(limits: &DeviceLimits, hidden: usize) -> Self {
        let broken = limits.outputs_max * size_of::<SampleResult>();
        let sums = (broken + limits.rows_max * size_of::<u32>()).next_multiple_of(16);
        Self { results: 0, broken, hidden: sums, bytes: sums + limits.outputs_max * hidden * size_of::<i64>() }
    }
}

/// Returns the largest sizes within limits.
pub(super) fn largest(limits: &DeviceLimits) -> Sizes {
    let outputs = limits.outputs_max;
    Sizes { rows: limits.rows_max, logits: outputs, requests: outputs, hidden: outputs, is_all_decoding: false }
}

/// How many bytes each part of [`StepMemory`] has.
pub(super) struct StepBytes {
    buffers: Vec<usize>,
    gated: usize,
    slab: usize,
    adjusted: usize,
    marks: usize,
    masks: usize,
    tables: usize,
    sampled: usize,
    sampling: usize,
    outputs: usize,
    partials: usize,
    masses: usize,
    tickets: usize,
    prefill: usize,
    rotary: usize,
    growth: usize,
}

impl StepBytes {
    /// Returns them for steps within limits, whose block tables have `blocks_max` entries for each slot and group.
    pub(super) fn of(model: &CudaModel, fixed: &Fixed, limits: &DeviceLimits, blocks_max: usize) -> Self {
        let spec = &model.spec;
        let micro_rows = limits.rows_max.min(MICRO_BATCH_ROWS_MAX);
        let buffer = |shape: &BufferShape| {
            let numbers = match shape.axis {
                Axis::Inputs => limits.rows_max * size_of::<bf16>(),
                Axis::MicroBatch => micro_rows * size_of::<bf16>(),
                // Logits stay in f32.
                Axis::Logits => limits.outputs_max * size_of::<f32>(),
            };
            numbers * shape.width
        };
        let (shape, multiprocessors) = (&fixed.attention, model.card.multiprocessors);
        let words = |count: usize| count * size_of::<u32>();
        let pieces = PIECES_MAX as usize;
        let pairs: usize = Rotations::of(&spec.ropes).all.iter().map(|rotation| rotation.pairs()).sum();
        Self {
            buffers: model.decoder.arena().shapes().iter().map(buffer).collect(),
            gated: micro_rows * spec.feed_forward_width_max() * size_of::<bf16>(),
            slab: Sections::of(fixed, largest(limits)).bytes,
            adjusted: limits.outputs_max * spec.vocab * size_of::<f32>(),
            marks: words(limits.slots_max * spec.vocab),
            masks: words(limits.outputs_max * spec.vocab.div_ceil(32)),
            tables: words(fixed.windows.len() * limits.slots_max * blocks_max),
            sampled: words(limits.outputs_max),
            sampling: Sampling::scratch_bytes(limits.outputs_max),
            outputs: OutputPlaces::of(limits, spec.hidden).bytes,
            partials: shape.partial_bytes(pieces),
            masses: shape.mass_bytes(pieces),
            tickets: shape.ticket_bytes(limits.rows_max),
            prefill: shape.scratch_bytes(shape.prefill_blocks(multiprocessors)),
            rotary: limits.context_max * 2 * pairs * size_of::<f32>(),
            growth: spec.query_growth.map_or(0, |_| limits.context_max * size_of::<f32>()),
        }
    }

    /// Returns the bytes of all parts.
    pub(super) fn total(&self) -> usize {
        let Self { buffers, gated, slab, adjusted, marks, masks, tables, sampled, sampling, outputs, .. } = self;
        let Self { partials, masses, tickets, prefill, rotary, growth, .. } = self;
        let lists = [slab, adjusted, marks, masks, tables, sampled, sampling, outputs];
        let scratch = [gated, partials, masses, tickets, prefill, rotary, growth];
        buffers.iter().chain(lists).chain(scratch).sum::<usize>() + TICKET_BYTES
    }
}

impl StepMemory {
    /// Allocates all of it, for steps within limits. Errors: the card has no memory.
    pub(super) fn new(
        model: &CudaModel,
        bytes: &StepBytes,
        limits: &DeviceLimits,
        stream: &Stream,
    ) -> Result<Self, CudaError> {
        let (context, spec) = (&model.card.context, &model.spec);
        let allocate = |what: &'static str, bytes: usize| {
            DeviceBytes::new(context, bytes).map_err(|source| CudaError::Memory { what, bytes, source })
        };
        let buffers = bytes.buffers.iter().map(|&bytes| allocate("activations", bytes));
        let buffers = buffers.collect::<Result<_, _>>()?;
        let (rotary, rotary_of_layer) = rotary(&spec.ropes, limits.context_max, stream)?;
        let memory = Self {
            buffers,
            gated: allocate("activations", bytes.gated)?,
            slab: allocate("a step's inputs", bytes.slab)?,
            adjusted: allocate("adjusted logits", bytes.adjusted)?,
            marks: allocate("histories", bytes.marks)?,
            masks: allocate("masks", bytes.masks)?,
            tables: allocate("block tables", bytes.tables)?,
            sampled: allocate("sampled tokens", bytes.sampled)?,
            sampling: allocate("sampling", bytes.sampling)?,
            outputs: allocate("a step's outputs", bytes.outputs)?,
            partials: allocate("attention", bytes.partials)?,
            masses: allocate("attention", bytes.masses)?,
            tickets: allocate("attention", bytes.tickets)?,
            prefill: allocate("attention", bytes.prefill)?,
            ticket: allocate("tickets", TICKET_BYTES)?,
            rotary,
            rotary_of_layer,
            growth: spec.query_growth.map(|growth| grown(growth, limits.context_max, stream)).transpose()?,
        };
        for zeroed in [&memory.marks, &memory.tickets, &memory.ticket, &memory.tables, &memory.sampled] {
            // SAFETY: the memory was just made.
            unsafe { stream.fill(zeroed.address(), 0, zeroed.len()) }?;
        }
        stream.synchronize()?;
        Ok(memory)
    }

    /// Returns the address of a buffer of the definition.
    pub(super) fn buffer(&self, buffer: Buffer) -> u64 {
        self.buffers[buffer.0].address()
    }

    /// Returns the address of a layer's table of cosines and sines.
    pub(super) fn rotary(&self, layer: u16) -> u64 {
        self.rotary[self.rotary_of_layer[usize::from(layer)]].address()
    }
}

/// Brings numbers to the card.
fn upload(stream: &Stream, numbers: &[f32], what: &'static str) -> Result<DeviceBytes, CudaError> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let context: &Arc<Context> = stream.context();
    let memory = DeviceBytes::new(context, bytes.len()).map_err(|source| {
        let bytes = bytes.len();
        CudaError::Memory { what, bytes, source }
    })?;
    // SAFETY: the memory was just made, and has as many bytes.
    unsafe { stream.upload(memory.address(), &bytes) }?;
    stream.synchronize()?;
    Ok(memory)
}

/// Makes the tables of the rotary embeddings that layers have, and tells which each of them has.
fn rotary(ropes: &[Rope], positions: usize, stream: &Stream) -> Result<(Vec<DeviceBytes>, Vec<usize>), CudaError> {
    let Rotations { all, of_layer } = Rotations::of(ropes);
    let tables = all.iter().map(|rotation| {
        let mut numbers = Vec::with_capacity(positions * 2 * rotation.pairs());
        for position in 0..positions as u32 {
            let (cosines, sines): (Vec<f32>, Vec<f32>) = rotation.at(position).unzip();
            numbers.extend(cosines);
            numbers.extend(sines);
        }
        upload(stream, &numbers, "rotary tables")
    });
    Ok((tables.collect::<Result<_, _>>()?, of_layer))
}

/// Makes the table of what queries are multiplied by.
fn grown(growth: QueryGrowth, positions: usize, stream: &Stream) -> Result<DeviceBytes, CudaError> {
    let numbers: Vec<f32> = (0..positions as u32).map(|position| growth.at(position)).collect();
    upload(stream, &numbers, "the growth of queries")
}
