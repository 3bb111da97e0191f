//! Products of activations with packed weights: the seam between a linear layer and the form its weights are in.
//!
//! The outputs of a layer come in panels of [`PANEL`]. A [`Form`] says all that differs between forms of weights:
//!
//! 1. [`Form::pack`], once at load: rows of a checkpoint become a panel, in the order in which the kernel reads it.
//! 2. [`Form::prepare`], once per row and call: a row of f32 activations becomes what the kernel multiplies with (bf16,
//!    or whatever else a form needs), shared by all panels and threads. The device plans the memory at start.
//! 3. [`Form::multiply`], once per panel and some rows: a task of a thread.
//! 4. [`Form::widen`]: one output's weights as f32, for embedding tables that are the output projection as well.
//!
//! A new form is a variant here, a file beside the others with these four, and its name in the tests' list of
//! forms. On one instruction set the bits of a row's outputs depend on the row and the weights alone: not on how
//! many rows or panels a call has. Between instruction sets they are the same, but for bf16, where processors have
//! dot products of their own.
//!
//! What is deliberately absent: who calls which task (`step`), and where packed weights lie (`packed`).

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_row;
mod dense;
mod pair_panel;
mod pairs;
mod product;
mod quantised;
#[cfg(target_arch = "x86_64")]
mod tiles;

use crate::cpu::simd::Isa;
use crate::quant::WeightFormat;
use domain::Dtype;
use half::{bf16, f16};
pub(in crate::cpu) use product::{PANEL, Preparation, Product, Start};
use quantised::Quantised;
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) use tiles::Tiles;

/// Form of packed weights, with that of the activations that they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Form {
    /// f32, input by input; activations are f32.
    F32,
    /// f16, input by input; activations are f32.
    F16,
    /// bf16, in pairs of inputs; activations are rounded to bf16.
    Bf16,
    /// Integers and scales; activations are quantised to 8 bits.
    Quantised(Quantised),
}

/// What rows of activations are prepared into. Of a layer whose panels have several forms, those with the same one
/// share the prepared rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Prepared {
    /// Nothing: the kernel reads the f32 rows as they are.
    AsTheyAre,
    /// bf16, padded with zeros to [`pair_panel::INPUTS`].
    Bf16,
    /// Blocks of 32 integers with a scale.
    Blocks,
}

impl Form {
    /// The form that weights of this number format are packed in.
    pub(in crate::cpu) fn of(format: WeightFormat) -> Self {
        match format {
            WeightFormat::Plain(Dtype::F32) => Self::F32,
            WeightFormat::Plain(Dtype::F16) => Self::F16,
            WeightFormat::Plain(Dtype::Bf16) => Self::Bf16,
            WeightFormat::Q8_0 | WeightFormat::Repacked(_) => Self::Quantised(Quantised::Q8_0),
            WeightFormat::Q4_0 => Self::Quantised(Quantised::Q4_0),
            WeightFormat::Q4_1 => Self::Quantised(Quantised::Q4_1),
            WeightFormat::Q4K => Self::Quantised(Quantised::Q4K),
            WeightFormat::Q6K => Self::Quantised(Quantised::Q6K),
        }
    }

    /// Returns what activations are prepared into.
    pub(in crate::cpu) fn prepared(self) -> Prepared {
        match self {
            Self::F32 | Self::F16 => Prepared::AsTheyAre,
            Self::Bf16 => Prepared::Bf16,
            Self::Quantised(_) => Prepared::Blocks,
        }
    }

    /// Bytes of a prepared row of `inputs` activations, a multiple of 64; 0: rows are taken as they are.
    pub(in crate::cpu) fn prepared_bytes(self, inputs: usize) -> usize {
        match self.prepared() {
            Prepared::AsTheyAre => 0,
            Prepared::Bf16 => pair_panel::padded(inputs) * size_of::<bf16>(),
            Prepared::Blocks => quantised::prepared_bytes(inputs),
        }
    }

    /// Returns the bytes of a panel, a multiple of 64.
    pub(in crate::cpu) fn panel_bytes(self, inputs: usize) -> usize {
        match self {
            Self::F32 => inputs * PANEL * size_of::<f32>(),
            Self::F16 => inputs * PANEL * size_of::<f16>(),
            Self::Bf16 => pair_panel::padded(inputs) * PANEL * size_of::<bf16>(),
            Self::Quantised(form) => form.panel_bytes(inputs),
        }
    }

    /// Packs up to 64 outputs, each given as the bytes of its row in a checkpoint, into a panel of zeros.
    ///
    /// # Safety
    /// A panel can be written behind `to`, which nobody else uses.
    pub(in crate::cpu) unsafe fn pack(self, rows: &[&[u8]], inputs: usize, to: *mut u8) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::F32 => dense::pack::<f32>(rows, inputs, to.cast()),
                Self::F16 => dense::pack::<f16>(rows, inputs, to.cast()),
                Self::Bf16 => pairs::pack(rows, inputs, to.cast()),
                Self::Quantised(form) => form.pack(rows, inputs, to),
            }
        }
    }

    /// Prepares a row.
    ///
    /// # Safety
    /// What the fields say can be read, and written; nobody else uses what is written.
    pub(in crate::cpu) unsafe fn prepare(self, isa: Isa, row: &Preparation) {
        match self.prepared() {
            Prepared::AsTheyAre => {}
            // SAFETY: as the caller says.
            Prepared::Bf16 => unsafe { pairs::prepare(isa, row) },
            // SAFETY: as the caller says.
            Prepared::Blocks => unsafe { quantised::prepare(isa, row) },
        }
    }

    /// Multiplies.
    ///
    /// # Safety
    /// All that the fields describe can be read; `out` can be written, 64 numbers in every row, and nobody else
    /// uses it.
    pub(in crate::cpu) unsafe fn multiply(self, isa: Isa, product: &Product) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::F32 => dense::multiply(isa, Dtype::F32, product),
                Self::F16 => dense::multiply(isa, Dtype::F16, product),
                Self::Bf16 => pairs::multiply(isa, product),
                Self::Quantised(form) => form.multiply(isa, product),
            }
        }
    }

    /// The weights of one output of a panel, widened.
    ///
    /// # Safety
    /// `panel` can be read and has this output; `inputs` numbers can be written behind `out`, which nobody else uses.
    pub(in crate::cpu) unsafe fn widen(self, panel: *const u8, inputs: usize, output: usize, out: *mut f32) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::F32 => dense::widen::<f32>(panel.cast(), inputs, output, out),
                Self::F16 => dense::widen::<f16>(panel.cast(), inputs, output, out),
                Self::Bf16 => pairs::widen(panel.cast(), inputs, output, out),
                Self::Quantised(form) => form.widen(panel, inputs, output, out),
            }
        }
    }
}
