//! Single kernels on numbers of their own, for whoever measures one at a time.
//!
//! What is deliberately absent: threads, a clock, and anything that steps go through. Whoever measures brings these.

use super::kernels::{
    Attention, Form, Gated, HEAD_DIM_MAX, PANEL, Preparation, Prepared, Product, RmsNorm, Start, attention, gated,
    queries_max, rms_norm,
};
use super::memory::{Memory, Slabs};
use super::simd::Isa;
use crate::quant::WeightFormat;
use crate::spec::Activation;
use domain::{BlockId, Dtype};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every byte of weights, activations and caches: an ordinary number in every format that they may be in.
const BYTE: u8 = 0x3c;
/// Positions of a cache's block.
const BLOCK_TOKENS: usize = 16;

/// Calls a task with each number below the number of tasks, on any threads, and returns when all calls have ended.
pub type Fork<'a> = dyn FnMut(usize, &(dyn Fn(usize) + Sync)) + 'a;

/// A kernel, and memory of its own to run on.
pub struct Exercise {
    isa: Isa,
    kernel: Kernel,
    /// What is read: weights, a cache.
    read: Memory,
    /// Rows of f32 that are given.
    rows: Memory,
    /// Rows as the kernel multiplies them.
    prepared: Memory,
    /// The result.
    out: Memory,
}

enum Kernel {
    Linear { form: Form, rows: usize, inputs: usize, panels: usize },
    Attention { shape: AttentionShape, blocks: Vec<BlockId> },
    Norm { width: usize },
    Gated { width: usize },
}

/// Queries over one KV head; the last row's position is the last one of the cache.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Number format of the cache.
    pub dtype: Dtype,
    /// Rows: 1 for a sequence that decodes.
    pub rows: usize,
    /// Positions in the cache, at least as many as rows.
    pub context: usize,
    /// Query heads of the KV head.
    pub group: usize,
    /// Numbers of a head, even.
    pub head_dim: usize,
}

impl Exercise {
    /// A linear layer whose weights are in this format. `inputs` are whole blocks of the format; `outputs` are
    /// rounded up to panels of 64. Errors, here and below: there is no memory.
    pub fn linear(isa: Isa, format: WeightFormat, rows: usize, inputs: usize, outputs: usize) -> io::Result<Self> {
        assert!(inputs.is_multiple_of(format.block_numbers()), "{inputs} inputs of {format}");
        let (form, panels) = (Form::of(format), outputs.div_ceil(PANEL));
        let kernel = Kernel::Linear { form, rows, inputs, panels };
        let sizes = [
            panels * form.panel_bytes(inputs),
            rows * inputs * size_of::<f32>(),
            rows * form.prepared_bytes(inputs),
            rows * panels * PANEL * size_of::<f32>(),
        ];
        Self::new(isa, kernel, sizes)
    }

    /// Attention.
    pub fn attention(isa: Isa, shape: AttentionShape) -> io::Result<Self> {
        assert!(shape.rows <= shape.context && shape.head_dim <= HEAD_DIM_MAX, "{shape:?}");
        let blocks = shape.context.div_ceil(BLOCK_TOKENS);
        let queries = shape.rows * shape.group * shape.head_dim * size_of::<f32>();
        let sizes = [blocks * shape.record_bytes(), queries, 0, queries];
        let blocks = (0..blocks as u32).map(BlockId).collect();
        Self::new(isa, Kernel::Attention { shape, blocks }, sizes)
    }

    /// RMS norm of one row to which another one is added.
    pub fn rms_norm(isa: Isa, width: usize) -> io::Result<Self> {
        let bytes = width * size_of::<f32>();
        Self::new(isa, Kernel::Norm { width }, [bytes, 2 * bytes, 0, bytes])
    }

    /// Returns the gated activation SiLU of one row.
    pub fn gated(isa: Isa, width: usize) -> io::Result<Self> {
        let bytes = width * size_of::<f32>();
        Self::new(isa, Kernel::Gated { width }, [0, 2 * bytes, 0, bytes])
    }

