//! What the samples of a run mean.

mod table;

use crate::cost::{Cost, Costs};
use crate::limits::{LimitFigures, MachineLimits};
use crate::model::Model;
use crate::settings::Settings;
use crate::steps::{Sampled, Steps};
use crate::work::{Cut, Work};
use engine::timed::{LinearRole, Operation};
use serde::Serialize;

/// Figures that spread wider than this, largest by smallest, are pointed out.
const SPREAD_MAX: f64 = 1.25;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the engine.
    pub version: &'static str,
    /// The model.
    pub model: String,
    /// The number format of most of its weights.
    pub weights: String,
    /// Bytes of weights that a decode step reads.
    pub weight_bytes: u64,
    /// The device in words: kernels, threads, KV.
    pub device: String,
    /// What was asked for.
    pub settings: Settings,
    /// What the machine does at best.
    pub limits: LimitFigures,
    /// Work by work.
    pub works: Vec<WorkFigures>,
    /// What a reader should know before trusting a figure.
    pub notes: Vec<String>,
}

/// A median, and how far the samples spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Figures of a work. Rates and shares are those of the sample in the middle.
#[derive(Clone, Debug, Serialize)]
pub struct WorkFigures {
    /// What was done, in words.
    pub work: String,
    /// Length of the prompt in tokens; `None`: decoding alone.
    pub prompt: Option<u32>,
    /// Sequences at once.
    pub batch: u32,
    /// Tokens before.
    pub context: u32,
    /// Tokens a second of all sequences.
    pub tokens_per_s: Spread,
    /// The same, sample by sample, in the order of time.
    pub samples: Vec<f64>,
    /// Milliseconds of a step, on average.
    pub step_ms: f64,
    /// How fast it multiplied and read.
    #[serde(flatten)]
    pub rates: Rates,
    /// The share of the time that was not spent in kernels: laying out rows, sampling's bookkeeping, waking threads. On
    /// a card: that it was idle.
    pub outside_kernels: f64,
    /// Kernel by kernel, the one that takes longest first.
    pub kernels: Vec<KernelFigures>,
}

/// Rates beside the limits. A share is of the limit of the same run and can exceed 1 where caches help.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// Billions of multiplications and additions a second.
    pub gflop_per_s: f64,
    /// Their share of the limit; `None`: that is not known.
    pub share_of_multiplying: Option<f64>,
    /// Billions of bytes of weights and KV a second, each read once by a step.
    pub gb_per_s: f64,
    /// Their share of the limit.
    pub share_of_reading: f64,
}

/// Figures of one kind of kernel in a work.
#[derive(Clone, Debug, Serialize)]
pub struct KernelFigures {
    /// What it computes.
    pub kernel: &'static str,
    /// How often it ran in a sample.
    pub calls: u64,
    /// Milliseconds that all calls took.
    pub ms: f64,
    /// Their share of the sample.
    pub share_of_time: f64,
    /// `None`: neither products nor memory bound it.
    pub rates: Option<Rates>,
}

/// A work with its samples, as it was measured.
pub(crate) struct Measured {
    pub(crate) work: Work,
    /// At least one.
    pub(crate) samples: Vec<Sampled>,
    pub(crate) costs: Costs,
}

impl Report {
    pub(crate) fn new(
        name: &str,
        model: &Model,
        steps: &Steps,
        settings: &Settings,
        limits: &MachineLimits,
        measured: &[Measured],
    ) -> Self {
        let layout = steps.layout();
        let multiplying = |operation| limits.operations_per_s(operation, model, layout);
        let scale = Scale { read: limits.read_bytes_per_s(), multiplying: &multiplying };
        let figures = |measured| WorkFigures::new(measured, settings.cut, &scale);
        let works: Vec<WorkFigures> = measured.iter().map(figures).collect();
        let spread = works.iter().filter(|work| work.tokens_per_s.max > SPREAD_MAX * work.tokens_per_s.min);
        let notes = spread
            .map(|work| {
                let Spread { min, max, .. } = work.tokens_per_s;
                format!("{}: {min:.0} to {max:.0} tokens/s; the machine did something else as well", work.work)
            })
            .collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            model: name.to_owned(),
            weights: model.format().to_string(),
            weight_bytes: model.linear_bytes(),
            device: steps.describe(),
            settings: settings.clone(),
            limits: limits.figures(multiplying(WEIGHTS)),
            works,
            notes,
        }
    }
}

