//! The project's own chores: `cargo xtask tidy` (checks, never writes), `cargo xtask proto` (writes the generated
//! code of `proto`), `cargo xtask pages` (writes the generated pages of docs/reference), `cargo xtask sim` (runs the
//! simulator) and `cargo xtask release` (makes a release).
//!
//! What is deliberately absent: anything that a person could not also do by hand, and anything the product needs to
//! build.

mod proto;
mod release;
mod source;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  tidy    check what the compiler does not: floors, pure cores, dead files, stale generated code, links, style
  proto   generate proto/src/generated from the files in proto/proto
  pages   write the pages of docs/reference that are generated: configuration, command line, metrics
  sim     run the simulator: `cargo xtask sim --seed 7 --verbose` shows what happens in one seed
  release number a version, date its changelog, commit, tag, build, and write the binary with its checksum:
          `cargo xtask release 0.2.0 2026-11-24`; it pushes nothing
";

/// The simulator, which says itself what it found.
const SIMULATE: [&str; 7] = ["run", "--quiet", "--release", "--locked", "--package", "sim", "--"];

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
        ["release", version, date] => release::run(root, version, date),
        ["sim", ref arguments @ ..] => cargo(root, &[&SIMULATE, arguments].concat(), &[]),
        _ => Err(USAGE.to_string()),
    };
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Runs cargo with these arguments and variables of the environment. Errors: it says itself what is wrong.
fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<String, String> {
    let mut command = std::process::Command::new(env!("CARGO"));
    let status = command.current_dir(root).args(arguments).envs(environment.iter().copied()).status();
    let status = status.map_err(|error| format!("cargo could not be run: {error}"))?;
    if status.success() { Ok(String::new()) } else { Err(format!("cargo {} failed", arguments[0])) }
}
