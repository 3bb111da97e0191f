//! The generated code of `proto`, `discovery` and `telemetry`: made from the `.proto` files in pure Rust, without
//! protoc.

use crate::error::ChoreError;
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
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

const SETS: [Set; 3] = [
    Set {
        include: "proto/proto",
        files: &["baton/v1/session.proto", "baton/v1/handoff.proto", "baton/admin/v1/admin.proto"],
        generated: "proto/src/generated",
    },
    Set { include: "discovery/proto", files: &["etcd.proto"], generated: "discovery/src/generated" },
    Set { include: "telemetry/proto", files: &["otlp.proto"], generated: "telemetry/src/generated" },
];
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

/// Returns whether a file, named from the root of the workspace, is generated.
pub(crate) fn is_generated(path: &Path) -> bool {
    SETS.iter().any(|set| path.starts_with(set.generated))
}

/// Generates in memory: paths from the root, and contents. Errors: what the compiler says of the `.proto` files.
pub(crate) fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let mut outputs = Vec::new();
    for set in &SETS {
        let files = protox::compile(set.files, [&root.join(set.include)])?.file;
        let (served, carried): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.package() == SERVICE);
        outputs.extend(set.code(&mut prost_build::Config::new(), carried)?);
        if !served.is_empty() {
            outputs.push(set.output(&format!("{SERVICE}.descriptor.rs"), &description(&served)));
            outputs.extend(set.code(&mut served_config(), served)?);
        }
    }
    outputs.sort();
    Ok(outputs)
}

impl Set {
    /// Generates the code of these files.
    fn code(
        &self,
        config: &mut prost_build::Config,
        files: Vec<FileDescriptorProto>,
    ) -> Result<Vec<(PathBuf, String)>, ChoreError> {
        let requests =
            files.into_iter().map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file));
        let config = config.disable_comments(["."]);
        let generated = config.generate(requests.collect()).map_err(ChoreError::Generate)?;
        Ok(generated.iter().map(|(module, code)| self.output(&module.to_file_name_or("baton"), code)).collect())
    }

    /// Returns a generated file of this name.
    fn output(&self, name: &str, code: &str) -> (PathBuf, String) {
        let header =
            format!("// Made by `cargo xtask proto` from the files in {}. Change those instead.\n\n", self.include);
        (Path::new(self.generated).join(name), header + code)
    }
}

/// Returns how messages and services of [`SERVICE`] are generated.
fn served_config() -> prost_build::Config {
    let mut config = prost_build::Config::new();
    config.message_attribute(".", "#[derive(serde::Serialize)]");
    config.enum_attribute(".", "#[derive(serde::Serialize)]");
    for (field, form) in SHOWN {
        let attribute = format!("#[serde(serialize_with = \"super::json::{form}\")]");
        config.field_attribute(format!(".{SERVICE}.{field}"), attribute);
    }
    let generator = tonic_prost_build::configure().build_transport(false).disable_comments(["."]);
    config.service_generator(generator.service_generator());
    config
}

/// Returns an expression of the bytes that describe these files to a client that asks.
fn description(files: &[FileDescriptorProto]) -> String {
    let file = files.iter().cloned().map(|file| FileDescriptorProto { source_code_info: None, ..file });
    let bytes = FileDescriptorSet { file: file.collect() }.encode_to_vec();
    let lines =
        bytes.chunks(96).map(|line| format!("    {}\\\n", line.escape_ascii().to_string().replace(' ', "\\x20")));
    format!("b\"\\\n{}\"\n", lines.collect::<String>())
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
