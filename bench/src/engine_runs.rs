//! Steps of the CPU device: on a random model of the `125m` shape, or on a model of the user's.

use domain::plan::{BlockTable, Input, Sample, Span, StepOutput, StepPlan};
use domain::{BlockId, Choice, Dtype, Epoch, RequestId, SamplingParams, SeqKey, StepId};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa};
use engine::device::{Device, DeviceLimits};
use engine::models::ModelFiles;
use engine::random::RandomSpec;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest sequence that is measured, in tokens.
const CONTEXT_MAX: u32 = 4096;
/// Most rows of a step.
const ROWS_MAX: u32 = 512;
/// Most sequences at once.
const SEQUENCES_MAX: u32 = 16;

/// Work of one step: `rows` tokens of each of `sequences` after `start` tokens of context.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) sequences: u32,
    pub(crate) start: u32,
    pub(crate) rows: u32,
}

impl Run {
    pub(crate) fn tokens(self) -> u32 {
        self.sequences * self.rows
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, start, rows } = self;
        match rows {
            1 => write!(f, "decode, batch {sequences} after {start}"),
            _ => write!(f, "prompt, {rows} tokens after {start}"),
        }
    }
}

/// A device with its model.
pub(crate) struct Bench {
    device: CpuDevice,
    model: Arc<CpuModel>,
    dtype: Dtype,
    block_tokens: u32,
    step: StepId,
}

impl Bench {
    pub(crate) fn new(dtype: Dtype, threads: usize) -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        RandomSpec::named("llama", "125m", 1, Some(dtype))?.write(dir.path(), &mut |_, _| ())?;
        Self::open(dir.path(), threads)
    }

    /// Runs the model at `path`, with KV in the number format of its weights.
    pub(crate) fn open(path: &Path, threads: usize) -> Result<Self, Box<dyn Error>> {
        let files = ModelFiles::load(path)?;
        let dtype = files.spec.dtype;
        let model = Arc::new(CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| ())?);
        let layout = files.spec.kv_layout(dtype, None);
        let block_tokens = layout.block_tokens;
        let limits = DeviceLimits {
            rows_max: ROWS_MAX as usize,
            samples_max: SEQUENCES_MAX as usize,
            context_max: files.spec.context.min(CONTEXT_MAX as usize),
            blocks: vec![CONTEXT_MAX.div_ceil(block_tokens) * SEQUENCES_MAX],
        };
        let config = CpuConfig { layout, limits, threads, isa: Isa::best() };
        let device = CpuDevice::new(model.clone(), config)?;
        Ok(Self { device, model, dtype, block_tokens, step: StepId(0) })
    }

    /// The fastest of some equal steps. The context is computed first.
    pub(crate) fn best(&mut self, run: Run, repeats: usize) -> Result<StepOutput, Box<dyn Error>> {
        for begin in (0..run.start).step_by((ROWS_MAX / run.sequences) as usize) {
            let rows = (ROWS_MAX / run.sequences).min(run.start - begin);
            self.step(Run { start: begin, rows, ..run })?;
        }
        let mut best = self.step(run)?;
        // Decode steps are short: as many as take as long as a chunk.
        for _ in 0..repeats * (ROWS_MAX / run.tokens().max(ROWS_MAX / 32)) as usize {
            let output = self.step(run)?;
            if output.elapsed < best.elapsed {
                best = output;
            }
        }
        Ok(best)
    }

    /// Computes a prompt of so many tokens, chunk by chunk, for each of `sequences`; the time of all steps.
    pub(crate) fn prompt(&mut self, sequences: u32, tokens: u32) -> Result<Duration, Box<dyn Error>> {
        let chunk = ROWS_MAX / sequences;
        (0..tokens).step_by(chunk as usize).try_fold(Duration::ZERO, |spent, start| {
            Ok(spent + self.step(Run { sequences, start, rows: chunk.min(tokens - start) })?.elapsed)
        })
    }

    /// Decodes so many tokens of each of `sequences` after `start` tokens of context, one after the other; the time of all
    /// steps.
    pub(crate) fn decode(&mut self, sequences: u32, start: u32, tokens: u32) -> Result<Duration, Box<dyn Error>> {
        (start..start + tokens)
            .try_fold(Duration::ZERO, |spent, start| Ok(spent + self.step(Run { sequences, start, rows: 1 })?.elapsed))
    }

    fn step(&mut self, run: Run) -> Result<StepOutput, Box<dyn Error>> {
        self.step = StepId(self.step.0 + 1);
        let spans = (0..run.sequences).map(|sequence| self.span(run, sequence)).collect();
        self.device.submit(Arc::new(StepPlan { step: self.step, copies: Vec::new(), spans }))?;
        loop {
            if let Some(output) = self.device.poll() {
                output.sampled.as_ref().map_err(String::as_str)?;
                return Ok(output);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn span(&self, run: Run, sequence: u32) -> Span {
        let key = SeqKey { request: RequestId(sequence.into()), epoch: Epoch(1), choice: Choice(0) };
        let token = |position: u32| Input::Token((position * 7919 + sequence) % self.model.spec().vocab as u32);
        let end = run.start + run.rows;
        let first = sequence * CONTEXT_MAX.div_ceil(self.block_tokens);
        let blocks = (0..end.div_ceil(self.block_tokens)).map(|block| BlockId(first + block)).collect();
        let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let sample = Sample { key, params: Arc::new(params), seed: 0, index: 0, history: Vec::new(), prompt_tokens: 0 };
        Span {
            key,
            start: run.start,
            inputs: (run.start..end).map(token).collect(),
            tables: vec![BlockTable { first: 0, blocks }],
            samples: vec![sample],
        }
    }

    /// Weights of the layers and the output projection: read once by every step.
    fn weights(&self) -> (f64, f64) {
        let spec = self.model.spec();
        let heads = (spec.heads * 2 + spec.kv_heads * 2) * spec.head_dim;
        let layers = spec.layers * spec.hidden * (heads + 3 * spec.ffn);
        (layers as f64, (spec.vocab * spec.hidden) as f64)
    }

    /// Bytes of weights that a step reads.
    pub(crate) fn weight_bytes(&self) -> f64 {
        let (layers, output) = self.weights();
        (layers + output) * self.dtype.bytes() as f64
    }

    /// Floating-point operations of a step: projections for every row, logits for the last of each sequence, attention.
    pub(crate) fn flops(&self, run: Run) -> f64 {
        let spec = self.model.spec();
        let (layers, output) = self.weights();
        let keys: f64 = (run.start..run.start + run.rows).map(|position| f64::from(position + 1)).sum();
        let attention = 4.0 * keys * (spec.layers * spec.heads * spec.head_dim) as f64 * f64::from(run.sequences);
        2.0 * layers * f64::from(run.tokens()) + 2.0 * output * f64::from(run.sequences) + attention
    }
}
