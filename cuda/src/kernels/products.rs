//! Matrix products: activations in bf16 by weights in any form, in one order of sums for any count of rows.
//!
//! `kernels/product.cuh` says what that order is. All kernels of a form keep it, so which one runs changes time alone:
//! a row has the same bits beside no other row and beside a thousand.

mod packing;

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, Attribute, DriverError, Function, Grid, Stream};

pub(super) const BF16: Source = source!("product.cu");
pub(super) const QUANTISED: [Source; 5] = [
    source!("quantised.cu", WEIGHTS = "Q8_0"),
    source!("quantised.cu", WEIGHTS = "Q4_0"),
    source!("quantised.cu", WEIGHTS = "Q4_1"),
    source!("quantised.cu", WEIGHTS = "Q4K"),
    source!("quantised.cu", WEIGHTS = "Q6K"),
];

/// How weights lie in device memory. Forms but the first are what `pack` makes of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightForm {
    /// Rows of bf16, `[outputs][inputs]`.
    Bf16,
    /// Blocks of 32: 8 bits a number.
    Q8_0,
    /// Blocks of 32: 4 bits a number.
    Q4_0,
    /// Blocks of 32: 4 bits a number, with an offset.
    Q4_1,
    /// Blocks of 256: 4 bits a number, with an offset.
    Q4K,
    /// Blocks of 256: 6 bits a number.
    Q6K,
}

/// What becomes of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// They are rounded to bf16.
    Bf16,
    /// They stay in f32.
    F32,
    /// Outputs are 8 gates, their 8 ups, and so on; `silu(gate) * up` is written in bf16, half as many numbers. Both
    /// are rounded to bf16 before, as if the activation were a kernel of its own.
    SiluGated,
    /// As `SiluGated`, with GELU in its form with tanh.
    GeluGated,
}

impl Finish {
    /// Returns whether outputs are gates and ups.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::SiluGated | Self::GeluGated)
    }

    /// Returns the numbers that are written of a row.
    pub fn width(self, outputs: u32) -> u32 {
        if self.is_gated() { outputs / 2 } else { outputs }
    }

    fn number(self) -> u32 {
        match self {
            Self::Bf16 => 0,
            Self::F32 => 1,
            Self::SiluGated => 2,
            Self::GeluGated => 3,
        }
    }
}

/// Operands of `out[rows][outputs] = x[rows][inputs] * weights[outputs][inputs]^T + bias`, all in device memory and
/// aligned to 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct ProductArgs {
    /// Rows of bf16, or of f32, as `finish` says: `[rows][outputs]`, or half as wide where gated.
    pub out: u64,
    /// Weights in the form of the kernels. They may be read before the kernel ahead has ended.
    pub weights: u64,
    /// Rows of bf16, `[rows][inputs]`.
    pub x: u64,
    /// A number in f32 for each output; 0: none.
    pub bias: u64,
    /// Rows, at least 1.
    pub rows: u32,
    /// Outputs, at least 1; a multiple of 16 where gated.
    pub outputs: u32,
    /// Inputs, a multiple of 32, and of 256 for the forms with blocks of 256.
    pub inputs: u32,
    /// Numbers from one row of `out` to the next: as many as are written of a row, or more where the product makes some
    /// columns of wider rows.
    pub stride: u32,
    /// What becomes of sums.
    pub finish: Finish,
}

/// A kernel of a form. Which one runs changes no bit of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProductKernel {
    /// 1 to 8 rows.
    Few8,
    /// 1 to 16 rows.
    Few16,
    /// 1 to 16 rows of more inputs than the first-level cache holds. Bf16 alone has it.
    Few16Wide,
    /// Rows in blocks of 32, outputs in blocks of 64.
    Some32,
    /// Rows in blocks of 64, outputs in blocks of 64.
    Some64,
    /// Outputs in blocks of 128, rows in blocks of 128, or of 64 for quantised weights.
    Many,
}

/// Slices of the inputs, in every kernel.
const SLICES: u32 = 4;

