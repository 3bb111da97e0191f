//! A crate depends only on crates of lower floors, and every folder at the top has a place in the house. A crate
//! is named like its folder: `bench/serve` is `bench-serve`.

use super::Finding;
use crate::error::ChoreError;
use crate::source::{File, Tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The crates that have a floor, and which.
const FLOORS: [(&str, u8); 26] = [
    ("domain", 0),
    ("kv-manager", 1),
    ("scheduler", 1),
    ("placement", 1),
    ("threads", 2),
    ("kv-memory", 2),
    ("cuda", 2),
    ("proto", 3),
    ("transport", 3),
    ("engine", 3),
    ("discovery", 3),
    ("hub", 3),
    ("keys", 3),
    ("telemetry", 3),
    ("bench-report", 3),
    ("admin", 4),
    ("tiers", 4),
    ("worker", 5),
    ("prefill-worker", 5),
    ("decode-worker", 5),
    ("router", 5),
    ("bench-serve", 5),
    ("bench-engine", 5),
    ("bench-transfer", 5),
    ("bench-tiers", 5),
    ("baton", 6),
];

/// The dependencies within a floor: the step loop that both kinds of worker share, and what the threads of copiers say
/// that they do.
const SHARED: [(&str, &str); 3] = [("prefill-worker", "worker"), ("decode-worker", "worker"), ("kv-memory", "threads")];

/// Crates beside the floors: they may depend on every floor, and no floor on them.
const BESIDE: [&str; 5] = ["bench-lab", "fuzz", "tests", "tests-cuda", "xtask"];

/// Folders at the top that hold crates and nothing else.
const HOMES: [&str; 1] = ["bench"];

/// Folders at the top that hold no crate, and why they are there.
const FOLDERS: [(&str, &str); 10] = [
    (".cargo", "the xtask alias"),
    (".config", "how the tests are run"),
    (".ci", "what continuous integration runs"),
    (".github", "what issues and changes are asked for"),
    ("console", "the pages for browsers, which the router embeds"),
    ("deploy", "the image, compose, and the Helm chart"),
    ("docs", "what is written for people"),
    ("examples", "clients of the API, one file each"),
    ("models", "the bundled model and how it was made"),
    ("scripts", "what the Makefile calls"),
];

/// What a core may depend on besides lower floors: nothing here touches a clock, a socket or the environment.
const CORE: [&str; 3] = ["blake3", "serde", "thiserror"];
/// What the tests of a core may depend on besides.
const CORE_TESTS: [&str; 1] = ["proptest"];

/// Returns the floor of a crate.
fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, floor)| *floor)
}

/// Returns whether a crate is a core: words or decisions.
pub(super) fn is_core(name: &str) -> bool {
    floor(name).is_some_and(|floor| floor <= 1)
}

pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, ChoreError> {
    let mut findings = Vec::new();
    let folders: BTreeSet<PathBuf> = tree.paths.iter().filter_map(|path| folder(path)).collect();
    for folder in folders {
        let name = crate_name(&folder);
        let manifest = tree.file(folder.join("Cargo.toml"));
        match manifest {
            Some(file) if floor(&name).is_some() || BESIDE.contains(&name.as_str()) => {
                check_manifest(&name, file, &mut findings)?;
            }
            None if FOLDERS.iter().any(|(other, _)| Path::new(other) == folder) => {}
            _ => findings.push(Finding::new(
                folder,
                0,
                "a folder without a place in the house",
                "move its contents, or give it a floor or a purpose in xtask/src/tidy/floors.rs",
            )),
        }
    }
    Ok(findings)
}

/// The folder that needs a place for this file: one at the top, or in a home of crates. `None`: the file lies at
/// the top itself.
fn folder(path: &Path) -> Option<PathBuf> {
    let parts: Vec<_> = path.parent()?.components().collect();
    let at_home = HOMES.iter().any(|home| path.starts_with(home));
    let depth = if at_home { 2 } else { 1 };
    (!parts.is_empty()).then(|| parts.into_iter().take(depth).collect())
}

/// Returns what the crate in this folder is called.
fn crate_name(folder: &Path) -> String {
    folder.to_string_lossy().replace('/', "-")
}

fn check_manifest(name: &str, file: &File, findings: &mut Vec<Finding>) -> Result<(), ChoreError> {
    let table = file.toml()?;
    for (kind, dependencies) in dependency_tables(&table) {
        for (dependency, value) in dependencies {
            let real = value.get("package").and_then(Value::as_str).unwrap_or(dependency);
            if let Some((what, fix)) = verdict(name, real, kind) {
                findings.push(Finding::new(&file.path, line_of_key(&file.text, dependency), what, fix));
            }
        }
    }
    Ok(())
}

