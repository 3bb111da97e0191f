//! The project's own chores. `cargo xtask tidy` checks and never writes. `proto` writes the generated code of `proto`,
//! `discovery` and `telemetry`, `pages` the generated pages of docs/reference, and `manifests` the rendered Helm chart.
//! `sim` runs the simulator, `gpu` packs what a host with a card needs, and `release` makes a release.
//!
//! What is deliberately absent: anything that a person could not also do by hand, and anything the product needs to
//! build.

mod error;
mod finding;
mod gpu;
mod manifests;
mod modules;
mod proto;
mod release;
mod source;
mod tidy;

use error::ChoreError;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The simulator, which says itself what it found.
/// Without `--package`, so that it shares most of what was compiled for tests.
const SIMULATE: [&str; 7] = ["run", "--quiet", "--release", "--locked", "--bin", "sim", "--"];

/// The tests that compare the generated pages with the code. A variable of the environment has them write the pages.
const WRITE_PAGES: [&str; 9] =
    ["test", "--quiet", "--release", "--locked", "--package", "baton", "--bin", "baton", "pages::"];

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["proto"] => proto::write(root),
        ["pages"] => cargo(root, &WRITE_PAGES, &[("WRITE_PAGES", "1")]),
        ["manifests"] => manifests::write(root),
        ["manifests", "--check"] => manifests::check(root),
        ["gpu"] => gpu::pack(root, false),
        ["gpu", "--unpacked"] => gpu::pack(root, true),
        ["gpu", "--help"] => Ok(gpu::HELP.to_owned()),
        ["release", version, date] => release::run(root, version, date),
        ["sim", ref arguments @ ..] => cargo(root, &[&SIMULATE, arguments].concat(), &[]),
        _ => Err(ChoreError::Usage),
    };
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What cargo tells xtask of its package. A build script that asks for any of them (ring's does) would run again, and
/// all that depends on it would be compiled again, once here and once after.
const OF_PACKAGE: [&str; 9] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Runs cargo with these arguments and variables of the environment. Errors: it says itself what is wrong.
fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<String, ChoreError> {
    let status = cargo_command(root, arguments).envs(environment.iter().copied()).status();
    let status = status.map_err(|source| ChoreError::NotRun { command: "cargo".to_owned(), source })?;
    if status.success() { Ok(String::new()) } else { Err(ChoreError::Cargo(arguments.join(" "))) }
}

/// Returns cargo with these arguments.
fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    OF_PACKAGE.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.current_dir(root).args(arguments);
    command
}

/// Returns the folder of builds.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable is cargo's, and cargo does not pass on what it makes of it"
)]
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
