//! `baton bench serve`: the command line's side of the load generator.

use super::file::ReportFile;
use super::progress::Watch;
use crate::cli::{BenchApi, ServeBench};
use crate::error::CommandError;
use crate::output::print;
use bench_serve::{Api, Arrivals, BenchError, Record, Report, Run, Settings, Shape, Trace};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

/// Requests where nothing says how many.
const REQUESTS_DEFAULT: u64 = 100;

/// Loads a server and reports.
pub(crate) fn serve(asked: &ServeBench) -> Result<(), CommandError> {
    let settings = settings(asked)?;
    // Before the run: a report that cannot be written after an hour is a lost hour.
    let json = ReportFile::create(asked.json.as_ref())?;
    let records = ReportFile::create(asked.records.as_ref())?;
    let html = ReportFile::create(asked.html.as_ref())?;
    // One thread: what stamps the tokens is never moved, and its time is known.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (report, all) = runtime.block_on(async {
        let run = Run::prepare(settings).await.map_err(begun)?;
        Ok::<_, CommandError>(watched(&run).await)
    })?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    if let Some(output) = records {
        output.write(|file| lines(file, &all))?;
    }
    if let Some(output) = html {
        output.write(|file| file.write_all(bench_serve::page::html(&report, &all).as_bytes()))?;
    }
    print(&report.to_string())?;
    if report.all_failed() { Err(CommandError::Failed("all requests failed".into())) } else { Ok(()) }
}

/// Measures, shows how it goes, and stops when the user wants.
async fn watched(run: &Run) -> (Report, Vec<Record>) {
    let mut watch = Watch::begin(run.model());
    let measure = run.measure();
    tokio::pin!(measure);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + watch.every(), watch.every());
    let outcome = loop {
        tokio::select! {
            outcome = &mut measure => break outcome,
            _ = ticks.tick() => watch.show(&run.live()),
            _ = tokio::signal::ctrl_c() => {
                run.stop("interrupted");
                watch.say("nothing more is sent; Ctrl-C again gives up what is in flight");
            }
        }
    };
    watch.end();
    outcome
}

fn settings(asked: &ServeBench) -> Result<Settings, CommandError> {
    let arrivals = if let Some(file) = &asked.trace {
        Arrivals::Trace {
            trace: Trace::read(file).map_err(begun)?,
            file: file.clone(),
            speed: asked.trace_speed,
            block_tokens: asked.trace_block,
            concurrency_max: asked.concurrency_max,
        }
    } else if let Some(per_second) = asked.rate {
        Arrivals::Rate { per_second, concurrency_max: asked.concurrency_max }
    } else {
        Arrivals::Closed { concurrency: asked.concurrency.unwrap_or(1) }
    };
    let endless = asked.duration.is_none() && asked.trace.is_none();
    let extra = asked.extra.as_deref().map(serde_json::from_str).transpose();
    let wrong = |error| CommandError::Usage(format!("--extra is no JSON object: {error}").into());
    Ok(Settings {
        url: asked.url.clone(),
        ca: asked.ca.clone(),
        model: asked.model.clone(),
        api: match asked.api {
            BenchApi::Completions => Api::Completions,
            BenchApi::Chat => Api::Chat,
        },
        arrivals,
        shape: Shape {
            input: asked.input,
            output: asked.output,
            shared_prefix: asked.shared_prefix,
            prefixes: asked.prefixes,
            turns: asked.turns,
            think: asked.think,
        },
        requests: asked.requests.or(endless.then_some(REQUESTS_DEFAULT)),
        duration: asked.duration.map(|duration| seconds("--duration", duration)).transpose()?,
        warmup: asked.warmup,
        seed: asked.seed,
        token_ids: asked.token_ids,
        timeout: seconds("--timeout", asked.timeout)?,
        extra: extra.map_err(wrong)?.unwrap_or_default(),
        headers: asked.header.clone(),
        slo: asked.slo,
    })
}

fn seconds(flag: &str, number: f64) -> Result<Duration, CommandError> {
    let duration = Duration::try_from_secs_f64(number).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| CommandError::Usage(format!("{flag} {number}: more than 0 seconds").into()))
}

/// Whose fault it is that a run does not begin.
fn begun(error: BenchError) -> CommandError {
    match error {
        BenchError::Settings(_) | BenchError::TraceFile { .. } | BenchError::TraceLine { .. } => {
            CommandError::Usage(error.into())
        }
        BenchError::Unreachable { .. } | BenchError::NoModel { .. } | BenchError::Refused { .. } => {
            CommandError::Failed(error.into())
        }
    }
}

fn lines(file: &mut BufWriter<File>, records: &[Record]) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *file, record)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
