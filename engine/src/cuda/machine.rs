//! Queues steps: packs a plan, sends it to the card as one copy, launches what computes it, and lets one copy bring
//! what it gave. Nothing here waits for the card but for what came before the step before.

use super::inputs::{Memories, PIECES_MAX, Packed, Packer, Sections, Sizes};
use super::memory::{OutputPlaces, TAIL_BYTES, largest};
use super::slab::Section;
use super::step::{Engine, Step};
use crate::device::STEPS_IN_FLIGHT_MAX;
use crate::ops::OpsError;
use crate::slots::DeviceSlots;
use cuda::kernels::{
    CopyBlocksArgs, HistoryArgs, PIECE_TOKENS, ProgressArgs, Sampling, SamplingArgs, UpdateTablesArgs,
};
use cuda::{Capture, Context, DeviceBytes, DriverError, Event, Graph, Pinned};
use domain::ProgressWord;
use domain::plan::{StepPlan, TokenSet};
use domain::planted_bugs::{self, Bug};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that graphs are recorded for. A step of fewer rows takes the next larger one, and fills it up.
const BUCKETS: [usize; 13] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Blocks that copy records.
const COPY_BLOCKS: u32 = 256;

/// Runs of histories that are worked on at once, and blocks that share one.
const HISTORY_SLOTS: u32 = 8;
const HISTORY_PARTS: u32 = 8;

/// Memory of the host that a step in flight uses.
pub(super) struct Ring {
    inputs: Pinned,
    masks: Pinned,
    /// What the card wrote.
    pub(super) outputs: Pinned,
    began: Event,
    ended: Event,
}

impl Ring {
    /// Waits for the step's end. Errors: of the driver, and of what the step queued.
    pub(super) fn wait(&self) -> Result<std::time::Duration, DriverError> {
        self.ended.synchronize()?;
        self.ended.since(&self.began)
    }
}

/// Memory for lists without a bound.
struct TailMemory {
    here: Pinned,
    there: DeviceBytes,
}

impl TailMemory {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DriverError> {
        Ok(Self { here: Pinned::new(context, bytes)?, there: DeviceBytes::new(context, bytes)? })
    }
}

/// A recorded step of decoding.
struct Recorded {
    sizes: Sizes,
    sections: Arc<Sections>,
    graph: Graph,
}

/// What queues steps.
pub(super) struct Machine {
    pub(super) engine: Engine,
    packer: Packer,
    graphs: BTreeMap<usize, Recorded>,
    rings: [Arc<Ring>; STEPS_IN_FLIGHT_MAX],
    /// One for each ring.
    tails: [TailMemory; STEPS_IN_FLIGHT_MAX],
    /// The ring of the next step.
    next: usize,
    word: ProgressWord,
}

/// A step that was queued up to its samples.
pub(super) struct Queued {
    packed: Packed,
    ring: usize,
    /// Where its requests and their count lie on the card.
    requests: u64,
    count: u64,
    /// Where its tokens lie.
    tokens: u64,
}

impl Machine {
    /// Makes what queues steps within limits, and records graphs. Errors: of the driver, or the model's definition.
    pub(super) fn new(
        engine: Engine,
        limits: &crate::device::DeviceLimits,
        word: ProgressWord,
    ) -> Result<Self, OpsError> {
        let context = engine.stream.context().clone();
        let slab = Sections::of(&engine.fixed, largest(limits)).bytes;
        let masks = limits.outputs_max * engine.fixed.vocab.div_ceil(32) * size_of::<u32>();
        let ring = || {
            Ok::<_, DriverError>(Arc::new(Ring {
                inputs: Pinned::new(&context, slab)?,
                masks: Pinned::new(&context, masks)?,
                outputs: Pinned::new(&context, engine.outputs.bytes)?,
                began: Event::timed(&context)?,
                ended: Event::timed(&context)?,
            }))
        };
        let rings = [ring()?, ring()?];
        let tail = || TailMemory::new(&context, TAIL_BYTES);
        let tails = [tail()?, tail()?];
        let packer = Packer::new(engine.fixed.clone(), limits.slots_max);
        let mut machine = Self { engine, packer, graphs: BTreeMap::new(), rings, tails, next: 0, word };
        let rows_max = limits.slots_max.min(limits.rows_max).min(limits.outputs_max);
        for &bucket in BUCKETS.iter().filter(|&&bucket| bucket <= rows_max) {
            let recorded = machine.record(bucket)?;
            machine.graphs.insert(bucket, recorded);
        }
        if planted_bugs::is(Bug::GraphOutlivesMemory) {
            machine.engine.memory.slab = DeviceBytes::new(&context, slab)?;
        }
        Ok(machine)
    }

