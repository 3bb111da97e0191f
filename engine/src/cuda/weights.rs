//! Weights in a card's memory, in the number formats of their files where kernels take them.

use crate::quant::WeightFormat;
use cuda::DeviceBytes;
use cuda::kernels::WeightForm;
use domain::Dtype;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the handles of a decoder stand for.
#[derive(Default)]
pub(super) struct Weights {
    pub(super) linears: Vec<CudaLinear>,
    pub(super) norms: Vec<CudaNorm>,
    pub(super) tables: Vec<Table>,
    pub(super) shares: Shares,
}

/// A linear layer: matrices whose outputs follow one another, each in another form than the one before it.
pub(super) struct CudaLinear {
    pub(super) matrices: Vec<Matrix>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Outputs whose weights have one form.
pub(super) struct Matrix {
    pub(super) form: WeightForm,
    /// `[outputs][inputs]`, packed.
    pub(super) weights: Arc<DeviceBytes>,
    /// In f32.
    pub(super) bias: Option<DeviceBytes>,
    pub(super) outputs: usize,
}

/// Weights of a norm, in f32.
pub(super) struct CudaNorm {
    pub(super) weights: DeviceBytes,
    pub(super) width: usize,
}

/// An embedding table.
pub(super) struct Table {
    pub(super) form: WeightForm,
    /// `[vocab][hidden]`, packed.
    pub(super) rows: Arc<DeviceBytes>,
}

/// Returns the form of weights that are in a format. What no kernel takes is repacked as Q8_0, and other plain numbers
/// are rounded to bf16.
pub(super) fn form_of(format: WeightFormat) -> WeightForm {
    match format {
        WeightFormat::Plain(_) => WeightForm::Bf16,
        WeightFormat::Q8_0 | WeightFormat::Repacked(_) => WeightForm::Q8_0,
        WeightFormat::Q4_0 => WeightForm::Q4_0,
        WeightFormat::Q4_1 => WeightForm::Q4_1,
        WeightFormat::Q4K => WeightForm::Q4K,
        WeightFormat::Q6K => WeightForm::Q6K,
    }
}

/// Returns the name that a form has in a file.
fn name(form: WeightForm) -> String {
    let format = match form {
        WeightForm::Bf16 => WeightFormat::Plain(Dtype::Bf16),
        WeightForm::Q8_0 => WeightFormat::Q8_0,
        WeightForm::Q4_0 => WeightFormat::Q4_0,
        WeightForm::Q4_1 => WeightFormat::Q4_1,
        WeightForm::Q4K => WeightFormat::Q4K,
        WeightForm::Q6K => WeightFormat::Q6K,
    };
    format.to_string()
}

/// Bytes on a card by number format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Of weights, by what they are on the card.
    kept: BTreeMap<String, u64>,
    /// Of those that were another format in the file, by both names.
    converted: BTreeMap<(String, String), u64>,
}

impl Shares {
    /// Counts a matrix of so many bytes.
    pub(super) fn add_matrix(&mut self, format: WeightFormat, form: WeightForm, bytes: usize) {
        let (from, to) = (format.to_string(), name(form));
        if from != to {
            *self.converted.entry((from, to.clone())).or_default() += bytes as u64;
        }
        *self.kept.entry(to).or_default() += bytes as u64;
    }

    /// Counts norms and biases.
    pub(super) fn add_numbers(&mut self, bytes: usize) {
        *self.kept.entry(WeightFormat::Plain(Dtype::F32).to_string()).or_default() += bytes as u64;
    }

    /// Returns the bytes of all formats.
    pub fn bytes(&self) -> u64 {
        self.kept.values().sum()
    }

    /// Returns the bytes that are in a format on the card.
    pub fn of(&self, format: WeightFormat) -> u64 {
        self.kept.get(&format.to_string()).copied().unwrap_or(0)
    }

    /// Returns the bytes by format in words, most first, and what was converted. `words` writes bytes.
    pub fn told(&self, words: impl Fn(u64) -> String) -> String {
        let mut kept: Vec<_> = self.kept.iter().map(|(format, &bytes)| (bytes, format)).collect();
        kept.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        let kept: Vec<String> = kept.iter().map(|&(bytes, format)| format!("{} of {format}", words(bytes))).collect();
        let converted = self.converted.iter().map(|((from, to), &bytes)| {
            let bytes = words(bytes);
            format!("; {bytes} of {to} are {from} in the file")
        });
        kept.join(", ") + &converted.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Repacked;

    #[test]
    fn shares_say_what_is_there_and_what_it_was() {
        let mut shares = Shares::default();
        shares.add_matrix(WeightFormat::Q4K, WeightForm::Q4K, 700);
        shares.add_matrix(WeightFormat::Q4K, WeightForm::Q4K, 100);
        shares.add_matrix(WeightFormat::Repacked(Repacked::Q5K), WeightForm::Q8_0, 300);
        shares.add_matrix(WeightFormat::Plain(Dtype::F16), WeightForm::Bf16, 200);
        shares.add_numbers(40);
        assert_eq!((shares.bytes(), shares.of(WeightFormat::Q4K)), (1340, 800));
        assert_eq!(
            shares.told(|bytes| format!("{bytes} bytes")),
            "800 bytes of Q4_K, 300 bytes of Q8_0, 200 bytes of BF16, 40 bytes of F32; 200 bytes of BF16 are F16 in \
             the file; 300 bytes of Q8_0 are Q5_K in the file"
        );
    }
}
