//! Quantised weights, multiplied with activations that are quantised to 8 bits.
//!
//! Weights keep the integers and scales of their format ([`crate::quant`]), in the order in which the kernels read
//! them. Activations are quantised once per call, in blocks of 32 with a scale each ([`block`]). The integers of a
//! block are multiplied and summed exactly, and only these sums are scaled and added in f32, block after block,
//! each step rounded once. So all instruction sets, AMX included, give the same bits for any number of rows.
//!
//! | file | |
//! | --- | --- |
//! | [`block`] | activations: a quantised block, and how rows become blocks |
//! | [`panels`] | weights: what a panel of each format looks like, and reading parts of it |
//! | [`pass`] | which blocks of a panel all rows go through together |
//! | [`dot`] | dot products of bytes on each instruction set |
//! | [`rows`] | the kernel for some rows, on any instruction set |
//! | [`amx`] | the kernel for 16 rows at once, on tiles |

#[cfg(target_arch = "x86_64")]
mod amx;
mod block;
mod dot;
mod panels;
mod pass;
mod rows;
#[cfg(test)]
mod tests;

use super::product::Product;
use crate::cpu::simd::Isa;
use block::INPUTS;
#[cfg(target_arch = "aarch64")]
use dot::Bytes;
#[cfg(target_arch = "x86_64")]
use dot::Vnni;
use panels::{Q4_0Panel, Q4_1Panel, Q4KPanel, Q6KPanel, Q8Panel, Weights};
use pass::{BLOCKS, Pass};

pub(super) use block::prepare;

/// Returns the bytes of a prepared row.
pub(super) fn prepared_bytes(inputs: usize) -> usize {
    inputs / INPUTS * size_of::<block::Block>()
}

/// Quantised forms of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Quantised {
    /// See [`Q8Panel`].
    Q8_0,
    /// See [`Q4_0Panel`].
    Q4_0,
    /// See [`Q4_1Panel`].
    Q4_1,
    /// See [`Q4KPanel`].
    Q4K,
    /// See [`Q6KPanel`].
    Q6K,
}

impl Quantised {
    /// See [`super::Form::panel_bytes`].
    pub(super) fn panel_bytes(self, inputs: usize) -> usize {
        match self {
            Self::Q8_0 => panels::bytes::<Q8Panel>(inputs),
            Self::Q4_0 => panels::bytes::<Q4_0Panel>(inputs),
            Self::Q4_1 => panels::bytes::<Q4_1Panel>(inputs),
            Self::Q4K => panels::bytes::<Q4KPanel>(inputs),
            Self::Q6K => panels::bytes::<Q6KPanel>(inputs),
        }
    }

    /// See [`super::Form::pack`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn pack(self, rows: &[&[u8]], inputs: usize, to: *mut u8) {
        let bytes = self.panel_bytes(inputs);
        // SAFETY: as the caller says: a panel is ours to write.
        let panel = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        for (output, row) in rows.iter().enumerate() {
            match self {
                Self::Q8_0 => panels::pack::<Q8Panel>(row, output, panel),
                Self::Q4_0 => panels::pack::<Q4_0Panel>(row, output, panel),
                Self::Q4_1 => panels::pack::<Q4_1Panel>(row, output, panel),
                Self::Q4K => panels::pack::<Q4KPanel>(row, output, panel),
                Self::Q6K => panels::pack::<Q6KPanel>(row, output, panel),
            }
        }
    }

    /// See [`super::Form::widen`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn widen(self, panel: *const u8, inputs: usize, output: usize, out: *mut f32) {
        // SAFETY: as the caller says.
        let (panel, out) = unsafe {
            let panel = std::slice::from_raw_parts(panel, self.panel_bytes(inputs));
            (panel, std::slice::from_raw_parts_mut(out, inputs))
        };
        match self {
            Self::Q8_0 => panels::widen::<Q8Panel>(panel, output, out),
            Self::Q4_0 => panels::widen::<Q4_0Panel>(panel, output, out),
            Self::Q4_1 => panels::widen::<Q4_1Panel>(panel, output, out),
            Self::Q4K => panels::widen::<Q4KPanel>(panel, output, out),
            Self::Q6K => panels::widen::<Q6KPanel>(panel, output, out),
        }
    }

    /// See [`super::Form::multiply`].
    ///
    /// # Safety
    /// As there; the inputs are whole blocks of the format.
    pub(super) unsafe fn multiply(self, isa: Isa, product: &Product) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::Q8_0 => multiply::<Q8Panel>(isa, product),
                Self::Q4_0 => multiply::<Q4_0Panel>(isa, product),
                Self::Q4_1 => multiply::<Q4_1Panel>(isa, product),
                Self::Q4K => multiply::<Q4KPanel>(isa, product),
                Self::Q6K => multiply::<Q6KPanel>(isa, product),
            }
        }
    }
}

/// Goes through the panel in passes of [`BLOCKS`].
///
/// # Safety
/// See [`super::Form::multiply`]
unsafe fn multiply<F: Weights>(isa: Isa, product: &Product) {
    let blocks = product.inputs / INPUTS;
    for from in (0..blocks).step_by(BLOCKS) {
        let pass = Pass { product, blocks: from..blocks.min(from + BLOCKS) };
        // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512(s) => match Vnni::of(s) {
                    Some(d) => avx512::<F>(d, &pass),
                    None => avx2::<F>(s.avx2(), &pass),
                },
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2(s) => avx2::<F>(s, &pass),
                #[cfg(target_arch = "aarch64")]
                Isa::Neon(s) => match Bytes::with_dotprod(s) {
                    Some(d) => dotprod::<F>(d, &pass),
                    None => rows::multiply::<_, F>(Bytes::of(s), &pass, 0),
                },
                Isa::Plain(s) => rows::multiply::<_, F>(s, &pass, 0),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn avx512<F: Weights>(d: Vnni, pass: &Pass<'_>) {
    // SAFETY: as the caller says.
    unsafe {
        let row = amx::multiply::<F>(d, pass);
        rows::multiply::<_, F>(d, pass, row);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<F: Weights>(d: crate::cpu::simd::Avx2, pass: &Pass<'_>) {
    // SAFETY: as the caller says.
    unsafe { rows::multiply::<_, F>(d, pass, 0) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "dotprod")]
unsafe fn dotprod<F: Weights>(d: Bytes<true>, pass: &Pass<'_>) {
    // SAFETY: as the caller says.
    unsafe { rows::multiply::<_, F>(d, pass, 0) }
}
