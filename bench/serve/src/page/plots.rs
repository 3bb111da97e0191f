//! What the page draws: distributions of latencies, and what happened over time.

use crate::record::Record;
use crate::report::{Report, token_times};
use crate::summary::{Summary, quantile};
use bench_report::{Axis, Chart, Colour, Form, Series};

/// Points of a distribution's line.
const QUANTILES: usize = 200;
/// Dots of a chart, at most: more are not seen apart.
const DOTS_MAX: usize = 3000;
/// Parts of the run over which rates are taken: as many as give each some of what is counted, within this range.
const BINS: std::ops::RangeInclusive<usize> = 10..=120;
/// Things that a part should count, on average.
const PER_BIN: usize = 8;
/// Room above the highest point.
const HEADROOM: f64 = 1.08;
/// Where a logarithmic axis of milliseconds may begin: an event that came along with another did so in no time.
const SHORTEST_MS: f64 = 0.01;

/// Returns all charts that there is something to draw in.
pub(super) fn charts(report: &Report, records: &[Record]) -> Vec<Chart> {
    let done: Vec<&Record> = records.iter().filter(|record| record.failure.is_none()).collect();
    let seconds = report.elapsed_s;
    let mut charts = Vec::new();
    let ttft = done.iter().filter_map(|record| record.ttft_ms());
    let sent = done.iter().filter_map(|record| record.ttft_sent_ms());
    charts.extend(distribution(
        "Time to first token",
        "% of requests",
        report.figures.ttft_ms,
        ttft.collect(),
        if report.is_open() { sent.collect() } else { Vec::new() },
    ));
    let gaps = done.iter().flat_map(|record| record.gaps_us.iter().map(|&gap| f64::from(gap) / 1e3));
    charts.extend(distribution("Between tokens", "% of gaps", report.figures.itl_ms, gaps.collect(), Vec::new()));
    charts.extend(latencies(records, seconds));
    let (tokens, sent) = rates(&done, seconds);
    charts.extend(tokens);
    charts.extend(in_flight(records, seconds));
    charts.extend(sent);
    charts
}

/// Returns the share of samples that are no larger than x; `sent`: the same samples, counted from when requests were
/// sent.
fn distribution(
    title: &'static str,
    unit: &'static str,
    summary: Option<Summary>,
    mut due: Vec<f64>,
    mut sent: Vec<f64>,
) -> Option<Chart> {
    let summary = summary?;
    let line = |name: &str, colour, samples: &mut Vec<f64>| {
        samples.sort_unstable_by(f64::total_cmp);
        let share = |step: usize| step as f64 / QUANTILES as f64;
        let points = (0..=QUANTILES).map(|step| (quantile(samples, share(step)), share(step) * 100.0)).collect();
        Series { name: name.to_owned(), colour, form: Form::Line, points }
    };
    // What came along with something before it took no time: it is no reason to draw decades of nothing.
    let low = |sorted: &[f64]| quantile(sorted, 0.01);
    let mut series = vec![line("from due", Colour::First, &mut due)];
    let mut begin = low(&due);
    if !sent.is_empty() {
        series.insert(0, line("from sent", Colour::Second, &mut sent));
        begin = begin.min(low(&sent));
    }
    let marks = [("P50", summary.p50), ("P99", summary.p99)];
    Some(Chart {
        title,
        x: Axis::logarithmic("milliseconds", begin.max(SHORTEST_MS), summary.max.max(SHORTEST_MS)),
        y: Axis::linear(unit, 100.0),
        series,
        marks: marks.map(|(name, at)| (at, name.to_owned())).into(),
    })
}

