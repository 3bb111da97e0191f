//! The generated code of `proto`: made from the `.proto` files in pure Rust, without protoc.

use crate::error::ChoreError;
use std::path::{Path, PathBuf};

/// Folder of the `.proto` files, from the root of the workspace.
const INCLUDE: &str = "proto/proto";
/// Folder of the generated code.
pub(crate) const GENERATED: &str = "proto/src/generated";
/// The files, from [`INCLUDE`].
const FILES: [&str; 2] = ["baton/v1/session.proto", "baton/v1/handoff.proto"];
/// First line of a generated file.
const HEADER: &str = "// Made by `cargo xtask proto` from the files in proto/proto. Change those instead.\n\n";

/// Generates in memory: paths from the root, and contents. Errors: what the compiler says of the `.proto` files.
pub(crate) fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let include = root.join(INCLUDE);
    let files = protox::compile(FILES, [&include])?;
    let requests = files.file.into_iter().map(|file| {
        let module = prost_build::Module::from_protobuf_package_name(file.package());
        (module, file)
    });
    let mut config = prost_build::Config::new();
    config.disable_comments(["."]);
    let generated = config.generate(requests.collect()).map_err(ChoreError::Generate)?;
    let mut outputs: Vec<_> = generated
        .into_iter()
        .map(|(module, code)| {
            let path = Path::new(GENERATED).join(module.to_file_name_or("baton"));
            (path, format!("{HEADER}{code}"))
        })
        .collect();
    outputs.sort();
    Ok(outputs)
}

/// Writes what [`generate`] made. Errors: those, and a file that cannot be written.
pub(crate) fn write(root: &Path) -> Result<String, ChoreError> {
    let outputs = generate(root)?;
    for (path, code) in &outputs {
        let target = root.join(path);
        let folder = target.parent().expect("a generated file lies in a folder");
        std::fs::create_dir_all(folder).map_err(ChoreError::of_file(folder))?;
        std::fs::write(&target, code).map_err(ChoreError::of_file(path))?;
    }
    let paths: Vec<_> = outputs.iter().map(|(path, _)| path.display().to_string()).collect();
    Ok(format!("wrote {}", paths.join(", ")))
}
