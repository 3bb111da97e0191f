#![doc = include_str!("../README.md")]

mod chart;
mod table;
mod text;

pub use chart::{Axis, Chart, Colour, Form, Series};
pub use table::{Cell, Row, Table};
pub use text::short;

use std::fmt::Write;
use text::escape;

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

#[cfg(test)]
mod tests {
    use super::*;

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
