//! Single kernels on one thread, each on numbers of its own: `make bench-kernels`, or with a part of a name, `make
//! bench-kernels ARGS=linear/Q8_0`. What a whole step takes beside the limits of the machine is `baton bench
//! engine`'s.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use domain::plan::Sample;
use domain::{Choice, Dtype, Epoch, RequestId, SamplingParams, SeqKey};
use engine::cpu::{AttentionShape, Exercise, Isa};
use engine::quant::WeightFormat;
use engine::sampling::{SampleContext, Sampler};
use std::io;
use std::sync::Arc;

/// Inputs and outputs of a linear layer: its weights are larger than a core's own caches in every format.
const LINEAR: (usize, usize) = (1024, 4096);
/// Rows of a linear layer: one sequence that decodes, small batches, a chunk of a prompt.
const ROWS: [usize; 4] = [1, 4, 16, 512];
/// Numbers of a row that is normed or activated.
const WIDTH: usize = 4096;
/// Logits of a row that is sampled: Qwen's.
const VOCABULARY: u32 = 151_936;

/// Measures an exercise, beside the bytes of weights or cache that it reads.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, id: BenchmarkId, exercise: io::Result<Exercise>) {
    let mut exercise = exercise.expect("there is memory");
    group.throughput(Throughput::Bytes(exercise.bytes()));
    group.bench_function(id, |bencher| bencher.iter(|| exercise.run()));
}

fn linear(criterion: &mut Criterion) {
    let (inputs, outputs) = LINEAR;
    let plain = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(WeightFormat::Plain);
    for format in plain.into_iter().chain([WeightFormat::Q8_0, WeightFormat::Q4K, WeightFormat::Q6K]) {
        let mut group = criterion.benchmark_group(format!("linear/{format}"));
        for rows in ROWS {
            let exercise = Exercise::linear(Isa::best(), format, rows, inputs, outputs);
            measure(&mut group, BenchmarkId::from_parameter(rows), exercise);
        }
        group.finish();
    }
}

fn attention(criterion: &mut Criterion) {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let mut group = criterion.benchmark_group(format!("attention/{dtype:?}"));
        for (name, rows) in [("decode", 1), ("prompt", 512)] {
            for context in [512, 4096] {
                let shape = AttentionShape { dtype, rows, context, group: 4, head_dim: 128 };
                measure(&mut group, BenchmarkId::new(name, context), Exercise::attention(Isa::best(), shape));
            }
        }
        group.finish();
    }
}

fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("row");
    measure(&mut group, BenchmarkId::new("rms_norm", WIDTH), Exercise::rms_norm(Isa::best(), WIDTH));
    measure(&mut group, BenchmarkId::new("gated", WIDTH), Exercise::gated(Isa::best(), WIDTH));
    group.finish();
}

/// Sampling of one row, without and with each cut and the log probabilities.
fn sample(criterion: &mut Criterion) {
    // About normal, with the spread of a trained model's logits.
    let logit = |token: u32| {
        let mix = |round: u32| (token + 1).wrapping_mul(0x9e37_79b9).wrapping_mul(2 * round + 1).rotate_left(13);
        (0..4).map(|round| mix(round) as f32 / u32::MAX as f32 - 0.5).sum::<f32>() * 8.0
    };
    let logits: Vec<f32> = (0..VOCABULARY).map(logit).collect();
    let mut sampler = Sampler::new(logits.len());
    let mut group = criterion.benchmark_group("sample");
    let mut measure = |name, change: fn(&mut SamplingParams)| {
        let mut params = SamplingParams { temperature: 0.7, ..SamplingParams::default() };
        change(&mut params);
        let key = SeqKey { request: RequestId(1), epoch: Epoch(0), choice: Choice(0) };
        let params = Arc::new(params);
        let mut sample = Sample { key, row: 0, params, seed: 1, index: 0, masked: false };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                sample.index += 1;
                sampler.sample(&logits, &sample, SampleContext::default()).expect("the row is sound")
            });
        });
    };
    measure("greedy", |params| params.temperature = 0.0);
    measure("plain", |_| ());
    measure("top_k", |params| params.top_k = 40);
    measure("top_p", |params| params.top_p = 0.9);
    measure("min_p", |params| params.min_p = 0.05);
    measure("all", |params| (params.top_k, params.top_p, params.min_p) = (40, 0.9, 0.05));
    measure("logprobs", |params| params.logprobs = Some(5));
    group.finish();
}

criterion_group!(kernels, linear, attention, rows, sample);
criterion_main!(kernels);
