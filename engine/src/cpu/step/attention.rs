//! The attention of a layer: its tasks, and the joining of tiles that were cut. How it is divided is
//! [`super::super::division`]'s matter.

use super::{Step, StepContext};
use crate::cpu::kernels::{self, Attention, KeptStates};
use crate::cpu::memory::Rows;
use crate::device::PoolMemory;
use crate::ops::Buffer;

/// A layer, for the tasks of its attention.
struct Layer<'a> {
    context: StepContext<'a>,
    /// Of all rows of the step.
    queries: Rows,
    /// Its KV group.
    group: usize,
    /// Where a block has its KV.
    slice: usize,
}

impl Step<'_> {
    /// Attends with the queries of the micro-batch. The result takes their place.
    pub(super) fn attend(&mut self, layer: u16, queries: Buffer) {
        let context = self.context;
        let engine = context.engine;
        let (group, index) = engine.layers[usize::from(layer)];
        let slice = engine.layout.slice_range(group, index).start;
        // Of all micro-batches, since a tile is told by the first row of its span.
        let layer = Layer { context, queries: engine.arena.rows(queries, 0), group, slice };
        let division = &context.batch.divisions[group];
        let (tile_tasks, cuts) = (division.tasks(&self.micro_batch.tiles), division.cuts(&self.micro_batch.tiles));
        let (isa, dtype, kv_heads) = (engine.isa, engine.layout.dtype, engine.model.spec.kv_heads);
        let tasks = tile_tasks.len() * kv_heads;
        self.run(tasks, &|_, task| {
            // From the end, since the last queries of a prompt have most to do.
            let task = tasks - 1 - task;
            let (tile_task, head) = (&tile_tasks[task / kv_heads], task % kv_heads);
            // SAFETY: the table covers what the queries attend to, and it is written: what is older than the span
            // by the plan's promise, the rest by `rope_cache`. Of a tile that is whole, only this task uses these
            // heads of these rows; of one that was cut, tasks only read them, and each keeps its states at a
            // place of its own.
            unsafe {
                let attention = layer.attention(tile_task.tile, head);
                match tile_task.kept {
                    None => kernels::attention(isa, dtype, &attention),
                    Some(kept) => {
                        let kept = layer.kept(tile_task.tile, kept, head);
                        kernels::attend_stretches(isa, dtype, &attention, tile_task.stretches.clone(), kept);
                    }
                }
            }
        });
        if cuts.is_empty() {
            return;
        }
        self.run(cuts.len() * kv_heads, &|_, task| {
            let (cut, head) = (&cuts[task / kv_heads], task % kv_heads);
            // SAFETY: all tasks of the tile have kept their states; only this task uses it, and these heads of
            // these rows.
            unsafe {
                let kept = layer.kept(cut.tile, cut.kept, head);
                kernels::join(isa, dtype, &layer.attention(cut.tile, head), cut.stretches, kept);
            }
        });
    }
}

impl Layer<'_> {
    /// Returns what the queries of a tile that share a KV head attend with.
    ///
    /// # Safety
    /// The tile is one of the batch, and the head one of the model.
    unsafe fn attention(&self, tile: usize, head: usize) -> Attention<'_> {
        let StepContext { engine, batch, plan, device_slots, .. } = self.context;
        let (spec, layout) = (&engine.model.spec, &engine.layout);
        let tile = &batch.tiles[tile];
        let span = &plan.spans[tile.span];
        let table = device_slots.table(span.slot, self.group);
        let group = spec.heads / spec.kv_heads;
        let head_bytes = 2 * layout.block_tokens as usize * spec.head_dim * layout.dtype.bytes();
        // SAFETY: the row is in the arena, and so are its heads; the head's keys are in the first record of the pool.
        let (queries_and_out, pool) = unsafe {
            let queries = self.queries.row(tile.row).add(head * group * spec.head_dim);
            (queries, engine.pools[self.group].as_ptr().add(self.slice + head * head_bytes))
        };
        Attention {
            queries: queries_and_out,
            query_stride: self.queries.stride,
            out: queries_and_out,
            out_stride: self.queries.stride,
            first: tile.first,
            count: tile.count,
            group,
            head_dim: spec.head_dim,
            start: span.start as usize,
            window: layout.groups[self.group].window.map_or(usize::MAX, |window| window as usize),
            scale: spec.attention_scale,
            cap: spec.attention_cap,
            pool,
            record_bytes: layout.record_bytes(self.group),
            block_tokens: layout.block_tokens as usize,
            blocks: &table.blocks,
            first_block: table.first as usize,
        }
    }

    /// Returns where the states of a tile are kept for KV head `head`; those of the first KV head begin at number
    /// `first`.
    ///
    /// # Safety
    /// The division has it so.
    unsafe fn kept(&self, tile: usize, first: usize, head: usize) -> KeptStates {
        let StepContext { engine, batch, .. } = self.context;
        let stride = batch.tiling.kept(batch.tiles[tile].count);
        let kv_heads = engine.model.spec.kv_heads;
        // SAFETY: as the caller says.
        let first = unsafe { engine.kept.as_ptr().cast::<f32>().add(first + stride / kv_heads * head) };
        KeptStates { first, stride }
    }
}
