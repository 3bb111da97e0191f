//! Cores touch no clock, randomness, environment, file, socket, thread, lock or metric.

use super::floors::is_core;
use super::{Finding, line_of, words};
use crate::source::{File, Tree};

/// Modules of `std` that a core must not name.
const MODULES: [&str; 6] = ["env", "fs", "io", "net", "process", "thread"];
/// Words that a core must not contain.
const WORDS: [&str; 14] = [
    "Instant",
    "SystemTime",
    "UNIX_EPOCH",
    "RandomState",
    "Mutex",
    "RwLock",
    "Condvar",
    "tokio",
    "metrics",
    "rand",
    "tracing",
    "println",
    "eprintln",
    "async",
];
/// What every core says at its top.
const NO_UNSAFE: &str = "#![forbid(unsafe_code)]";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let mut parts = file.path.components().map(|part| part.as_os_str().to_str().unwrap_or_default());
        if !parts.next().is_some_and(is_core) {
            continue;
        }
        if file.path.ends_with("src/lib.rs") && !file.code.contains(NO_UNSAFE) {
            findings.push(Finding::new(&file.path, 1, "a core may contain unsafe code", format!("write {NO_UNSAFE}")));
        }
        check_file(file, &mut findings);
    }
    findings
}

fn check_file(file: &File, findings: &mut Vec<Finding>) {
    let mut report = |at, name: &str| {
        findings.push(Finding::new(
            &file.path,
            line_of(&file.code, at),
            format!("a core names `{name}`"),
            "cores are pure: take the value as an argument, or return a command and let the shell do it",
        ));
    };
    for word in WORDS {
        words(&file.code, word).for_each(|at| report(at, word));
    }
    for (at, module) in std_modules(&file.code) {
        if MODULES.contains(&module) {
            report(at, &format!("std::{module}"));
        }
    }
}

/// Returns the modules of `std` that `code` names, with the place of each: `std::a::b` and `std::{a, b::{c, d}}`.
fn std_modules(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in words(code, "std") {
        let Some(rest) = code[at + 3..].strip_prefix("::") else { continue };
        let Some(group) = rest.strip_prefix('{') else {
            found.push((at, first_word(rest)));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (offset, c) in group.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    found.push((at, first_word(&group[offset..])));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_code(code: &str, expect: &[&str]) {
        let mut findings = Vec::new();
        check_file(&File::new("scheduler/src/a.rs", code), &mut findings);
        let got: Vec<_> = findings.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn pure_code_passes() {
        check_code("use std::time::Duration;\n// an Instant of tokio\nlet s = \"std::fs\"; let instant = env;", &[]);
    }

    #[test]
    fn every_spelling_is_seen() {
        check_code("use std::time::Instant;", &["a core names `Instant`"]);
        check_code("std::fs::read(x)", &["a core names `std::fs`"]);
        check_code("use std::{collections::{BTreeMap, HashMap}, env, fmt};", &["a core names `std::env`"]);
        check_code("use tokio::sync;", &["a core names `tokio`"]);
    }

    #[test]
    fn only_cores_are_held_to_it() {
        let tree = |path: &str| Tree { paths: vec![], files: vec![File::new(path, "use std::fs;")] };
        assert_eq!(check(&tree("engine/src/a.rs")), []);
        assert_eq!(check(&tree("domain/src/a.rs")).len(), 1);
        assert_eq!(check(&tree("domain/src/lib.rs")).len(), 2);
    }
}
