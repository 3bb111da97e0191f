//! The generated code of `proto`: made from the `.proto` files in pure Rust, without protoc.

use crate::error::ChoreError;
use prost::Message;
use std::path::{Path, PathBuf};

/// Folder of the `.proto` files, from the root of the workspace.
const INCLUDE: &str = "proto/proto";
/// Folder of the generated code.
pub(crate) const GENERATED: &str = "proto/src/generated";
/// The files, from [`INCLUDE`].
const FILES: [&str; 3] = ["baton/v1/session.proto", "baton/v1/handoff.proto", "baton/admin/v1/admin.proto"];
/// The package whose service has a generated server and client, and whose description clients may ask for. What carries
/// sessions is written by hand.
const SERVICE: &str = "baton.admin.v1";
/// Fields of that package whose JSON is not what their type gives, and the function of `proto` that writes it.
const SHOWN: [(&str, &str); 6] = [
    ("Worker.role", "role"),
    ("Worker.state", "worker_state"),
    ("Worker.incarnation", "digits"),
    ("Model.layout", "digits"),
    ("Request.state", "request_state"),
    ("Candidate.kind", "candidate_kind"),
];
/// First line of a generated file.
const HEADER: &str = "// Made by `cargo xtask proto` from the files in proto/proto. Change those instead.\n\n";

/// Generates in memory: paths from the root, and contents. Errors: what the compiler says of the `.proto` files.
pub(crate) fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let include = root.join(INCLUDE);
    let files = protox::compile(FILES, [&include])?;
    let (served, carried): (Vec<_>, Vec<_>) = files.file.into_iter().partition(|file| file.package() == SERVICE);
    let description = description(&served);
    let mut config = prost_build::Config::new();
    config.disable_comments(["."]);
    let mut outputs = code(&mut config, carried)?;
    let mut config = prost_build::Config::new();
    config.disable_comments(["."]);
    config.message_attribute(".", "#[derive(serde::Serialize)]");
    config.enum_attribute(".", "#[derive(serde::Serialize)]");
    for (field, form) in SHOWN {
        config.field_attribute(
            format!(".{SERVICE}.{field}"),
            format!("#[serde(serialize_with = \"super::json::{form}\")]"),
        );
    }
    let generator = tonic_prost_build::configure().build_transport(false).disable_comments(["."]);
    config.service_generator(generator.service_generator());
    outputs.extend(code(&mut config, served)?);
    outputs.push((Path::new(GENERATED).join(format!("{SERVICE}.descriptor.rs")), description));
    outputs.sort();
    Ok(outputs)
}

/// Generates the code of these files.
fn code(
    config: &mut prost_build::Config,
    files: Vec<prost_types::FileDescriptorProto>,
) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let requests =
        files.into_iter().map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file));
    let generated = config.generate(requests.collect()).map_err(ChoreError::Generate)?;
    let output = |(module, code): (prost_build::Module, String)| {
        let path = Path::new(GENERATED).join(module.to_file_name_or("baton"));
        (path, format!("{HEADER}{code}"))
    };
    Ok(generated.into_iter().map(output).collect())
}

/// Returns an expression of the bytes that describe these files to a client that asks.
fn description(files: &[prost_types::FileDescriptorProto]) -> String {
    let file = files.iter().cloned().map(|file| prost_types::FileDescriptorProto { source_code_info: None, ..file });
    let bytes = prost_types::FileDescriptorSet { file: file.collect() }.encode_to_vec();
    let lines =
        bytes.chunks(96).map(|line| format!("    {}\\\n", line.escape_ascii().to_string().replace(' ', "\\x20")));
    format!("{HEADER}b\"\\\n{}\"\n", lines.collect::<String>())
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
