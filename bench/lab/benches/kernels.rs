//! Single kernels on one thread, each on numbers of its own: `make bench-kernels`, or with a part of a name, `make
//! bench-kernels ARGS=linear/Q8_0`. What a whole step takes beside the limits of the machine is `baton bench
//! engine`'s.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use domain::Dtype;
use engine::cpu::{AttentionShape, Exercise, Isa};
use engine::quant::WeightFormat;
use std::io;

/// Inputs and outputs of a linear layer: its weights are larger than a core's own caches in every format.
const LINEAR: (usize, usize) = (1024, 4096);
/// Rows of a linear layer: one sequence that decodes, small batches, a chunk of a prompt.
const ROWS: [usize; 4] = [1, 4, 16, 512];
/// Numbers of a row that is normed or activated.
const WIDTH: usize = 4096;

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

criterion_group!(kernels, linear, attention, rows);
criterion_main!(kernels);
