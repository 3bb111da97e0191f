//! What many handoffs come to.

use super::cluster::Asked;
use super::passage::{Passage, ms};
use super::timeline::Span;
use bench_serve::Summary;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write;

/// A round: a handoff, the same length without one on the same workers, and on a monolithic worker. Times are
/// milliseconds.
pub(super) struct Sample {
    pub(super) passage: Passage,
    /// Milliseconds that such a prompt is computed for while no worker reads.
    unread_ms: f64,
    handoff: Answer,
    monolithic: Answer,
}

/// What a client saw.
struct Answer {
    ttft_ms: f64,
    /// The part of it in which the prompt was not computed.
    around_ms: f64,
    second_ms: f64,
}

/// All rounds of a lane and a length. Times are milliseconds.
pub(super) struct Row {
    lane: &'static str,
    tokens: u32,
    columns: Vec<(&'static str, Summary)>,
}

impl Sample {
    /// Makes the figures. `unread`, `monolithic`: when such a prompt was computed while no worker read, and by the
    /// monolithic worker. Errors: an answer has no second token.
    pub(super) fn new(
        passage: Passage,
        handoff: Asked,
        base: Asked,
        [unread, monolithic]: [Span; 2],
    ) -> Result<Self, Box<dyn Error>> {
        let handoff = Answer::new(handoff, passage.prefill_ms())?;
        let monolithic = Answer::new(base, ms(monolithic.0, monolithic.1))?;
        Ok(Self { passage, unread_ms: ms(unread.0, unread.1), handoff, monolithic })
    }
}

impl Answer {
    fn new(asked: Asked, computed_ms: f64) -> Result<Self, Box<dyn Error>> {
        let second_ms = asked.second_ms.ok_or("an answer without a second token")?;
        Ok(Self { ttft_ms: asked.ttft_ms, around_ms: asked.ttft_ms - computed_ms, second_ms })
    }
}

/// A column's name in JSON, and where its figure is in a sample.
type Column = (&'static str, fn(&Sample) -> f64);

const EXPOSED: Column = ("exposed_transfer_ms", |sample| sample.passage.last_read_ms().max(0.0));
const LAST_READ: Column = ("last_read_after_first_token_ms", |sample| sample.passage.last_read_ms());
const TAKEN_OVER: Column = ("taken_over_after_first_token_ms", |sample| sample.passage.taken_over_ms());
const READ: Column = ("prefill_while_read_ms", |sample| sample.passage.prefill_ms());
const UNREAD: Column = ("prefill_while_not_read_ms", |sample| sample.unread_ms);
const TTFT: Column = ("ttft_ms", |sample| sample.handoff.ttft_ms);
const TTFT_ALONE: Column = ("ttft_monolithic_ms", |sample| sample.monolithic.ttft_ms);
const AROUND: Column = ("ttft_not_computing_ms", |sample| sample.handoff.around_ms);
const AROUND_ALONE: Column = ("ttft_not_computing_monolithic_ms", |sample| sample.monolithic.around_ms);
const SECOND: Column = ("first_to_second_token_ms", |sample| sample.handoff.second_ms);
const SECOND_ALONE: Column = ("first_to_second_token_monolithic_ms", |sample| sample.monolithic.second_ms);
const COLUMNS: [Column; 11] =
    [EXPOSED, LAST_READ, TAKEN_OVER, READ, UNREAD, TTFT, TTFT_ALONE, AROUND, AROUND_ALONE, SECOND, SECOND_ALONE];

impl Row {
    /// Makes a row of the samples. `None`: there are none.
    pub(super) fn new(lane: &'static str, tokens: u32, samples: &[Sample]) -> Option<Self> {
        let summary = |figure: fn(&Sample) -> f64| Summary::of(&mut samples.iter().map(figure).collect::<Vec<_>>());
        let columns = COLUMNS.iter().map(|&(name, figure)| Some((name, summary(figure)?)));
        Some(Self { lane, tokens, columns: columns.collect::<Option<_>>()? })
    }

    fn get(&self, (wanted, _): Column) -> &Summary {
        let column = self.columns.iter().find(|(name, _)| *name == wanted);
        &column.expect("a row has every column").1
    }
}

/// Returns the rows as Markdown: what happened between the workers, and what the client saw.
pub(super) fn tables(rows: &[Row]) -> String {
    let mut between = "\
| lane | prompt | rounds | exposed transfer: mean, P50, P99 | last slice after the first token: P50, P99 \
| taken over after it: P50, P99 | computed while read, not read: P50 | slowdown |
| --- | --- | --- | --- | --- | --- | --- | --- |
"
    .to_owned();
    let mut seen = "\
| lane | prompt | time to first token, monolithic: P50 | ratio | of it not computing, monolithic: P50 \
| first to second token, monolithic: P50 |
| --- | --- | --- | --- | --- | --- |
"
    .to_owned();
    for row in rows {
        let Row { lane, tokens, .. } = row;
        let (exposed, last, taken) = (row.get(EXPOSED), row.get(LAST_READ), row.get(TAKEN_OVER));
        let p50 = |column| row.get(column).p50;
        let slowdown = 100.0 * (p50(READ) / p50(UNREAD) - 1.0);
        // Writing to a string does not fail.
        let _ = writeln!(
            between,
            "| {lane} | {tokens} | {} | {:.2}, {:.2}, {:.2} | {:.2}, {:.2} | {:.2}, {:.2} | {:.1}, {:.1} | {slowdown:+.1}% |",
            exposed.count,
            exposed.mean,
            exposed.p50,
            exposed.p99,
            last.p50,
            last.p99,
            taken.p50,
            taken.p99,
            p50(READ),
            p50(UNREAD),
        );
        let _ = writeln!(
            seen,
            "| {lane} | {tokens} | {:.1}, {:.1} | {:.3} | {:.2}, {:.2} | {:.2}, {:.2} |",
            p50(TTFT),
            p50(TTFT_ALONE),
            p50(TTFT) / p50(TTFT_ALONE),
            p50(AROUND),
            p50(AROUND_ALONE),
            p50(SECOND),
            p50(SECOND_ALONE),
        );
    }
    format!("All times are milliseconds.\n\n{between}\n{seen}")
}

/// Returns the rows with everything that is known of them.
pub(super) fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let columns: serde_json::Map<_, _> =
            row.columns.iter().map(|(name, summary)| ((*name).to_owned(), json!(summary))).collect();
        json!({ "lane": row.lane, "prompt_tokens": row.tokens, "figures": columns })
    };
    rows.iter().map(row).collect()
}
