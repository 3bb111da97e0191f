//! The project's own chores: `cargo xtask tidy` (checks, never writes), `cargo xtask proto` (writes the generated
//! code of `proto`), `cargo xtask sim` (runs the simulator) and `cargo xtask release` (makes a release).
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
  sim     run the simulator: `cargo xtask sim --seed 7 --verbose` shows what happens in one seed
  release number a version, date its changelog, commit, tag, build, and write the binary with its checksum:
          `cargo xtask release 0.2.0 2026-11-24`; it pushes nothing
";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["proto"] => proto::write(root),
        ["release", version, date] => release::run(root, version, date),
        ["sim", ref arguments @ ..] => simulate(root, arguments),
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

/// Builds and runs the simulator, which says by itself what is wrong.
fn simulate(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let cargo = ["run", "--quiet", "--release", "--locked", "--package", "sim", "--"];
    let status = std::process::Command::new(env!("CARGO")).current_dir(root).args(cargo).args(arguments).status();
    let status = status.map_err(|error| format!("cargo could not be run: {error}"))?;
    if status.success() {
        Ok(String::new())
    } else {
        Err("the simulator found something, or was asked wrongly".to_owned())
    }
}
