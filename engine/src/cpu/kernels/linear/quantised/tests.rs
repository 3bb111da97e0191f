//! Quantised layers against a plain reference in double precision; outputs are poisoned before. Every instruction
//! set gives the same bits, for a row by itself as among others.

use super::super::{Form, PANEL, Preparation, Product, Start};
use super::INPUTS;
use super::block::Block;
use crate::cpu::kernels::tests::{Line, Numbers, lines, outputs, seed};
use crate::cpu::simd::Isa;
use crate::cpu::tests::effort::{cases, size, sizes};
use crate::quant::WeightFormat;
use half::f16;
use proptest::prelude::*;

const FORMATS: [WeightFormat; 5] =
    [WeightFormat::Q8_0, WeightFormat::Q4_0, WeightFormat::Q4_1, WeightFormat::Q4K, WeightFormat::Q6K];

/// Returns a row of random blocks. Integers and small scales take any value, f16 scales are like those of a model.
fn random_row(numbers: &mut Numbers, format: WeightFormat, inputs: usize) -> Vec<u8> {
    let halves: &[usize] = match format {
        WeightFormat::Q8_0 | WeightFormat::Q4_0 => &[0],
        WeightFormat::Q4_1 | WeightFormat::Q4K => &[0, 2],
        _ => &[208],
    };
    let mut bytes: Vec<u8> =
        (0..format.bytes(inputs).unwrap()).map(|_| (numbers.next() * 128.0).floor() as i8 as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for &at in halves {
            block[at..at + 2].copy_from_slice(&f16::from_f32(numbers.next() * 0.01).to_le_bytes());
        }
    }
    bytes
}

/// One panel and rows of activations for it.
struct Layer {
    format: WeightFormat,
    inputs: usize,
    panel: Vec<Line>,
    /// `[outputs][inputs]`, widened.
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    x: Vec<f32>,
}

impl Layer {
    fn new(seed: u64, format: WeightFormat, rows: usize, inputs: usize, outputs: usize, bias: bool) -> Self {
        let mut numbers = Numbers(seed);
        let packed: Vec<Vec<u8>> = (0..outputs).map(|_| random_row(&mut numbers, format, inputs)).collect();
        let mut weights = vec![0.0; outputs * inputs];
        packed.iter().zip(weights.chunks_exact_mut(inputs)).for_each(|(row, out)| format.dequantise(row, out));
        let form = Form::of(format);
        let mut panel = lines(form.panel_bytes(inputs), 0);
        let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
        // SAFETY: the panel has the bytes that the form says.
        unsafe { form.pack(&packed, inputs, panel.as_mut_ptr().cast()) };
        // Blocks of very different sizes, and some of zeros.
        let size = |i: usize| [1.0, 1e-3, 50.0, 0.0, 1.0][i / INPUTS % 5];
        let x = (0..rows * inputs).map(|i| numbers.next() * size(i)).collect();
        Self { format, inputs, panel, weights, bias: bias.then(|| numbers.vec(PANEL)), x }
    }

    fn prepare(&self, isa: Isa, row: usize) -> Vec<Line> {
        let form = Form::of(self.format);
        // What nobody wrote is poison: the scale of a block would be NaN.
        let mut prepared = lines(form.prepared_bytes(self.inputs), 0xff);
        let x = self.x[row * self.inputs..].as_ptr();
        // SAFETY: there is a row of `x`, and one of prepared numbers.
        unsafe { form.prepare(isa, &Preparation { x, inputs: self.inputs, to: prepared.as_mut_ptr().cast() }) };
        prepared
    }

    /// Returns the kernel's result for `rows` rows from `first` on.
    fn multiply(&self, isa: Isa, first: usize, rows: usize) -> Vec<f32> {
        let prepared: Vec<Line> = (first..first + rows).flat_map(|row| self.prepare(isa, row)).collect();
        let out_stride = PANEL + 5;
        let mut out = vec![f32::NAN; rows * out_stride];
        let product = Product {
            x: prepared.as_ptr().cast(),
            x_stride: Form::of(self.format).prepared_bytes(self.inputs),
            rows,
            inputs: self.inputs,
            weights: self.panel.as_ptr().cast(),
            start: self.bias.as_ref().map_or(Start::Zero, |bias| Start::Bias(bias.as_ptr())),
            out: out.as_mut_ptr(),
            out_stride,
        };
        // SAFETY: the vectors have the sizes that the fields say.
        unsafe { Form::of(self.format).multiply(isa, &product) };
        out.chunks(out_stride).for_each(|row| assert!(row[PANEL..].iter().all(|x| x.is_nan())));
        out.chunks(out_stride).flat_map(|row| row[..PANEL].to_vec()).collect()
    }

    /// Returns the blocks of a row.
    fn blocks(&self, row: usize) -> Vec<Block> {
        let prepared = self.prepare(Isa::best(), row);
        // SAFETY: these blocks were written, and the lines are aligned like them.
        (0..self.inputs / INPUTS).map(|block| unsafe { prepared.as_ptr().cast::<Block>().add(block).read() }).collect()
    }

