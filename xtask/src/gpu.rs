//! What a host with a card needs to run `tests/gpu/run`: it has neither Rust nor a network.

use crate::error::ChoreError;
use crate::{cargo_command, target};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds all tests and the binary that they start, as `make build-tests` does, so that both share what is compiled.
const BUILD: [&str; 6] =
    ["test", "--locked", "--release", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
/// The tests of kernels and of the device for cards.
const KERNEL_TESTS: &str = "tests/cuda/Cargo.toml";
/// Of those, the one that needs no card.
const GATE: &str = "gate";
/// The tests of whole processes, and the binary that they start.
const PROCESS_TESTS: &str = "e2e";
const BINARY: &str = "baton";
/// Folder of what is packed, in that of builds.
const FOLDER: &str = "gpu";
/// Binaries, in that folder.
const BINARIES: &str = "bin";
/// What they are packed into.
const PACK: &str = "binaries.tar.xz";
/// Most bytes of the tree and the pack.
const BYTES_MAX: u64 = 60_000_000;

/// What `cargo xtask gpu --help` prints.
pub(crate) const HELP: &str = "\
usage: cargo xtask gpu [--unpacked]

Builds the binary and the tests for cards in release mode, strips them, and packs them into target/gpu/binaries.tar.xz. It
prints the size of each, and fails if the tree and the pack together have more than 60 MB. Copy the tree, with target/gpu in
it, to a host with a card, and run there:

    tests/gpu/run

The host needs Python 3.9, xz for tar, NVIDIA's driver, libnvrtc and, for the set `fast`, libcublasLt. Its libc must be as
new as the one of this host.

  --unpacked  leave the binaries in target/gpu/bin and pack nothing: for a card of this host, or the emulator
";

/// An executable, and what it is called in the pack.
#[derive(Debug, PartialEq, Eq)]
struct Built {
    name: String,
    path: PathBuf,
}

/// Builds and packs. Returns the sizes and what to run. Errors: of the compiler, of `strip` and `tar`; it is too much.
pub(crate) fn pack(root: &Path, unpacked: bool) -> Result<String, ChoreError> {
    let built = build(root)?;
    let folder = target(root).join(FOLDER);
    let binaries = folder.join(BINARIES);
    if binaries.exists() {
        fs::remove_dir_all(&binaries).map_err(ChoreError::of_file(&binaries))?;
    }
    fs::create_dir_all(&binaries).map_err(ChoreError::of_file(&binaries))?;
    let mut sizes = Vec::new();
    for Built { name, path } in &built {
        let to = binaries.join(name);
        fs::copy(path, &to).map_err(ChoreError::of_file(path))?;
        run(root, Command::new("strip").arg(&to))?;
        sizes.push((name.clone(), size(&to)?));
    }
    let command = match target(root) == root.join("target") {
        true => "tests/gpu/run".to_owned(),
        false => format!("tests/gpu/run --pack {}", folder.display()),
    };
    if unpacked {
        return Ok(format!("{}next: {command}", table(&sizes)));
    }
    let pack = folder.join(PACK);
    let names: Vec<&str> = built.iter().map(|built| built.name.as_str()).collect();
    run(root, Command::new("tar").arg("-cJf").arg(&pack).arg("-C").arg(&binaries).args(names))?;
    fs::remove_dir_all(&binaries).map_err(ChoreError::of_file(&binaries))?;
    let (tree, packed) = (tree_bytes(root)?, size(&pack)?);
    sizes.extend([(PACK.to_owned(), packed), ("the tree".to_owned(), tree)]);
    let report = table(&sizes);
    check_total(tree + packed, &report)?;
    Ok(format!("{report}next: copy the tree with {} to a host with a card, and run there: {command}", folder.display()))
}

/// Builds, and returns the binaries that are packed. Errors: cargo's, which it prints.
fn build(root: &Path) -> Result<Vec<Built>, ChoreError> {
    let command = || format!("cargo {}", BUILD.join(" "));
    let output = cargo_command(root, &BUILD).stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| ChoreError::NotRun { command: command(), source })?;
    if !output.status.success() {
        return Err(ChoreError::Cargo(BUILD.join(" ")));
    }
    let said = String::from_utf8(output.stdout);
    let said = said.map_err(|source| ChoreError::NotText { command: command(), source })?;
    let built = packed(root, &said);
    let missing = |name: &&&str| !built.iter().any(|built| built.name == ***name);
    match [BINARY, PROCESS_TESTS].iter().find(missing) {
        Some(name) => Err(ChoreError::NotBuilt { name, command: command() }),
        None => Ok(built),
    }
}

