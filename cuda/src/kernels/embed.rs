//! Rows of the embedding for the tokens of a step.

use super::{LoadError, Loader, WeightForm, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const BF16: Source = source!("embed.cu");
pub(super) const QUANTISED: [Source; 5] = [
    source!("embed_quantised.cu", WEIGHTS = "Q8_0"),
    source!("embed_quantised.cu", WEIGHTS = "Q4_0"),
    source!("embed_quantised.cu", WEIGHTS = "Q4_1"),
    source!("embed_quantised.cu", WEIGHTS = "Q4K"),
    source!("embed_quantised.cu", WEIGHTS = "Q6K"),
];

/// Threads of a block.
const THREADS: u32 = 128;
/// Numbers of a row that a thread makes.
const STEP: u32 = 8;
/// Numbers of a row that a warp takes of a table in bf16.
const WARP_NUMBERS: u32 = 32 * STEP;

/// The kernel for tables of one form.
#[derive(Clone, Debug)]
pub struct Embed {
    form: WeightForm,
    function: Function,
}

/// Operands; addresses are of device memory. `out[row] = table[token of the row] * scale`, rounded to bf16.
#[derive(Clone, Copy, Debug)]
pub struct EmbedArgs {
    /// The embedding in the form of the kernel, `[vocab][width]`.
    pub table: u64,
    /// Tokens in i32, `[rows]`. Below zero: the sample of number `-1 - token` of the step before. A token outside of
    /// the vocabulary becomes a row of zeros.
    pub tokens: u64,
    /// What the step before sampled, in u32; what is no token where nothing was.
    pub sampled: u64,
    /// Rows of bf16, `[rows][width]`.
    pub out: u64,
    /// One word per row, which becomes 1 where the token is none.
    pub broken: u64,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row, a multiple of 8, or of the form's blocks.
    pub width: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Multiplies all numbers.
    pub scale: f32,
}

impl Embed {
    /// Loads the kernel for tables of a form. Errors: [`LoadError`].
    pub fn load(loader: &Loader, form: WeightForm) -> Result<Self, LoadError> {
        let source = form.one_of(BF16, QUANTISED);
        Ok(Self { form, function: loader.module(&source)?.function("embed")? })
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`EmbedArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &EmbedArgs) -> Result<(), DriverError> {
        let &EmbedArgs { table, tokens, sampled, out, broken, rows, width, vocab, scale } = args;
        let words = Args::new().address(table).address(tokens).address(sampled).address(out).address(broken);
        let words = words.number(rows).number(width).number(vocab).float(scale);
        // Parts of a row in bf16 are a warp's.
        let numbers = if self.form == WeightForm::Bf16 { width.next_multiple_of(WARP_NUMBERS) } else { width };
        let blocks = (rows * (numbers / STEP)).div_ceil(THREADS);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.function, Grid { overlaps: true, ..Grid::of(blocks, THREADS) }, words) }
    }
}
