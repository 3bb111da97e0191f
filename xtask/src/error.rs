//! Why a chore was not done.

use crate::finding::Finding;
use std::io;
use std::path::PathBuf;
use std::string::FromUtf8Error;

const USAGE: &str = "usage: cargo xtask <command>

  tidy    check what the compiler does not: floors, circles, pure cores, dead files, stale generated code, links, style
  proto   generate Rust from the .proto files of `proto` and `discovery`
  pages   write the pages of docs/reference that are generated: configuration, command line, metrics
  manifests
          render the presets of deploy/helm to deploy/kubernetes; `--check` compares and writes nothing
  gpu     pack what a host with a card needs to run tests/gpu/run: `cargo xtask gpu --help`
  sim     run the simulator: `cargo xtask sim --seed 7 --verbose` shows what happens in one seed
  release number a version, date its changelog, commit, tag, build, and write the binary with its checksum:
          `cargo xtask release 0.2.0 2026-11-24`; it pushes nothing
";

/// The ways in which chores fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoreError {
    #[error("{USAGE}")]
    Usage,
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    /// A program cannot be run; the command is named.
    #[error("cannot run `{command}`: {source}; install it")]
    NotRun { command: String, source: io::Error },
    /// A program failed; this is what it said.
    #[error("{command}: {said}")]
    Failed { command: String, said: String },
    /// What a program printed is no text.
    #[error("{command}: {source}")]
    NotText { command: String, source: FromUtf8Error },
    #[error("{}: {source}", .path.display())]
    NotToml { path: PathBuf, source: toml::de::Error },
    #[error("{}: {source}", .path.display())]
    NotRust { path: PathBuf, source: syn::Error },
    /// A file without which a check says nothing.
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the files in proto/proto: {0}")]
    Proto(#[from] protox::Error),
    #[error("cannot generate code from the files in proto/proto: {0}")]
    Generate(io::Error),
    #[error("{0}: not what the chart in deploy/helm makes; run `cargo xtask manifests`")]
    StaleManifests(String),
    /// Cargo says itself what is wrong.
    #[error("`cargo {0}` failed; what it printed says why")]
    Cargo(String),
    /// A binary that cargo's messages do not name.
    #[error("`{command}` names no executable `{name}`")]
    NotBuilt { name: &'static str, command: String },
    /// What goes to a host with a card.
    #[error(
        "{report}{:.1} MB, and {:.1} MB at most go to a host with a card; look for what has grown",
        *.bytes as f64 / 1e6, *.most as f64 / 1e6
    )]
    TooLarge { report: String, bytes: u64, most: u64 },
    /// What `tidy` found.
    #[error("{}\n\ntidy: {} to fix", lines(.0), .0.len())]
    Untidy(Vec<Finding>),
    #[error("there are changes that are not committed; commit them first")]
    Uncommitted,
    #[error("the tag {0} exists; take the next version")]
    TagExists(String),
    /// The manifest of the workspace names no version.
    #[error("{0} has no version")]
    NoVersion(&'static str),
    #[error("`{0}` is no version; one is 0.2.0")]
    NotAVersion(String),
    #[error("{version} is not later than {now}")]
    NotLater { version: String, now: String },
    /// The changelog lacks the heading of what is not released.
    #[error("{changelog} has no `{heading}`")]
    NoHeading { changelog: &'static str, heading: &'static str },
    #[error("{changelog} lists nothing under `{heading}`; there is nothing to release")]
    NothingToRelease { changelog: &'static str, heading: &'static str },
}

impl ChoreError {
    /// Returns what makes an error of this file from one of the system.
    pub(crate) fn of_file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
}
