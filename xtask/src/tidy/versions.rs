//! Numbers of protocols and formats: the page about upgrades has those of the code, so that no number rises unnoticed.

use super::Finding;
use crate::source::{File, Tree};
use std::path::Path;

/// Its tables name a number and, in the next cell, the constant with a link to its file.
const PAGE: &str = "docs/operate/upgrades.md";

/// Where links of the page begin.
const TO_ROOT: &str = "../../";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let stale = |(at, line)| Some((at, stale(tree, line)?));
    let found = page.text.lines().enumerate().filter_map(stale);
    let fix = "correct the number, and say in CHANGELOG.md which numbers the release changes";
    found.map(|(at, what)| Finding::new(PAGE, at + 1, what, fix)).collect()
}

/// Returns what is wrong with a row of a table, if it has a number and a constant that differ.
fn stale(tree: &Tree, row: &str) -> Option<String> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let at = cells.iter().position(|cell| cell.starts_with("[`"))?;
    let said = *cells.get(at.checked_sub(1)?)?;
    let (name, path) = cells[at].strip_prefix("[`")?.strip_suffix(')')?.split_once("`](")?;
    let path = Path::new(path.strip_prefix(TO_ROOT)?);
    let number = tree.file(path).and_then(|file| constant(file, name));
    let is = number.map_or_else(|| "no number".to_owned(), shown);
    (is != said).then(|| format!("the page says {said}, and `{name}` of {} is {is}", path.display()))
}

/// Returns the value of a constant of a file, as it is written.
fn constant<'a>(file: &'a File, name: &str) -> Option<&'a str> {
    let declared = format!("const {name}: ");
    let line = file.code.lines().find(|line| line.contains(&declared))?;
    line.split_once('=')?.1.trim().strip_suffix(';')
}

/// Returns how the page shows a value: a range of versions as its two ends, or as one number if they are equal.
fn shown(value: &str) -> String {
    let range = value.strip_prefix("Versions { oldest: ").and_then(|range| range.strip_suffix(" }"));
    match range.and_then(|range| range.split_once(", newest: ")) {
        Some((oldest, newest)) if oldest == newest => newest.to_owned(),
        Some((oldest, newest)) => format!("{oldest} to {newest}"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_versions_is_shown_by_its_ends() {
        assert_eq!(shown("Versions { oldest: 5, newest: 6 }"), "5 to 6");
        assert_eq!(shown("Versions { oldest: 6, newest: 6 }"), "6");
        assert_eq!(shown("7"), "7");
    }

    #[test]
    fn the_page_has_the_numbers_of_the_code() {
        let row = |number: u8, name: &str| format!("| a | {number} | [`{name}`](../../a/src/lib.rs) | what then |");
        let page = [row(1, "V"), row(2, "V"), row(3, "W"), "| a | [`V`](b.rs) |".to_owned()].join("\n");
        let files = vec![File::new(PAGE, page), File::new("a/src/lib.rs", "// V\npub(crate) const V: u16 = 1;\n")];
        let findings = check(&Tree { paths: Vec::new(), files });
        let found: Vec<_> = findings.iter().map(|found| (found.line, found.what.as_str())).collect();
        let expect = [
            (2, "the page says 2, and `V` of a/src/lib.rs is 1"),
            (3, "the page says 3, and `W` of a/src/lib.rs is no number"),
        ];
        assert_eq!(found, expect);
    }
}
