//! The project's own chores: `cargo xtask tidy` (checks, never writes), `cargo xtask proto` (writes the generated
//! code of `proto`), `cargo xtask sim` (runs the simulator) and `cargo xtask release` (makes a release).
//!
//! What is deliberately absent: anything that a person could not also do by hand, and anything the product needs to
//! build.

mod error;
mod finding;
mod modules;
mod proto;
mod release;
mod source;
mod tidy;

use error::ChoreError;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["proto"] => proto::write(root),
        ["release", version, date] => release::run(root, version, date),
        ["sim", ref arguments @ ..] => simulate(root, arguments),
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

/// Builds and runs the simulator, which says by itself what is wrong.
fn simulate(root: &Path, arguments: &[&str]) -> Result<String, ChoreError> {
    let cargo = ["run", "--quiet", "--release", "--locked", "--package", "sim", "--"];
    let status = std::process::Command::new(env!("CARGO")).current_dir(root).args(cargo).args(arguments).status();
    let status = status.map_err(|source| ChoreError::NotRun { command: "cargo run".to_owned(), source })?;
    if status.success() { Ok(String::new()) } else { Err(ChoreError::Simulator) }
}
