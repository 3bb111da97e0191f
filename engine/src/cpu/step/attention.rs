//! The attention of a layer: its pieces, and what was cut joined. How it is divided is
//! [`super::super::division`]'s matter.

use super::{Scene, Step};
use crate::cpu::kernels::{self, Attention, KeptStates};
use crate::cpu::memory::Rows;
use crate::device::PoolMemory;
use crate::ops::Buffer;

/// A layer, for the tasks of its attention.
struct Layer<'a> {
    scene: Scene<'a>,
    /// Of all rows of the step.
    queries: Rows,
    /// Its KV group.
    group: usize,
    /// Where a block has its KV.
    slice: usize,
}

impl Step<'_> {
    /// Attends with the queries of the part. The result takes their place.
    pub(super) fn attend(&mut self, layer: u16, queries: Buffer) {
        let scene = self.scene;
        let engine = scene.engine;
        let (group, index) = engine.layers[usize::from(layer)];
        let slice = engine.layout.slice_range(group, index).start;
        // Of all parts, since a tile is told by the first row of its span.
        let layer = Layer { scene, queries: engine.arena.rows(queries, 0), group, slice };
        let division = &scene.batch.divisions[group];
        let (pieces, cuts) = (division.pieces(&self.part.tiles), division.cuts(&self.part.tiles));
        let (isa, dtype, kv_heads) = (engine.isa, engine.layout.dtype, engine.model.spec.kv_heads);
        let tasks = pieces.len() * kv_heads;
        self.run(tasks, &|_, task| {
            // From the end, since the last queries of a prompt have most to do.
            let task = tasks - 1 - task;
            let (piece, head) = (&pieces[task / kv_heads], task % kv_heads);
            // SAFETY: the table covers what the queries attend to, and it is written: what is older than the span
            // by the plan's promise, the rest by `rope_cache`. Of a tile that is whole, only this task uses these
            // heads of these rows; of one that was cut, tasks only read them, and each keeps what it knows at a
            // place of its own.
            unsafe {
                let attention = layer.attention(piece.tile, head);
                match piece.kept {
                    None => kernels::attention(isa, dtype, &attention),
                    Some(kept) => {
                        let kept = layer.kept(piece.tile, kept, head);
                        kernels::attend_stretches(isa, dtype, &attention, piece.stretches.clone(), kept);
                    }
                }
            }
        });
        if cuts.is_empty() {
            return;
        }
        self.run(cuts.len() * kv_heads, &|_, task| {
            let (cut, head) = (&cuts[task / kv_heads], task % kv_heads);
            // SAFETY: all pieces of the tile have kept what they know; only this task uses it, and these heads of
            // these rows.
            unsafe {
                let kept = layer.kept(cut.tile, cut.kept, head);
                kernels::join(isa, dtype, &layer.attention(cut.tile, head), cut.stretches, kept);
            }
        });
    }
}

impl Layer<'_> {
    /// What the queries of a tile that share a KV head attend with.
    ///
    /// # Safety
    /// The tile is one of the batch, and the head one of the model.
    unsafe fn attention(&self, tile: usize, head: usize) -> Attention<'_> {
        let Scene { engine, batch, plan, .. } = self.scene;
        let (spec, layout) = (&engine.model.spec, &engine.layout);
        let tile = &batch.tiles[tile];
        let span = &plan.spans[tile.span];
        let table = &span.tables[self.group];
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

    /// Where what is known of a tile is kept, where that of the first KV head is kept from number `first` on.
    ///
    /// # Safety
    /// The division has it so.
    unsafe fn kept(&self, tile: usize, first: usize, head: usize) -> KeptStates {
        let Scene { engine, batch, .. } = self.scene;
        let stride = batch.tiling.kept(batch.tiles[tile].count);
        let kv_heads = engine.model.spec.kv_heads;
        // SAFETY: as the caller says.
        let first = unsafe { engine.kept.as_ptr().cast::<f32>().add(first + stride / kv_heads * head) };
        KeptStates { first, stride }
    }
}
