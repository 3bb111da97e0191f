//! Documents: links between them resolve, every page can be reached, and every decision is in the index.

use super::{Finding, line_of};
use crate::source::{File, Tree};
use std::collections::BTreeSet;
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
    check_reached(tree, &mut findings);
    check_decisions(tree, &mut findings);
    findings
}

fn check_links(tree: &Tree, file: &File, findings: &mut Vec<Finding>) {
    for (at, target) in links(&file.text) {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = path.split('?').next().unwrap_or_default();
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let aim = if path.is_empty() { Some(file.path.clone()) } else { resolved(file, path) };
        let exists = |aim: &PathBuf| tree.paths.iter().any(|known| known.starts_with(aim));
        let Some(aim) = aim.filter(exists) else {
            let what = format!("the link to `{path}` leads nowhere");
            findings.push(Finding::new(&file.path, line_of(&file.text, at), what, "correct the path"));
            continue;
        };
        let page = tree.file(&aim).filter(|_| !anchor.is_empty() && aim.extension().is_some_and(|end| end == "md"));
        if page.is_some_and(|page| !anchors(&page.text).iter().any(|known| known == anchor)) {
            let what = format!("the page of the link `{target}` has no such heading");
            findings.push(Finding::new(&file.path, line_of(&file.text, at), what, "correct the part after the #"));
        }
    }
}

/// Checks that every page of the documentation is linked from another one, or from the README.
fn check_reached(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut reached = BTreeSet::from([PathBuf::from("docs/README.md"), PathBuf::from(INDEX)]);
    for file in tree.files.iter().filter(|file| file.path.extension().is_some_and(|extension| extension == "md")) {
        let aims = links(&file.text).into_iter();
        let aims = aims.filter_map(|(_, target)| resolved(file, target.split(['#', '?']).next().unwrap_or_default()));
        reached.extend(aims.filter(|aim| *aim != file.path));
    }
    let is_page = |path: &&PathBuf| path.starts_with("docs") && path.extension().is_some_and(|end| end == "md");
    for path in tree.paths.iter().filter(is_page).filter(|path| !reached.contains(*path)) {
        findings.push(Finding::new(path, 0, "no page links to it", "add a line to docs/README.md"));
    }
}

/// Returns a path in a document, from the root.
fn resolved(file: &File, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in file.path.parent().unwrap_or(Path::new("")).join(target).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some(path)
}

/// Names by which links reach the headings of a page.
fn anchors(text: &str) -> Vec<String> {
    let (mut fenced, mut found) = (false, Vec::new());
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let letters = heading.trim().to_lowercase().replace(' ', "-");
        let name: String = letters.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect();
        // The second heading of the same words has a number.
        let before = found.iter().filter(|known: &&String| **known == name).count();
        found.push(if before == 0 { name } else { format!("{name}-{before}") });
    }
    found
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
                (
                    "README.md",
                    "# Here, `now`\n[a](docs/a.md) [b](docs) [c](https://x.y/z) [d](#here-now)\n<img src=\"docs/p.svg\">",
                ),
                ("docs/a.md", "[up](../README.md#here-now)\n```\n[no](link)\n```\n[lost](b.md)"),
                ("docs/p.svg", ""),
            ],
            &[("docs/a.md", 5, "the link to `b.md` leads nowhere")],
        );
    }

    #[test]
    fn anchors_are_headings() {
        check_files(
            &[("a.md", "# A\n## A\n[a](#a) [second](#a-1) [none](#a-2)")],
            &[("a.md", 3, "the page of the link `#a-2` has no such heading")],
        );
    }

    #[test]
    fn every_page_is_reached() {
        check_files(
            &[("docs/README.md", "[a](a.md)"), ("docs/a.md", ""), ("docs/b.md", "[b](b.md)")],
            &[("docs/b.md", 0, "no page links to it")],
        );
    }

    #[test]
    fn decisions_are_listed_and_numbered() {
        check_files(
            &[
                ("docs/decisions/0001-a.md", ""),
                ("docs/decisions/0003-b.md", ""),
                ("docs/decisions/README.md", "[a](0001-a.md)"),
                ("README.md", "[b](docs/decisions/0003-b.md)"),
            ],
            &[
                ("docs/decisions/0003-b.md", 0, "docs/decisions/README.md does not list it"),
                ("docs/decisions/0003-b.md", 0, "a decision whose number is not 0002"),
            ],
        );
    }
}
