//! A table: names, and figures or texts beside them.

use crate::text::escape;
use std::fmt::Write;

/// Columns of figures that fit beside another table.
const NARROW: usize = 5;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it is about.
    pub title: String,
    /// Names of the columns after the first; empty: rows are pairs of a name and a text.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// Whether it is part of the row before.
    pub inner: bool,
    /// What stands in the columns.
    pub cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// A share, 0 to 1, that is drawn behind it.
    pub share: Option<f64>,
}

impl Row {
    /// Makes a row of texts.
    pub fn new(name: impl Into<String>, cells: impl IntoIterator<Item = String>) -> Self {
        Self { name: name.into(), inner: false, cells: cells.into_iter().map(Cell::from).collect() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, share: None }
    }
}

impl Table {
    /// Returns the table as part of the page; empty where there are no rows.
    pub(super) fn html(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let class = if self.columns.is_empty() { "" } else { " class=\"figures\"" };
        let wide = if self.columns.len() > NARROW { " class=\"wide\"" } else { "" };
        let mut text = format!("<div{wide}><h2>{}</h2>\n<table{class}>\n", escape(&self.title));
        if !self.columns.is_empty() {
            let columns: String = self.columns.iter().map(|column| format!("<th>{}</th>", escape(column))).collect();
            let _ = writeln!(text, "<tr><th></th>{columns}</tr>");
        }
        for row in &self.rows {
            let inner = if row.inner { " class=\"inner\"" } else { "" };
            let _ = write!(text, "<tr><th{inner}>{}</th>", escape(&row.name));
            for cell in &row.cells {
                let share = cell.share.map_or(String::new(), |share| {
                    format!(" class=\"share\" style=\"--share:{:.1}%\"", 100.0 * share.clamp(0.0, 1.0))
                });
                let _ = write!(text, "<td{share}>{}</td>", escape(&cell.text));
            }
            text.push_str("</tr>\n");
        }
        text.push_str("</table></div>\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_cells_and_shares_stay_in_their_cell() {
        let mut row = Row::new("a & b", ["1".to_owned(), "2".to_owned()]);
        row.cells[1].share = Some(1.5);
        let columns = ["x".to_owned(), "y".to_owned()].into();
        let html = Table { title: "t".to_owned(), columns, rows: vec![row] }.html();
        assert!(html.contains("<tr><th></th><th>x</th><th>y</th></tr>"), "{html}");
        assert!(
            html.contains("<th>a &amp; b</th><td>1</td><td class=\"share\" style=\"--share:100.0%\">2</td>"),
            "{html}"
        );
    }
}
