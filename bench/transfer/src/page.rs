//! The report as one page.

use crate::report::{READ, Report, Row, TIMES, WRITE, size};
use bench_report::{Axis, Chart, Colour, Form, Page, Series, Table, Tile, short};

/// Colours of lines that are compared. What there is beyond these is in the table only.
const COLOURS: [Colour; 4] = [Colour::First, Colour::Second, Colour::Third, Colour::Soft];
/// Room around the points.
const MARGIN: f64 = 1.6;

/// Returns the page for a run.
pub fn html(report: &Report) -> String {
    let settings = &report.settings;
    let heading = "Transfers over each lane";
    let line =
        format!("a pool of {}, {} passes; what was read was compared", size(settings.pool_bytes), settings.passes);
    let lines: Vec<String> = [line].into_iter().chain(report.notes.iter().cloned()).collect();
    let mut page = Page::new("baton bench transfer", heading, &lines);
    page.tiles(&tiles(report));
    page.charts(&charts(report));
    page.tables(&[table(report)]);
    page.end(&format!(
        "baton bench transfer {}; the median pass; times are of a transfer, from its post until its end was heard of",
        report.version
    ))
}

/// Returns the fastest of each lane.
fn tiles(report: &Report) -> Vec<Tile> {
    let fastest = |over: &str, operation: &str| {
        let of_over = |row: &&Row| row.peer == "baton" && row.lane == over && row.operation == operation;
        let best = report.rows.iter().filter(of_over).max_by(|one, other| one.gb_per_s.total_cmp(&other.gb_per_s))?;
        let beside = format!("GB/s, blocks of {}, {} in flight", size(best.bytes), best.in_flight);
        Some(Tile { name: best.who(), figure: short(best.gb_per_s), beside })
    };
    let names = report.settings.over.iter().map(ToString::to_string);
    names.flat_map(|over| [READ, WRITE].map(|operation| fastest(&over, operation))).flatten().collect()
}

/// Rates and times by the size of a block, of one transfer and of many.
fn charts(report: &Report) -> Vec<Chart> {
    let settings = &report.settings;
    let ends = |values: &[usize]| {
        let (first, last) = (values.iter().min().copied(), values.iter().max().copied());
        first.into_iter().chain(last.filter(|last| Some(*last) != first)).collect::<Vec<_>>()
    };
    let mut charts = Vec::new();
    for in_flight in ends(&settings.in_flight) {
        let one = in_flight == 1;
        let rates = if one { "Rate, one transfer in flight" } else { "Rate, most transfers in flight" };
        let times =
            if one { "Time of a block, one transfer in flight" } else { "Time of a block, most transfers in flight" };
        charts.extend(chart(report, in_flight, rates, "GB/s", |row| row.gb_per_s));
        charts.extend(chart(report, in_flight, times, "microseconds", |row| row.seconds * 1e6));
    }
    charts
}

/// Returns a line for each lane, and the machine's limits beside it.
fn chart(
    report: &Report,
    in_flight: usize,
    title: &'static str,
    y: &'static str,
    value: fn(&Row) -> f64,
) -> Option<Chart> {
    let batch = report.settings.batches.iter().min().copied().unwrap_or(1);
    let of_sweep = |row: &&Row| report.settings.over.iter().any(|over| over.to_string() == row.lane);
    let lines = report.rows.iter().filter(|row| row.peer != "baton" && row.peer != "eventfd");
    let ours = report.rows.iter().filter(of_sweep).filter(|row| row.in_flight == in_flight && row.batch == batch);
    let rows: Vec<&Row> = ours.chain(lines).collect();
    let mut names: Vec<String> = Vec::new();
    rows.iter().for_each(|row| {
        if !names.contains(&row.who()) {
            names.push(row.who());
        }
    });
    let line = |(name, colour): (&String, Colour)| {
        let mut points: Vec<(f64, f64)> =
            rows.iter().filter(|row| row.who() == *name).map(|row| (row.bytes as f64 / 1024.0, value(row))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: name.clone(), colour, form: Form::Line, points }
    };
    let series: Vec<Series> = names.iter().zip(COLOURS).map(line).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        (low / MARGIN, points().map(of).fold(0.0, f64::max) * MARGIN)
    };
    if series.iter().all(|series| series.points.len() < 2) {
        return None;
    }
    let (x, range) = (ends(|point| point.0), ends(|point| point.1));
    let (x, y) = (Axis::logarithmic("KiB of a block", x.0, x.1), Axis::logarithmic(y, range.0, range.1));
    Some(Chart { title, x, y, series, marks: Vec::new() })
}

fn table(report: &Report) -> Table {
    let row = |row: &Row| {
        let name = format!("{}, {}", row.who(), size(row.bytes));
        let figures = [row.batch.to_string(), row.in_flight.to_string(), short(row.gb_per_s), short(row.seconds * 1e6)];
        let times = row.times().map(|time| time.map_or(String::new(), short));
        bench_report::Row::new(name, figures.into_iter().chain(times))
    };
    let columns = ["batch", "in flight", "GB/s", "us/block"].into_iter().chain(TIMES);
    Table {
        title: "Microseconds of a transfer".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: report.rows.iter().map(row).collect(),
    }
}
