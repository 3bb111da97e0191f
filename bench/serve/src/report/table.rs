//! The report as text.

use super::Report;
use crate::settings::Arrivals;
use crate::summary::Summary;
use std::fmt::{self, Write};

/// Width of the first column.
const NAMES: usize = 26;

impl Report {
    /// Returns what was asked of the server, in one line.
    pub fn headline(&self) -> String {
        let api = self.settings.api.path();
        let how = match &self.settings.arrivals {
            Arrivals::Closed { concurrency: 1 } => "one request at a time".to_owned(),
            Arrivals::Closed { concurrency } => format!("{concurrency} requests at a time"),
            Arrivals::Rate { per_second, .. } => {
                let what = if self.settings.shape.turns > 1 { "conversations" } else { "requests" };
                format!("{per_second} {what} a second (Poisson)")
            }
            Arrivals::Trace { file, speed, .. } => format!("trace {} at speed {speed}", file.display()),
        };
        format!("{} at {}{api}: {how}", self.model, self.settings.url)
    }

    /// Returns the seconds, and what became of the requests.
    pub fn outcome(&self) -> String {
        let mut text = format!("{:.1} s: {} done, {} failed", self.elapsed_s, self.done, self.failed);
        for (count, what) in [(self.abandoned as u64, "abandoned"), (self.unsent, "never sent")] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        if let Some(why) = &self.stopped {
            let _ = write!(text, " (stopped: {why})");
        }
        text
    }

    /// Returns the rows of latencies: name, figures in milliseconds.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Option<Summary>)> {
        let figures = &self.figures;
        let mut rows = vec![("time to first token", figures.ttft_ms)];
        if self.is_open() {
            rows.push(("  from when it was sent", figures.ttft_sent_ms));
        }
        rows.push(("between tokens", figures.itl_ms));
        rows.push(("per token (of a request)", figures.tpot_ms));
        rows.push(("end to end", figures.e2e_ms));
        if self.is_open() {
            rows.push(("  from when it was sent", figures.e2e_sent_ms));
            rows.push(("generator late", self.generator.late_ms));
            let held = self.generator.held_ms;
            if held.is_some_and(|held| held.max >= 1.0) {
                rows.push(("held by the limit", held));
            }
        }
        rows
    }

    /// Returns the rows of lengths: name, figures in tokens.
    pub(crate) fn lengths(&self) -> Vec<(&'static str, Option<Summary>)> {
        let figures = &self.figures;
        let mut rows = vec![("input", figures.input_tokens), ("output", figures.output_tokens)];
        if figures.cached_tokens.is_some_and(|cached| cached.max > 0.0) {
            rows.push(("input that was cached", figures.cached_tokens));
        }
        rows
    }

    /// Returns the rows of throughput: name, figure with its unit.
    pub(crate) fn rates(&self) -> Vec<(&'static str, String)> {
        let throughput = &self.throughput;
        let mut rows = vec![
            ("requests", format!("{:.2}/s", throughput.requests_per_s)),
            ("input", format!("{:.1} tokens/s", throughput.input_tokens_per_s)),
            ("output", format!("{:.1} tokens/s", throughput.output_tokens_per_s)),
        ];
        if let Some(loaded) = throughput.loaded_output_tokens_per_s {
            rows.push(("  until the last was sent", format!("{loaded:.1} tokens/s")));
        }
        if let Some(goodput) = &self.goodput {
            let text = format!("{:.1}% within limits, {:.2}/s", goodput.share * 100.0, goodput.requests_per_s);
            rows.push(("goodput", text));
        }
        let generator = &self.generator;
        let busy = generator.busy * 100.0;
        rows.push(("generator", format!("{:.2} s of processor time, {busy:.1}% of a core", generator.processor_s)));
        rows
    }
}

impl fmt::Display for Report {
    /// Returns a table for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n", self.headline(), self.outcome())?;
        for (title, rows, digits) in [("milliseconds", self.latencies(), 2), ("tokens", self.lengths(), 0)] {
            if rows.iter().all(|(_, summary)| summary.is_none()) {
                continue;
            }
            writeln!(f, "{title:<NAMES$}{:>11}{:>11}{:>11}{:>11}{:>11}", "mean", "P50", "P90", "P99", "max")?;
            for (name, summary) in rows {
                write!(f, "{name:<NAMES$}")?;
                match summary {
                    Some(it) => {
                        for number in [it.mean, it.p50, it.p90, it.p99, it.max] {
                            write!(f, "{number:>11.digits$}")?;
                        }
                        writeln!(f)?;
                    }
                    None => writeln!(f, "{:>11}", "none")?,
                }
            }
            writeln!(f)?;
        }
        for (name, text) in self.rates() {
            writeln!(f, "{name:<NAMES$}{text}")?;
        }
        if !self.failures.is_empty() {
            writeln!(f)?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {} x {}{}", failure.count, failure.kind, aside(&failure.example))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

fn aside(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}
