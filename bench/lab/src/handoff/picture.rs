//! A handoff as a picture: the two workers above each other, the whole of it, and the moment of the handover enlarged.
//!
//! SVG that follows the reader's light or dark scheme, without scripts.

use super::passage::{Passage, ms};
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 470.0;
/// Where the axis of time begins and ends.
const LEFT: f64 = 128.0;
const RIGHT: f64 = 976.0;
/// Height of a worker's row.
const ROW: f64 = 34.0;
/// Room for a number in a bar.
const NUMBERED: f64 = 22.0;
/// Slices are drawn at least so wide, that they are seen.
const SLICE_MIN: f64 = 1.6;
/// Ticks of an axis, about.
const TICKS: f64 = 8.0;
/// Share of the moment that is shown before and after it, for the eye.
const MARGIN: f64 = 0.12;

const STYLE: &str = "\
:root{--paper:#ffffff;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--compute:#9cc2ee;--compute2:#c4dbf5;--read:#bc4c00;\
--decode:#7fc89a;--first:#8250df}\
@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--compute:#28507f;\
--compute2:#1c3a5e;--read:#f0883e;--decode:#2b6b42;--first:#bc8cff}}\
text{fill:var(--ink);font:13px ui-sans-serif,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\
.title{font-size:16px;font-weight:600}.soft{fill:var(--soft)}.small{font-size:11px}.end{text-anchor:end}\
.middle{text-anchor:middle}.paper{fill:var(--paper);stroke:var(--line)}.c0{fill:var(--compute)}.c1{fill:var(--compute2)}\
.read{fill:var(--read)}.decode{fill:var(--decode)}.grid{stroke:var(--line)}.first{stroke:var(--first)}\
.mark{stroke:var(--ink)}.say{stroke:var(--soft);fill:none}.dot{fill:var(--first)}";

/// A stretch of time on the page, with its two rows.
struct Panel {
    from: u64,
    to: u64,
    top: f64,
    svg: String,
}

/// Returns the picture.
pub(super) fn svg(passage: &Passage, lane: &str, tokens: u32) -> String {
    let whole = Panel::new(passage.begin, passage.second_token, 92.0).whole(passage);
    // From the first token, or from the last slice if that came later, to the decode worker's first step.
    let (from, to) = (passage.first_token, passage.decode.0);
    let margin = ((to - from) as f64 * MARGIN) as u64;
    let moment = Panel::new(from - margin, to + margin, 294.0).moment(passage);
    let last = passage.last_read_ms();
    let when = if last <= 0.0 { "before" } else { "after" };
    let facts = format!(
        "The first token takes {} of computing. The last slice is there {} {when} it, the decode worker goes on {} after it.",
        time(passage.prefill_ms()),
        time(last.abs()),
        time(passage.taken_over_ms()),
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"title desc\">\n\
         <title id=\"title\">A prompt of {tokens} tokens is handed over through {lane}</title>\n\
         <desc id=\"desc\">{facts}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\"/>\n\
         <text class=\"title\" x=\"24\" y=\"34\">A prompt of {tokens} tokens is handed over through {lane}</text>\n\
         <text class=\"soft\" x=\"24\" y=\"56\">{facts}</text>\n{}{}</svg>\n",
        WIDTH - 1.0,
        HEIGHT - 1.0,
        whole.svg,
        moment.svg,
    )
}

impl Panel {
    fn new(from: u64, to: u64, top: f64) -> Self {
        Self { from, to: to.max(from + 1), top, svg: String::new() }
    }

    /// Draws from the first step to the second token.
    fn whole(mut self, passage: &Passage) -> Self {
        self.axis(passage.begin, "milliseconds since the prompt's first step");
        self.computed(passage);
        for (_, (begin, end)) in &passage.slices {
            self.bar("read", 1, *begin, *end, SLICE_MIN);
        }
        self.bar("decode", 1, passage.decode.0, passage.decode.1, 1.0);
        self.instant(passage.first_token);
        let (x, y) = (self.x(passage.first_token), self.top - 8.0);
        self.put(format_args!("<text class=\"small end\" x=\"{x:.1}\" y=\"{y}\">first token</text>"));
        self.names();
        self.legend();
        self
    }

    /// Draws from the first token to the decode worker's first step.
    fn moment(mut self, passage: &Passage) -> Self {
        self.axis(passage.first_token, "the handover: milliseconds since the first token was there");
        self.bar("c0", 0, self.from, passage.first_token, 0.0);
        let from = self.from;
        for (_, (begin, end)) in passage.slices.iter().filter(|(_, (_, end))| *end > from) {
            self.bar("read", 1, (*begin).max(from), *end, SLICE_MIN);
        }
        self.bar("decode", 1, passage.decode.0, self.to, 0.0);
        self.instant(passage.first_token);
        let (sent, taken) = (passage.first_sent, passage.taken_over);
        self.said(passage.complete, true, "complete", 0);
        self.said(passage.release, false, "release", 1);
        self.said((passage.release.1, taken), true, "valid", 2);
        let y = self.top - 6.0;
        let (x, from) = (self.x(sent), self.top + ROW / 2.0);
        self.put(format_args!(
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{from}\" r=\"4\"/>\
             <text class=\"small middle\" x=\"{x:.1}\" y=\"{y}\">first token sent</text>"
        ));
        let (x, y) = (self.x(passage.decode.0) + 5.0, self.row(1) + ROW / 2.0 + 4.0);
        self.put(format_args!("<text class=\"small\" x=\"{x:.1}\" y=\"{y}\">decodes</text>"));
        self.names();
        self
    }

