//! What there should be none of and still is some of: it may become less, and never more.
//!
//! `xtask/ratchet.toml` has a table per kind, with a number per room (a folder with a `Cargo.toml`). A room that is not
//! listed has none. A number that is higher than what is found is a finding, too, so that what was won stays won.

use super::{Finding, line_of};
use crate::error::ChoreError;
use crate::source::{File, Tree};
use std::collections::BTreeMap;
use std::path::Path;

/// Where the numbers stand.
const NUMBERS: &str = "xtask/ratchet.toml";

/// A function with more lines does not read on one page.
const FUNCTION_LINES_MAX: usize = 70;

/// A comment with longer lines is cut off where people read it.
const COMMENT_COLUMNS_MAX: usize = 120;

/// Places that a finding lists.
const SHOWN: usize = 5;

/// Something to count: its name in the file of numbers, how to fix one, and where it stands in a file, by line.
struct Kind {
    name: &'static str,
    fix: &'static str,
    find: fn(&File) -> Vec<usize>,
}

const KINDS: [Kind; 6] = [
    Kind { name: "long-functions", fix: "give its parts names, so that it reads on one page", find: long_functions },
    Kind { name: "wide-comments", fix: "wrap it at 120 columns", find: wide_comments },
    Kind { name: "string-errors", fix: "make the error an enum with a variant per cause", find: string_errors },
    Kind { name: "empty-docs", fix: "say the unit, the range or the meaning of `None`", find: empty_docs },
    Kind { name: "doc-prose", fix: "sentences of at most 32 words, and words of the field", find: doc_prose },
    Kind { name: "verbless-docs", fix: "begin with a verb: Returns, Makes, Notes that", find: verbless_docs },
];

pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, ChoreError> {
    let numbers = tree.file(NUMBERS).ok_or(ChoreError::Missing(NUMBERS))?;
    let allowed: BTreeMap<String, BTreeMap<String, usize>> =
        toml::from_str(&numbers.text).map_err(|source| ChoreError::NotToml { path: NUMBERS.into(), source })?;
    let mut findings = Vec::new();
    for kind in &KINDS {
        let none = BTreeMap::new();
        check_kind(tree, kind, allowed.get(kind.name).unwrap_or(&none), &mut findings);
    }
    for name in allowed.keys().filter(|name| KINDS.iter().all(|kind| kind.name != **name)) {
        findings.push(Finding::new(NUMBERS, 0, format!("nothing counts `{name}`"), "delete its table"));
    }
    Ok(findings)
}

fn check_kind(tree: &Tree, kind: &Kind, allowed: &BTreeMap<String, usize>, findings: &mut Vec<Finding>) {
    let mut found: BTreeMap<String, Vec<(&Path, usize)>> = BTreeMap::new();
    let written = |file: &&File| !crate::proto::is_generated(&file.path);
    for file in tree.files.iter().filter(|file| file.is_rust()).filter(written) {
        let lines = (kind.find)(file);
        if !lines.is_empty() {
            found.entry(room(tree, &file.path)).or_default().extend(lines.into_iter().map(|line| (&*file.path, line)));
        }
    }
    let rooms = found.keys().chain(allowed.keys()).collect::<std::collections::BTreeSet<_>>();
    for room in rooms {
        let places = found.get(room).map(Vec::as_slice).unwrap_or_default();
        let (count, most) = (places.len(), allowed.get(room).copied().unwrap_or(0));
        if count > most {
            let shown: Vec<_> =
                places.iter().rev().take(SHOWN).map(|(path, line)| format!("{}:{line}", path.display())).collect();
            let what = format!("{count} {} where {most} were, among them {}", kind.name, shown.join(", "));
            findings.push(Finding::new(room, 0, what, kind.fix));
        } else if count < most {
            let what = format!("{room} has {count} {} and may have {most}", kind.name);
            findings.push(Finding::new(NUMBERS, 0, what, format!("lower the number to {count}")));
        }
    }
}

/// Returns the folder of the crate that a file belongs to.
fn room(tree: &Tree, path: &Path) -> String {
    let is_crate = |folder: &&Path| tree.paths.binary_search(&folder.join("Cargo.toml")).is_ok();
    let folder = path.ancestors().skip(1).find(is_crate).unwrap_or(Path::new(""));
    folder.display().to_string()
}

fn is_test(file: &File) -> bool {
    let in_tests =
        |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs" || part == "fuzz" || part == "benches";
    file.path.iter().any(in_tests)
}

/// Lines, from 1, at which functions begin that are too long. The layout is rustfmt's: the brace that closes a
/// function stands where its first line begins.
fn long_functions(file: &File) -> Vec<usize> {
    let lines: Vec<&str> = file.code.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let words = [
            "fn ",
            "pub fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
            "async fn ",
            "pub async fn ",
            "unsafe fn ",
            "pub unsafe fn ",
        ];
        if !words.iter().any(|word| text.starts_with(word)) || line.trim_end().ends_with([';', '}']) {
            continue;
        }
        let indent = &line[..line.len() - text.len()];
        let close = format!("{indent}}}");
        let end = lines[start..].iter().position(|line| line.trim_end() == close).unwrap_or(0);
        if end + 1 > FUNCTION_LINES_MAX && !is_test(file) {
            found.push(start + 1);
        }
    }
    found
}

