//! The report as one page: no script, no network, light and dark. What is drawn is chosen in [`plots`]; how, in [`chart`].

mod chart;
mod plots;

use crate::record::Record;
use crate::report::Report;
use crate::summary::Summary;
use std::fmt::Write;

/// A name, and its figures.
type Row = (&'static str, Option<Summary>);

/// The style of the page; colours of the charts, too.
const STYLE: &str = include_str!("page/style.css");

/// The page for a run.
pub fn html(report: &Report, records: &[Record]) -> String {
    let mut page = String::new();
    let title = escape(&report.headline());
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{}</h1>\n<p>{}</p>\n<p>{}</p>\n</header>\n",
        escape(&report.model),
        title,
        escape(&report.outcome()),
    );
    tiles(&mut page, report);
    notes(&mut page, report);
    page.push_str("<section class=\"charts\">\n");
    for chart in plots::charts(report, records) {
        page.push_str(&chart.svg());
    }
    page.push_str("</section>\n<section class=\"tables\">\n");
    summaries(&mut page, "Latencies, milliseconds", &report.latencies(), short);
    summaries(&mut page, "Lengths, tokens", &report.lengths(), |number| format!("{number:.0}"));
    pairs(&mut page, "Throughput", report.rates().into_iter().map(|(name, text)| (name.trim().to_owned(), text)));
    let failures = report.failures.iter();
    let failures = failures.map(|it| (format!("{} x {}", it.count, it.kind), it.example.clone()));
    pairs(&mut page, "Failures", failures);
    pairs(&mut page, "Settings", settings(report).into_iter());
    let _ = write!(page, "</section>\n<footer>baton bench serve {}</footer>\n</body>\n</html>\n", report.version);
    page
}

/// The figures that most people look for.
fn tiles(page: &mut String, report: &Report) {
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
    page.push_str("<section class=\"tiles\">\n");
    for (name, (figure, beside)) in tiles {
        let _ = writeln!(page, "<div><h2>{name}</h2><strong>{figure}</strong><span>{beside}</span></div>");
    }
    page.push_str("</section>\n");
}

fn notes(page: &mut String, report: &Report) {
    if report.notes.is_empty() {
        return;
    }
    page.push_str("<ul class=\"notes\">\n");
    for note in &report.notes {
        let _ = writeln!(page, "<li>{}</li>", escape(note));
    }
    page.push_str("</ul>\n");
}

fn summaries(page: &mut String, title: &str, rows: &[Row], show: impl Fn(f64) -> String) {
    if rows.iter().all(|(_, summary)| summary.is_none()) {
        return;
    }
    let _ = write!(page, "<div><h2>{title}</h2>\n<table class=\"figures\">\n<tr><th></th>");
    for name in ["mean", "P50", "P90", "P99", "max"] {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr>\n");
    for (name, summary) in rows {
        let inner = if name.starts_with(' ') { " class=\"inner\"" } else { "" };
        let _ = write!(page, "<tr><th{inner}>{}</th>", escape(name.trim()));
        let numbers = summary.map(|it| [it.mean, it.p50, it.p90, it.p99, it.max]);
        for number in numbers.into_iter().flatten() {
            let _ = write!(page, "<td>{}</td>", show(number));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn pairs(page: &mut String, title: &str, rows: impl Iterator<Item = (String, String)>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(page, "<div><h2>{title}</h2>\n<table>");
    for (name, text) in rows {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&text));
    }
    page.push_str("</table></div>\n");
}

/// The settings as the JSON report has them, one level deep.
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

/// A time in the unit that suits it.
fn milliseconds(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{} s", short(ms / 1000.0)) } else { format!("{} ms", short(ms)) }
}

/// A number with three significant digits, and thousands apart.
fn short(number: f64) -> String {
    match number {
        _ if number >= 1000.0 => {
            let digits = format!("{number:.0}");
            let (head, tail) = digits.split_at(digits.len() % 3);
            let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
            let head = (!head.is_empty()).then(|| head.to_owned());
            head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
        }
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Text that HTML does not read as markup.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 1.234, 12.34, 123.4, 1234.0, 123_456.0, 1_234_567.0];
        assert_eq!(numbers.map(short), ["0.00", "1.23", "12.3", "123", "1,234", "123,456", "1,234,567"]);
        assert_eq!([5.0, 9_999.0, 12_000.0].map(milliseconds), ["5.00 ms", "9,999 ms", "12.0 s"]);
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
