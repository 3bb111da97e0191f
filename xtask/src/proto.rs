//! The generated code of `proto` and `discovery`: made from the `.proto` files in pure Rust, without protoc.

use crate::error::ChoreError;
use std::path::{Path, PathBuf};

/// `.proto` files of one crate, and where their code goes.
struct Set {
    /// Folder of the files, from the root of the workspace.
    include: &'static str,
    /// The files, from `include`.
    files: &'static [&'static str],
    /// Folder of the generated code.
    generated: &'static str,
}

const SETS: [Set; 2] = [
    Set {
        include: "proto/proto",
        files: &["baton/v1/session.proto", "baton/v1/handoff.proto"],
        generated: "proto/src/generated",
    },
    Set { include: "discovery/proto", files: &["etcd.proto"], generated: "discovery/src/generated" },
];

/// Returns whether a file, named from the root of the workspace, is generated.
pub(crate) fn is_generated(path: &Path) -> bool {
    SETS.iter().any(|set| path.starts_with(set.generated))
}

/// Generates in memory: paths from the root, and contents. Errors: what the compiler says of the `.proto` files.
pub(crate) fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let mut outputs = Vec::new();
    for Set { include, files, generated } in &SETS {
        let compiled = protox::compile(*files, [&root.join(include)])?;
        let requests = compiled.file.into_iter().map(|file| {
            let module = prost_build::Module::from_protobuf_package_name(file.package());
            (module, file)
        });
        let mut config = prost_build::Config::new();
        config.disable_comments(["."]);
        let modules = config.generate(requests.collect()).map_err(ChoreError::Generate)?;
        outputs.extend(modules.into_iter().map(|(module, code)| {
            let path = Path::new(generated).join(module.to_file_name_or("baton"));
            let header =
                format!("// Made by `cargo xtask proto` from the files in {include}. Change those instead.\n\n");
            (path, header + &code)
        }));
    }
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