    /// Draws what the prefill worker computes: from a layer's K and V to those of the next, or to the end of the step.
    fn computed(&mut self, passage: &Passage) {
        let (row, mut begin) = (self.row(0), passage.begin);
        let ends = passage.written.iter().map(|&(_, at)| at).chain([passage.first_token]);
        let layers = std::iter::once(None).chain(passage.written.iter().map(|&(layer, _)| Some(layer)));
        for (layer, end) in layers.zip(ends) {
            self.bar(if layer.is_some_and(|layer| layer % 2 == 1) { "c1" } else { "c0" }, 0, begin, end, 0.0);
            let (left, right) = (self.x(begin), self.x(end));
            if let Some(layer) = layer.filter(|_| right - left >= NUMBERED) {
                let (x, y) = ((left + right) / 2.0, row + ROW / 2.0 + 4.0);
                self.put(format_args!("<text class=\"small middle\" x=\"{x:.1}\" y=\"{y}\">{layer}</text>"));
            }
            begin = end;
        }
    }

    /// Draws a message from one row to the other, the `place`th: names keep out of each other's way.
    fn said(&mut self, (sent, taken): (u64, u64), down: bool, what: &str, place: usize) {
        let (upper, lower) = (self.row(0) + ROW, self.row(1));
        let (from, to) = if down { (upper, lower) } else { (lower, upper) };
        let (x, until) = (self.x(sent), self.x(taken));
        let (label, y) = ((x + until) / 2.0 + 8.0, upper + 9.0 * (place + 1) as f64);
        self.put(format_args!(
            "<path class=\"say\" d=\"M{x:.1} {from} L{until:.1} {to}\"/>\
             <circle cx=\"{until:.1}\" cy=\"{to}\" r=\"2.5\" class=\"soft\"/>\
             <text class=\"small soft\" x=\"{label:.1}\" y=\"{y}\">{what}</text>"
        ));
    }

    /// Draws a line over both rows, where the first token is there.
    fn instant(&mut self, at: u64) {
        let (x, bottom) = (self.x(at), self.row(1) + ROW + 4.0);
        let top = self.top - 4.0;
        self.put(format_args!("<path class=\"first\" stroke-width=\"2\" d=\"M{x:.1} {top} V{bottom}\"/>"));
    }

    /// Draws the names of the rows.
    fn names(&mut self) {
        for (row, name) in ["prefill worker", "decode worker"].iter().enumerate() {
            let y = self.row(row) + ROW / 2.0 + 4.0;
            self.put(format_args!("<text class=\"end\" x=\"{}\" y=\"{y}\">{name}</text>", LEFT - 12.0));
        }
    }

    fn legend(&mut self) {
        let y = self.row(1) + ROW + 62.0;
        let entries = [
            ("c0", "layers computed; a layer's K and V are written where its bar begins"),
            ("read", "slices of KV read"),
            ("decode", "first decode step"),
        ];
        let mut x = LEFT;
        for (class, what) in entries {
            self.put(format_args!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"10\"/>\
                 <text class=\"small soft\" x=\"{}\" y=\"{y}\">{what}</text>",
                y - 9.0,
                x + 20.0,
            ));
            // About the width of the text.
            x += 44.0 + 5.6 * what.len() as f64;
        }
    }

    /// Lines at round times after `zero`.
    fn axis(&mut self, zero: u64, name: &str) {
        let (low, high) = (ms(zero, self.from), ms(zero, self.to));
        let step = round_step((high - low) / TICKS);
        let (top, bottom) = (self.top, self.row(1) + ROW + 4.0);
        let mut tick = (low / step).ceil() as i64;
        while tick as f64 * step <= high {
            let at = tick as f64 * step;
            let x = LEFT + (at - low) / (high - low) * (RIGHT - LEFT);
            let digits = (-step.log10().floor()).max(0.0) as usize;
            self.put(format_args!(
                "<path class=\"grid\" d=\"M{x:.1} {top} V{bottom}\"/>\
                 <text class=\"small soft middle\" x=\"{x:.1}\" y=\"{}\">{at:.digits$}</text>",
                bottom + 14.0
            ));
            tick += 1;
        }
        self.put(format_args!("<text class=\"small soft\" x=\"{LEFT}\" y=\"{}\">{name}</text>", bottom + 32.0));
    }

    fn bar(&mut self, class: &str, row: usize, from: u64, to: u64, least: f64) {
        let (x, y) = (self.x(from), self.row(row));
        let width = (self.x(to) - x).max(least);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{ROW}\"/>"
        ));
    }

    fn row(&self, index: usize) -> f64 {
        self.top + index as f64 * (ROW + 30.0)
    }

    fn x(&self, at: u64) -> f64 {
        LEFT + ms(self.from, at) / ms(self.from, self.to) * (RIGHT - LEFT)
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{what}");
    }
}

/// Returns the round number at or above `step`: 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&round| round >= step).unwrap_or(step)
}

/// Returns milliseconds, or microseconds if they are few.
fn time(ms: f64) -> String {
    if ms < 1.0 { format!("{:.0} µs", ms * 1e3) } else { format!("{ms:.1} ms") }
}
