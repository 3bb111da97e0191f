//! Generated code that is not what its source would make today.

use super::Finding;
use crate::error::ChoreError;
use crate::proto;
use crate::source::Tree;
use std::path::Path;

pub(super) fn check(tree: &Tree, root: &Path) -> Result<Vec<Finding>, ChoreError> {
    let expected = proto::generate(root)?;
    let fix = "run `cargo xtask proto` and commit what it writes";
    let mut findings = Vec::new();
    for (path, code) in &expected {
        if tree.file(path).map(|file| &file.text) != Some(code) {
            findings.push(Finding::new(path, 0, "generated code is stale", fix));
        }
    }
    for path in tree.paths.iter().filter(|path| proto::is_generated(path)) {
        if !expected.iter().any(|(made, _)| made == path) {
            findings.push(Finding::new(path, 0, "nothing generates this file any more", "delete it"));
        }
    }
    Ok(findings)
}
