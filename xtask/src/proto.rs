//! The generated code of `proto`, `discovery` and `telemetry`: made from the `.proto` files in pure Rust, without
//! protoc.

use crate::error::ChoreError;
use prost::Message;
use prost_build::{Service, ServiceGenerator};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
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
const SHOWN: [(&str, &str); 8] = [
    ("Worker.role", "role"),
    ("Worker.state", "worker_state"),
    ("Worker.incarnation", "digits"),
    ("Model.layout", "digits"),
    ("Request.state", "request_state"),
    ("Candidate.kind", "candidate_kind"),
    ("Phase.kind", "phase_kind"),
    ("WorkerPrefix.outcome", "prefix_outcome"),
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
            outputs.extend(set.code(&mut served_config(&served), served)?);
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

/// Returns how messages and services of [`SERVICE`] are generated: messages can be written as JSON, and those that
/// clients send can be read from it.
fn served_config(files: &[FileDescriptorProto]) -> prost_build::Config {
    let mut config = prost_build::Config::new();
    config.message_attribute(".", "#[derive(serde::Serialize)]");
    config.enum_attribute(".", "#[derive(serde::Serialize)]");
    for (field, form) in SHOWN {
        let attribute = format!("#[serde(serialize_with = \"super::json::{form}\")]");
        config.field_attribute(format!(".{SERVICE}.{field}"), attribute);
    }
    for (name, message) in asked(files) {
        config.message_attribute(&name, "#[derive(serde::Deserialize)]\n#[serde(default, deny_unknown_fields)]");
        for field in message.field.iter().filter(|field| field.r#type() == Type::Enum) {
            let attribute = format!("#[serde(deserialize_with = \"super::json::{}\")]", reader(field));
            config.field_attribute(format!("{name}.{}", field.name()), attribute);
        }
    }
    let generator = tonic_prost_build::configure().build_transport(false).disable_comments(["."]);
    config.service_generator(Box::new(AlsoInJson(generator.service_generator())));
    config
}

/// Returns the messages that clients send, and those within them, by their full names.
fn asked(files: &[FileDescriptorProto]) -> Vec<(String, &DescriptorProto)> {
    let find = |name: &str| {
        let message = files.iter().flat_map(|file| &file.message_type);
        message.clone().find(|message| name == format!(".{SERVICE}.{}", message.name()))
    };
    let methods = files.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let mut names: Vec<String> = methods.map(|method| method.input_type().to_owned()).collect();
    let mut messages = Vec::new();
    while let Some(name) = names.pop() {
        let Some(message) = find(&name) else { continue };
        if messages.iter().all(|(known, _)| *known != name) {
            let within = message.field.iter().filter(|field| field.r#type() == Type::Message);
            names.extend(within.map(|field| field.type_name().to_owned()));
            messages.push((name, message));
        }
    }
    messages
}

/// Returns the function of `proto` that reads a field of an enum by its names in JSON: `role` or, of several, `roles`.
fn reader(field: &FieldDescriptorProto) -> String {
    let name = field.type_name().rsplit('.').next().unwrap_or_default().to_lowercase();
    let several = if field.label() == prost_types::field_descriptor_proto::Label::Repeated { "s" } else { "" };
    format!("read_{name}{several}")
}

/// Generates a service, and a function that answers its calls in JSON.
struct AlsoInJson(Box<dyn ServiceGenerator>);

impl ServiceGenerator for AlsoInJson {
    fn generate(&mut self, service: Service, code: &mut String) {
        let module = format!("{}_server", service.name.to_lowercase());
        let arms: String = service
            .methods
            .iter()
            .map(|method| {
                let form = if method.server_streaming { "many" } else { "one" };
                format!(
                    "        \"{}\" => super::calls::{form}(service.{}(super::calls::read(body)?).await?),\n",
                    method.proto_name, method.name
                )
            })
            .collect();
        code.push_str(&format!(
            "pub async fn call_in_json<T: {module}::{name}>(\n    service: &T,\n    call: &str,\n    body: &[u8],\n\
             ) -> Result<super::calls::JsonAnswer, tonic::Status> {{\n    match call {{\n{arms}\
             \x20       _ => Err(super::calls::unknown(call)),\n    }}\n}}\n",
            name = service.name,
        ));
        self.0.generate(service, code);
    }
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
