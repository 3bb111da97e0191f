//! Products with weights in bf16: against numbers in f64, and kernels against one another, bit for bit.

use cuda::kernels::{Finish, ProductArgs, ProductKernel, Products, WeightForm};
use half::bf16;
use proptest::prelude::*;
use std::sync::OnceLock;
use tests_cuda::{Counted, Draw, Gpu, Watch, assert_moves_little, assert_near, widened};

/// Rows behind those of a matrix that are no numbers.
const POISONED_ROWS: usize = 20;

/// Returns the kernels, which are loaded once.
fn products(gpu: &Gpu) -> &'static Products {
    static PRODUCTS: OnceLock<Products> = OnceLock::new();
    PRODUCTS.get_or_init(|| Products::load(&gpu.loader, WeightForm::Bf16).expect("the kernels"))
}

/// A product's operands on the host.
struct Case {
    rows: usize,
    outputs: usize,
    inputs: usize,
    x: Vec<bf16>,
    weights: Vec<bf16>,
    bias: Option<Vec<f32>>,
}

impl Case {
    fn draw(seed: u64, rows: usize, outputs: usize, inputs: usize, with_bias: bool) -> Self {
        let mut draw = Draw::new(seed);
        let x = draw.normals(rows * inputs, 1.0);
        let weights = draw.normals(outputs * inputs, 1.0 / (inputs as f32).sqrt());
        let bias = with_bias.then(|| (0..outputs).map(|_| draw.normal()).collect());
        Self { rows, outputs, inputs, x, weights, bias }
    }

    /// Runs `kernel`, or the one that is chosen, over the first `rows` rows; returns the numbers of its output.
    fn run(&self, gpu: &Gpu, kernel: Option<ProductKernel>, rows: usize, finish: Finish) -> Vec<f32> {
        self.run_watched(gpu, kernel, rows, finish, None)
    }

    fn run_watched(
        &self,
        gpu: &Gpu,
        kernel: Option<ProductKernel>,
        rows: usize,
        finish: Finish,
        watch: Option<&mut Watch>,
    ) -> Vec<f32> {
        let products = products(gpu);
        // What lies behind the operands is no number, so that a result which uses it is none.
        let poisoned = |numbers: &[bf16]| {
            let more = vec![bf16::NAN; POISONED_ROWS * self.inputs];
            gpu.upload(&[numbers, &more].concat())
        };
        let (x, weights) = (poisoned(&self.x[..rows * self.inputs]), poisoned(&self.weights));
        let bias = self.bias.as_ref().map(|bias| gpu.upload(bias));
        let width = if finish.is_gated() { self.outputs / 2 } else { self.outputs };
        let is_wide = finish == Finish::F32;
        let narrow = gpu.empty::<bf16>(if is_wide { 0 } else { rows * width });
        let wide = gpu.empty::<f32>(if is_wide { rows * width } else { 0 });
        let args = ProductArgs {
            out: if is_wide { wide.address() } else { narrow.address() },
            weights: weights.address(),
            x: x.address(),
            bias: bias.as_ref().map_or(0, |bias| bias.address()),
            rows: rows as u32,
            outputs: self.outputs as u32,
            inputs: self.inputs as u32,
            stride: width as u32,
            finish,
        };
        let kernel = kernel.unwrap_or_else(|| products.choose(&args));
        if let Some(watch) = watch {
            watch.add(&weights, Counted::Each);
            watch.add(&x, Counted::Once);
            watch.add(&narrow, Counted::Each);
            watch.add(&wide, Counted::Each);
            if let Some(bias) = &bias {
                watch.add(bias, Counted::Once);
            }
        }
        // SAFETY: the buffers are as the arguments say.
        unsafe { products.launch_with(&gpu.stream, kernel, &args) }.expect("a launch");
        if is_wide { wide.read() } else { widened(&narrow.read()) }
    }

    fn exact(&self, row: usize, output: usize) -> f64 {
        let (x, w) =
            (&self.x[row * self.inputs..][..self.inputs], &self.weights[output * self.inputs..][..self.inputs]);
        let products = x.iter().zip(w).map(|(x, w)| f64::from(x.to_f32()) * f64::from(w.to_f32()));
        products.sum::<f64>() + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]))
    }

    fn exact_all(&self) -> Vec<f64> {
        (0..self.rows * self.outputs).map(|at| self.exact(at / self.outputs, at % self.outputs)).collect()
    }
}

/// What a sum in f32 may be off: its terms have a variance of 1 in all, and each addition rounds by 2^-24.
const SUM_ERROR: f64 = 2e-5;

/// What rounding to bf16 may be off.
const BF16_ERROR: f64 = 1.0 / 256.0;

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sums_are_near_the_exact_ones(
        seed: u64,
        rows in 1usize..34,
        outputs in 1usize..90,
        groups in 1usize..20,
        with_bias: bool,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::draw(seed, rows, outputs, groups * 32, with_bias);
        let exact = case.exact_all();
        let wide = case.run(gpu, None, rows, Finish::F32);
        assert_near(&wide, &exact, 0.0, SUM_ERROR, "sums in f32");
        let narrow = case.run(gpu, None, rows, Finish::Bf16);
        let rounded: Vec<f32> = wide.iter().map(|&sum| bf16::from_f32(sum).to_f32()).collect();
        prop_assert_eq!(bits(&narrow), bits(&rounded));
    }

    #[test]
    fn all_kernels_make_the_same_bits(
        seed: u64,
        rows in 1usize..17,
        outputs in 1usize..140,
        groups in 1usize..40,
        with_bias: bool,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::draw(seed, rows, outputs, groups * 32, with_bias);
        let first = bits(&case.run(gpu, Some(ProductKernel::Few16), rows, Finish::F32));
        for kernel in kernels_of(rows) {
            prop_assert_eq!(&bits(&case.run(gpu, Some(kernel), rows, Finish::F32)), &first, "{:?}", kernel);
        }
    }

    #[test]
    fn gates_are_as_of_two_kernels(
        seed: u64,
        rows in 1usize..20,
        pairs in 1usize..6,
        groups in 1usize..9,
        with_bias: bool,
        is_silu: bool,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::draw(seed, rows, pairs * 16, groups * 32, with_bias);
        let finish = if is_silu { Finish::SiluGated } else { Finish::GeluGated };
        let sums = case.run(gpu, None, rows, Finish::Bf16);
        let pairs = sums.chunks_exact(16).flat_map(|both| (0..8).map(|i| (both[i], both[8 + i])));
        let exact: Vec<f64> = pairs.map(|(gate, up)| gated(finish, gate, up)).collect();
        let found = case.run(gpu, None, rows, finish);
        assert_near(&found, &exact, BF16_ERROR, 1e-30, "gated");
        for kernel in kernels_of(rows) {
            prop_assert_eq!(bits(&case.run(gpu, Some(kernel), rows, finish)), bits(&found), "{:?}", kernel);
        }
    }
}