/// Outputs of a block of the kernel for many rows.
const SIDE: u32 = 128;

/// Outputs of a block of the kernels for some rows.
const SOME_OUTPUTS: u32 = 64;

impl ProductKernel {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Few8, Self::Few16, Self::Few16Wide, Self::Some32, Self::Some64, Self::Many];

    /// Returns the rows that it can take; `None`: any.
    pub fn rows_max(self) -> Option<u32> {
        match self {
            Self::Few8 => Some(8),
            Self::Few16 | Self::Few16Wide => Some(16),
            Self::Some32 | Self::Some64 | Self::Many => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Few8 => "few_rows_8",
            Self::Few16 => "few_rows_16",
            Self::Few16Wide => "few_rows_16_wide",
            Self::Some32 => "some_rows_32",
            Self::Some64 => "some_rows_64",
            Self::Many => "many_rows",
        }
    }

    /// Returns the bytes of dynamic shared memory: of copies that are under way, or of sums, whichever is more.
    fn shared_bytes(self, form: WeightForm) -> u32 {
        const BANK_GAP: u32 = 4;
        const STAGES: u32 = 4;
        const GROUP_BYTES: u32 = 64;
        let sums = |parts: u32, rows: u32, outputs: u32| parts * rows * (outputs + BANK_GAP) * size_of::<f32>() as u32;
        match self {
            Self::Few8 | Self::Few16 | Self::Few16Wide => 0,
            Self::Some32 => sums(SLICES, 32, SOME_OUTPUTS),
            Self::Some64 => sums(SLICES, 64, SOME_OUTPUTS),
            Self::Many => {
                // Weights come by the group, as activations do, or by the unit, of which two are there.
                let weights = match form.unit_bytes() as u32 {
                    0 => STAGES * GROUP_BYTES * SIDE,
                    unit => 2 * unit * SIDE / packing::FRAGMENT as u32,
                };
                let copies = STAGES * GROUP_BYTES * form.many_rows() + weights;
                copies.max(sums(1, form.many_rows(), SIDE))
            }
        }
    }

    fn grid(self, form: WeightForm, rows: u32, outputs: u32) -> Grid {
        let (blocks, threads) = match self {
            Self::Few8 | Self::Few16 => ([outputs.div_ceil(16), 1, 1], 128),
            Self::Few16Wide => ([outputs.div_ceil(32), 1, 1], 128),
            // Blocks that share weights follow one another.
            Self::Some32 => ([rows.div_ceil(32), outputs.div_ceil(SOME_OUTPUTS), 1], 256),
            Self::Some64 => ([rows.div_ceil(64), outputs.div_ceil(SOME_OUTPUTS), 1], 256),
            Self::Many => ([form.many_blocks(rows, outputs), 1, 1], 256),
        };
        Grid { blocks, threads, shared_bytes: self.shared_bytes(form), overlaps: true }
    }
}

/// The kernels of a form of weights.
#[derive(Clone, Debug)]
pub struct Products {
    form: WeightForm,
    multiprocessors: u32,
    kernels: Vec<(ProductKernel, Function)>,
}

impl Products {
    /// Loads the kernels of a form. Errors: [`LoadError`].
    pub fn load(loader: &Loader, form: WeightForm) -> Result<Self, LoadError> {
        let module = loader.module(&form.one_of(BF16, QUANTISED))?;
        let mut kernels = Vec::new();
        for kernel in ProductKernel::ALL.into_iter().filter(|&kernel| form.has(kernel)) {
            let function = module.function(kernel.name())?;
            function.set_shared_bytes(kernel.shared_bytes(form))?;
            kernels.push((kernel, function));
        }
        let multiprocessors = loader.context().attribute(Attribute::Multiprocessors)?.unsigned_abs();
        Ok(Self { form, multiprocessors, kernels })
    }

    /// Returns the form.
    pub fn form(&self) -> WeightForm {
        self.form
    }

