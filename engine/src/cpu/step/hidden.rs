//! Hidden states: the rows behind the model's last norm, added up in fixed point.

use super::Step;
use crate::cpu::batch::{HiddenSpan, MicroBatch};
use crate::ops::{Buffer, NormArgs};
use domain::plan::HIDDEN_BITS;
use std::ops::Range;

/// Columns of one task.
const COLUMNS_PER_TASK: usize = 256;

impl Step<'_> {
    /// Adds up the rows of the micro-batch whose hidden states are wanted. Those whose logits are wanted as well were
    /// normed into `args.out`; the others are normed into `scratch`.
    pub(super) fn add_hidden(&mut self, args: NormArgs, scratch: Buffer) {
        let (batch, width) = (self.context.batch, self.context.engine.model.spec.hidden);
        let MicroBatch { rows: of_batch, .. } = self.micro_batch.clone();
        let logits_row = |row: usize| batch.logits.binary_search_by_key(&row, |wanted| wanted.row).ok();
        for (number, HiddenSpan { rows, .. }) in batch.hidden.iter().enumerate() {
            let rows = rows.start.max(of_batch.start)..rows.end.min(of_batch.end);
            let others: Vec<usize> = rows.clone().filter(|&row| logits_row(row).is_none()).collect();
            self.norm_rows(NormArgs { out: scratch, ..args }, others.len(), &|index| {
                (others[index] - of_batch.start, others[index] - of_batch.start)
            });
            let (normed, scratch) = (self.rows(args.out), self.rows(scratch));
            let sums = self.context.engine.hidden_sums(number);
            self.run(if rows.is_empty() { 0 } else { width.div_ceil(COLUMNS_PER_TASK) }, &|_, task| {
                let columns = task * COLUMNS_PER_TASK..width.min((task + 1) * COLUMNS_PER_TASK);
                for row in rows.clone() {
                    // SAFETY: the row is in the arena, is `width` wide, and nobody writes it now; only this task writes
                    // these columns of the sums, of which there are as many.
                    unsafe {
                        let from = match logits_row(row) {
                            Some(index) => normed.row(index),
                            None => scratch.row(row - of_batch.start),
                        };
                        add(sums.add(0).cast(), from, columns.clone());
                    }
                }
            });
        }
    }
}

/// Adds numbers to sums in fixed point.
///
/// # Safety
/// The columns can be read behind `from` and written behind `sums`, and nothing else uses the sums.
unsafe fn add(sums: *mut i64, from: *const f32, columns: Range<usize>) {
    for column in columns {
        // SAFETY: as the caller says.
        unsafe {
            let number = f64::from(*from.add(column)) * (1_u64 << HIDDEN_BITS) as f64;
            let sum = sums.add(column);
            *sum = (*sum).saturating_add(number.round() as i64);
        }
    }
}