/// Returns when requests were due, and how long they took.
fn latencies(records: &[Record], seconds: f64) -> Option<Chart> {
    let ended: Vec<&Record> = records.iter().filter(|record| !record.abandoned()).collect();
    let stride = ended.len().div_ceil(DOTS_MAX).max(1);
    let dots = |name: &str, colour, ms: &dyn Fn(&Record) -> Option<f64>| {
        let point = |record: &Record| Some((record.due_us as f64 / 1e6, ms(record)?.max(SHORTEST_MS)));
        let points = ended.iter().step_by(stride).filter_map(|record| point(record)).collect();
        Series { name: name.to_owned(), colour, form: Form::Dots, points }
    };
    let done = |record: &Record| record.failure.is_none();
    let mut series = vec![
        dots("end to end", Colour::Second, &|record| done(record).then(|| record.e2e_ms())),
        dots("to first token", Colour::First, &|record| record.ttft_ms().filter(|_| done(record))),
        dots("failed", Colour::Bad, &|record| (!done(record)).then(|| record.e2e_ms())),
    ];
    series.retain(|series| !series.points.is_empty());
    let ms = || series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let (low, high) = (ms().fold(f64::INFINITY, f64::min), ms().fold(0.0, f64::max));
    (high > 0.0).then(|| Chart {
        title: "Latency by when requests were due",
        x: Axis::linear("seconds", seconds),
        y: Axis::logarithmic("milliseconds", low * 0.8, high * 1.1),
        series,
        marks: Vec::new(),
    })
}

/// Events with tokens, and requests, per second.
fn rates(done: &[&Record], seconds: f64) -> (Option<Chart>, Option<Chart>) {
    let per_second = |title, name: &'static str, times: Vec<u64>| {
        let count = bins(times.len());
        let width = seconds / count as f64;
        let mut rates = vec![0.0; count];
        for at in times {
            rates[((at as f64 / 1e6 / width) as usize).min(count - 1)] += 1.0 / width;
        }
        let high = rates.iter().copied().fold(0.0, f64::max);
        let points = rates.iter().enumerate().map(|(bin, &rate)| ((bin as f64 + 0.5) * width, rate)).collect();
        let series = vec![Series { name: name.to_owned(), colour: Colour::First, form: Form::Area, points }];
        let (x, y) = (Axis::linear("seconds", seconds), Axis::linear(name, high * HEADROOM));
        (high > 0.0).then_some(Chart { title, x, y, series, marks: Vec::new() })
    };
    let tokens = done.iter().flat_map(|record| token_times(record)).collect();
    let ends = done.iter().map(|record| record.end_us).collect();
    (
        per_second("Output over time", "events with tokens per second", tokens),
        per_second("Requests that ended over time", "per second", ends),
    )
}

/// Returns the requests in flight, and those that were due and not sent yet.
fn in_flight(records: &[Record], seconds: f64) -> Option<Chart> {
    let count = *BINS.end();
    let line = |name: &str, colour, from: &dyn Fn(&Record) -> u64, to: &dyn Fn(&Record) -> u64| {
        let mut changes: Vec<(u64, i64)> =
            records.iter().flat_map(|record| [(from(record), 1), (to(record), -1)]).collect();
        changes.sort_unstable();
        let (mut now, mut next) = (0, changes.into_iter().peekable());
        let point = |bin: usize| {
            let end_us = ((bin + 1) as f64 / count as f64 * seconds * 1e6) as u64;
            // The most in the bin: what lies between two points is not lost.
            let mut most = now;
            while let Some((_, change)) = next.next_if(|(at, _)| *at <= end_us) {
                now += change;
                most = now.max(most);
            }
            ((bin as f64 + 0.5) / count as f64 * seconds, most as f64)
        };
        Series { name: name.to_owned(), colour, form: Form::Area, points: (0..count).map(point).collect() }
    };
    let mut series = vec![line("in flight", Colour::First, &|record| record.sent_us, &|record| record.end_us)];
    let waits = records.iter().any(|record| record.sent_us > record.ready_us + 1000);
    if waits {
        series.push(line("held back", Colour::Second, &|record| record.ready_us, &|record| record.sent_us));
    }
    let high = series.iter().flat_map(|series| series.points.iter().map(|point| point.1)).fold(0.0, f64::max);
    (high > 0.0).then(|| Chart {
        title: "Requests in flight over time",
        x: Axis::linear("seconds", seconds),
        // High enough that its ticks are whole requests.
        y: Axis::linear("the most at once", (high * HEADROOM).max(5.0)),
        series,
        marks: Vec::new(),
    })
}

fn bins(samples: usize) -> usize {
    (samples / PER_BIN).clamp(*BINS.start(), *BINS.end())
}
