//! What the kernels of all forms of weights work on: rows of activations, and a panel.

use crate::cpu::simd::{LANES, Simd};

/// Outputs of a panel.
pub(in crate::cpu) const PANEL: usize = 4 * LANES;

/// What products are added to. A sum begins with it.
#[derive(Clone, Copy)]
pub(in crate::cpu) enum Start {
    /// Nothing.
    Zero,
    /// 64 biases, the same for every row.
    Bias(*const f32),
    /// What is in `out`, row by row.
    Out,
}

/// Rows of activations, prepared, times one panel: `out[r][..64] = start + x[r] * panel`.
pub(in crate::cpu) struct Product {
    /// The first prepared row; aligned to 64 bytes, or to f32 where rows are taken as they are.
    pub(in crate::cpu) x: *const u8,
    /// Bytes from one prepared row to the next.
    pub(in crate::cpu) x_stride: usize,
    /// Rows.
    pub(in crate::cpu) rows: usize,
    /// Inputs, as the layer has them: without padding.
    pub(in crate::cpu) inputs: usize,
    /// The panel; aligned to 64 bytes.
    pub(in crate::cpu) weights: *const u8,
    /// What products are added to.
    pub(in crate::cpu) start: Start,
    /// The first row of outputs of this panel.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers from one row of outputs to the next.
    pub(in crate::cpu) out_stride: usize,
}

impl Product {
    /// Returns what the products from input (or block of inputs) `from` on are added to: partial sums of those before
    /// are in `out`.
    pub(super) fn start_at(&self, from: usize) -> Start {
        if from > 0 { Start::Out } else { self.start }
    }

    /// 16 sums that the products from input `from` on are added to, of the outputs from `column` on; `out` is
    /// where these sums go.
    ///
    /// # Safety
    /// The panel has these outputs, and 16 numbers behind `out` can be read.
    #[inline(always)]
    pub(super) unsafe fn begin<S: Simd>(&self, s: S, from: usize, column: usize, out: *const f32) -> S::V {
        // SAFETY: as the caller says; there are as many biases as outputs.
        unsafe {
            match self.start_at(from) {
                Start::Zero => s.splat(0.0),
                Start::Bias(bias) => s.load(bias.add(column)),
                Start::Out => s.load(out),
            }
        }
    }
}

/// One row of activations and where it is prepared.
pub(in crate::cpu) struct Preparation {
    /// The row.
    pub(in crate::cpu) x: *const f32,
    /// Its numbers.
    pub(in crate::cpu) inputs: usize,
    /// As many bytes as [`super::Form::prepared_bytes`] says, aligned to 64.
    pub(in crate::cpu) to: *mut u8,
}
