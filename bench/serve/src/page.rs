//! The report as one page. What is drawn is chosen in [`plots`]; how, in [`bench_report`].

mod plots;

use crate::record::Record;
use crate::report::Report;
use crate::summary::Summary;
use bench_report::{Page, Row, Table, Tile, short};

/// Returns the page for a run.
pub fn html(report: &Report, records: &[Record]) -> String {
    let headline = report.headline();
    let mut page = Page::new(&headline, &report.model, &[headline.clone(), report.outcome()]);
    page.tiles(&tiles(report));
    page.notes(&report.notes);
    page.charts(&plots::charts(report, records));
    let rates = report.rates().into_iter().map(|(name, text)| (name.trim().to_owned(), text));
    let failures = report.failures.iter();
    let failures = failures.map(|it| (format!("{} x {}", it.count, it.kind), it.example.clone()));
    page.tables(&[
        summaries("Latencies, milliseconds", &report.latencies(), short),
        summaries("Lengths, tokens", &report.lengths(), |number| format!("{number:.0}")),
        pairs("Throughput", rates),
        pairs("Failures", failures),
        pairs("Settings", settings(report)),
    ]);
    page.end(&format!("baton bench serve {}", report.version))
}

/// Returns the figures that most people look for.
fn tiles(report: &Report) -> Vec<Tile> {
    let figures = &report.figures;
    let half = |summary: Option<Summary>| match summary {
        Some(it) => (milliseconds(it.p50), format!("P99 {}", milliseconds(it.p99))),
        None => ("none".to_owned(), String::new()),
    };
    let throughput = &report.throughput;
    let ended = report.done + report.failed;
    let goodput = report.goodput.as_ref().map(|it| format!("{:.1}% within limits", it.share * 100.0));
    let failed = if report.failed == 0 { "none failed".to_owned() } else { format!("{} failed", report.failed) };
    let tiles = [
        ("Time to first token, P50", half(figures.ttft_ms)),
        ("Between tokens, P50", half(figures.itl_ms)),
        ("End to end, P50", half(figures.e2e_ms)),
        (
            "Output tokens per second",
            (short(throughput.output_tokens_per_s), format!("{} in", short(throughput.input_tokens_per_s))),
        ),
        (
            "Requests per second",
            (short(throughput.requests_per_s), goodput.unwrap_or_else(|| format!("{ended} in all, {failed}"))),
        ),
    ];
    tiles.map(|(name, (figure, beside))| Tile { name: name.to_owned(), figure, beside }).into()
}

/// Returns a table of summaries; without rows where no row has any.
fn summaries(title: &str, rows: &[(&'static str, Option<Summary>)], show: impl Fn(f64) -> String) -> Table {
    let row = |(name, summary): &(&'static str, Option<Summary>)| {
        let numbers = summary.map(|it| [it.mean, it.p50, it.p90, it.p99, it.max]);
        let row = Row::new(name.trim(), numbers.into_iter().flatten().map(&show));
        Row { inner: name.starts_with(' '), ..row }
    };
    let some = rows.iter().any(|(_, summary)| summary.is_some());
    Table {
        title: title.to_owned(),
        columns: ["mean", "P50", "P90", "P99", "max"].map(str::to_owned).into(),
        rows: rows.iter().filter(|_| some).map(row).collect(),
    }
}

fn pairs(title: &str, rows: impl IntoIterator<Item = (String, String)>) -> Table {
    let rows = rows.into_iter().map(|(name, text)| Row::new(name, [text])).collect();
    Table { title: title.to_owned(), columns: Vec::new(), rows }
}

/// Returns the settings as the JSON report has them, one level deep.
fn settings(report: &Report) -> Vec<(String, String)> {
    let value = serde_json::to_value(&report.settings).expect("settings have string keys");
    let mut rows = vec![("prompts".to_owned(), report.prompts.clone())];
    rows.extend(report.server.iter().map(|server| ("server".to_owned(), server.clone())));
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::Object(inner) if name != "extra" => {
                let some = inner.iter().filter(|(_, value)| !value.is_null());
                rows.extend(some.map(|(key, value)| (format!("{name}.{key}"), plain(value))));
            }
            value => rows.push((name.clone(), plain(value))),
        }
    }
    rows
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a time in the unit that suits it.
fn milliseconds(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{} s", short(ms / 1000.0)) } else { format!("{} ms", short(ms)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_that_suits_them() {
        assert_eq!([5.0, 9_999.0, 12_000.0].map(milliseconds), ["5.00 ms", "9,999 ms", "12.0 s"]);
    }
}
