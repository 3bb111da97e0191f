//! Products by cublasLt: against numbers in f64, in columns of wider rows, and as part of a graph.

use cuda::{Blas, BlasArgs, BlasShape, Capture};
use half::bf16;
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu, assert_near, bytes_of, widened};

/// What a sum in f32 may be off: its terms have a variance of 1 in all, and each addition rounds by 2^-24.
const SUM_ERROR: f64 = 2e-5;

/// What rounding to bf16 may be off.
const BF16_ERROR: f64 = 1.0 / 256.0;

/// Rows that products are prepared for.
const ROWS_MAX: u32 = 300;

/// What a row has beside a product's columns.
const BETWEEN: f32 = -7.0;

/// A product's operands on the host.
struct Case {
    shape: BlasShape,
    rows: usize,
    x: Vec<bf16>,
    weights: Vec<bf16>,
    bias: Vec<f32>,
}

impl Case {
    fn draw(seed: u64, shape: BlasShape, rows: usize) -> Self {
        let mut draw = Draw::new(seed);
        let (outputs, inputs) = (shape.outputs as usize, shape.inputs as usize);
        let x = draw.normals(rows * inputs, 1.0);
        let weights = draw.normals(outputs * inputs, 1.0 / (inputs as f32).sqrt());
        // Numbers that bf16 has, too.
        let bias = (0..outputs).map(|_| bf16::from_f32(draw.normal()).to_f32()).collect();
        Self { shape, rows, x, weights, bias }
    }

    /// Runs it, at once or by a graph that is launched twice.
    fn run(&self, gpu: &Gpu, blas: &Blas, in_graph: bool) -> Vec<f32> {
        let len = self.rows * self.shape.stride as usize;
        let narrow = gpu.upload(&vec![bf16::from_f32(BETWEEN); len]);
        let wide = gpu.upload(&vec![BETWEEN; len]);
        let (x, weights) = (gpu.upload(&self.x), gpu.upload(&self.weights));
        let in_bf16: Vec<bf16> = self.bias.iter().map(|&number| bf16::from_f32(number)).collect();
        let bias = gpu.upload(if self.shape.is_f32 { bytes_of(&self.bias) } else { bytes_of(&in_bf16) });
        let args = BlasArgs {
            shape: self.shape,
            out: if self.shape.is_f32 { wide.address() } else { narrow.address() },
            weights: weights.address(),
            x: x.address(),
            bias: bias.address(),
            rows: self.rows as u32,
        };
        if in_graph {
            let capture = Capture::begin(&gpu.stream).expect("a capture");
            // SAFETY: the buffers are as the arguments say.
            unsafe { blas.launch(&gpu.stream, &args) }.expect("a launch");
            let graph = capture.end().expect("a graph");
            for _ in 0..2 {
                // SAFETY: as above, and they live until the graph has run.
                unsafe { graph.launch(&gpu.stream) }.expect("a launch");
            }
            gpu.stream.synchronize().expect("what was queued");
        } else {
            // SAFETY: the buffers are as the arguments say.
            unsafe { blas.launch(&gpu.stream, &args) }.expect("a launch");
        }
        if self.shape.is_f32 { wide.read() } else { widened(&narrow.read()) }
    }

    fn exact(&self, row: usize, output: usize) -> f64 {
        let inputs = self.shape.inputs as usize;
        let terms = self.x[row * inputs..][..inputs].iter().zip(&self.weights[output * inputs..][..inputs]);
        let sum: f64 = terms.map(|(x, w)| f64::from(x.to_f32()) * f64::from(w.to_f32())).sum();
        sum + if self.shape.has_bias { f64::from(self.bias[output]) } else { 0.0 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sums_are_near_the_exact_ones(
        seed: u64,
        rows in 1usize..ROWS_MAX as usize,
        outputs in 1u32..40,
        inputs in 1u32..20,
        beside in 0u32..3,
        is_f32: bool,
        has_bias: bool,
        in_graph: bool,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (outputs, inputs) = (outputs * 8, inputs * 32);
        let shape = BlasShape { outputs, inputs, stride: outputs + beside * 8, is_f32, has_bias };
        let mut blas = Blas::load(gpu.context()).expect("the library");
        blas.prepare(shape, ROWS_MAX).expect("an algorithm");
        let case = Case::draw(seed, shape, rows);
        let found = case.run(gpu, &blas, in_graph);
        let (own, others): (Vec<f32>, Vec<f32>) = (
            found.chunks(shape.stride as usize).flat_map(|row| row[..outputs as usize].to_vec()).collect(),
            found.chunks(shape.stride as usize).flat_map(|row| row[outputs as usize..].to_vec()).collect(),
        );
        let exact: Vec<f64> = (0..rows)
            .flat_map(|row| (0..outputs as usize).map(move |output| (row, output)))
            .map(|(row, output)| case.exact(row, output))
            .collect();
        assert_near(&own, &exact, if is_f32 { 0.0 } else { BF16_ERROR }, SUM_ERROR, "a product");
        prop_assert!(others.iter().all(|&number| number == BETWEEN), "something wrote beside its columns");
    }
}