    /// Compares with the products of the dequantised weights and activations: only the f32 sums round.
    fn check(&self, found: &[f32]) {
        for (row, found) in found.chunks_exact(PANEL).enumerate() {
            let x: Vec<f64> = self
                .blocks(row)
                .iter()
                .flat_map(|block| block.numbers.map(|x| f64::from(block.scale) * f64::from(x)))
                .collect();
            for (output, found) in found.iter().enumerate() {
                let weights = self.weights.get(output * self.inputs..(output + 1) * self.inputs).unwrap_or_default();
                let largest = weights.iter().fold(0.0f64, |largest, w| largest.max(f64::from(w.abs())));
                let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]));
                let expected = bias + x.iter().zip(weights).map(|(x, &w)| x * f64::from(w)).sum::<f64>();
                let scale = bias.abs() + x.iter().map(|x| x.abs() * largest).sum::<f64>();
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= 2e-6 * scale, "row {row}, output {output}: {found}, expected {expected}");
            }
        }
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// A format, and inputs that are whole blocks of it: few, or more than a part of a panel has.
fn shape() -> impl Strategy<Value = (WeightFormat, usize)> {
    (prop::sample::select(&FORMATS), sizes(1usize..6, Just(1usize)), 0usize..8).prop_map(|(format, many, few)| {
        let inputs = (256 * many).saturating_sub(INPUTS * few);
        (format, inputs.next_multiple_of(format.block_numbers()).max(format.block_numbers()))
    })
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn quantised_layers_multiply(
        seed in seed(), (format, inputs) in shape(), rows in sizes(1usize..40, 1usize..4), outputs in outputs(), bias in any::<bool>(),
    ) {
        let layer = Layer::new(seed, format, rows, inputs, outputs, bias);
        let found: Vec<_> = Isa::available().into_iter().map(|isa| (isa, layer.multiply(isa, 0, rows))).collect();
        layer.check(&found[0].1);
        for (isa, numbers) in &found {
            prop_assert!(bits(numbers) == bits(&found[0].1), "{} and {} differ", isa, found[0].0);
        }
    }

    #[test]
    fn a_row_of_a_quantised_layer_does_not_depend_on_its_neighbours(
        seed in seed(), (format, inputs) in shape(), rows in sizes(2usize..40, Just(2)), isa in prop::sample::select(Isa::available()),
    ) {
        let layer = Layer::new(seed, format, rows, inputs, size(PANEL, 3), false);
        let together = layer.multiply(isa, 0, rows);
        for (row, numbers) in together.chunks(PANEL).enumerate() {
            prop_assert_eq!(bits(&layer.multiply(isa, row, 1)), bits(numbers), "row {} on {}", row, isa);
        }
    }

    #[test]
    fn quantised_outputs_widen_to_what_was_packed(seed in seed(), (format, inputs) in shape(), outputs in outputs()) {
        let layer = Layer::new(seed, format, 1, inputs, outputs, false);
        for (output, weights) in layer.weights.chunks(inputs).enumerate() {
            let mut found = vec![f32::NAN; inputs];
            // SAFETY: the panel has this output.
            unsafe { Form::of(format).widen(layer.panel.as_ptr().cast(), inputs, output, found.as_mut_ptr()) };
            prop_assert_eq!(&found, weights);
        }
    }

    #[test]
    fn activations_are_off_by_half_a_step_at_most(seed in seed(), blocks in 1usize..9) {
        let layer = Layer::new(seed, WeightFormat::Q8_0, 1, blocks * INPUTS, 1, false);
        for (block, x) in layer.blocks(0).iter().zip(layer.x.chunks_exact(INPUTS)) {
            let numbers = block.numbers.map(i32::from);
            // Scale, its inverse and the product with it are rounded to 24 bits each, of numbers up to 127.
            let step_max = 0.5 + 127.0 * 3.0 * f64::from(f32::EPSILON);
            for (number, &x) in numbers.iter().zip(x) {
                prop_assert!((f64::from(block.scale) * f64::from(*number) - f64::from(x)).abs()
                    <= f64::from(block.scale) * step_max);
            }
            let (low, high) = (numbers[..16].iter().sum::<i32>(), numbers[16..].iter().sum::<i32>());
            prop_assert_eq!(block.halves, [-32 * low, -32 * high]);
            prop_assert_eq!(block.bytes, -128 * (low + high));
            prop_assert_eq!(block.offset, -block.scale * (low + high) as f32);
        }
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    const ROWS: usize = size(17, 3);
    const WIDTH: usize = size(512, 256);
    for format in FORMATS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().take(size(3, 1)) {
            let mut layer = Layer::new(7, format, ROWS, WIDTH, size(PANEL, 2), false);
            layer.x[WIDTH + WIDTH / 2 + 44] = bad;
            for isa in Isa::available() {
                let found = layer.multiply(isa, 0, ROWS);
                let finite = |row: usize| found[row * PANEL..(row + 1) * PANEL].iter().all(|x| x.is_finite());
                assert!(found[PANEL..2 * PANEL].iter().all(|x| !x.is_finite()), "{format}, {bad} on {isa}");
                assert!(finite(0) && finite(2));
            }
        }
    }
}

#[test]
fn the_smallest_and_the_largest_integers_overflow_nothing() {
    const ROWS: usize = size(17, 2);
    for (sign, q) in [(1.0, 127u8), (-1.0, 127), (1.0, 128), (-1.0, 128)] {
        let mut layer = Layer::new(7, WeightFormat::Q8_0, ROWS, 96, 3, false);
        let mut row = [q; 3 * 34];
        row.chunks_exact_mut(34).for_each(|block| block[..2].copy_from_slice(&f16::ONE.to_le_bytes()));
        // SAFETY: the panel has the bytes that the form says.
        unsafe {
            Form::of(WeightFormat::Q8_0).pack(&[&row[..], &row[..], &row[..]], 96, layer.panel.as_mut_ptr().cast());
        }
        layer.weights.fill(f32::from(q as i8));
        layer.x.fill(sign);
        for isa in Isa::available() {
            layer.check(&layer.multiply(isa, 0, ROWS));
        }
    }
}
