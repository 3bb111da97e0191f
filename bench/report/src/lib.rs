#![doc = include_str!("../README.md")]

mod chart;
mod table;

pub use chart::{Axis, Chart, Colour, Form, Series};
pub use table::{Cell, Row, Table};

use std::fmt::Write;

/// The style of pages; colours of charts, too.
const STYLE: &str = include_str!("style.css");

/// A page that grows from top to bottom.
#[derive(Debug)]
pub struct Page {
    text: String,
}

/// A figure that most readers look for.
#[derive(Clone, Debug)]
pub struct Tile {
    /// What it is.
    pub name: String,
    /// The figure, with its unit.
    pub figure: String,
    /// What belongs beside it.
    pub beside: String,
}

impl Page {
    /// Makes a page with its title, its heading, and lines under that.
    pub fn new(title: &str, heading: &str, lines: &[String]) -> Self {
        let (title, heading) = (escape(title), escape(heading));
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<header>\n<h1>{heading}</h1>\n"
        );
        for line in lines {
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "<p>{}</p>", escape(line));
        }
        text.push_str("</header>\n");
        Self { text }
    }

    /// Adds a row of tiles.
    pub fn tiles(&mut self, tiles: &[Tile]) {
        self.text.push_str("<section class=\"tiles\">\n");
        for Tile { name, figure, beside } in tiles {
            let [name, figure, beside] = [name, figure, beside].map(|text| escape(text));
            let _ = writeln!(self.text, "<div><h2>{name}</h2><strong>{figure}</strong><span>{beside}</span></div>");
        }
        self.text.push_str("</section>\n");
    }

    /// Adds what a reader should know before trusting a figure; nothing where there is nothing.
    pub fn notes(&mut self, notes: &[String]) {
        if notes.is_empty() {
            return;
        }
        self.text.push_str("<ul class=\"notes\">\n");
        for note in notes {
            let _ = writeln!(self.text, "<li>{}</li>", escape(note));
        }
        self.text.push_str("</ul>\n");
    }

    /// Adds charts.
    pub fn charts(&mut self, charts: &[Chart]) {
        self.text.push_str("<section class=\"charts\">\n");
        charts.iter().for_each(|chart| self.text.push_str(&chart.svg()));
        self.text.push_str("</section>\n");
    }

    /// Adds tables; those without rows are left out.
    pub fn tables(&mut self, tables: &[Table]) {
        self.text.push_str("<section class=\"tables\">\n");
        tables.iter().for_each(|table| self.text.push_str(&table.html()));
        self.text.push_str("</section>\n");
    }

    /// Ends the page with `footer` and returns it.
    pub fn end(mut self, footer: &str) -> String {
        let _ = write!(self.text, "<footer>{}</footer>\n</body>\n</html>\n", escape(footer));
        self.text
    }
}

/// Returns a number with three significant digits, and thousands apart.
pub fn short(number: f64) -> String {
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

/// Escapes text, so that HTML does not read it as markup.
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
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn parts_without_content_leave_no_trace() {
        let mut page = Page::new("title", "heading", &["a < b".to_owned()]);
        page.notes(&[]);
        page.tables(&[Table { title: "empty".to_owned(), columns: Vec::new(), rows: Vec::new() }]);
        let html = page.end("footer");
        assert!(html.contains("<p>a &lt; b</p>"), "{html}");
        assert!(!html.contains("<li>") && !html.contains("<table"), "{html}");
    }
}
