//! The engine's own pool of threads beside rayon, on two threads: `make bench-threads`.
//!
//! `section`: what it costs to divide work that is nothing. `step`: the divided work of whole steps of the shape
//! `125m` in bf16, by the engine's own kernels, each layer on weights of its own: a token that is decoded after
//! 128, and 256 rows of a prompt. Both run the same tasks; how they are dealt to threads is what differs.

use criterion::{Criterion, criterion_group, criterion_main};
use domain::Dtype;
use engine::cpu::{AttentionShape, Exercise, Fork, Isa, ThreadPool};
use engine::quant::WeightFormat;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::hint::black_box;
use std::sync::Mutex;

const THREADS: usize = 2;
/// Tasks of sections: heads of attention, panels of small and large linear layers.
const TASKS: [usize; 4] = [2, 4, 12, 64];

/// The shape `125m`.
const LAYERS: usize = 12;
const KV_HEADS: usize = 4;
const HEAD_GROUP: usize = 3;
const HEAD_DIM: usize = 64;
const HIDDEN: usize = 768;
const QKV: usize = HIDDEN + 2 * KV_HEADS * HEAD_DIM;
const FFN: usize = 2048;
const VOCAB: usize = 32_000;

/// What one operation of a step divides.
enum Section {
    Linear(Exercise),
    /// Attention, a task for each KV head.
    Heads(Vec<Mutex<Exercise>>),
}

impl Section {
    fn linear(rows: usize, inputs: usize, outputs: usize) -> Self {
        let format = WeightFormat::Plain(Dtype::Bf16);
        Self::Linear(Exercise::linear(Isa::best(), format, rows, inputs, outputs).expect("there is memory"))
    }

    fn attention(rows: usize, context: usize) -> Self {
        let shape = AttentionShape { dtype: Dtype::Bf16, rows, context, group: HEAD_GROUP, head_dim: HEAD_DIM };
        let head = |_| Mutex::new(Exercise::attention(Isa::best(), shape).expect("there is memory"));
        Self::Heads((0..KV_HEADS).map(head).collect())
    }

    fn run(&mut self, fork: &mut Fork<'_>) {
        match self {
            Self::Linear(exercise) => exercise.run_divided(fork),
            Self::Heads(heads) => {
                let heads = &*heads;
                fork(heads.len(), &|head| heads[head].lock().expect("no task panics").run());
            }
        }
    }
}

/// The divided work of a step.
fn step(rows: usize, context: usize) -> Vec<Section> {
    let mut sections = Vec::new();
    for _ in 0..LAYERS {
        sections.push(Section::linear(rows, HIDDEN, QKV));
        sections.push(Section::attention(rows, context));
        sections.push(Section::linear(rows, HIDDEN, HIDDEN));
        sections.push(Section::linear(rows, HIDDEN, 2 * FFN));
        sections.push(Section::linear(rows, FFN, HIDDEN));
    }
    sections.push(Section::linear(1, HIDDEN, VOCAB));
    sections
}

fn pool() -> rayon::ThreadPool {
    ThreadPoolBuilder::new().num_threads(THREADS).build().expect("threads start")
}

fn with_rayon(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..tasks).into_par_iter().for_each(task);
}

fn sections(criterion: &mut Criterion) {
    let (mut thread_pool, pool) = (ThreadPool::anywhere(THREADS).expect("threads start"), pool());
    for tasks in TASKS {
        let mut group = criterion.benchmark_group(format!("section/{tasks}"));
        group.bench_function("thread_pool", |bencher| {
            bencher.iter(|| thread_pool.run(tasks, &|_, number| _ = black_box(number)))
        });
        // From a thread of the pool, as a leader would.
        group.bench_function("rayon", |bencher| {
            pool.install(|| bencher.iter(|| with_rayon(tasks, &|number| _ = black_box(number))));
        });
        group.finish();
    }
}

fn steps(criterion: &mut Criterion) {
    let (mut thread_pool, pool) = (ThreadPool::anywhere(THREADS).expect("threads start"), pool());
    for (name, rows, context) in [("decode", 1, 128), ("prompt", 256, 256)] {
        let mut sections = step(rows, context);
        let mut group = criterion.benchmark_group(format!("step/{name}"));
        let mut whole = |fork: &mut Fork<'_>| sections.iter_mut().for_each(|section| section.run(fork));
        group.bench_function("thread_pool", |bencher| {
            bencher.iter(|| whole(&mut |tasks, task| thread_pool.run(tasks, &|_, number| task(number))));
        });
        group.bench_function("rayon", |bencher| pool.install(|| bencher.iter(|| whole(&mut with_rayon))));
        group.finish();
    }
}

criterion_group!(pools, sections, steps);
criterion_main!(pools);
