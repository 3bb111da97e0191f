//! What `cargo xtask tidy` checks, one concern per file. It reads, and never writes.

mod circles;
mod dead;
mod docs;
mod floors;
mod prose;
mod pure;
mod ratchet;
mod stale;
mod style;
mod unused;
mod versions;
mod words;

use crate::error::ChoreError;
use crate::finding::Finding;
use crate::source::Tree;
use std::path::Path;

/// Runs every check on the project at `root`. Errors: the findings, or why a check could not run.
pub(crate) fn run(root: &Path) -> Result<String, ChoreError> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    findings.extend(floors::check(&tree)?);
    findings.extend(pure::check(&tree));
    findings.extend(circles::check(&tree)?);
    findings.extend(dead::check(&tree)?);
    findings.extend(stale::check(&tree, root)?);
    findings.extend(style::check(&tree));
    findings.extend(docs::check(&tree));
    findings.extend(prose::check(&tree));
    findings.extend(ratchet::check(&tree)?);
    findings.extend(unused::check(&tree)?);
    findings.extend(versions::check(&tree));
    findings.extend(words::check(&tree));
    findings.sort();
    findings.dedup();
    if findings.is_empty() {
        return Ok(format!("tidy: {} files, nothing to fix", tree.paths.len()));
    }
    Err(ChoreError::Untidy(findings))
}

/// Returns the line, from 1, of the byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns where `word` stands in `text` as a word of its own.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}
