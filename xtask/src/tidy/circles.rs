//! Circles of imports between the files of a crate. Files in a circle can only be read together, so there is none but
//! those that `xtask/circles.toml` lists, each with its reason.
//!
//! A file and the modules below it are one subject: what a parent takes from below it does not count, what they take
//! from their parent does. So a circle always leads through a file that is neither.

use super::{Finding, dead};
use crate::error::ChoreError;
use crate::modules::{Import, Modules};
use crate::source::{File, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Value;

/// The circles that may stay: tables `[[circle]]` with `files` and `reason`. No circle may stay where it is missing.
const ALLOWED: &str = "xtask/circles.toml";

/// Crates that are tests. Like the tests in other crates, they are left out.
const TESTS: &str = "tests";

type Circle = BTreeSet<PathBuf>;

pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, ChoreError> {
    let mut imports = BTreeSet::new();
    let is_product = |file: &&File| file.path.ends_with("Cargo.toml") && !file.path.starts_with(TESTS);
    for manifest in tree.files.iter().filter(is_product) {
        let sources = manifest.path.with_file_name("src");
        for root in dead::roots(tree, manifest)?.iter().filter(|root| root.starts_with(&sources)) {
            imports.extend(Modules::read(tree, root)?.imports());
        }
    }
    let circles = circles(&imports);
    let mut findings = Vec::new();
    let mut allowed = Vec::new();
    for entry in entries(tree)? {
        if entry.reason.trim().is_empty() {
            let what = format!("no reason for the circle of {}", names(&entry.files));
            findings.push(Finding::new(ALLOWED, 0, what, "write down why the files need each other"));
        }
        if !circles.contains(&entry.files) {
            let what = format!("no circle is exactly {}", names(&entry.files));
            findings.push(Finding::new(ALLOWED, 0, what, "delete the entry, or list the files of the circle"));
        }
        allowed.push(entry.files);
    }
    for circle in circles.iter().filter(|circle| !allowed.contains(circle)) {
        let what = format!("a circle of imports between {} files{}", circle.len(), ties(circle, &imports));
        let fix = "move what both sides need to a file of its own, or pass it in";
        findings.push(Finding::new(circle.first().expect("a circle has files"), 0, what, fix));
    }
    Ok(findings)
}

/// Returns the sets of two or more files that reach each other.
fn circles(imports: &BTreeSet<Import>) -> Vec<Circle> {
    let mut next: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for import in imports {
        next.entry(&import.from).or_default().insert(&import.to);
    }
    let reach = |from: &Path| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            let unseen = next.get(file).into_iter().flatten().filter(|to| reached.insert(**to));
            open.extend(unseen.copied().collect::<Vec<_>>());
        }
        reached
    };
    let reached: BTreeMap<&Path, _> = next.keys().map(|file| (*file, reach(file))).collect();
    let circle = |(file, others): (&&Path, &BTreeSet<&Path>)| {
        let returns = |other: &&&Path| reached.get(**other).is_some_and(|back| back.contains(file));
        others.iter().filter(returns).map(|other| other.to_path_buf()).collect::<Circle>()
    };
    let circles: BTreeSet<Circle> = reached.iter().map(circle).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

/// Returns what ties a circle, one line per pair of files.
fn ties(circle: &Circle, imports: &BTreeSet<Import>) -> String {
    let mut ties: BTreeMap<(&Path, &Path), Vec<&str>> = BTreeMap::new();
    for Import { from, to, name } in imports {
        if circle.contains(from) && circle.contains(to) {
            ties.entry((from, to)).or_default().push(name);
        }
    }
    let line = |((from, to), names): (&(&Path, &Path), &Vec<&str>)| {
        format!("\n    {} -> {}: {}", from.display(), to.display(), names.join(", "))
    };
    ties.iter().map(line).collect()
}

fn names(files: &Circle) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A circle that may stay.
struct Entry {
    files: Circle,
    reason: String,
}

fn entries(tree: &Tree) -> Result<Vec<Entry>, ChoreError> {
    let Some(file) = tree.file(ALLOWED) else { return Ok(Vec::new()) };
    let table = file.toml()?;
    let circles = table.get("circle").and_then(Value::as_array);
    let entry = |circle: &Value| {
        let files = circle.get("files").and_then(Value::as_array).into_iter().flatten();
        Entry {
            files: files.filter_map(Value::as_str).map(PathBuf::from).collect(),
            reason: circle.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    };
    Ok(circles.into_iter().flatten().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(allowed: &str, files: &[(&str, &str)], expect: &[&str]) {
        let more = [("a/Cargo.toml", ""), (ALLOWED, allowed)];
        let files: Vec<_> = files.iter().chain(&more).map(|(path, text)| File::new(*path, *text)).collect();
        let tree = Tree { paths: files.iter().map(|file| file.path.clone()).collect(), files };
        let found: Vec<_> = check(&tree).unwrap().into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expect);
    }

    const TRIANGLE: [(&str, &str); 5] = [
        ("a/src/lib.rs", "mod b;\nmod c;\nmod d;\nmod e;"),
        ("a/src/b.rs", "use crate::c::{C, c};"),
        ("a/src/c.rs", "fn c() { super::d::d() }"),
        ("a/src/d.rs", "use super::b::*;"),
        ("a/src/e.rs", "use crate::b::B;"),
    ];
    const FOUND: &str = "a circle of imports between 3 files
    a/src/b.rs -> a/src/c.rs: C, c
    a/src/c.rs -> a/src/d.rs: d
    a/src/d.rs -> a/src/b.rs: *";

    #[test]
    fn a_circle_is_found_and_what_ties_it() {
        check_files("", &TRIANGLE, &[FOUND]);
        check_files("", &TRIANGLE[..3], &[]);
    }

    #[test]
    fn a_circle_with_a_reason_stays() {
        let entry = |files: &str, reason: &str| format!("[[circle]]\nfiles = [{files}]\nreason = \"{reason}\"\n");
        let all = "\"a/src/b.rs\", \"a/src/c.rs\", \"a/src/d.rs\"";
        check_files(&entry(all, "They are one."), &TRIANGLE, &[]);
        let none = "no reason for the circle of a/src/b.rs, a/src/c.rs, a/src/d.rs";
        check_files(&entry(all, ""), &TRIANGLE, &[none]);
        let other = "no circle is exactly a/src/b.rs, a/src/c.rs";
        check_files(&entry("\"a/src/b.rs\", \"a/src/c.rs\"", "They are one."), &TRIANGLE, &[other, FOUND]);
    }
}
