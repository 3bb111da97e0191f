//! A release: its number, its part of the changelog, its tag, and the files that people take.

use crate::error::ChoreError;
use crate::manifests;
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = "Cargo.toml";
/// The chart, whose version is that of the application.
const CHART: &str = "deploy/helm/Chart.yaml";
const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased";

/// Numbers the version, dates its part of the changelog, commits and tags both, builds the binary, and writes it
/// beside its checksum to `target/release/dist`. Nothing leaves this machine. Errors: what stands in the way;
/// before the commit nothing was changed then.
pub(crate) fn run(root: &Path, version: &str, date: &str) -> Result<String, ChoreError> {
    let tag = format!("v{version}");
    if !output(root, "git", &["status", "--porcelain"])?.is_empty() {
        return Err(ChoreError::Uncommitted);
    }
    if !output(root, "git", &["tag", "--list", &tag])?.is_empty() {
        return Err(ChoreError::TagExists(tag));
    }
    manifests::check(root)?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).map_err(ChoreError::of_file(path));
    let write = |path: &str, text: String| std::fs::write(root.join(path), text).map_err(ChoreError::of_file(path));
    let before = read(MANIFEST)?;
    let manifest = with_version(&before, version)?;
    let chart = read(CHART)?.replace(current(&before)?, version);
    let changelog = with_release(&read(CHANGELOG)?, version, date)?;
    write(MANIFEST, manifest)?;
    write(CHART, chart)?;
    manifests::write(root)?;
    write(CHANGELOG, changelog)?;
    // The lock file has the versions of the project's own crates.
    output(root, env!("CARGO"), &["update", "--workspace", "--offline"])?;
    output(root, "git", &["commit", "--quiet", "--all", "--message", &format!("Release {version}")])?;
    output(root, "git", &["tag", "--annotate", &tag, "--message", &format!("Baton {version}")])?;
    eprintln!("{tag} is committed and tagged; building the binary");
    let build = ["build", "--quiet", "--release", "--locked", "--package", "baton", "--target-dir", "target"];
    output(root, env!("CARGO"), &build)?;
    let target = root.join("target/release");
    let (dist, name) = (target.join("dist"), format!("baton-{version}-{}-linux", std::env::consts::ARCH));
    let copied = std::fs::create_dir_all(&dist).and_then(|()| std::fs::copy(target.join("baton"), dist.join(&name)));
    copied.map_err(ChoreError::of_file(&dist))?;
    let sums = output(&dist, "sha256sum", &[&name])?;
    std::fs::write(dist.join("SHA256SUMS"), &sums).map_err(ChoreError::of_file("SHA256SUMS"))?;
    Ok(format!(
        "{sums}{}\nnext: git push --follow-tags, and publish both files with the changelog's part",
        dist.display()
    ))
}

/// Returns what a command printed. Errors: what it said.
fn output(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, ChoreError> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|source| ChoreError::NotRun { command: command(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ChoreError::Failed { command: command(), said });
    }
    String::from_utf8(output.stdout).map_err(|source| ChoreError::NotText { command: command(), source })
}

/// Returns the manifest with another version. Errors: it is no version, or not a later one.
fn with_version(manifest: &str, version: &str) -> Result<String, ChoreError> {
    let now = current(manifest)?;
    let (from, to) = (numbers(now)?, numbers(version)?);
    if to <= from {
        return Err(ChoreError::NotLater { version: version.to_owned(), now: now.to_owned() });
    }
    Ok(manifest.replacen(&format!("version = \"{now}\""), &format!("version = \"{version}\""), 1))
}

/// Returns the version that a manifest names.
fn current(manifest: &str) -> Result<&str, ChoreError> {
    let now = manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    now.ok_or(ChoreError::NoVersion(MANIFEST))
}

fn numbers(version: &str) -> Result<[u32; 3], ChoreError> {
    let parts: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    let numbers = parts.ok().and_then(|parts| parts.try_into().ok());
    numbers.ok_or_else(|| ChoreError::NotAVersion(version.to_owned()))
}

/// The changelog with what was unreleased as a release. Errors: nothing was unreleased.
fn with_release(changelog: &str, version: &str, date: &str) -> Result<String, ChoreError> {
    let missing = || ChoreError::NoHeading { changelog: CHANGELOG, heading: UNRELEASED };
    let (before, after) = changelog.split_once(UNRELEASED).ok_or_else(missing)?;
    let entries = after.split("\n## ").next().unwrap_or_default();
    if !entries.contains("\n- ") {
        return Err(ChoreError::NothingToRelease { changelog: CHANGELOG, heading: UNRELEASED });
    }
    Ok(format!("{before}{UNRELEASED}\n\n## {version} - {date}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_later_than_the_one_before() {
        let manifest = "[workspace.package]\nversion = \"0.9.0\"\n[dependencies]\na = { version = \"0.9.0\" }\n";
        assert_eq!(with_version(manifest, "0.10.0").unwrap(), manifest.replacen("0.9.0", "0.10.0", 1));
        assert_eq!(with_version(manifest, "0.9.0").unwrap_err().to_string(), "0.9.0 is not later than 0.9.0");
        assert_eq!(with_version(manifest, "1.0").unwrap_err().to_string(), "`1.0` is no version; one is 0.2.0");
    }

    #[test]
    fn what_was_unreleased_is_the_release() {
        let text = "# Changelog\n\n## Unreleased\n\n- One.\n\n## 0.1.0 - 2026-01-01\n\n- Zero.\n";
        let released =
            "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-02-03\n\n- One.\n\n## 0.1.0 - 2026-01-01\n\n- Zero.\n";
        assert_eq!(with_release(text, "0.2.0", "2026-02-03").unwrap(), released);
        assert!(with_release(released, "0.3.0", "2026-02-03").unwrap_err().to_string().contains("nothing to release"));
        assert!(with_release("", "0.3.0", "2026-02-03").is_err());
    }
}
