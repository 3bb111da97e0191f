//! Quantised matrices in safetensors files: GPTQ, AWQ, and what `compressed-tensors` and fp8 exporters write. Of such a
//! matrix a file has several tensors: packed integers, scales, zero points. [`Checkpoint::with_quantisation`] finds
//! them by their names and shows them as one tensor with the name and shape of the plain matrix.
//!
//! Bits, group sizes and the granularity of scales follow from the shapes of the tensors. So modules may differ in
//! them, and those that were left as they were are read as they are. config.json only says what shapes cannot.
//!
//! | matrix | packed as | what that changes |
//! | --- | --- | --- |
//! | integers from -8 to 7: 2 and 3 bits, and 4 with zero point 8 | Q4_0 | nothing |
//! | 4 bits with other zero points | Q4_1 | at most 15/2048 of a step: `m` is rounded |
//! | 8 bits with zero point 128 | Q8_0 | nothing |
//! | 8 bits with other zero points; fp8; more than one scale in 32 inputs | Q8_0 | at most 1/254 of the largest of 32 |
//!
//! More than one scale in 32 inputs is what GPTQ with `desc_act` has, and groups that are no multiple of 32. "Nothing"
//! holds for scales that f16 has: those of GPTQ and AWQ, and bf16 ones from 2^-17. Other scales are rounded to f16, by
//! 2^-11 of themselves, or by 2^-25 if that is more. 1/254 is [`Q8_0_ERROR_MAX`](crate::quant::Q8_0_ERROR_MAX), but for
//! its last digits, and blocks of next to nothing have a [floor](crate::quant::Q8_0_ERROR_FLOOR).
//!
//! Why not something wider: on random weights, fp8 itself is 2.6% off (root mean square). Q8_0 makes that 2.7%; bf16
//! leaves it at 2.6% in twice the memory, which decoding reads for every token. Four bits are 10% off; Q4_1 adds 0.04%,
//! and Q8_0 would add 0.5% in 1.7 times the memory.
//!
//! Only weights are quantised here. What files say about activations and the KV cache (`input_scale`, `k_scale`) is
//! where other kernels round them. Here activations and cache are rounded as with all other weights of these formats.
//!
//! Sources: AutoGPTQ (`qlinear_cuda_old.py`: zero points are stored one too small; `gptq_v2` of GPTQModel stores them
//! as they are), AutoAWQ (`packing_utils.py`), compressed-tensors (`compressors`), transformers
//! (`finegrained_fp8.py`).
//!
//! What is deliberately absent: config.json (`models::quantisation` reads it), and formats of 4-bit floats.

mod codes;
mod error;
mod layout;
mod matrix;
#[cfg(test)]
mod tests;

pub use error::QuantisedError;
pub(super) use matrix::QuantisedMatrix;

use super::files::WeightsFile;
use super::{Checkpoint, Tensor};
use crate::quant::WeightFormat;
use matrix::Packing;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// How a checkpoint's matrices are quantised, as far as their tensors do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantisation {
    /// Integers packed along inputs.
    Gptq {
        /// Added to stored zero points: 1, or 0 in `gptq_v2`.
        zero_offset: u8,
    },
    /// Integers of 4 bits packed along outputs.
    Awq,
    /// A weight of 8 bits, or of packed integers, with `weight_scale` or `weight_scale_inv`.
    Scaled {
        /// Outputs and inputs that share a scale, where scales are of blocks.
        block: Option<[usize; 2]>,
    },
}

/// The tensors of a quantised matrix, by the ends of their names.
#[derive(Debug)]
pub(super) struct QuantisedTensor {
    quantisation: Quantisation,
    parts: BTreeMap<&'static str, Tensor>,
    /// As what it is packed. It is chosen once, since that reads all zero points.
    packing: OnceLock<Packing>,
}

impl Quantisation {
    /// Returns the ends of the names of a matrix's tensors; the first ones are those that show that it is one.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Gptq { .. } | Self::Awq => &["qweight", "qzeros", "scales", "g_idx"],
            Self::Scaled { .. } => &[
                "weight_packed",
                "weight",
                "weight_scale",
                "weight_scale_inv",
                "weight_zero_point",
                "weight_shape",
                "weight_g_idx",
            ],
        }
    }

    /// Returns the name of the module, if this tensor shows that it has a quantised matrix.
    fn module(self, name: &str, tensor: &Tensor) -> Option<String> {
        let (module, part) = name.rsplit_once('.')?;
        let shows = match self {
            Self::Gptq { .. } | Self::Awq => part == "qweight",
            Self::Scaled { .. } => {
                part == "weight_packed" || part == "weight" && (tensor.is("F8_E4M3") || tensor.is("I8"))
            }
        };
        shows.then(|| module.to_owned())
    }
}

impl Checkpoint {
    /// Shows the matrices that are quantised so as one tensor each, `<module>.weight`. What is wrong with one is said
    /// where it is used.
    pub fn with_quantisation(mut self, quantisation: Quantisation) -> Self {
        let modules = self.tensors.iter().filter_map(|(name, tensor)| quantisation.module(name, tensor));
        for module in modules.collect::<Vec<_>>() {
            let part = |part: &&'static str| Some((*part, self.tensors.remove(&format!("{module}.{part}"))?));
            let parts = quantisation.parts().iter().filter_map(part).collect();
            let tensor = QuantisedTensor { quantisation, parts, packing: OnceLock::new() };
            self.quantised.insert(format!("{module}.weight"), tensor);
        }
        self
    }
}

impl QuantisedTensor {
    /// Returns the matrix. Errors: a tensor of it is missing, or does not fit the others.
    pub(super) fn matrix<'a>(&'a self, files: &'a [WeightsFile]) -> Result<QuantisedMatrix<'a>, QuantisedError> {
        let mut matrix = layout::matrix(self.quantisation, &layout::Parts { files, tensors: &self.parts })?;
        matrix.packing = *self.packing.get_or_init(|| matrix.choose_packing());
        Ok(matrix)
    }

    /// Returns what people call its number format, and what it is packed as; `None`: its tensors do not fit each other.
    pub(super) fn formats(&self, files: &[WeightsFile]) -> (String, Option<WeightFormat>) {
        match self.matrix(files) {
            Ok(matrix) => (self.name(&matrix.name()), Some(matrix.format())),
            Err(_) => (self.name("of unknown size"), None),
        }
    }

    /// Returns what people call its number format, where its numbers are called `numbers`.
    pub(super) fn name(&self, numbers: &str) -> String {
        let method = match self.quantisation {
            Quantisation::Gptq { .. } => "GPTQ ",
            Quantisation::Awq => "AWQ ",
            Quantisation::Scaled { .. } => "",
        };
        format!("{method}{numbers}")
    }

    /// Returns the bytes of all its tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.values().map(|tensor| tensor.range.len() as u64).sum()
    }

    /// Returns the index of the file that has its first tensor.
    pub(super) fn file(&self) -> usize {
        self.parts.values().next().map_or(0, |tensor| tensor.file)
    }
}
