//! Documents: links between them resolve, and every decision is in the index.

use super::{Finding, line_of};
use crate::source::{File, Tree};
use std::path::{Component, Path, PathBuf};

/// Folder of the decisions.
const DECISIONS: &str = "docs/decisions";
/// Its index.
const INDEX: &str = "docs/decisions/README.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.extension().is_some_and(|extension| extension == "md")) {
        check_links(tree, file, &mut findings);
    }
    check_decisions(tree, &mut findings);
    findings
}

fn check_links(tree: &Tree, file: &File, findings: &mut Vec<Finding>) {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    for (at, target) in links(&file.text) {
        let target = target.split(['#', '?']).next().unwrap_or_default();
        let elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
        if elsewhere || resolves(tree, folder, target) {
            continue;
        }
        let what = format!("the link to `{target}` leads nowhere");
        findings.push(Finding::new(&file.path, line_of(&file.text, at), what, "correct the path"));
    }
}

/// A file of the project, or a folder that holds one.
fn resolves(tree: &Tree, folder: &Path, target: &str) -> bool {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                if !path.pop() {
                    return false;
                }
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    tree.paths.iter().any(|known| known.starts_with(&path))
}

/// Targets of Markdown links and of `src="..."`, outside of fenced code, with their places.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            for (open, close) in [("](", ')'), ("src=\"", '"')] {
                for (at, _) in line.match_indices(open) {
                    let rest = &line[at + open.len()..];
                    found.extend(rest.find(close).map(|end| (begin + at, rest[..end].trim())));
                }
            }
        }
        begin += line.len();
    }
    found
}

fn check_decisions(tree: &Tree, findings: &mut Vec<Finding>) {
    let listed = tree.file(INDEX).map(|index| links(&index.text)).unwrap_or_default();
    let decisions = tree.paths.iter().filter(|path| path.starts_with(DECISIONS) && *path != Path::new(INDEX));
    for (position, path) in decisions.enumerate() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !listed.iter().any(|(_, target)| *target == name) {
            findings.push(Finding::new(path, 0, format!("{INDEX} does not list it"), "add a line there"));
        }
        let number = format!("{:04}-", position + 1);
        if !name.starts_with(&number) {
            let what = format!("a decision whose number is not {}", &number[..4]);
            findings.push(Finding::new(path, 0, what, "number decisions in order, without gaps"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expect: &[(&str, usize, &str)]) {
        let files: Vec<_> = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
        let tree = Tree { paths: files.iter().map(|file| file.path.clone()).collect(), files };
        let findings = check(&tree);
        let got: Vec<_> =
            findings.iter().map(|found| (found.path.to_str().unwrap(), found.line, found.what.as_str())).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn links_resolve() {
        check_files(
            &[
                ("README.md", "[a](docs/a.md) [b](docs) [c](https://x.y/z) [d](#here)\n<img src=\"docs/p.svg\">"),
                ("docs/a.md", "[up](../README.md#top)\n```\n[no](link)\n```\n[lost](b.md)"),
                ("docs/p.svg", ""),
            ],
            &[("docs/a.md", 5, "the link to `b.md` leads nowhere")],
        );
    }

    #[test]
    fn decisions_are_listed_and_numbered() {
        check_files(
            &[
                ("docs/decisions/0001-a.md", ""),
                ("docs/decisions/0003-b.md", ""),
                ("docs/decisions/README.md", "[a](0001-a.md)"),
            ],
            &[
                ("docs/decisions/0003-b.md", 0, "docs/decisions/README.md does not list it"),
                ("docs/decisions/0003-b.md", 0, "a decision whose number is not 0002"),
            ],
        );
    }
}