    fn new(isa: Isa, kernel: Kernel, sizes: [usize; 4]) -> io::Result<Self> {
        let filled = |memory: io::Result<Memory>, bytes: usize| {
            let memory = memory?;
            // SAFETY: the memory has these bytes, and nobody else knows of it.
            unsafe { memory.as_ptr().write_bytes(BYTE, bytes) };
            Ok::<_, io::Error>(memory)
        };
        let [read, rows, prepared, out] = sizes;
        Ok(Self {
            isa,
            kernel,
            // As the weights of a model.
            read: filled(Slabs::default().part(read), read)?,
            rows: filled(Memory::zeroed(rows), rows)?,
            prepared: filled(Memory::zeroed(prepared), prepared)?,
            out: filled(Memory::zeroed(out), out)?,
        })
    }

    /// Bytes of weights or of the cache that a run reads.
    pub fn bytes(&self) -> u64 {
        let bytes = match &self.kernel {
            Kernel::Linear { form, inputs, panels, .. } => panels * form.panel_bytes(*inputs),
            Kernel::Attention { shape, .. } => shape.context * 2 * shape.head_dim * shape.dtype.bytes(),
            Kernel::Norm { width } | Kernel::Gated { width } => 3 * width * size_of::<f32>(),
        };
        bytes as u64
    }

    /// Runs the kernel once, on this thread.
    pub fn run(&mut self) {
        let x = self.rows.as_ptr().cast::<f32>();
        let out = self.out.as_ptr().cast::<f32>();
        // SAFETY: each constructor made room for what its kernel reads and writes, and `self` is borrowed alone.
        unsafe {
            match &self.kernel {
                &Kernel::Linear { form, rows, inputs, panels } => {
                    self.prepare(form, rows, inputs);
                    (0..panels).for_each(|panel| self.multiply(form, rows, inputs, panel, panels));
                }
                Kernel::Attention { shape, blocks } => self.attend(shape, blocks),
                &Kernel::Norm { width } => {
                    let (add, weight) = (x.add(width), self.read.as_ptr().cast());
                    rms_norm(self.isa, &RmsNorm { x, add, add_scale: 1.0, weight, out, width, eps: 1e-5 });
                }
                &Kernel::Gated { width } => {
                    gated(self.isa, &Gated { activation: Activation::Silu, gate_up: x, out, width });
                }
            }
        }
    }

    /// Runs the kernel once, divided as steps divide it. Only linear layers are divided. Panics if a task is
    /// called twice.
    pub fn run_divided(&mut self, fork: &mut Fork<'_>) {
        let Kernel::Linear { form, rows, inputs, panels } = self.kernel else {
            return self.run();
        };
        let called: Vec<AtomicBool> = (0..panels).map(|_| AtomicBool::new(false)).collect();
        let this = &*self;
        // SAFETY: `linear` made room for the rows, and `self` is borrowed alone.
        unsafe { this.prepare(form, rows, inputs) };
        fork(panels, &|panel| {
            assert!(!called[panel].swap(true, Ordering::Relaxed), "task {panel} was called before");
            // SAFETY: `linear` made room for all panels, `self` is borrowed alone, and this panel's task is called
            // once.
            unsafe { this.multiply(form, rows, inputs, panel, panels) };
        });
    }

    /// Prepares the rows.
    ///
    /// # Safety
    /// The memory is that of such a layer, and nobody else uses it.
    unsafe fn prepare(&self, form: Form, rows: usize, inputs: usize) {
        for row in 0..rows {
            // SAFETY: as the caller says; rows are below their number.
            unsafe {
                let x = self.rows.as_ptr().cast::<f32>().add(row * inputs);
                let to = self.prepared.as_ptr().add(row * form.prepared_bytes(inputs));
                form.prepare(self.isa, &Preparation { x, inputs, to });
            }
        }
    }

    /// Multiplies the prepared rows with a panel.
    ///
    /// # Safety
    /// The memory is that of such a layer with so many panels, and nobody else uses this one's outputs.
    unsafe fn multiply(&self, form: Form, rows: usize, inputs: usize, panel: usize, panels: usize) {
        let (x, x_stride) = match form.prepared() {
            Prepared::AsTheyAre => (self.rows.as_ptr(), inputs * size_of::<f32>()),
            Prepared::Bf16 | Prepared::Blocks => (self.prepared.as_ptr(), form.prepared_bytes(inputs)),
        };
        // SAFETY: as the caller says; the panel is below their number.
        unsafe {
            let product = Product {
                x,
                x_stride,
                rows,
                inputs,
                weights: self.read.as_ptr().add(panel * form.panel_bytes(inputs)),
                start: Start::Zero,
                out: self.out.as_ptr().cast::<f32>().add(panel * PANEL),
                out_stride: panels * PANEL,
            };
            form.multiply(self.isa, &product);
        }
    }

