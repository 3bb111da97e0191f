//! Dependencies that nothing uses: they cost build time and trust.

use super::dead::{named_targets, reach, roots};
use super::floors::{dependency_tables, line_of_key};
use super::{Finding, words};
use crate::error::ChoreError;
use crate::source::{File, Tree};
use std::collections::BTreeSet;
use std::path::Path;
use toml::{Table, Value};

pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, ChoreError> {
    let mut findings = Vec::new();
    let mut asked_for = BTreeSet::new();
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let table = manifest.toml()?;
        let folder = manifest.path.parent().unwrap_or(Path::new(""));
        // Its own folder, and those of targets that lie elsewhere.
        let mut folders = vec![folder.to_path_buf()];
        folders.extend(named_targets(&table, folder).iter().filter_map(|path| Some(path.parent()?.to_path_buf())));
        // Modules of theirs may lie elsewhere, too.
        let mut reached = BTreeSet::new();
        roots(tree, manifest)?.iter().for_each(|root| reach(tree, root, true, &mut reached));
        for (_, dependencies) in dependency_tables(&table) {
            for name in dependencies.keys() {
                asked_for.insert(name.clone());
                let ours = |file: &&File| {
                    reached.contains(&file.path) || folders.iter().any(|folder| file.path.starts_with(folder))
                };
                let code = tree.files.iter().filter(|file| file.is_rust()).filter(ours);
                let in_code = name.replace('-', "_");
                if !code.into_iter().any(|file| words(&file.code, &in_code).next().is_some()) {
                    let what = format!("no code of this crate names {in_code}");
                    let line = line_of_key(&manifest.text, name);
                    findings.push(Finding::new(&manifest.path, line, what, "remove the dependency"));
                }
            }
        }
    }
    let Some(root) = tree.file("Cargo.toml") else { return Ok(findings) };
    let table = root.toml()?;
    let shared = table.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    for name in shared.into_iter().flat_map(Table::keys).filter(|name| !asked_for.contains(*name)) {
        let what = format!("no crate asks for {name}");
        findings.push(Finding::new(&root.path, line_of_key(&root.text, name), what, "remove the line"));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_names_is_found() {
        let files = [
            ("Cargo.toml", "[workspace.dependencies]\na-b = \"1\"\nc = \"1\"\nd = \"1\"\n"),
            ("x/Cargo.toml", "[dependencies]\na-b.workspace = true\n[dev-dependencies]\nc.workspace = true\n"),
            ("y/Cargo.toml", "[dev-dependencies]\ne = \"1\"\nf = \"1\"\n[[test]]\npath = \"../z/main.rs\"\n"),
            ("z/main.rs", "use e::E;\n#[path = \"../w/shared.rs\"]\nmod shared;"),
            ("w/shared.rs", "use f::F;"),
            ("x/src/lib.rs", "use a_b::A; // c::C"),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
        let findings = check(&Tree { paths: vec![], files }).expect("manifests parse");
        let got: Vec<_> = findings.iter().map(|found| (found.line, found.what.as_str())).collect();
        assert_eq!(got, [(4, "no code of this crate names c"), (4, "no crate asks for d")]);
    }
}
