//! Hidden states: the rows behind the model's last norm, added up in fixed point.

use super::{Step, all_finite};
use crate::cpu::batch::{HiddenSpan, MicroBatch};
use crate::ops::{Buffer, NormArgs};
use domain::plan::HIDDEN_BITS;
use std::ops::Range;
use std::slice;

/// Columns of one task.
const COLUMNS_PER_TASK: usize = 256;

impl Step<'_> {
    /// Adds up the rows of the micro-batch whose hidden states are wanted. Those whose logits are wanted as well were
    /// normed into `args.out`; the others are normed into `scratch`.
    pub(super) fn add_hidden(&mut self, args: NormArgs, scratch: Buffer) {
        let (batch, width) = (self.context.batch, self.context.engine.model.spec.hidden);
        let MicroBatch { rows: of_batch, .. } = self.micro_batch.clone();
        let logits_row = |row: usize| batch.logits.binary_search_by_key(&row, |wanted| wanted.row).ok();
        for (number, HiddenSpan { span, rows }) in batch.hidden.iter().enumerate() {
            let rows = rows.start.max(of_batch.start)..rows.end.min(of_batch.end);
            if rows.is_empty() {
                continue;
            }
            let others: Vec<usize> = rows.clone().filter(|&row| logits_row(row).is_none()).collect();
            self.norm_rows(NormArgs { out: scratch, ..args }, others.len(), &|index| {
                (others[index] - of_batch.start, others[index] - of_batch.start)
            });
            let (normed, scratch) = (self.rows(args.out), self.rows(scratch));
            let sums = self.context.engine.hidden_sums(number);
            let row = |row: usize| {
                // SAFETY: the row is in the arena, is `width` wide, and nobody writes it now.
                unsafe {
                    let from = match logits_row(row) {
                        Some(index) => normed.row(index),
                        None => scratch.row(row - of_batch.start),
                    };
                    slice::from_raw_parts(from.cast_const(), width)
                }
            };
            let context = self.context;
            self.run(width.div_ceil(COLUMNS_PER_TASK), &|_, task| {
                let columns = task * COLUMNS_PER_TASK..width.min((task + 1) * COLUMNS_PER_TASK);
                for numbers in rows.clone().map(row) {
                    if !all_finite(&numbers[columns.clone()]) {
                        context.is_not_finite(*span);
                    }
                    // SAFETY: only this task writes these columns of the sums, which are as wide as the row.
                    unsafe { add(sums.add(0).cast(), numbers, columns.clone()) };
                }
            });
        }
    }
}

/// Adds numbers to sums in fixed point.
///
/// # Safety
/// The columns can be written behind `sums`, and nothing else uses them.
unsafe fn add(sums: *mut i64, numbers: &[f32], columns: Range<usize>) {
    for column in columns {
        let number = f64::from(numbers[column]) * (1_u64 << HIDDEN_BITS) as f64;
        // SAFETY: as the caller says.
        let sum = unsafe { &mut *sums.add(column) };
        *sum = sum.saturating_add(number.round() as i64);
    }
}
