//! Products with quantised weights: packing against a plain reader, kernels against numbers in f64 and against one
//! another, bit for bit.

use cuda::kernels::{Embed, EmbedArgs, Finish, ProductArgs, ProductKernel, Products, WeightForm};
use half::{bf16, f16};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;
use tests_cuda::{Counted, Draw, Gpu, Watch, assert_moves_little};

const QUANTISED: [WeightForm; 5] =
    [WeightForm::Q8_0, WeightForm::Q4_0, WeightForm::Q4_1, WeightForm::Q4K, WeightForm::Q6K];

/// A weight is `scale * number + offset`, as the file says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weight {
    scale: f64,
    number: f64,
    offset: f64,
}

impl Weight {
    fn value(self) -> f64 {
        self.scale * self.number + self.offset
    }

    /// Returns it as who widens it has it: the product is exact or rounded, and so is the sum.
    fn in_f32(self) -> f32 {
        let product = (self.scale * self.number) as f32;
        (f64::from(product) + self.offset) as f32
    }
}

fn half(bytes: &[u8]) -> f64 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f64()
}

/// Reads weight `i` of a block, as ggml's `ggml-quants.c` defines it.
fn of_block(form: WeightForm, block: &[u8], i: usize) -> Weight {
    let nibble =
        |bytes: &[u8], at: usize, is_high: bool| f64::from(if is_high { bytes[at] >> 4 } else { bytes[at] & 15 });
    match form {
        WeightForm::Bf16 => unreachable!("it has no blocks"),
        WeightForm::Q8_0 => Weight { scale: half(block), number: f64::from(block[2 + i] as i8), offset: 0.0 },
        WeightForm::Q4_0 => {
            Weight { scale: half(block), number: nibble(&block[2..], i % 16, i >= 16) - 8.0, offset: 0.0 }
        }
        WeightForm::Q4_1 => {
            Weight { scale: half(block), number: nibble(&block[4..], i % 16, i >= 16), offset: half(&block[2..]) }
        }
        WeightForm::Q4K => {
            let (part, bytes) = (i / 32, &block[4..16]);
            let (scale, min) = if part < 4 {
                (bytes[part] & 63, bytes[part + 4] & 63)
            } else {
                let (both, high_scale, high_min) = (bytes[part + 4], bytes[part - 4] >> 6, bytes[part] >> 6);
                ((both & 0xF) | (high_scale << 4), (both >> 4) | (high_min << 4))
            };
            let number = nibble(&block[16..], i / 64 * 32 + i % 32, i % 64 >= 32);
            Weight { scale: half(block) * f64::from(scale), number, offset: -half(&block[2..]) * f64::from(min) }
        }
        WeightForm::Q6K => {
            let (half_block, l, quarter) = (i / 128, i % 32, i % 128 / 32);
            let low = nibble(&block[half_block * 64..], l + quarter % 2 * 32, quarter >= 2);
            let high = block[128 + half_block * 32 + l] >> (2 * quarter) & 3;
            let scale = f64::from(block[192 + half_block * 8 + quarter * 2 + l / 16] as i8);
            Weight { scale: half(&block[208..]) * scale, number: low + 16.0 * f64::from(high) - 32.0, offset: 0.0 }
        }
    }
}

/// A quantised matrix on the host.
struct Matrix {
    form: WeightForm,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
}

impl Matrix {
    fn draw(draw: &mut Draw, form: WeightForm, outputs: usize, inputs: usize) -> Self {
        let block_inputs = form.block_inputs() as usize;
        let block_bytes = form.row_bytes(block_inputs);
        let mut bytes: Vec<u8> = (0..outputs * form.row_bytes(inputs)).map(|_| draw.bits() as u8).collect();
        let halves: &[usize] = match form {
            WeightForm::Q4_1 | WeightForm::Q4K => &[0, 2],
            WeightForm::Q6K => &[208],
            _ => &[0],
        };
        for block in bytes.chunks_exact_mut(block_bytes) {
            for &at in halves {
                block[at..at + 2].copy_from_slice(&f16::from_f32(draw.normal() * 0.01).to_le_bytes());
            }
        }
        Self { form, outputs, inputs, bytes }
    }

    fn weight(&self, output: usize, input: usize) -> Weight {
        let block_inputs = self.form.block_inputs() as usize;
        let (row, block) = (self.form.row_bytes(self.inputs), self.form.row_bytes(block_inputs));
        let from = &self.bytes[output * row + input / block_inputs * block..][..block];
        of_block(self.form, from, input % block_inputs)
    }

