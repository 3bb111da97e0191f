//! The number formats of tensors, as ggml counts and calls them (`enum ggml_type`).

use crate::quant::{Repacked, WeightFormat};
use domain::Dtype;

/// The format that ggml counts as `kind`, if it is one that is read.
pub(in crate::checkpoint) fn format(kind: u32) -> Option<WeightFormat> {
    match kind {
        0 => Some(WeightFormat::Plain(Dtype::F32)),
        1 => Some(WeightFormat::Plain(Dtype::F16)),
        2 => Some(WeightFormat::Q4_0),
        3 => Some(WeightFormat::Q4_1),
        6 => Some(WeightFormat::Repacked(Repacked::Q5_0)),
        7 => Some(WeightFormat::Repacked(Repacked::Q5_1)),
        8 => Some(WeightFormat::Q8_0),
        9 => Some(WeightFormat::Repacked(Repacked::Q8_1)),
        10 => Some(WeightFormat::Repacked(Repacked::Q2K)),
        11 => Some(WeightFormat::Repacked(Repacked::Q3K)),
        12 => Some(WeightFormat::Q4K),
        13 => Some(WeightFormat::Repacked(Repacked::Q5K)),
        14 => Some(WeightFormat::Q6K),
        15 => Some(WeightFormat::Repacked(Repacked::Q8K)),
        30 => Some(WeightFormat::Plain(Dtype::Bf16)),
        _ => None,
    }
}

/// ggml's name of the format that it counts as `kind`.
pub(in crate::checkpoint) fn format_name(kind: u32) -> String {
    const NAMES: [&str; 40] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
    ];
    NAMES.get(kind as usize).map_or_else(|| format!("format {kind}"), |name| (*name).to_owned())
}
