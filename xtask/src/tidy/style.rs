//! Style that matters: file length, unfinished code, and text that means something on one machine only.

use super::{Finding, line_of, words};
use crate::source::{File, Tree};

/// A longer Rust file holds more than one subject.
const LINES_MAX: usize = 900;

/// What unfinished or silenced code looks like, and what to do instead.
const UNFINISHED: [(&str, &str); 5] = [
    ("todo!", "write it, or return an error that names what is missing"),
    ("unimplemented!", "write it, or return an error that names what is missing"),
    ("dbg!", "use tracing, or delete it"),
    ("#[ignore", "make the test run, or delete it; long ones scale by PROPTEST_CASES"),
    ("allow(dead_code)", "delete what is not used"),
];

/// Notes that belong in an issue.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Paths of one machine, in two parts each, so that this file does not name them.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "tmp/tgt"), concat!("/", "home/")];

/// Data, which may say what it likes.
const DATA: [&str; 4] = ["json", "txt", "lock", "svg"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        // What is generated is read in the file that it is made from.
        if file.is_rust() && !crate::proto::is_generated(&file.path) {
            check_rust(file, &mut findings);
        }
        let extension = file.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !DATA.contains(&extension) {
            check_text(file, &mut findings);
        }
    }
    findings
}

fn check_rust(file: &File, findings: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines, over {LINES_MAX}");
        findings.push(Finding::new(&file.path, 0, what, "split it by subject; tests go to a file of their own"));
    }
    for (pattern, fix) in UNFINISHED {
        for (at, _) in file.code.match_indices(pattern) {
            findings.push(Finding::new(&file.path, line_of(&file.code, at), format!("`{pattern}`"), fix));
        }
    }
}

fn check_text(file: &File, findings: &mut Vec<Finding>) {
    for note in NOTES {
        for at in words(&file.text, note) {
            let what = format!("`{note}` in the text");
            findings.push(Finding::new(&file.path, line_of(&file.text, at), what, "do it, or open an issue"));
        }
    }
    for path in MACHINE_PATHS {
        for (at, _) in file.text.match_indices(path) {
            // `docs/home/x` and `https://a.b/home/` are fine: the path must begin here.
            if !file.text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~*}/".contains(c)) {
                let what = format!("`{path}` is a path of one machine");
                findings.push(Finding::new(
                    &file.path,
                    line_of(&file.text, at),
                    what,
                    "use a path relative to the project",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(path: &str, text: &str, expect: &[(usize, &str)]) {
        let findings = check(&Tree { paths: vec![], files: vec![File::new(path, text)] });
        let got: Vec<_> = findings.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn unfinished_code_is_found() {
        check_one("a.rs", "fn f() {\n    todo!()\n}", &[(2, "`todo!`")]);
        check_one("a.rs", "#[allow(dead_code)]\n// todo! dbg!\nfn f() {}", &[(1, "`allow(dead_code)`")]);
        check_one("a.md", "todo!()", &[]);
    }

    #[test]
    fn long_files_are_found() {
        check_one("a.rs", &"\n".repeat(LINES_MAX), &[]);
        check_one("a.rs", &"\n".repeat(LINES_MAX + 1), &[(0, "901 lines, over 900")]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let text = format!("see {}x\nhttps://example.org{}y", MACHINE_PATHS[0], MACHINE_PATHS[3]);
        let what = format!("`{}` is a path of one machine", MACHINE_PATHS[0]);
        check_one("a.md", &text, &[(1, &what)]);
        check_one("a.json", &text, &[]);
    }

    #[test]
    fn notes_are_found() {
        check_one("a.sh", &format!("# {}: later", NOTES[1]), &[(1, &format!("`{}` in the text", NOTES[1]))]);
    }
}
