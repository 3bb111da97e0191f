//! The engine's figures as a table.

use crate::engine_runs::{Bench, Run};
use crate::limits::Limits;
use domain::Dtype;
use std::error::Error;

/// Measurements of each figure; the best one counts, since what disturbs a measurement only makes it slower.
const REPEATS: usize = 5;

/// Measures and prints.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    eprintln!("measuring the machine's limits, {threads} threads");
    let before = Limits::measure(threads)?;
    let mut measured = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        eprintln!("making, loading and running the 125m shape in {dtype:?}");
        let mut bench = Bench::new(dtype, threads)?;
        for run in RUNS {
            let output = bench.best(run, REPEATS)?;
            measured.push((dtype, run, bench.flops(run), bench.weight_bytes(), output));
        }
    }
    // What else the host does comes and goes: the better of both measurements is nearer to the limit.
    let limits = before.or_better(&Limits::measure(threads)?);

    println!("threads: {threads}");
    println!("plain read loop: {:.1} GB/s", limits.read_bytes_per_s / 1e9);
    println!("f32 fused multiply-add: {:.0} GFLOP/s", limits.flops / 1e9);
    println!();
    println!(
        "| weights | work | tokens/s | ms a step | GFLOP/s | of FMA | GB/s of weights | of the read loop | outside kernels |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (dtype, run, flops, bytes, output) in measured {
        let seconds = output.elapsed.as_secs_f64();
        let (flops, bytes) = (flops / seconds, bytes / seconds);
        println!(
            "| {dtype:?} | {run} | {:.0} | {:.2} | {:.0} | {:.0}% | {:.1} | {:.0}% | {:.2}% |",
            run.tokens() as f64 / seconds,
            seconds * 1e3,
            flops / 1e9,
            100.0 * flops / limits.flops,
            bytes / 1e9,
            100.0 * bytes / limits.read_bytes_per_s,
            100.0 * (1.0 - output.in_kernels.as_secs_f64() / seconds),
        );
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
