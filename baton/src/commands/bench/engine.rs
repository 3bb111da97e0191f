//! `baton bench engine`: the command line's side of `bench-engine`.

use super::file::ReportFile;
use super::parts::Parts;
use super::source::Source;
use crate::cli::{BenchDevice, BenchKernels, EngineBench};
use crate::error::CommandError;
use crate::model_dir;
use crate::output::print;
use crate::progress::Progress;
use bench_engine::{Bench, BenchError, CardChoice, Cut, Settings};
use engine::cpu::Pinning;
use engine::cuda::KernelSet;
use engine::models::ModelFiles;
use std::io::Write;

/// Measures the engine and reports.
pub(crate) fn engine(asked: &EngineBench) -> Result<(), CommandError> {
    let card = (asked.device == BenchDevice::Cuda).then(|| card(asked.card, asked.kernels));
    let settings = Settings {
        card,
        threads: asked.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        pinning: if asked.pin { Pinning::On } else { Pinning::Auto { alone: true } },
        prompts: asked.prompts.clone(),
        batches: asked.batches.clone(),
        contexts: asked.contexts.clone(),
        mixed: asked.mixed.clone(),
        cut: Cut { chunk: asked.chunk, decoded: asked.decoded },
        samples: asked.samples,
    };
    // Before the run: a report that cannot be written after an hour is a lost hour.
    let json = ReportFile::create(asked.json.as_ref())?;
    let html = ReportFile::create(asked.html.as_ref())?;
    let bench = open(asked, &settings)?;
    let mut parts = Parts::begin();
    let report = bench.measure(&mut |progress| parts.show(&progress.what, progress.done, progress.total));
    parts.end();
    let report = report.map_err(failed)?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    if let Some(output) = html {
        output.write(|file| file.write_all(bench_engine::page::html(&report).as_bytes()))?;
    }
    Ok(print(&report.to_string())?)
}

/// Returns the loaded model.
fn open(asked: &EngineBench, settings: &Settings) -> Result<Bench, CommandError> {
    let source = Source::of(asked.model.as_deref(), &asked.shape, &asked.dtype)?;
    let files = ModelFiles::load(&source.path)?;
    let name = source.name.clone().unwrap_or_else(|| files.name.clone());
    let bytes = files.checkpoint.bytes();
    let mut progress = Progress::begin(format!("loading {name}"));
    let loaded = Bench::open(&files, &name, settings, &mut |share| {
        progress.update((f64::from(share) * bytes as f64) as u64, bytes);
    });
    progress.end();
    loaded.map_err(failed)
}

/// Returns a card, with the folder in which kernels are kept once they are compiled.
pub(super) fn card(number: u32, kernels: BenchKernels) -> CardChoice {
    let set = match kernels {
        BenchKernels::Exact => KernelSet::Exact,
        BenchKernels::Fast => KernelSet::Fast,
    };
    CardChoice { number, set, kernels: model_dir::kernel_cache() }
}

/// Whose fault it is that nothing was measured.
pub(super) fn failed(error: BenchError) -> CommandError {
    match error {
        BenchError::Settings(_) => CommandError::Usage(error.into()),
        _ => CommandError::Failed(error.into()),
    }
}