    fn packed(&self) -> Vec<u8> {
        let mut packed = vec![0xFF; self.form.packed_bytes(self.outputs, self.inputs)];
        let rows: Vec<&[u8]> = self.bytes.chunks_exact(self.form.row_bytes(self.inputs)).collect();
        self.form.pack(&rows, self.inputs, &mut packed);
        packed
    }
}

/// Reads a weight of a packed matrix, as `quantised.cuh` says where it is.
fn of_packed(form: WeightForm, packed: &[u8], inputs: usize, output: usize, input: usize) -> Weight {
    let unit_inputs = if matches!(form, WeightForm::Q4K | WeightForm::Q6K) { 256 } else { 128 };
    let units = inputs.div_ceil(unit_inputs);
    let unit_bytes = form.packed_bytes(1, unit_inputs);
    let unit = &packed[(output / 16 * units + input / unit_inputs) * unit_bytes..][..unit_bytes];
    let (group, i) = (input % unit_inputs / 32, input % 32);
    let (g, lower) = (output % 8, output % 16 / 8);
    // The lane of four that has the input, and which of its eight it is.
    let (t, e) = if form == WeightForm::Q6K { (i % 16 / 4, i / 16 * 4 + i % 4) } else { (i / 8, i % 8) };
    let lane = (g * 4 + t) * 16;
    let word = |at: usize| u32::from_le_bytes(unit[at..at + 4].try_into().expect("four bytes"));
    let nibble =
        || f64::from(word(group / 2 * 512 + lane + group % 2 * 8 + lower * 4) >> (e / 2 * 4 + e % 2 * 16) & 15);
    let scale = |from: usize| half(&unit[from + g * 16 + lower * 8 + group * 2..]);
    match form {
        WeightForm::Bf16 => unreachable!("it is not packed"),
        WeightForm::Q8_0 => {
            let bytes = word(group * 512 + lane + lower * 8 + e / 4 * 4).to_le_bytes();
            let number = f64::from(bytes[[0, 2, 1, 3][e % 4]] as i8);
            Weight { scale: scale(2048), number, offset: 0.0 }
        }
        WeightForm::Q4_0 => Weight { scale: scale(1024), number: nibble() - 8.0, offset: 0.0 },
        WeightForm::Q4_1 => Weight { scale: scale(1024), number: nibble(), offset: scale(1152) },
        WeightForm::Q4K => {
            let parts = &unit[2048 + lower * 128 + g * 16..];
            let ends = &unit[2304 + g * 8 + lower * 4..];
            let (scale, offset) = (f64::from(parts[group]), f64::from(parts[8 + group]));
            Weight { scale: half(ends) * scale, number: nibble(), offset: -half(&ends[2..]) * offset }
        }
        WeightForm::Q6K => {
            let bits = word(2048 + group / 4 * 512 + lane + group / 2 % 2 * 8 + lower * 4);
            let high = bits >> (e / 2 * 2 + group % 2 * 8 + e % 2 * 16) & 3;
            let scale = f64::from(unit[3072 + lower * 128 + g * 16 + group * 2 + i / 16] as i8);
            let number = nibble() + 16.0 * f64::from(high) - 32.0;
            Weight { scale: half(&unit[3328 + g * 4 + lower * 2..]) * scale, number, offset: 0.0 }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn packing_loses_nothing(seed: u64, outputs in 1usize..40, blocks in 1usize..10) {
        for form in QUANTISED {
            let blocks = if form.block_inputs() == 256 { blocks.div_ceil(4) } else { blocks };
            let inputs = blocks * form.block_inputs() as usize;
            let matrix = Matrix::draw(&mut Draw::new(seed), form, outputs, inputs);
            let packed = matrix.packed();
            for (output, input) in (0..outputs).flat_map(|output| (0..inputs).map(move |input| (output, input))) {
                let found = of_packed(form, &packed, inputs, output, input);
                prop_assert_eq!(found, matrix.weight(output, input), "{:?}: output {}, input {}", form, output, input);
            }
        }
    }
}

/// Rows behind those of the activations that are no numbers.
const POISONED_ROWS: usize = 20;

/// Returns the kernels of a form, which are loaded once.
fn products(gpu: &Gpu, form: WeightForm) -> &'static Products {
    static PRODUCTS: [OnceLock<Products>; QUANTISED.len()] = [const { OnceLock::new() }; QUANTISED.len()];
    let at = QUANTISED.iter().position(|&own| own == form).expect("a quantised form");
    PRODUCTS[at].get_or_init(|| Products::load(&gpu.loader, form).expect("the kernels"))
}

/// A product's operands on the host.
struct Case {
    rows: usize,
    matrix: Matrix,
    x: Vec<bf16>,
    bias: Option<Vec<f32>>,
}

impl Case {
    fn draw(seed: u64, form: WeightForm, rows: usize, outputs: usize, blocks: usize, with_bias: bool) -> Self {
        let mut draw = Draw::new(seed);
        let blocks = if form.block_inputs() == 256 { blocks.div_ceil(8) } else { blocks };
        let inputs = blocks * form.block_inputs() as usize;
        let matrix = Matrix::draw(&mut draw, form, outputs, inputs);
        let x = draw.normals(rows * inputs, 1.0);
        let bias = with_bias.then(|| (0..outputs).map(|_| draw.normal()).collect());
        Self { rows, matrix, x, bias }
    }

    /// Runs `kernel`, or the one that is chosen, over rows from `first` on; returns the numbers of its output.
    fn run(&self, gpu: &Gpu, kernel: Option<ProductKernel>, first: usize, rows: usize, finish: Finish) -> Vec<f32> {
        self.run_watched(gpu, kernel, first..first + rows, finish, None)
    }

    fn run_watched(
        &self,
        gpu: &Gpu,
        kernel: Option<ProductKernel>,
        own: Range<usize>,
        finish: Finish,
        watch: Option<&mut Watch>,
    ) -> Vec<f32> {
        let (first, rows) = (own.start, own.len());
        let &Matrix { form, outputs, inputs, .. } = &self.matrix;
        let products = products(gpu, form);
        // What lies behind the rows is no number, so that a result which uses it is none.
        let poison = vec![bf16::NAN; POISONED_ROWS * inputs];
        let x = gpu.upload(&[&self.x[first * inputs..][..rows * inputs], &poison].concat());
        let weights = gpu.upload(&self.matrix.packed());
        let bias = self.bias.as_ref().map(|bias| gpu.upload(bias));
        let width = if finish.is_gated() { outputs / 2 } else { outputs };
        let (narrow, wide) = (gpu.empty::<bf16>(rows * width), gpu.empty::<f32>(rows * width));
        let args = ProductArgs {
            out: if finish == Finish::F32 { wide.address() } else { narrow.address() },
            weights: weights.address(),
            x: x.address(),
            bias: bias.as_ref().map_or(0, |bias| bias.address()),
            rows: rows as u32,
            outputs: outputs as u32,
            inputs: inputs as u32,
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
        if finish == Finish::F32 { wide.read() } else { tests_cuda::widened(&narrow.read()) }
    }

    /// Returns the exact sum, and that of its terms' magnitudes.
    fn exact(&self, row: usize, output: usize) -> (f64, f64) {
        let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]));
        let x = &self.x[row * self.matrix.inputs..][..self.matrix.inputs];
        x.iter().enumerate().fold((bias, bias.abs()), |(sum, magnitude), (input, x)| {
            let (x, weight) = (f64::from(x.to_f32()), self.matrix.weight(output, input));
            let size = (weight.scale * weight.number).abs() + weight.offset.abs();
            (sum + x * weight.value(), magnitude + x.abs() * size)
        })
    }
}