    /// Records the steps of decoding that have so many rows.
    fn record(&self, rows: usize) -> Result<Recorded, OpsError> {
        let sizes = Sizes { rows, logits: rows, requests: rows, hidden: 0, is_all_decoding: true };
        let sections = Arc::new(Sections::of(&self.engine.fixed, sizes));
        let capture = Capture::begin(&self.engine.stream)?;
        let logits = [0, rows];
        let mut step = Step::new(&self.engine, sizes, &sections, &logits);
        self.engine.model.decoder.forward(&mut step)?;
        let graph = capture.end()?;
        Ok(Recorded { sizes, sections, graph })
    }

    /// Returns the rows of the graph that a plan can take.
    fn bucket(&self, plan: &StepPlan) -> Option<usize> {
        let is_decoding = |span: &domain::plan::Span| {
            span.inputs.len() == 1 && span.hidden.is_none() && span.samples.len() + span.scores.len() == 1
        };
        let pieces: u32 = plan.spans.iter().map(|span| span.start / PIECE_TOKENS + 1).sum();
        if plan.spans.is_empty() || pieces > PIECES_MAX || !plan.spans.iter().all(is_decoding) {
            return None;
        }
        self.graphs.range(plan.spans.len()..).next().map(|(&bucket, _)| bucket)
    }

    /// Returns the memory of the host that a step uses.
    pub(super) fn ring(&self, queued: &Queued) -> Arc<Ring> {
        self.rings[queued.ring].clone()
    }

    /// Queues a step up to its logits. The step before the last one has ended. Errors: of the driver.
    pub(super) fn queue(&mut self, plan: &StepPlan, slots: &DeviceSlots) -> Result<Queued, OpsError> {
        let number = self.next;
        self.next = (number + 1) % self.rings.len();
        let bucket = self.bucket(plan);
        let (sizes, sections) = match bucket.map(|bucket| &self.graphs[&bucket]) {
            Some(recorded) => (recorded.sizes, recorded.sections.clone()),
            None => {
                let sizes = Sizes::of(plan);
                (sizes, Arc::new(Sections::of(&self.engine.fixed, sizes)))
            }
        };
        // Readers may come at any time to a prompt; to a decoding step they come before it.
        let is_awaited = bucket.is_none() || self.word.is_awaited();
        let needed = self.packer.tail_bytes_max(plan);
        if needed > self.tails[number].here.len() {
            self.tails[number] = TailMemory::new(self.engine.stream.context(), needed.next_power_of_two())?;
        }
        let memories = self.memories(number);
        self.packer.pack_tail(plan, &memories);
        let ring = &self.rings[number];
        let inputs = if planted_bugs::is(Bug::SlabReusedEarly) { &self.rings[0].inputs } else { &ring.inputs };
        assert!(sections.bytes <= inputs.len(), "the largest step has room");
        // SAFETY: the memory is so long; the ring's last step has ended, so that nothing else uses it.
        let slab = unsafe { std::slice::from_raw_parts_mut(inputs.as_ptr(), sections.bytes) };
        let packed = self.packer.pack(plan, slots, is_awaited, (sizes, &sections), &memories, slab);
        self.engine.stream.record(&ring.began)?;
        self.send(number, slab)?;
        self.change(number, plan)?;
        let (engine, logits) = (&self.engine, &self.packer.logits);
        match bucket {
            // SAFETY: the graph's memory is the engine's, and steps are queued one behind the other.
            Some(bucket) => unsafe { self.graphs[&bucket].graph.launch(&engine.stream) }?,
            None if plan.spans.is_empty() => {
                let (layer, step) = (engine.layers.len() as u32 - 1, sections.last_step.at as u64);
                let step = engine.memory.slab.address() + step;
                let args = ProgressArgs { step, word: engine.progress, layer };
                // SAFETY: the word and the slab live as long as the engine.
                unsafe { engine.model.kernels.rope_cache.raise(&engine.stream, &args) }?;
            }
            None => {
                let mut step = Step::new(engine, sizes, &sections, logits);
                engine.model.decoder.forward(&mut step)?;
            }
        }
        let slab = engine.memory.slab.address();
        let at = |section: Section| slab + section.at as u64;
        let (requests, count, tokens) = (at(sections.requests), at(sections.request_count), at(sections.tokens));
        Ok(Queued { packed, ring: number, requests, count, tokens })
    }