    /// Attends with one tile of queries after the other.
    ///
    /// # Safety
    /// The memory is that of such a cache and its queries, and nobody else uses it.
    unsafe fn attend(&self, shape: &AttentionShape, blocks: &[BlockId]) {
        let (queries, stride) = (shape.rows * shape.group, shape.group * shape.head_dim);
        let tile_queries = queries_max(self.isa, shape.dtype, shape.head_dim);
        for first in (0..queries).step_by(tile_queries) {
            let tile = Attention {
                queries: self.rows.as_ptr().cast(),
                query_stride: stride,
                out: self.out.as_ptr().cast(),
                out_stride: stride,
                first,
                count: tile_queries.min(queries - first),
                group: shape.group,
                head_dim: shape.head_dim,
                start: shape.context - shape.rows,
                window: usize::MAX,
                scale: 1.0,
                cap: None,
                pool: self.read.as_ptr(),
                record_bytes: shape.record_bytes(),
                block_tokens: BLOCK_TOKENS,
                blocks,
                first_block: 0,
            };
            // SAFETY: as the caller says; the blocks hold the whole context.
            unsafe { attention(self.isa, shape.dtype, &tile) };
        }
    }
}

impl AttentionShape {
    /// Returns the bytes of a block of the cache.
    fn record_bytes(&self) -> usize {
        2 * BLOCK_TOKENS * self.head_dim * self.dtype.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one number that all bytes are, in f32.
    fn number() -> f64 {
        f64::from(f32::from_ne_bytes([BYTE; 4]))
    }

    #[track_caller]
    fn check(exercise: io::Result<Exercise>, count: usize, expected: f64) {
        let mut exercise = exercise.expect("there is memory");
        for divided in [false, true] {
            // SAFETY: the result has so many numbers.
            let out = unsafe { std::slice::from_raw_parts_mut(exercise.out.as_ptr().cast::<f32>(), count) };
            out.fill(f32::NAN);
            match divided {
                true => exercise.run_divided(&mut |tasks, task| (0..tasks).rev().for_each(task)),
                false => exercise.run(),
            }
            // SAFETY: as above.
            let out = unsafe { std::slice::from_raw_parts(exercise.out.as_ptr().cast::<f32>(), count) };
            for (i, &x) in out.iter().enumerate() {
                assert!((f64::from(x) - expected).abs() <= 0.02 * expected, "number {i}: {x}, expected {expected}");
            }
        }
        assert!(exercise.bytes() > 0);
    }

    #[test]
    fn a_run_computes_what_the_kernel_is_for() {
        for isa in Isa::available() {
            let half = half::f16::from_bits(0x3c3c).to_f64();
            for (format, weight) in [
                (WeightFormat::Plain(Dtype::F32), number()),
                (WeightFormat::Plain(Dtype::F16), half),
                (WeightFormat::Plain(Dtype::Bf16), number()),
                (WeightFormat::Q8_0, half * f64::from(BYTE)),
                // The integer 12 or 3 with the scale 60, less the minimum 60.
                (WeightFormat::Q4K, half * f64::from(BYTE) * (7.5 - 1.0)),
            ] {
                let expected = 256.0 * number() * weight;
                check(Exercise::linear(isa, format, 3, 256, 100), 3 * 128, expected);
            }
            // The mean of equal values.
            for rows in [1, 70] {
                let shape = AttentionShape { dtype: Dtype::Bf16, rows, context: 100, group: 2, head_dim: 64 };
                check(Exercise::attention(isa, shape), rows * 2 * 64, number());
            }
            // A row of twice the number, divided by its root mean square.
            let square = 4.0 * number() * number();
            check(Exercise::rms_norm(isa, 100), 100, 2.0 * number() * number() / (square + 1e-5).sqrt());
            check(Exercise::gated(isa, 100), 100, number() * number() / (1.0 + (-number()).exp()));
        }
    }
}
