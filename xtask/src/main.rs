//! The project's own chores: `cargo xtask tidy` (checks, never writes) and `cargo xtask proto` (writes the generated
//! code of `proto`).
//!
//! What is deliberately absent: anything that a person could not also do by hand, and anything the product needs to
//! build.

mod proto;
mod source;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  tidy    check what the compiler does not: floors, pure cores, dead files, stale generated code, links, style
  proto   generate proto/src/generated from the files in proto/proto
";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["proto"] => proto::write(root),
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