/// An operation with weights: they say what the whole of a work is mostly multiplied in.
const WEIGHTS: Operation = Operation::Linear(LinearRole::Head);

/// The limits that rates are compared with.
struct Scale<'a> {
    read: f64,
    multiplying: &'a dyn Fn(Operation) -> Option<f64>,
}

impl Scale<'_> {
    fn rates(&self, operation: Operation, cost: Cost, seconds: f64) -> Rates {
        let (operations, bytes) = (cost.operations / seconds, cost.bytes / seconds);
        Rates {
            gflop_per_s: operations / 1e9,
            share_of_multiplying: (self.multiplying)(operation).map(|limit| operations / limit),
            gb_per_s: bytes / 1e9,
            share_of_reading: bytes / self.read,
        }
    }
}

impl WorkFigures {
    fn new(measured: &Measured, cut: Cut, scale: &Scale<'_>) -> Self {
        let Measured { work, samples, costs } = measured;
        let tokens = f64::from(work.tokens(cut));
        let rate = |sample: &Sampled| tokens / sample.elapsed.as_secs_f64();
        let mut order: Vec<&Sampled> = samples.iter().collect();
        order.sort_by_key(|sample| sample.elapsed);
        let (fastest, middle, slowest) = (order[0], order[order.len() / 2], order[order.len() - 1]);
        let elapsed = middle.elapsed.as_secs_f64();
        let sum = costs.values().fold(Cost::default(), |all, cost| Cost {
            operations: all.operations + cost.operations,
            bytes: all.bytes + cost.bytes,
        });
        let mut kernels: Vec<KernelFigures> = middle
            .kernels
            .iter()
            .map(|(&operation, &(calls, spent))| KernelFigures {
                kernel: name(operation),
                calls,
                ms: spent.as_secs_f64() * 1e3,
                share_of_time: spent.as_secs_f64() / elapsed,
                rates: costs.get(&operation).map(|&cost| scale.rates(operation, cost, spent.as_secs_f64())),
            })
            .collect();
        kernels.sort_by(|one, other| other.ms.total_cmp(&one.ms));
        let (prompt, batch, context) = match *work {
            Work::Prompt(tokens) => (Some(tokens), 1, 0),
            Work::Decode { batch, context } => (None, batch, context),
            Work::Mixed { batch, context, prompt } => (Some(prompt), batch, context),
        };
        Self {
            work: work.to_string(),
            prompt,
            batch,
            context,
            tokens_per_s: Spread { median: rate(middle), min: rate(slowest), max: rate(fastest) },
            samples: samples.iter().map(rate).collect(),
            step_ms: elapsed * 1e3 / f64::from(middle.steps),
            rates: scale.rates(WEIGHTS, sum, elapsed),
            outside_kernels: 1.0 - middle.in_kernels.as_secs_f64() / elapsed,
            kernels,
        }
    }
}

/// Returns what an operation is called.
fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Embed => "embedding",
        Operation::Norm => "norms",
        Operation::Linear(LinearRole::Qkv) => "linear: queries, keys, values",
        Operation::Linear(LinearRole::Output) => "linear: attention's output",
        Operation::Linear(LinearRole::GateUp) => "linear: gate and up",
        Operation::Linear(LinearRole::Down) => "linear: down",
        Operation::Linear(LinearRole::Head) => "linear: logits",
        Operation::HeadNorm => "norms of queries and keys",
        Operation::Rotary => "rotary, into the cache",
        Operation::Attention => "attention",
        Operation::Gated => "gated activation",
        Operation::Sample => "sampling",
    }
}
