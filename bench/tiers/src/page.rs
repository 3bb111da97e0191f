//! The report as one page.

use crate::report::{COLUMNS, PromptFigures, Report, Row, Wear};
use bench_report::{Axis, Chart, Colour, Form, Page, Series, Table, Tile, short};

/// Colours of lines that are compared, in the order of the rows; what there is beyond these is in the tables only.
const COLOURS: [Colour; 5] = [Colour::Soft, Colour::First, Colour::Second, Colour::Third, Colour::Bad];
/// Room around the points.
const MARGIN: f64 = 1.6;
/// Room above the highest point of a linear axis.
const HEADROOM: f64 = 1.08;

/// Returns the page for a run.
pub fn html(report: &Report) -> String {
    let heading = "Prompts that come back from tiers";
    let mut page =
        Page::new("baton bench tiers", heading, &[report.headline(), format!("raw reads: {}", report.mover)]);
    page.tiles(&tiles(report));
    page.notes(&report.all_notes());
    page.charts(&charts(report));
    let mut tables: Vec<Table> = report.prompts.iter().map(table).collect();
    tables.push(wear(report));
    page.tables(&tables);
    page.end(&format!(
        "baton bench tiers {}; medians; a goal is a decode step beside 2 plain copies (host) or 1.3 raw reads (disk)",
        report.version
    ))
}

/// Returns how much sooner each tier brings the first token of the longest prompts than computing does.
fn tiles(report: &Report) -> Vec<Tile> {
    let Some(longest) = report.prompts.iter().max_by_key(|prompt| prompt.tokens) else { return Vec::new() };
    let tile = |row: &Row| Tile {
        name: format!("{} tokens from {}", longest.tokens, row.place),
        figure: format!("{} ms", short(row.first_token_s.median * 1e3)),
        beside: match row.of_goal {
            Some(share) => format!("{share:.2} of the goal, {:.3} of computing", row.of_computing),
            None => format!("{:.3} of computing", row.of_computing),
        },
    };
    longest.rows.iter().map(tile).collect()
}

fn charts(report: &Report) -> Vec<Chart> {
    let first = lines(report, |row| Some(row.first_token_s.median * 1e3));
    let goals = lines(report, |row| row.of_goal);
    let ends = |series: &[Series], of: fn(&(f64, f64)) -> f64| {
        let points = || series.iter().flat_map(|series| &series.points).map(of);
        (points().fold(f64::INFINITY, f64::min) / MARGIN, points().fold(0.0, f64::max) * MARGIN)
    };
    let x = |series: &[Series]| {
        let (low, high) = ends(series, |point| point.0);
        Axis::logarithmic("tokens of the prompt", low, high)
    };
    let mut charts = Vec::new();
    if !first.is_empty() {
        let (low, high) = ends(&first, |point| point.1);
        let (x, y) = (x(&first), Axis::logarithmic("ms", low, high));
        charts.push(Chart { title: "Time to first token", x, y, series: first, marks: Vec::new() });
    }
    if !goals.is_empty() {
        let top = ends(&goals, |point| point.1).1 / MARGIN;
        let (x, y) = (x(&goals), Axis::linear("of the goal; 1 reaches it", top.max(1.0) * HEADROOM));
        charts.push(Chart { title: "Beside what moving the bytes takes", x, y, series: goals, marks: Vec::new() });
    }
    charts
}

/// Returns a line for each place that has two points, over the lengths.
fn lines(report: &Report, value: fn(&Row) -> Option<f64>) -> Vec<Series> {
    let Some(places) = report.prompts.first().map(|prompt| &prompt.rows) else { return Vec::new() };
    let line = |(place, colour): (&'static str, Colour)| {
        let rows = report.prompts.iter().flat_map(|prompt| prompt.rows.iter().map(move |row| (prompt.tokens, row)));
        let of_place = rows.filter(|(_, row)| row.place == place);
        let mut points: Vec<_> = of_place.filter_map(|(tokens, row)| Some((f64::from(tokens), value(row)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: place.to_owned(), colour, form: Form::Line, points }
    };
    let all = places.iter().map(|row| row.place).zip(COLOURS).map(line);
    all.filter(|series| series.points.len() > 1).collect()
}

fn table(prompt: &PromptFigures) -> Table {
    Table {
        title: format!("{}; times in ms", prompt.headline()),
        columns: COLUMNS.map(str::to_owned).into(),
        rows: prompt.rows.iter().map(|row| bench_report::Row::new(row.place, row.cells())).collect(),
    }
}

fn wear(report: &Report) -> Table {
    let mib = |bytes: u64| short(bytes as f64 / f64::from(1 << 20));
    let row = |wear: &Wear| {
        let ratio = wear.written_per_read().map_or(String::new(), |ratio| format!("{ratio:.2}"));
        bench_report::Row::new(wear.tier, [mib(wear.written), mib(wear.read), ratio])
    };
    Table {
        title: "Bytes that were written for each that was read later".to_owned(),
        columns: ["MiB written", "MiB read", "written per read"].map(str::to_owned).into(),
        rows: report.wear.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::report;

    #[test]
    fn a_page_has_its_plots_and_tables_and_one_of_a_single_length_has_no_lines() {
        let mut report = report();
        let html = super::html(&report);
        assert!(html.contains("Time to first token") && html.contains("Beside what moving the bytes takes"), "{html}");
        assert!(html.contains("<th>host</th>") && html.contains("0.25"), "{html}");
        report.prompts.truncate(1);
        assert!(!super::html(&report).contains("<svg"), "a line needs two points");
    }
}
