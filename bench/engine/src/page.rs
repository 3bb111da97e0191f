//! The report as one page. What is drawn is chosen in [`plots`]; how, in [`bench_report`].

mod plots;

use crate::report::{Rates, Report, WorkFigures};
use bench_report::{Cell, Page, Row, Table, Tile, short};

/// Returns the page for a run.
pub fn html(report: &Report) -> String {
    let mut page =
        Page::new(&report.headline(), &report.model, &[report.headline(), report.device.clone(), report.limits_line()]);
    page.tiles(&tiles(report));
    page.notes(&report.notes);
    page.charts(&plots::charts(report));
    let mut tables = vec![works(report)];
    tables.extend(report.works.iter().map(kernels));
    page.tables(&tables);
    page.end(&format!(
        "baton bench engine {}; {} threads, medians of {} samples; limits are those of the run; weights and KV count once a step",
        report.version, report.settings.threads, report.settings.samples
    ))
}

/// Returns the figures that most people look for.
fn tiles(report: &Report) -> Vec<Tile> {
    let tile = |name: String, figure: String, beside: String| Tile { name, figure, beside };
    let rate = |work: &WorkFigures, beside: String| {
        tile(format!("Tokens per second, {}", work.work), short(work.tokens_per_s.median), beside)
    };
    let multiplying = |work: &WorkFigures| match work.rates.share_of_multiplying {
        Some(share) => format!("{} of multiplying", percent(share)),
        None => format!("{} GFLOP/s", short(work.rates.gflop_per_s)),
    };
    let mut tiles = Vec::new();
    let prompts = || report.works.iter().filter(|work| work.prompt.is_some());
    if let Some(best) = prompts().max_by(|a, b| a.tokens_per_s.median.total_cmp(&b.tokens_per_s.median)) {
        tiles.push(rate(best, multiplying(best)));
    }
    let mut decodes = report.works.iter().filter(|work| work.prompt.is_none());
    if let Some(first) = decodes.next() {
        tiles.push(rate(first, format!("{} of reading", percent(first.rates.share_of_reading))));
        if let Some(last) = decodes.rfind(|work| work.context == first.context) {
            tiles.push(rate(last, multiplying(last)));
        }
        let beside = format!("of a step, {}", first.work);
        tiles.push(tile("Outside kernels".to_owned(), format!("{:.2}%", 100.0 * first.outside_kernels), beside));
    }
    tiles
}

fn works(report: &Report) -> Table {
    let row = |work: &WorkFigures| {
        let spread = &work.tokens_per_s;
        let mut row = Row::new(
            work.work.clone(),
            [
                short(spread.median),
                format!("{}-{}", short(spread.min), short(spread.max)),
                format!("{:.2}", work.step_ms),
            ],
        );
        row.cells.extend(rates(&work.rates));
        row.cells.push(format!("{:.2}%", 100.0 * work.outside_kernels).into());
        row
    };
    let columns = ["tokens/s", "from-to", "ms/step", "GFLOP/s", "of limit", "GB/s", "of limit", "outside"];
    Table {
        title: "Works".to_owned(),
        columns: columns.map(str::to_owned).into(),
        rows: report.works.iter().map(row).collect(),
    }
}

fn kernels(work: &WorkFigures) -> Table {
    let rows = work.kernels.iter().map(|kernel| {
        let mut row = Row::new(kernel.kernel, [format!("{:.2}", kernel.ms)]);
        row.cells.push(share(kernel.share_of_time));
        match &kernel.rates {
            Some(found) => row.cells.extend(rates(found)),
            None => row.cells.extend([(); 4].map(|()| Cell::from(String::new()))),
        }
        row
    });
    let columns = ["ms", "of time", "GFLOP/s", "of limit", "GB/s", "of limit"];
    Table { title: format!("Kernels, {}", work.work), columns: columns.map(str::to_owned).into(), rows: rows.collect() }
}

/// Returns four cells: both rates with their shares.
fn rates(rates: &Rates) -> [Cell; 4] {
    [
        short(rates.gflop_per_s).into(),
        rates.share_of_multiplying.map_or_else(|| "?".to_owned().into(), share),
        short(rates.gb_per_s).into(),
        share(rates.share_of_reading),
    ]
}

fn share(share: f64) -> Cell {
    Cell { text: percent(share), share: Some(share) }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 10.0 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}