    /// Queues the samples of a step, with its masks by their samples, and the way of its outputs to the host. Errors:
    /// of the driver.
    pub(super) fn sample(
        &mut self,
        plan: &StepPlan,
        queued: &Queued,
        masks: &[Option<Arc<TokenSet>>],
    ) -> Result<(), OpsError> {
        let (engine, ring) = (&self.engine, &self.rings[queued.ring]);
        let memory = &engine.memory;
        if !masks.is_empty() {
            let row = engine.fixed.vocab.div_ceil(32) * size_of::<u32>();
            // SAFETY: the ring's last step has ended, so that nothing else uses its memory.
            let bytes = unsafe { std::slice::from_raw_parts_mut(ring.masks.as_ptr(), masks.len() * row) };
            for (mask, bytes) in masks.iter().zip(bytes.chunks_exact_mut(row)) {
                // A sample whose mask is missing fails, whatever it takes.
                let words = mask.iter().flat_map(|mask| mask.words()).chain(std::iter::repeat(&u32::MAX));
                bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
            }
            // SAFETY: there is room for a mask for each output, and the bytes stay until the step has ended.
            unsafe { engine.stream.upload(memory.masks.address(), bytes) }?;
        }
        let requests = queued.packed.requests;
        if requests > 0 {
            let slots = requests as u32;
            let args = SamplingArgs {
                requests: queued.requests,
                count: queued.count,
                scratch: memory.sampling.address(),
                results: memory.outputs.address() + engine.outputs.results as u64,
                tokens: queued.tokens,
                sampled_before: memory.sampled.address(),
                sampled: memory.sampled.address(),
                vocab: engine.fixed.vocab as u32,
                slots,
                parts: Sampling::parts(slots),
                weighs: queued.packed.weighs,
            };
            // SAFETY: the requests are in the slab, and what they refer to is the engine's memory.
            unsafe { engine.model.kernels.sampling.launch(&engine.stream, &args) }?;
        }
        self.fetch(plan, requests, ring)?;
        engine.stream.record(&ring.ended)?;
        Ok(())
    }

    /// Queues the way of what a step gave to the host: one copy, and one more where hidden states are wanted.
    fn fetch(&self, plan: &StepPlan, requests: usize, ring: &Ring) -> Result<(), DriverError> {
        let (engine, there) = (&self.engine, self.engine.memory.outputs.address());
        let OutputPlaces { results, broken, hidden, .. } = engine.outputs;
        let row = engine.model.spec.hidden * size_of::<i64>();
        // What no request wrote is no step's.
        let first = if requests == 0 { broken } else { results };
        let parts = [(first, broken + plan.rows() * size_of::<u32>() - first), (hidden, plan.hidden() * row)];
        for (at, bytes) in parts {
            // SAFETY: both are as long as all outputs, and the host's stay until the step has ended.
            unsafe { engine.stream.download(ring.outputs.as_ptr().add(at), there + at as u64, bytes) }?;
        }
        Ok(())
    }