/// Every table of dependencies: plain, dev, build, and those of targets.
pub(super) fn dependency_tables(table: &Table) -> Vec<(&'static str, &Table)> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(table).chain(targets.filter_map(Value::as_table));
    places
        .flat_map(|place| kinds.map(|kind| place.get(kind).and_then(Value::as_table).map(|found| (kind, found))))
        .flatten()
        .collect()
}

/// Returns what is wrong with `name` depending on `dependency`, and how to fix it.
fn verdict(name: &str, dependency: &str, kind: &str) -> Option<(String, String)> {
    if BESIDE.contains(&dependency) {
        let what = format!("{name} depends on {dependency}, which stands beside the floors");
        return Some((what, "nothing depends on it; move what is shared to a floor".to_string()));
    }
    let own = floor(name)?;
    if let Some(other) = floor(dependency) {
        let breaks = other >= own && !SHARED.contains(&(name, dependency));
        return breaks.then(|| {
            let what = format!("{name} (floor {own}) depends on {dependency} (floor {other})");
            (what, "depend on lower floors only: move what is shared down, or pass it in from above".to_string())
        });
    }
    let allowed = CORE.contains(&dependency) || (kind == "dev-dependencies" && CORE_TESTS.contains(&dependency));
    (is_core(name) && !allowed).then(|| {
        let what = format!("the core {name} depends on {dependency}");
        (
            what,
            "a core decides and does nothing else: do it in a shell, or show that it is pure and allow it".to_string(),
        )
    })
}

/// The line on which a key begins, from 1; 0 where it is spelled in an unusual way.
pub(super) fn line_of_key(text: &str, key: &str) -> usize {
    let starts = |line: &str| {
        let rest = line.trim_start().trim_start_matches('"').strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=', '"']))
    };
    text.lines().position(starts).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(folder: &str, manifest: &str, expect: &[(usize, &str)]) {
        let path = Path::new(folder).join("Cargo.toml");
        let tree = Tree { paths: vec![path.clone()], files: vec![File::new(path, manifest)] };
        let findings = check(&tree).expect("the manifest parses");
        let got: Vec<_> = findings.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn lower_floors_are_fine() {
        check_one("worker", "[dependencies]\ndomain.workspace = true\nengine = { workspace = true }\n", &[]);
        check_one("decode-worker", "[dependencies]\nworker.workspace = true\n", &[]);
        check_one("tests", "[dependencies]\nbaton.workspace = true\n", &[]);
        check_one("bench/lab", "[dependencies]\nbench-serve.workspace = true\n", &[]);
    }

    #[test]
    fn the_same_floor_and_higher_ones_are_not() {
        check_one(
            "scheduler",
            "[dependencies]\nkv-manager.workspace = true\n",
            &[(2, "scheduler (floor 1) depends on kv-manager (floor 1)")],
        );
        check_one(
            "engine",
            "[dev-dependencies]\nworker.workspace = true\n",
            &[(2, "engine (floor 3) depends on worker (floor 5)")],
        );
        check_one(
            "bench/report",
            "[dependencies]\nbench-serve.workspace = true\n",
            &[(2, "bench-report (floor 3) depends on bench-serve (floor 5)")],
        );
        check_one(
            "router",
            "[target.'cfg(unix)'.dependencies]\ntests.workspace = true\n",
            &[(2, "router depends on tests, which stands beside the floors")],
        );
    }

    #[test]
    fn a_renamed_dependency_is_seen() {
        check_one(
            "domain",
            "[dependencies]\nw = { package = \"worker\", path = \"../worker\" }\n",
            &[(2, "domain (floor 0) depends on worker (floor 5)")],
        );
    }

    #[test]
    fn cores_depend_on_little() {
        check_one("placement", "[dependencies]\nblake3.workspace = true\n", &[]);
        check_one("placement", "[dev-dependencies]\nproptest.workspace = true\n", &[]);
        check_one(
            "placement",
            "[dependencies]\nproptest.workspace = true\ntokio = \"1\"\n",
            &[(2, "the core placement depends on proptest"), (3, "the core placement depends on tokio")],
        );
    }

    #[test]
    fn a_folder_needs_a_place() {
        check_one("misc", "", &[(0, "a folder without a place in the house")]);
        check_one("bench/misc", "", &[(0, "a folder without a place in the house")]);
        check_one("bench", "", &[(0, "a folder without a place in the house")]);
    }
}