/// What a sum in f32 may be off, of its terms' magnitudes. Rounding a weight to bf16 would be off by thousand times it.
const SUM_ERROR: f64 = 2e-6;

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn form() -> impl Strategy<Value = WeightForm> {
    proptest::sample::select(QUANTISED.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn sums_are_near_the_exact_ones(
        seed: u64,
        form in form(),
        rows in 1usize..40,
        outputs in 1usize..50,
        blocks in 1usize..34,
        with_bias: bool,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::draw(seed, form, rows, outputs, blocks, with_bias);
        let wide = case.run(gpu, None, 0, rows, Finish::F32);
        for (at, &found) in wide.iter().enumerate() {
            let (exact, magnitude) = case.exact(at / outputs, at % outputs);
            let is_near = (f64::from(found) - exact).abs() <= magnitude * SUM_ERROR;
            prop_assert!(is_near, "{:?}: number {} is {}, not {} of {}", form, at, found, exact, magnitude);
        }
        let narrow = case.run(gpu, None, 0, rows, Finish::Bf16);
        let rounded: Vec<f32> = wide.iter().map(|&sum| bf16::from_f32(sum).to_f32()).collect();
        prop_assert_eq!(bits(&narrow), bits(&rounded));
    }

    #[test]
    fn all_kernels_make_the_same_bits(
        seed: u64,
        form in form(),
        rows in 1usize..70,
        outputs in 1usize..140,
        blocks in 1usize..34,
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let case = Case::draw(seed, form, rows, outputs, blocks, true);
        let many = bits(&case.run(gpu, Some(ProductKernel::Many), 0, case.rows, Finish::F32));
        let some = bits(&case.run(gpu, Some(ProductKernel::Some32), 0, case.rows, Finish::F32));
        prop_assert_eq!(&some, &many, "{:?}: some rows", form);
        for (kernel, count) in [(ProductKernel::Few8, 8), (ProductKernel::Few16, 16)] {
            let count = count.min(rows);
            let first = Draw::new(seed).below(rows - count + 1);
            let few = bits(&case.run(gpu, Some(kernel), first, count, Finish::F32));
            prop_assert_eq!(&few[..], &many[first * outputs..][..count * outputs], "{:?}: {:?}", form, kernel);
        }
    }
}

#[test]
fn a_row_has_the_same_bits_beside_any_others() {
    let Some(gpu) = Gpu::open() else { return };
    const ROWS: usize = 70;
    const OUTPUTS: usize = 21;
    for form in QUANTISED {
        // Slices of the forms with blocks of 32 are not equal, and their last unit is not whole.
        let case = Case::draw(3, form, ROWS, OUTPUTS, 22, true);
        let all = bits(&case.run(gpu, Some(ProductKernel::Many), 0, ROWS, Finish::F32));
        for rows in [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65] {
            let some = bits(&case.run(gpu, None, 0, rows, Finish::F32));
            assert_eq!(some, all[..rows * OUTPUTS], "{rows} rows, {form:?}");
        }
    }
}

#[test]
fn gates_are_as_of_two_kernels() {
    let Some(gpu) = Gpu::open() else { return };
    const ROWS: usize = 3;
    const OUTPUTS: usize = 32;
    for form in QUANTISED {
        let case = Case::draw(5, form, ROWS, OUTPUTS, 8, false);
        let sums = case.run(gpu, None, 0, ROWS, Finish::Bf16);
        let silu = |gate: f64| gate / (1.0 + (-gate).exp());
        let exact =
            sums.chunks_exact(16).flat_map(|both| (0..8).map(|i| silu(both[i].into()) * f64::from(both[8 + i])));
        let gated = case.run(gpu, None, 0, ROWS, Finish::SiluGated);
        tests_cuda::assert_near(&gated, &exact.collect::<Vec<_>>(), 1.0 / 256.0, 1e-30, "gated");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn rows_of_a_table_are_what_the_file_says(seed: u64, rows in 1usize..9, blocks in 1usize..20, vocab in 1usize..50) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        for form in QUANTISED {
            let mut draw = Draw::new(seed);
            let blocks = if form.block_inputs() == 256 { blocks.div_ceil(8) } else { blocks };
            let width = blocks * form.block_inputs() as usize;
            let table = Matrix::draw(&mut draw, form, vocab, width);
            let scale = draw.normal();
            let sampled = [draw.below(vocab) as u32, u32::MAX];
            // Samples, one of which is none, and tokens behind the last one are among them.
            let tokens: Vec<i32> = (0..rows).map(|_| draw.below(vocab + 4) as i32 - 2).collect();
            let (on_table, on_tokens) = (gpu.upload(&table.packed()), gpu.upload(&tokens));
            let on_sampled = gpu.upload(&sampled);
            let (out, broken) = (gpu.empty::<bf16>(rows * width), gpu.upload(&vec![0_u32; rows]));
            let args = EmbedArgs {
                table: on_table.address(),
                tokens: on_tokens.address(),
                sampled: on_sampled.address(),
                out: out.address(),
                broken: broken.address(),
                rows: rows as u32,
                width: width as u32,
                vocab: vocab as u32,
                scale,
            };
            // SAFETY: the buffers are as the arguments say.
            unsafe { Embed::load(&gpu.loader, form).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
            let (found, told) = (out.read(), broken.read());
            for (row, found) in found.chunks(width).enumerate() {
                let token = usize::try_from(tokens[row]).unwrap_or_else(|_| sampled[(-1 - tokens[row]) as usize] as usize);
                prop_assert_eq!(told[row], u32::from(token >= vocab), "{:?}: row {} of token {}", form, row, token);
                for (at, found) in found.iter().enumerate() {
                    let wanted = if token < vocab { bf16::from_f32(table.weight(token, at).in_f32() * scale) } else { bf16::ZERO };
                    prop_assert_eq!(*found, wanted, "{:?}: number {} of token {}", form, at, token);
                }
            }
        }
    }
}

/// Numbers that a product does not write have this.
const BETWEEN: f32 = -7.0;

#[test]
fn a_product_writes_its_columns_of_wider_rows_alone() {
    let Some(gpu) = Gpu::open() else { return };
    const OUTPUTS: usize = 48;
    const STRIDE: usize = 80;
    const FROM: usize = 16;
    for form in [&QUANTISED[..], &[WeightForm::Bf16]].concat() {
        let products = Products::load(&gpu.loader, form).expect("the kernels");
        for rows in [1, 8, 16, 33, 70] {
            let mut draw = Draw::new(rows as u64);
            let (inputs, kinds) = (512, [Finish::Bf16, Finish::F32, Finish::SiluGated]);
            let packed = match form {
                WeightForm::Bf16 => tests_cuda::bytes_of(&draw.normals(OUTPUTS * inputs, 1.0)).to_vec(),
                _ => Matrix::draw(&mut draw, form, OUTPUTS, inputs).packed(),
            };
            let (x, weights) = (gpu.upload(&draw.normals(rows * inputs, 1.0)), gpu.upload(&packed));
            for finish in kinds {
                let width = finish.width(OUTPUTS as u32) as usize;
                let run = |stride: usize, from: usize| {
                    let narrow = gpu.upload(&vec![bf16::from_f32(BETWEEN); rows * stride]);
                    let wide = gpu.upload(&vec![BETWEEN; rows * stride]);
                    let is_f32 = finish == Finish::F32;
                    let args = ProductArgs {
                        out: if is_f32 { wide.address() + 4 * from as u64 } else { narrow.address() + 2 * from as u64 },
                        weights: weights.address(),
                        x: x.address(),
                        bias: 0,
                        rows: rows as u32,
                        outputs: OUTPUTS as u32,
                        inputs: inputs as u32,
                        stride: stride as u32,
                        finish,
                    };
                    // SAFETY: the buffers are as the arguments say.
                    unsafe { products.launch(&gpu.stream, &args) }.expect("a launch");
                    if is_f32 { wide.read() } else { tests_cuda::widened(&narrow.read()) }
                };
                let (alone, among) = (run(width, 0), run(STRIDE, FROM));
                for (row, found) in among.chunks(STRIDE).enumerate() {
                    let own = &found[FROM..FROM + width];
                    assert_eq!(bits(own), bits(&alone[row * width..][..width]), "{form:?}, {finish:?}, row {row}");
                    let others = found[..FROM].iter().chain(&found[FROM + width..]);
                    assert!(others.into_iter().all(|&number| number == BETWEEN), "{form:?}, {finish:?}, row {row}");
                }
            }
        }
    }
}

#[test]
fn few_rows_move_their_weights_once() {
    let Some(gpu) = Gpu::open() else { return };
    for form in QUANTISED {
        for (outputs, inputs, rows) in [(64, 1024, 1), (48, 4096, 4), (96, 2048, 16)] {
            let Some(mut watch) = Watch::begin() else { return };
            let case = Case::draw(13, form, rows, outputs, inputs / 32, true);
            assert_eq!(case.matrix.inputs, inputs, "blocks of both sizes fit");
            case.run_watched(gpu, None, 0..rows, Finish::Bf16, Some(&mut watch));
            let [x, out] = [rows * inputs, rows * outputs].map(|numbers| numbers * size_of::<bf16>());
            // What the file has, not what packing makes of it.
            let least = [outputs * form.row_bytes(inputs), x, out, outputs * size_of::<f32>()];
            assert_moves_little(watch.moved(), &least, &format!("{form:?}: {rows} rows of {inputs} to {outputs}"));
        }
    }
}
