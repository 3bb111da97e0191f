//! Linear layers in every form of weights: as the reference says, and a row by itself as among others.

use super::{Line, Numbers, assert_close, encode, lines, outputs, seed};
use crate::cpu::kernels::linear::Prepared;
use crate::cpu::kernels::{Form, PANEL, Preparation, Product, Start};
use crate::cpu::simd::Isa;
use crate::cpu::tests::effort::{cases, size, sizes};
use domain::Dtype;
use half::bf16;
use proptest::prelude::*;

/// Every form but the quantised ones, which have tests of their own, and the number format of the checkpoint that
/// it comes from.
const FORMS: [(Form, Dtype); 3] = [(Form::F32, Dtype::F32), (Form::F16, Dtype::F16), (Form::Bf16, Dtype::Bf16)];

/// One panel and rows of activations for it.
struct Layer {
    form: Form,
    inputs: usize,
    /// Up to 64 outputs.
    outputs: usize,
    panel: Vec<Line>,
    /// `[outputs][inputs]`, after rounding.
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    x: Vec<f32>,
    x_stride: usize,
}

impl Layer {
    fn new(seed: u64, (form, dtype): (Form, Dtype), rows: usize, inputs: usize, outputs: usize, bias: bool) -> Self {
        let mut numbers = Numbers(seed);
        let x_stride = inputs + 3;
        let x = numbers.vec(rows * x_stride);
        let (words, weights) = encode(&numbers.vec(outputs * inputs), dtype);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let rows: Vec<&[u8]> = bytes.chunks_exact(inputs * dtype.bytes()).take(outputs).collect();
        let mut panel = lines(form.panel_bytes(inputs), 0);
        // SAFETY: the panel has the bytes that the form says.
        unsafe { form.pack(&rows, inputs, panel.as_mut_ptr().cast()) };
        let bias = bias.then(|| numbers.vec(PANEL));
        Self { form, inputs, outputs, panel, weights, bias, x, x_stride }
    }

    /// Returns the kernel's result for `rows` rows from `first` on.
    fn multiply(&self, isa: Isa, first: usize, rows: usize) -> Vec<f32> {
        let prepared_bytes = self.form.prepared_bytes(self.inputs);
        // What nobody wrote is poison: NaN in f32 and in bf16.
        let mut prepared = lines(rows * prepared_bytes, 0xff);
        let base = prepared.as_mut_ptr().cast::<u8>();
        for row in 0..rows {
            // SAFETY: there is a row of `x` and one of prepared numbers.
            unsafe {
                let (x, to) = (self.x.as_ptr().add((first + row) * self.x_stride), base.add(row * prepared_bytes));
                self.form.prepare(isa, &Preparation { x, inputs: self.inputs, to });
            }
        }
        let (x, x_stride) = match self.form.prepared() {
            Prepared::AsTheyAre => (self.x[first * self.x_stride..].as_ptr().cast(), self.x_stride * size_of::<f32>()),
            _ => (base.cast_const(), prepared_bytes),
        };
        let out_stride = PANEL + 5;
        let mut out = vec![f32::NAN; rows * out_stride];
        let product = Product {
            x,
            x_stride,
            rows,
            inputs: self.inputs,
            weights: self.panel.as_ptr().cast(),
            start: self.bias.as_ref().map_or(Start::Zero, |bias| Start::Bias(bias.as_ptr())),
            out: out.as_mut_ptr(),
            out_stride,
        };
        // SAFETY: the vectors have the sizes that the fields say.
        unsafe { self.form.multiply(isa, &product) };
        out.chunks(out_stride).for_each(|row| assert!(row[PANEL..].iter().all(|x| x.is_nan())));
        out.chunks(out_stride).flat_map(|row| row[..PANEL].to_vec()).collect()
    }

    fn expected(&self) -> Vec<f64> {
        let mut expected = Vec::new();
        for row in self.x.chunks(self.x_stride) {
            let x = row.iter().map(|&x| match self.form.prepared() {
                Prepared::AsTheyAre => f64::from(x),
                _ => bf16::from_f32(x).to_f64(),
            });
            for output in 0..PANEL {
                let weights = self.weights.get(output * self.inputs..(output + 1) * self.inputs);
                let weights = weights.filter(|_| output < self.outputs).unwrap_or_default();
                let sum: f64 = x.clone().zip(weights).map(|(x, weight)| x * f64::from(*weight)).sum();
                expected.push(sum + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[output])));
            }
        }
        expected
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

fn inputs() -> impl Strategy<Value = usize> {
    sizes(
        prop_oneof![1usize..70, 250usize..270, 1000usize..1100],
        prop_oneof![3 => 1usize..70, 1 => 250usize..270, 1 => Just(513)],
    )
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn linear_multiplies(
        seed in seed(), form in prop::sample::select(&FORMS), rows in sizes(1usize..40, 1usize..4), inputs in inputs(),
        outputs in outputs(), bias in any::<bool>(),
    ) {
        let layer = Layer::new(seed, form, rows, inputs, outputs, bias);
        let expected = layer.expected();
        let found: Vec<_> = Isa::available().into_iter().map(|isa| (isa, layer.multiply(isa, 0, rows))).collect();
        for (isa, numbers) in &found {
            assert_close(numbers, &expected, 1e-6 * inputs as f64);
            // Of bf16, processors have their own dot products.
            if form.0.prepared() == Prepared::AsTheyAre {
                prop_assert!(bits(numbers) == bits(&found[0].1), "{} and {} differ", isa, found[0].0);
            }
        }
    }

    #[test]
    fn a_row_of_linear_does_not_depend_on_its_neighbours(
        seed in seed(), form in prop::sample::select(&FORMS), rows in sizes(2usize..40, Just(2)),
        inputs in inputs(), isa in prop::sample::select(Isa::available()),
    ) {
        let layer = Layer::new(seed, form, rows, inputs, size(PANEL, 3), false);
        let together = layer.multiply(isa, 0, rows);
        for (row, numbers) in together.chunks(PANEL).enumerate() {
            prop_assert_eq!(bits(&layer.multiply(isa, row, 1)), bits(numbers), "row {} on {}", row, isa);
        }
    }

    #[test]
    fn outputs_widen_to_what_was_packed(
        seed in seed(), form in prop::sample::select(&FORMS), inputs in inputs(), outputs in outputs(),
    ) {
        let layer = Layer::new(seed, form, 1, inputs, outputs, false);
        for (output, weights) in layer.weights.chunks(inputs).enumerate() {
            let mut found = vec![f32::NAN; inputs];
            // SAFETY: the panel has this output.
            unsafe { form.0.widen(layer.panel.as_ptr().cast(), inputs, output, found.as_mut_ptr()) };
            prop_assert_eq!(&found, weights);
        }
    }
}
