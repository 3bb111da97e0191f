//! A chart as SVG: axes with round ticks, lines, areas and dots. Knows nothing of what it shows.

use crate::text::{escape, short};
use std::fmt::Write;

/// Units of the picture; the page scales it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 260.0;
/// Room for the ticks' labels.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;
/// Ticks of an axis, about.
const TICKS: f64 = 5.0;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: &'static str,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top; its name stands beside the title.
    pub y: Axis,
    /// What is drawn, the first lowest.
    pub series: Vec<Series>,
    /// Places on the x axis that are named.
    pub marks: Vec<(f64, String)>,
}

/// An axis: what it is, and from where to where it goes.
#[derive(Clone, Debug)]
pub struct Axis {
    name: &'static str,
    low: f64,
    high: f64,
    logarithmic: bool,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// What they are; told where a chart has several series.
    pub name: String,
    /// In which colour.
    pub colour: Colour,
    /// How they are drawn.
    pub form: Form,
    /// Places on both axes, in order of x.
    pub points: Vec<(f64, f64)>,
}

/// The colours of the style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Of what is looked for first.
    First,
    /// Of what is compared with it.
    Second,
    /// Of what is compared with both.
    Third,
    /// Of what failed.
    Bad,
    /// Of what is there for comparison only.
    Soft,
}

impl Colour {
    /// Returns the class in the style.
    fn class(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Third => "third",
            Self::Bad => "bad",
            Self::Soft => "soft",
        }
    }
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line from point to point.
    Line,
    /// A line, and what is below it.
    Area,
    /// A dot for each.
    Dots,
}

impl Axis {
    /// Makes an axis from 0 to `high`.
    pub fn linear(name: &'static str, high: f64) -> Self {
        Self { name, low: 0.0, high: if high > 0.0 { high } else { 1.0 }, logarithmic: false }
    }

    /// Makes an axis from the smallest to the largest number, both positive, on which each length is a factor.
    pub fn logarithmic(name: &'static str, smallest: f64, largest: f64) -> Self {
        // An axis has a length even where all numbers are equal.
        Self { name, low: smallest, high: largest.max(smallest * 1.5), logarithmic: true }
    }

    /// Returns where a number lies: 0 is the begin of the axis, 1 its end.
    fn place(&self, number: f64) -> f64 {
        let share = if self.logarithmic {
            (number.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (number - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns round numbers on it.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10();
            let steps: &[f64] = match decades {
                _ if decades > 3.0 => &[1.0],
                _ if decades > 0.8 => &[1.0, 2.0, 5.0],
                _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            };
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let all = (first..=last).flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            return all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / TICKS;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|&step| step >= rough * 0.999);
        let step = step.unwrap_or(rough);
        (0..).map(|n| self.low + f64::from(n) * step).take_while(|&tick| tick <= self.high * 1.0001).collect()
    }
}

impl Chart {
    /// Returns the chart as a figure of the page.
    pub(super) fn svg(&self) -> String {
        let mut text =
            format!("<figure>\n<figcaption><h2>{} <small>{}</small></h2>", escape(self.title), escape(self.y.name));
        // Writing to a string does not fail.
        for series in self.series.iter().filter(|_| self.series.len() > 1) {
            let _ = write!(text, "<span><i class=\"{}\"></i>{}</span>", series.colour.class(), escape(&series.name));
        }
        let _ = writeln!(
            text,
            "</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
        self.axes(&mut text);
        for (at, name) in &self.marks {
            let x = self.x_at(*at);
            let _ = writeln!(
                text,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM,
                TOP - 4.0,
                escape(name)
            );
        }
        self.series.iter().for_each(|series| self.draw(&mut text, series));
        text.push_str("</svg>\n</figure>\n");
        text
    }

    fn axes(&self, text: &mut String) {
        let floor = HEIGHT - BOTTOM;
        for tick in self.y.ticks() {
            let y = self.y_at(tick);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 7.0,
                y + 4.0,
                label(tick)
            );
        }
        for tick in self.x.ticks() {
            let x = self.x_at(tick);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                floor + 4.0,
                floor + 18.0,
                label(tick)
            );
        }
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 6.0,
            escape(self.x.name)
        );
    }

    fn draw(&self, text: &mut String, series: &Series) {
        let Some(&(last, _)) = series.points.last() else { return };
        let first = series.points[0].0;
        let mut path = String::new();
        for (index, &(x, y)) in series.points.iter().enumerate() {
            let (x, y) = (self.x_at(x), self.y_at(y));
            let _ = match series.form {
                Form::Dots => write!(path, "M{:.1} {y:.1}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0", x - 2.5),
                _ => write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" }),
            };
        }
        let colour = series.colour.class();
        if series.form == Form::Area {
            let (floor, from, to) = (HEIGHT - BOTTOM, self.x_at(first), self.x_at(last));
            let _ =
                writeln!(text, "<path class=\"area {colour}\" d=\"{path}L{to:.1} {floor:.1}L{from:.1} {floor:.1}Z\"/>");
        }
        let class = if series.form == Form::Dots { "dots" } else { "line" };
        let _ = writeln!(text, "<path class=\"{class} {colour}\" d=\"{path}\"/>");
    }

    fn x_at(&self, number: f64) -> f64 {
        LEFT + self.x.place(number) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, number: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(number) * (HEIGHT - BOTTOM - TOP)
    }
}

/// Returns the number of a tick without needless digits.
fn label(number: f64) -> String {
    if number >= 1000.0 {
        return short(number);
    }
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Axis::linear("", 100.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::linear("", 0.7)), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(labels(&Axis::linear("", 5432.0)), ["0", "2,000", "4,000"]);
        assert_eq!(labels(&Axis::linear("", 0.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Axis::logarithmic("", 0.9, 60.0)), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(labels(&Axis::logarithmic("", 3.0, 3.0)), ["3", "4"]);
    }

    #[test]
    fn numbers_outside_are_drawn_at_the_edge() {
        let axis = Axis::logarithmic("", 1.0, 100.0);
        assert_eq!([0.0, 1.0, 10.0, 100.0, 1e9].map(|number| axis.place(number)), [0.0, 0.0, 0.5, 1.0, 1.0]);
    }
}