/// Returns what is packed of the executables that cargo's messages name, line by line, in the order of their names.
fn packed(root: &Path, messages: &str) -> Vec<Built> {
    let kernel_tests = root.join(KERNEL_TESTS);
    let built = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let name = message["target"]["name"].as_str()?;
        let (is_test, kind) = (message["profile"]["test"] == true, message["target"]["kind"][0].as_str()?);
        let of_kernels = message["manifest_path"].as_str().map(Path::new) == Some(&kernel_tests);
        let wanted = match (is_test, kind) {
            (true, "test") => name == PROCESS_TESTS || of_kernels && name != GATE,
            (false, "bin") => name == BINARY,
            _ => false,
        };
        wanted.then(|| Built { name: name.to_owned(), path })
    };
    let mut all: Vec<Built> = messages.lines().filter_map(built).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns the bytes of the files of the tree that git knows, and those that it would.
fn tree_bytes(root: &Path) -> Result<u64, ChoreError> {
    let listed = run(root, Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let files = listed.split('\0').filter(|name| !name.is_empty()).map(|name| root.join(name));
    // One that was removed and is still in the index has no size.
    files.filter(|path| path.is_file()).map(|path| size(&path)).sum()
}

fn size(path: &Path) -> Result<u64, ChoreError> {
    fs::metadata(path).map(|data| data.len()).map_err(ChoreError::of_file(path))
}

/// Runs a command and returns what it printed. Errors: what it said.
fn run(root: &Path, command: &mut Command) -> Result<String, ChoreError> {
    let words = || {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let words = words();
    let output = command.current_dir(root).output();
    let output = output.map_err(|source| ChoreError::NotRun { command: words.clone(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ChoreError::Failed { command: words, said });
    }
    String::from_utf8(output.stdout).map_err(|source| ChoreError::NotText { command: words, source })
}

/// Returns a line for each size, in MB.
fn table(sizes: &[(String, u64)]) -> String {
    sizes.iter().map(|(name, bytes)| format!("{:>8.2} MB  {name}\n", *bytes as f64 / 1e6)).collect()
}

/// Checks that what travels is not too much. Errors: it is, and the report says of what.
fn check_total(bytes: u64, report: &str) -> Result<(), ChoreError> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(ChoreError::TooLarge { report: report.to_owned(), bytes, most: BYTES_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(manifest: &str, kind: &str, name: &str, test: bool, executable: &str) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": format!("/tree/{manifest}"),
            "target": {"kind": [kind], "name": name}, "profile": {"test": test}, "executable": executable,
        })
        .to_string()
    }

    #[test]
    fn the_binary_and_the_tests_for_cards_are_packed() {
        let messages = [
            message("tests/cuda/Cargo.toml", "test", "norm", true, "/t/norm-1"),
            message("tests/cuda/Cargo.toml", "test", "gate", true, "/t/gate-1"),
            message("tests/cuda/Cargo.toml", "lib", "tests_cuda", true, "/t/tests_cuda-1"),
            message("tests/Cargo.toml", "test", "paths", true, "/t/paths-1"),
            message("baton/Cargo.toml", "test", "e2e", true, "/t/e2e-1"),
            message("baton/Cargo.toml", "bin", "baton", true, "/t/baton-1"),
            message("baton/Cargo.toml", "bin", "baton", false, "/t/baton"),
            "warning: no message".to_owned(),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let built = |name: &str, path: &str| Built { name: name.to_owned(), path: path.into() };
        let expected = [built("baton", "/t/baton"), built("e2e", "/t/e2e-1"), built("norm", "/t/norm-1")];
        assert_eq!(packed(Path::new("/tree"), &messages.join("\n")), expected);
    }

    #[test]
    fn what_is_too_much_is_refused_with_its_parts() {
        let report = table(&[("baton".to_owned(), 36_527_320), ("the tree".to_owned(), 30_000_000)]);
        assert_eq!(report, "   36.53 MB  baton\n   30.00 MB  the tree\n");
        assert!(check_total(BYTES_MAX, &report).is_ok());
        let error = check_total(BYTES_MAX + 1, &report).unwrap_err().to_string();
        assert!(error.contains("36.53 MB  baton") && error.contains("60.0 MB at most"), "{error}");
    }
}
