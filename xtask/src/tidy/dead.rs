//! Rust files that no crate compiles.

use super::Finding;
use crate::error::ChoreError;
use crate::source::{File, Tree};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use toml::{Table, Value};

/// Folders of a crate whose files, and whose folders with a `main.rs`, Cargo builds without being told.
const AUTOMATIC: [&str; 4] = ["src/bin", "tests", "benches", "examples"];

pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, ChoreError> {
    let mut reached = BTreeSet::new();
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        for root in roots(tree, manifest)? {
            reach(tree, &root, true, &mut reached);
        }
    }
    let dead = tree.files.iter().filter(|file| file.is_rust() && !reached.contains(&file.path));
    let finding = |file: &File| Finding::new(&file.path, 0, "no crate compiles this file", "declare it, or delete it");
    Ok(dead.map(finding).collect())
}

/// The files at which the crate of `manifest` begins: one per target.
pub(super) fn roots(tree: &Tree, manifest: &File) -> Result<Vec<PathBuf>, ChoreError> {
    let folder = manifest.path.parent().unwrap_or(Path::new(""));
    let table = manifest.toml()?;
    let mut roots: Vec<PathBuf> = ["src/lib.rs", "src/main.rs", "build.rs"].map(|path| folder.join(path)).into();
    roots.extend(named_targets(&table, folder));
    let package = table.get("package").and_then(Value::as_table);
    let switched_off = |key: &str| package.and_then(|p| p.get(key)).and_then(Value::as_bool) == Some(false);
    for (place, key) in AUTOMATIC.iter().zip(["autobins", "autotests", "autobenches", "autoexamples"]) {
        if switched_off(key) {
            continue;
        }
        let place = folder.join(place);
        roots.extend(tree.files.iter().filter(|file| file.is_rust()).filter_map(|file| {
            let inside = file.path.strip_prefix(&place).ok()?;
            let depth = inside.components().count();
            (depth == 1 || (depth == 2 && inside.ends_with("main.rs"))).then(|| file.path.clone())
        }));
    }
    roots.retain(|root| tree.file(root).is_some());
    Ok(roots)
}

/// Returns the paths that the targets in the manifest `table` of the crate in `folder` name. They may lie outside of
/// it.
pub(super) fn named_targets(table: &Table, folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for kind in ["lib", "bin", "test", "bench", "example"] {
        let targets = match table.get(kind) {
            Some(Value::Array(targets)) => targets.iter().filter_map(Value::as_table).collect(),
            Some(Value::Table(target)) => vec![target],
            _ => Vec::new(),
        };
        let named = targets.iter().filter_map(|target| target.get("path")?.as_str());
        paths.extend(named.map(|path| normal(&folder.join(path))));
    }
    paths
}

/// Adds `path` and every file that it declares. `is_root`: its modules lie beside it, not in a folder of its name.
pub(super) fn reach(tree: &Tree, path: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    let Some(file) = tree.file(path) else { return };
    if !reached.insert(path.to_path_buf()) {
        return;
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    let own = if is_root || path.ends_with("mod.rs") { beside.to_path_buf() } else { path.with_extension("") };
    for declaration in declarations(file) {
        match declaration {
            Declaration::Module(name) => {
                reach(tree, &own.join(format!("{name}.rs")), false, reached);
                reach(tree, &own.join(&name).join("mod.rs"), false, reached);
            }
            Declaration::Path(written) => reach(tree, &normal(&beside.join(written)), true, reached),
        }
    }
}

/// How a file takes in another.
#[derive(Debug, PartialEq)]
enum Declaration {
    /// `mod name;`
    Module(String),
    /// `#[path = "..."] mod name;` or `include!("...")`
    Path(String),
}

fn declarations(file: &File) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut path = None;
    for (code, text) in file.code.lines().zip(file.text.lines()) {
        let code = code.trim();
        if code.starts_with("#[path") {
            path = quoted(text);
        } else if code.contains("include!(") {
            found.extend(quoted(text).map(Declaration::Path));
        } else if let Some(name) = module_name(code) {
            found.push(path.take().map_or(Declaration::Module(name), Declaration::Path));
        }
    }
    found
}

/// Returns the name in `mod name;`, with or without visibility and attributes on the same line.
fn module_name(code: &str) -> Option<String> {
    let before_end = code.strip_suffix(';')?;
    let (before, name) = before_end.rsplit_once("mod ")?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_whole = before.is_empty() || before.ends_with([' ', ']']);
    (is_name && is_whole).then(|| name.to_string())
}

fn quoted(text: &str) -> Option<String> {
    text.split('"').nth(1).map(str::to_string)
}

/// Returns `a/b/../c` as `a/c`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<_> = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
        let tree = Tree { paths: files.iter().map(|file| file.path.clone()).collect(), files };
        let findings = check(&tree).expect("manifests parse");
        let got: Vec<_> = findings.iter().map(|finding| finding.path.to_str().unwrap()).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn modules_are_followed() {
        check_files(
            &[
                ("a/Cargo.toml", ""),
                ("a/src/lib.rs", "mod b;\n#[cfg(test)] pub(crate) mod c;\n// mod d;\nmod inline { }"),
                ("a/src/b.rs", "mod e;"),
                ("a/src/b/e.rs", ""),
                ("a/src/c/mod.rs", "mod f;"),
                ("a/src/c/f.rs", ""),
                ("a/src/d.rs", ""),
                ("a/src/e.rs", ""),
            ],
            &["a/src/d.rs", "a/src/e.rs"],
        );
    }

    #[test]
    fn targets_are_roots() {
        check_files(
            &[
                ("a/Cargo.toml", "[package]\nautotests = false\n[[test]]\nname = \"x\"\npath = \"x/main.rs\"\n"),
                ("b/Cargo.toml", "[[test]]\nname = \"y\"\npath = \"../y/main.rs\"\n"),
                ("y/main.rs", "mod part;"),
                ("y/part.rs", ""),
                ("a/x/main.rs", "mod part;"),
                ("a/x/part.rs", ""),
                ("a/src/bin/tool.rs", ""),
                ("a/tests/lost.rs", ""),
            ],
            &["a/tests/lost.rs"],
        );
    }

    #[test]
    fn paths_are_followed() {
        check_files(
            &[
                ("a/Cargo.toml", ""),
                ("a/src/lib.rs", "#[path = \"gen/x.v1.rs\"]\nmod x;\ninclude!(\"../data/y.rs\");"),
                ("a/src/gen/x.v1.rs", ""),
                ("a/data/y.rs", ""),
            ],
            &[],
        );
    }
}
