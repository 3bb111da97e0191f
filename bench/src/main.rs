//! Measures the CPU engine against the limits of the machine, both in the same run: `cargo run --release -p bench`.
//! docs/benchmarks.md keeps the figures.
//!
//! What is deliberately absent: a verdict. The figures depend on the machine and on what else it does.

mod engine_runs;
mod limits;

use domain::Dtype;
use engine_runs::{Bench, Run};
use limits::Limits;
use std::error::Error;

/// Measurements of each figure; the best one counts, since what disturbs a measurement only makes it slower.
const REPEATS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    eprintln!("measuring the machine's limits, {threads} threads");
    let limits = Limits::measure(threads);
    println!("threads: {threads}");
    println!("read bandwidth: {:.1} GB/s", limits.read_bytes_per_s / 1e9);
    println!("f32 fused multiply-add: {:.0} GFLOP/s", limits.flops / 1e9);
    println!();
    println!(
        "| weights | work | tokens/s | ms a step | GFLOP/s | of FMA | GB/s of weights | of bandwidth | outside kernels |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        eprintln!("making and loading the 125m shape in {dtype:?}");
        let mut bench = Bench::new(dtype, threads)?;
        for run in RUNS {
            let result = bench.best(run, REPEATS)?;
            let seconds = result.elapsed.as_secs_f64();
            let (flops, bytes) = (bench.flops(run) / seconds, bench.weight_bytes() / seconds);
            println!(
                "| {dtype:?} | {run} | {:.0} | {:.2} | {:.0} | {:.0}% | {:.1} | {:.0}% | {:.2}% |",
                run.tokens() as f64 / seconds,
                seconds * 1e3,
                flops / 1e9,
                100.0 * flops / limits.flops,
                bytes / 1e9,
                100.0 * bytes / limits.read_bytes_per_s,
                100.0 * (1.0 - result.in_kernels.as_secs_f64() / seconds),
            );
        }
    }
    Ok(())
}

/// The shapes of work that are measured: those of a prompt's chunk and of decode steps.
const RUNS: [Run; 6] = [
    Run { sequences: 1, start: 0, rows: 512 },
    Run { sequences: 1, start: 1536, rows: 512 },
    Run { sequences: 1, start: 128, rows: 1 },
    Run { sequences: 1, start: 2048, rows: 1 },
    Run { sequences: 4, start: 128, rows: 1 },
    Run { sequences: 16, start: 128, rows: 1 },
];
