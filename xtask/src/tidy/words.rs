//! Words of the code: names that were retired do not come back, and a word of the glossary names one public type.

use super::{Finding, line_of, words};
use crate::proto::is_generated;
use crate::source::{File, Tree};
use std::path::Path;

/// The words that code, metrics, logs and papers share.
const GLOSSARY: &str = "docs/concepts/glossary.md";

/// Names that said too little or meant too much, each with what took its place.
const RETIRED: [(&str, &str); 15] = [
    ("haul", "bench_transfer"),
    ("plumb", "bench_tiers"),
    ("lane_tcp", "lanes::tcp"),
    ("lane_rdma", "lanes::rdma"),
    ("vigil", "liveness"),
    ("shelves", "tier_slots"),
    ("desk", "lane_queue"),
    ("Desk", "LaneQueue"),
    ("station", "a name for what agents share"),
    ("Station", "a name for what agents share"),
    ("crew", "thread_pool"),
    ("Crew", "ThreadPool"),
    ("Lives", "Incarnations"),
    ("Seat", "Involvement, RosterEntry"),
    ("mend", "fix"),
];

/// Folders whose types belong to no interface.
const PRIVATE: [&str; 3] = ["tests", "bench", "fuzz"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_private = |path: &Path| is_generated(path) || PRIVATE.iter().any(|folder| path.starts_with(folder));
    let is_public = |file: &&File| file.is_rust() && !is_private(&file.path);
    let files: Vec<&File> = tree.files.iter().filter(is_public).collect();
    for file in &files {
        for (retired, instead) in RETIRED {
            for at in words(&file.code, retired) {
                let what = format!("the name `{retired}` was retired");
                findings.push(Finding::new(&file.path, line_of(&file.code, at), what, format!("use {instead}")));
            }
        }
    }
    for word in tree.file(GLOSSARY).map(|glossary| terms(&glossary.text)).unwrap_or_default() {
        let types: Vec<_> = files.iter().flat_map(|file| public_types(file, &word)).collect();
        for (path, line) in types.iter().skip(1) {
            let (first, at) = types[0];
            let what = format!("`{word}` is a public type in {}:{at}, too", first.display());
            findings.push(Finding::new(*path, *line, what, "give one of the two a name of its own"));
        }
    }
    findings
}

/// Words of the glossary's tables, as types would be called.
fn terms(glossary: &str) -> Vec<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let terms = rows.filter(|term| *term != "word" && !term.starts_with('-'));
    let capital = |word: &str| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect();
    let name = |term: &str| {
        let term = term.split([',', '(']).next().unwrap_or_default();
        term.split_whitespace().map(capital).collect::<Vec<String>>().concat()
    };
    terms.map(name).collect()
}

/// Returns where a file declares a public type of this name.
fn public_types<'a>(file: &'a File, name: &str) -> Vec<(&'a Path, usize)> {
    let kinds = ["struct", "enum", "trait", "type"].map(|kind| format!("pub {kind} {name}"));
    let places = kinds.iter().flat_map(|text| words(&file.code, text));
    places.map(|at| (file.path.as_path(), line_of(&file.code, at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expect: &[(&str, usize, &str)]) {
        let files: Vec<_> = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
        let tree = Tree { paths: Vec::new(), files };
        let found = check(&tree);
        let found: Vec<_> =
            found.iter().map(|found| (found.path.to_str().unwrap(), found.line, found.what.as_str())).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn retired_names_do_not_come_back() {
        check_files(
            &[("a/src/lib.rs", "// crew\nstruct Crew;\nlet crews = \"crew\";"), ("tests/a.rs", "struct Crew;")],
            &[("a/src/lib.rs", 2, "the name `Crew` was retired")],
        );
    }

    #[test]
    fn a_word_of_the_glossary_names_one_public_type() {
        check_files(
            &[
                (GLOSSARY, "| word | meaning |\n| --- | --- |\n| layer slice | ... |\n| decode worker, D | ... |"),
                ("a/src/lib.rs", "pub struct LayerSlice;\npub enum DecodeWorker {}"),
                ("b/src/lib.rs", "\npub type LayerSlice = u8;\npub(crate) struct DecodeWorker;"),
            ],
            &[("b/src/lib.rs", 2, "`LayerSlice` is a public type in a/src/lib.rs:1, too")],
        );
    }
}
