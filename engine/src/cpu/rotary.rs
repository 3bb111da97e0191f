//! Cosines and sines of a step's positions: one table for each rotary embedding that the model's layers have.

use super::error::CpuError;
use super::memory::Memory;
use crate::rope_angles::{Rotation, Rotations};
use crate::spec::Rope;

/// The tables of all rows of a step.
pub(super) struct RotaryTables {
    tables: Vec<Table>,
    /// Which table each layer has.
    by_layer: Vec<usize>,
    memory: Memory,
    /// Numbers per row: those of all tables.
    width: usize,
}

/// The table of one rotary embedding.
struct Table {
    rotation: Rotation,
    /// Where its numbers begin in a row.
    offset: usize,
}

impl RotaryTables {
    /// Tables for the rotary embeddings of the layers, for steps of so many rows.
    pub(super) fn new(ropes: &[Rope], rows_max: usize) -> Result<Self, CpuError> {
        let Rotations { all, of_layer: by_layer } = Rotations::of(ropes);
        let mut width = 0;
        let table = |rotation: Rotation| {
            let offset = width;
            width += 2 * rotation.pairs();
            Table { rotation, offset }
        };
        let tables = all.into_iter().map(table).collect();
        let bytes = rows_max * width * size_of::<f32>();
        let memory =
            Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "the rotary tables", bytes, source })?;
        Ok(Self { tables, by_layer, memory, width })
    }

    /// Fills all tables of row `row`, which is at `position`.
    ///
    /// # Safety
    /// The row is below the limit, and nobody else uses its tables.
    pub(super) unsafe fn fill(&self, row: usize, position: u32) {
        for table in &self.tables {
            let half = table.rotation.pairs();
            // SAFETY: the row has `2 * half` numbers from the table's offset on.
            let to = unsafe { self.memory.as_ptr().cast::<f32>().add(row * self.width + table.offset) };
            for (i, (cos, sin)) in table.rotation.at(position).enumerate() {
                // SAFETY: `i` is below `half`.
                unsafe {
                    to.add(i).write(cos);
                    to.add(half + i).write(sin);
                }
            }
        }
    }

    /// Returns the table of `layer` for row `row`, and its numbers: half of them cosines, then as many sines.
    ///
    /// # Safety
    /// The row is below the limit.
    pub(super) unsafe fn row(&self, layer: u16, row: usize) -> (*const f32, usize) {
        let table = &self.tables[self.by_layer[usize::from(layer)]];
        // SAFETY: the row has the table's numbers.
        let from = unsafe { self.memory.as_ptr().cast::<f32>().add(row * self.width + table.offset) };
        (from, 2 * table.rotation.pairs())
    }
}