    /// Returns the device memory that the requests of a step refer to.
    fn memories(&self, ring: usize) -> Memories {
        let memory = &self.engine.memory;
        Memories {
            logits: memory.buffer(self.engine.model.decoder.logits_buffer()),
            adjusted: memory.adjusted.address(),
            marks: memory.marks.address(),
            masks: memory.masks.address(),
            tail: self.tails[ring].there.address(),
        }
    }

    /// Queues the copies of a step's lists to the card, and clears what kernels add to.
    fn send(&mut self, number: usize, slab: &[u8]) -> Result<(), DriverError> {
        let bytes = self.packer.tail.bytes.len();
        let Self { engine, packer, tails, .. } = self;
        let own = &tails[number];
        // SAFETY: the slab stays until the step has ended, and steps are queued one behind the other.
        unsafe { engine.stream.upload(engine.memory.slab.address(), slab) }?;
        if bytes > 0 {
            // SAFETY: the ring's last step has ended, so that nothing else uses its memory, which is long enough.
            let tail = unsafe { std::slice::from_raw_parts_mut(own.here.as_ptr(), bytes) };
            tail.copy_from_slice(&packer.tail.bytes);
            // SAFETY: as for the slab.
            unsafe { engine.stream.upload(own.there.address(), tail) }?;
        }
        Ok(())
    }

    /// Queues what a plan changes of tables, histories and blocks.
    fn change(&self, number: usize, plan: &StepPlan) -> Result<(), DriverError> {
        let (engine, tail) = (&self.engine, &self.packer.tail);
        let (memory, kernels) = (&engine.memory, &engine.model.kernels);
        let there = self.tails[number].there.address();
        let at = |bytes: usize| there + bytes as u64;
        let count = |index: usize| at(tail.counts + index * size_of::<u32>());
        let groups = engine.fixed.windows.len();
        // SAFETY: words of this step alone.
        unsafe { engine.stream.fill(engine.broken(), 0, plan.rows() * size_of::<u32>()) }?;
        if plan.hidden() > 0 {
            let (sums, row) = (memory.outputs.address() + engine.outputs.hidden as u64, engine.model.spec.hidden);
            // SAFETY: sums of this step alone.
            unsafe { engine.stream.fill(sums, 0, plan.hidden() * row * size_of::<i64>()) }?;
        }
        if tail.updates.1 > 0 {
            let args = UpdateTablesArgs {
                tables: memory.tables.address(),
                updates: at(tail.updates.0),
                count: count(0),
                entries: at(tail.entries),
                slots: engine.slots_max as u32,
                blocks_max: engine.blocks_max as u32,
            };
            // SAFETY: the plan was checked, so that slots and entries are inside the tables.
            unsafe { kernels.update_tables.launch(&engine.stream, &args) }?;
        }
        for (group, &(copies, _)) in tail.copies.iter().enumerate().filter(|(_, (_, number))| *number > 0) {
            let record_bytes = engine.layout.record_bytes(group) as u64;
            let pool = engine.pools[group].address();
            let args = CopyBlocksArgs {
                pool,
                copies: at(copies),
                count: count(1 + group),
                record_bytes,
                grid_max: COPY_BLOCKS,
            };
            // SAFETY: the plan was checked, so that the blocks are in the pool.
            unsafe { kernels.copy_blocks.launch(&engine.stream, &args) }?;
        }
        let (runs, number, clears) = tail.runs;
        if number > 0 {
            let (runs, count, vocab) = (at(runs), count(1 + groups), engine.fixed.vocab as u32);
            let args = HistoryArgs { runs, count, vocab, slots: HISTORY_SLOTS, parts: HISTORY_PARTS, clears };
            // SAFETY: the runs and their tokens are in the tail, and rows of marks are the slots'.
            unsafe { kernels.history.launch(&engine.stream, &args) }?;
        }
        Ok(())
    }
}