    /// Returns the kernel that takes the least time.
    ///
    /// Few rows wait for the weights alone. Beyond, large blocks read least from the second-level cache. But with
    /// few outputs they leave most of the device idle, and smaller blocks win though they read more.
    pub fn choose(&self, args: &ProductArgs) -> ProductKernel {
        /// Inputs of 16 rows that the first-level cache holds beside what is under way.
        const CACHED_INPUTS: u32 = 4096;
        match args.rows {
            0..=8 => ProductKernel::Few8,
            9..=16 if args.inputs > CACHED_INPUTS && self.form.has(ProductKernel::Few16Wide) => {
                ProductKernel::Few16Wide
            }
            9..=16 => ProductKernel::Few16,
            17..=32 => ProductKernel::Some32,
            rows => {
                let some =
                    if self.form.has(ProductKernel::Some64) { ProductKernel::Some64 } else { ProductKernel::Some32 };
                let is_busy = self.form.many_blocks(rows, args.outputs) >= self.multiprocessors * 2 / 3;
                let is_many = rows > 64 || some == ProductKernel::Some32;
                if is_many && is_busy { ProductKernel::Many } else { some }
            }
        }
    }

    /// Queues the product. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`ProductArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &ProductArgs) -> Result<(), DriverError> {
        // SAFETY: as the caller says; the choice takes so many rows.
        unsafe { self.launch_with(stream, self.choose(args), args) }
    }

    /// Queues the product with a kernel of the caller's choice, which must take so many rows. Errors: of the driver.
    ///
    /// # Panics
    /// The form has no such kernel.
    ///
    /// # Safety
    /// As for [`Self::launch`].
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        kernel: ProductKernel,
        args: &ProductArgs,
    ) -> Result<(), DriverError> {
        let &ProductArgs { out, weights, x, bias, rows, outputs, inputs, stride, finish } = args;
        let (_, function) = self.kernels.iter().find(|(own, _)| *own == kernel).expect("a kernel of the form");
        debug_assert!(kernel.rows_max().is_none_or(|max| rows <= max), "{kernel:?} cannot take {rows} rows");
        debug_assert!(inputs.is_multiple_of(self.form.block_inputs()), "{inputs} inputs of {:?}", self.form);
        debug_assert!(!finish.is_gated() || outputs.is_multiple_of(16), "{outputs} outputs are gates and ups");
        debug_assert!(stride >= finish.width(outputs), "rows of {stride} numbers for {outputs} outputs");
        let words = Args::new().address(out).address(weights).address(x).address(bias);
        let words = words.number(rows).number(outputs).number(inputs).number(finish.number()).number(stride);
        // SAFETY: as the caller says.
        unsafe { stream.launch(function, kernel.grid(self.form, rows, outputs), words) }
    }
}

impl WeightForm {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q4K, Self::Q6K];

    /// Returns the source of a kernel for this form, of one for bf16 and those for quantised weights.
    pub(super) fn one_of(self, bf16: Source, [q8_0, q4_0, q4_1, q4k, q6k]: [Source; 5]) -> Source {
        match self {
            Self::Bf16 => bf16,
            Self::Q8_0 => q8_0,
            Self::Q4_0 => q4_0,
            Self::Q4_1 => q4_1,
            Self::Q4K => q4k,
            Self::Q6K => q6k,
        }
    }

    /// Returns whether it has a kernel. Quantised weights cost little to read again, so that blocks of 32 rows serve in
    /// place of 64, which would need more registers than there are.
    pub fn has(self, kernel: ProductKernel) -> bool {
        self == Self::Bf16 || !matches!(kernel, ProductKernel::Few16Wide | ProductKernel::Some64)
    }

    /// Returns the rows of a block of the kernel for many rows.
    fn many_rows(self) -> u32 {
        if self == Self::Bf16 { SIDE } else { 64 }
    }

    fn many_blocks(self, rows: u32, outputs: u32) -> u32 {
        rows.div_ceil(self.many_rows()) * outputs.div_ceil(SIDE)
    }
}