fn wide_comments(file: &File) -> Vec<usize> {
    let wide = |line: &&str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS_MAX;
    file.text.lines().enumerate().filter(|(_, line)| wide(line)).map(|(at, _)| at + 1).collect()
}

fn string_errors(file: &File) -> Vec<usize> {
    if is_test(file) {
        return Vec::new();
    }
    let code = before_tests(&file.code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("Result<") {
        let mut depth = 0;
        let inside = code[at + "Result<".len()..].char_indices().find(|&(_, c)| {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if depth == 0 => return true,
                '>' | ')' | ']' => depth -= 1,
                _ => {}
            }
            false
        });
        let inside = inside.map_or("", |(end, _)| &code[at + "Result<".len()..at + "Result<".len() + end]);
        if inside.trim_end().ends_with(", String") {
            found.push(line_of(code, at));
        }
    }
    found
}

/// Returns what comes before the tests, which stand at the end of a file.
fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// Docs that say nothing: `/// Which.`
fn empty_docs(file: &File) -> Vec<usize> {
    let empty = |line: &&str| {
        let text = line.trim_start().strip_prefix("/// ").map(|text| text.trim_end_matches('.'));
        text.is_some_and(|text| {
            ["Which", "Who", "What", "Why", "How", "Where", "When", "How many", "Which one"].contains(&text)
        })
    };
    file.text.lines().enumerate().filter(|(_, line)| empty(line)).map(|(at, _)| at + 1).collect()
}

/// Returns doc comments that break the rules for prose. Those of tests are left out.
fn doc_prose(file: &File) -> Vec<usize> {
    if is_test(file) { Vec::new() } else { super::prose::doc_comments(file) }
}

/// Returns doc comments of functions that do not begin with a verb: its form ends with an s.
fn verbless_docs(file: &File) -> Vec<usize> {
    if is_test(file) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut doc = None;
    for (at, line) in before_tests(&file.text).lines().enumerate() {
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix("/// ") {
            doc.get_or_insert((at + 1, text));
        } else if !line.starts_with("///") && !line.starts_with("#[") {
            let is_verb = |text: &str| text.split([' ', ',']).next().is_some_and(|word| word.ends_with('s'));
            found.extend(doc.take().filter(|(_, text)| is_function(line) && !is_verb(text)).map(|(at, _)| at));
        }
    }
    found
}

/// Returns whether a line begins a function.
fn is_function(line: &str) -> bool {
    let words = line.split_whitespace().skip_while(|word| {
        let marks = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
        word.starts_with("pub(") || marks.contains(word)
    });
    words.into_iter().next() == Some("fn")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[track_caller]
    fn check_rooms(text: &str, numbers: &str, expect: &[&str]) {
        let files = vec![File::new("a/Cargo.toml", ""), File::new("a/src/lib.rs", text), File::new(NUMBERS, numbers)];
        let tree = Tree { paths: files.iter().map(|file| file.path.clone()).collect(), files };
        let found: Vec<_> = check(&tree).unwrap().into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn what_becomes_more_is_found_and_what_became_less_is_kept() {
        let text = "/// Which.\nstruct A;\nfn f() -> Result<Vec<(u8, u8)>, String> {}\n// Result<(), String>\n";
        check_rooms(text, "[string-errors]\na = 1\n[empty-docs]\na = 1\n", &[]);
        check_rooms(
            text,
            "[string-errors]\na = 2",
            &["a has 1 string-errors and may have 2", "1 empty-docs where 0 were, among them a/src/lib.rs:1"],
        );
        check_rooms("", "[wrong]\na = 1", &["nothing counts `wrong`"]);
    }

    #[test]
    fn a_function_reads_on_one_page() {
        let function = |lines: usize| {
            let mut text = "impl A {\n    fn f() {\n".to_owned();
            (0..lines - 2).for_each(|at| writeln!(text, "        let a = {at};").unwrap());
            text + "    }\n}\n"
        };
        check_rooms(&function(FUNCTION_LINES_MAX), "", &[]);
        let found = "1 long-functions where 0 were, among them a/src/lib.rs:2";
        check_rooms(&function(FUNCTION_LINES_MAX + 1), "", &[found]);
    }

    #[test]
    fn a_function_says_what_it_does() {
        let text = "/// The sum.\n#[inline]\npub(crate) async fn sum() {}\n/// Returns it.\nfn it() {}\n/// A type.\nstruct A;\n";
        check_rooms(text, "", &["1 verbless-docs where 0 were, among them a/src/lib.rs:1"]);
    }

    #[test]
    fn a_comment_fits_its_page() {
        let wide = format!("    // {}", "ä".repeat(COMMENT_COLUMNS_MAX - 6));
        check_rooms(&wide, "", &["1 wide-comments where 0 were, among them a/src/lib.rs:1"]);
        check_rooms(&wide[..wide.len() - 2], "", &[]);
    }
}