fn kernels_of(rows: usize) -> impl Iterator<Item = ProductKernel> {
    ProductKernel::ALL.into_iter().filter(move |kernel| kernel.rows_max().is_none_or(|max| rows <= max as usize))
}

fn gated(finish: Finish, gate: f32, up: f32) -> f64 {
    let (gate, up) = (f64::from(gate), f64::from(up));
    let root = (2.0 / std::f64::consts::PI).sqrt();
    match finish {
        Finish::SiluGated => gate / (1.0 + (-gate).exp()) * up,
        _ => 0.5 * gate * (1.0 + (root * (gate + 0.044715 * gate.powi(3))).tanh()) * up,
    }
}

/// Inputs of one group, of fewer groups than slices, and of slices that are not equal.
const INPUTS: [usize; 4] = [32, 96, 288, 1024 + 32];

#[test]
fn a_row_has_the_same_bits_beside_any_others() {
    let Some(gpu) = Gpu::open() else { return };
    const ROWS: usize = 130;
    const OUTPUTS: usize = 37;
    for inputs in INPUTS {
        let case = Case::draw(inputs as u64, ROWS, OUTPUTS, inputs, true);
        let all = bits(&case.run(gpu, Some(ProductKernel::Many), ROWS, Finish::F32));
        for rows in (1..=33).chain([64, 65, ROWS]) {
            let some = bits(&case.run(gpu, None, rows, Finish::F32));
            assert_eq!(some, all[..rows * OUTPUTS], "{rows} rows of {inputs} inputs");
        }
    }
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    let Some(gpu) = Gpu::open() else { return };
    const ROWS: usize = 16;
    const OUTPUTS: usize = 40;
    const INPUTS: usize = 160;
    const BROKEN_ROW: usize = 5;
    let mut case = Case::draw(7, ROWS, OUTPUTS, INPUTS, false);
    let whole = case.run(gpu, None, ROWS, Finish::F32);
    case.x[BROKEN_ROW * INPUTS + 100] = bf16::NAN;
    for kernel in kernels_of(ROWS) {
        let found = case.run(gpu, Some(kernel), ROWS, Finish::F32);
        for (row, (found, whole)) in found.chunks(OUTPUTS).zip(whole.chunks(OUTPUTS)).enumerate() {
            if row == BROKEN_ROW {
                assert!(found.iter().all(|sum| sum.is_nan()), "{kernel:?}");
            } else {
                assert_eq!(bits(found), bits(whole), "{kernel:?}: row {row}");
            }
        }
    }
}

#[test]
fn the_choice_fits_the_rows() {
    let Some(gpu) = Gpu::open() else { return };
    let args = |rows, outputs, inputs| ProductArgs {
        out: 0,
        weights: 0,
        x: 0,
        bias: 0,
        rows,
        outputs,
        inputs,
        stride: outputs,
        finish: Finish::Bf16,
    };
    for (outputs, inputs) in [(4096, 4096), (28672, 4096), (4096, 14336), (128_256, 4096), (16, 32)] {
        for rows in [1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 512, 8192] {
            let kernel = products(gpu).choose(&args(rows, outputs, inputs));
            assert!(kernel.rows_max().is_none_or(|max| rows <= max), "{kernel:?} for {rows} rows");
        }
    }
    assert_eq!(products(gpu).choose(&args(16, 4096, 14336)), ProductKernel::Few16Wide);
    assert_eq!(products(gpu).choose(&args(8192, 28672, 4096)), ProductKernel::Many);
}

#[test]
fn few_rows_move_their_weights_once() {
    let Some(gpu) = Gpu::open() else { return };
    for (outputs, inputs, finish) in
        [(64, 1024, Finish::Bf16), (96, 4096, Finish::F32), (64, 4640, Finish::SiluGated), (40, 2048, Finish::Bf16)]
    {
        for rows in [1, 4, 16] {
            let Some(mut watch) = Watch::begin() else { return };
            let case = Case::draw(11, rows, outputs, inputs, true);
            case.run_watched(gpu, None, rows, finish, Some(&mut watch));
            let written = if finish.is_gated() { outputs / 2 } else { outputs };
            let out = rows * written * if finish == Finish::F32 { size_of::<f32>() } else { size_of::<bf16>() };
            let operands = [outputs * inputs, rows * inputs].map(|numbers| numbers * size_of::<bf16>());
            let least = [operands[0], operands[1], out, outputs * size_of::<f32>()];
            assert_moves_little(watch.moved(), &least, &format!("{rows} rows of {inputs} to {outputs}, {finish:?}"));
        }
    }
}
