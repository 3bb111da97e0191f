//! Writes the checkpoints of all cases into the folder that is the one argument, for `make.py`.

mod cases;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: reference-checkpoints FOLDER");
        return ExitCode::FAILURE;
    };
    for case in cases::Case::all() {
        case.write(&dir.join(&case.name));
    }
    ExitCode::SUCCESS
}
