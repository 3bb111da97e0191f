//! What the page draws: rates by length and by batch, the shares of the limits, and where kernels stand under both
//! limits.

use crate::report::{Report, WorkFigures};
use bench_report::{Axis, Chart, Colour, Form, Series};

/// Room above the highest point.
const HEADROOM: f64 = 1.08;
/// Room around the points of a logarithmic axis.
const MARGIN: f64 = 1.6;
/// Colours of lines that are compared. More contexts than these are in the tables only.
const COLOURS: [Colour; 3] = [Colour::First, Colour::Second, Colour::Third];

/// Returns all charts that there is something to draw in: a line needs two points.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let prompts: Vec<&WorkFigures> = report.works.iter().filter(|work| work.prompt.is_some()).collect();
    let decodes: Vec<&WorkFigures> = report.works.iter().filter(|work| work.prompt.is_none()).collect();
    let lines = |value: fn(&WorkFigures) -> f64| {
        let mut contexts: Vec<u32> = decodes.iter().map(|work| work.context).collect();
        contexts.dedup();
        let line = |(&context, colour)| {
            let works = decodes.iter().filter(|work| work.context == context);
            let points = works.map(|work| (f64::from(work.batch), value(work))).collect();
            let name = if context == 0 { "empty context".to_owned() } else { format!("after {context} tokens") };
            Series { name, colour, form: Form::Line, points: ordered(points) }
        };
        contexts.iter().zip(COLOURS).map(line).collect::<Vec<_>>()
    };
    let prompt = |title, unit, value: fn(&WorkFigures) -> Option<f64>| {
        let point = |work: &&WorkFigures| Some((f64::from(work.prompt?), value(work)?));
        let points = ordered(prompts.iter().filter_map(point).collect());
        let series = Series { name: "prompts".to_owned(), colour: Colour::First, form: Form::Line, points };
        against(title, "tokens of the prompt", unit, vec![series])
    };
    let decode = |title, unit, value| against(title, "sequences at once", unit, lines(value));
    [
        prompt("Prompts", "tokens per second", |work| Some(work.tokens_per_s.median)),
        decode("Decoding", "tokens per second", |work| work.tokens_per_s.median),
        prompt("Prompts: share of the limit of multiplying", "%", |work| {
            work.rates.share_of_multiplying.map(|share| 100.0 * share)
        }),
        decode("Decoding: share of the limit of reading", "%", |work| 100.0 * work.rates.share_of_reading),
        decode("Decoding: outside kernels, of a step", "%", |work| 100.0 * work.outside_kernels),
        roofline(report),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Points from left to right.
fn ordered(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// Lines over a logarithmic axis of counts.
fn against(title: &'static str, x: &'static str, y: &'static str, series: Vec<Series>) -> Option<Chart> {
    if series.iter().all(|series| series.points.len() < 2) {
        return None;
    }
    let all = || series.iter().flat_map(|series| &series.points);
    let low = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.0).fold(0.0, f64::max);
    let top = all().map(|point| point.1).fold(0.0, f64::max);
    let (x, y) = (Axis::logarithmic(x, low, high), Axis::linear(y, top * HEADROOM));
    Some(Chart { title, x, y, series, marks: Vec::new() })
}

/// Returns every kernel by how much it multiplies for each byte that it reads, under what the machine allows there.
fn roofline(report: &Report) -> Option<Chart> {
    let (read, multiply) = (report.limits.read_gb_per_s, report.limits.weights_gflop_per_s?);
    let dots = |name: &str, colour, is: &dyn Fn(&WorkFigures) -> bool| {
        let kernels = report.works.iter().filter(|work| is(work)).flat_map(|work| &work.kernels);
        let rates = kernels.filter_map(|kernel| kernel.rates.filter(|rates| rates.gb_per_s > 0.0));
        let points = rates.map(|rates| (rates.gflop_per_s / rates.gb_per_s, rates.gflop_per_s));
        Series { name: name.to_owned(), colour, form: Form::Dots, points: ordered(points.collect()) }
    };
    let mut series = vec![
        dots("kernels of prompts", Colour::First, &|work| work.prompt.is_some()),
        dots("of one sequence decoding", Colour::Second, &|work| work.prompt.is_none() && work.batch == 1),
        dots("of batches", Colour::Third, &|work| work.prompt.is_none() && work.batch > 1),
    ];
    series.retain(|series| !series.points.is_empty());
    let all = || series.iter().flat_map(|series| &series.points);
    let ridge = multiply / read;
    let low = all().map(|point| point.0).fold(ridge, f64::min) / MARGIN;
    let high = all().map(|point| point.0).fold(ridge, f64::max) * MARGIN;
    let bottom = all().map(|point| point.1).fold(low * read, f64::min) / MARGIN;
    let top = all().map(|point| point.1).fold(multiply, f64::max) * MARGIN;
    let roof = vec![(low, low * read), (ridge, multiply), (high, multiply)];
    series.insert(0, Series { name: "the machine".to_owned(), colour: Colour::Soft, form: Form::Line, points: roof });
    Some(Chart {
        title: "Kernels under the machine's limits",
        x: Axis::logarithmic("operations for each byte of weights or KV", low, high),
        y: Axis::logarithmic("GFLOP/s", bottom, top),
        series,
        marks: Vec::new(),
    })
}
