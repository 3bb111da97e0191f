//! `baton model info`: what a model is, what it takes, and whether it can be served here.

mod report;

use crate::commands::bench::file::ReportFile;
use crate::error::CommandError;
use crate::hub_model::PullError;
use crate::memory;
use crate::model_dir::{self, Look, ModelDirError};
use crate::output::{grouped, human_bytes, print, table};
use crate::repacking;
use engine::checkpoint::FormatShare;
use engine::cpu::CpuModel;
use engine::models::config::ConfigError;
use engine::models::{ModelDescription, ModelError, ModelFiles, ModelInfo, Outline, TensorRow};
use engine::spec::{ModelSpec, RopeScaling};
use report::{Report, Weights};
use std::path::{Path, PathBuf};

/// Describes a model; `None`: the bundled one. `json`: a file for all figures.
///
/// # Errors
///
/// There is no such model, it cannot be served here, or the answer cannot be written.
pub(crate) fn info(path: Option<&Path>, tensors: bool, json: Option<&PathBuf>) -> Result<(), CommandError> {
    let json = ReportFile::create(json)?;
    let look = match model_dir::look(path.unwrap_or(Path::new(""))) {
        Ok(look) => look,
        Err(error @ (ModelDirError::Hub(_) | ModelDirError::Pull(PullError::Hub(_)))) => {
            return Err(CommandError::Failed(error.into()));
        }
        Err(error) => return Err(CommandError::Usage(error.into())),
    };
    let looked = Looked::at(look)?;
    let report = looked.report(memory::available());
    let mut text = table(&looked.rows(&report));
    if !report.weights.formats.is_empty() {
        text.push('\n');
        text += &table(&formats(&report.weights.formats));
    }
    if let (true, Ok(info)) = (tensors, &looked.info) {
        text.push('\n');
        let header = ["tensor", "shape", "count", "numbers"].map(str::to_owned);
        let tensor = |row: &TensorRow| {
            [row.name.clone(), format!("{:?}", row.shape), row.count.to_string(), grouped(row.numbers)]
        };
        text += &table(&std::iter::once(header).chain(info.tensors.iter().map(tensor)).collect::<Vec<_>>());
    }
    text += &format!("\nserved here: {}\n", report.verdict());
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    print(&text)?;
    if report.served { Ok(()) } else { Err(CommandError::NotServed(report.name)) }
}

/// What was found out about a model.
struct Looked {
    name: String,
    path: PathBuf,
    /// In figures, or why it is not served and what its files say nevertheless.
    info: Result<ModelInfo, Box<(String, Outline)>>,
    weights: Weights,
}

impl Looked {
    /// Looks at the model: of weights, at no more than headers and a sample of rows.
    fn at(look: Look) -> Result<Self, CommandError> {
        let (name, path, preview) = match look {
            Look::Here(located) => (located.name, located.path, None),
            Look::OnHub(name, preview) => (Some(name.to_string()), preview.path.clone(), Some(*preview)),
        };
        let gguf_bytes = preview.as_ref().and_then(|preview| preview.gguf_bytes);
        let opened = match (&preview, gguf_bytes) {
            (None, _) => ModelFiles::load(&path).map(Opened::Files),
            (_, Some(bytes)) => ModelFiles::load_head(&path, bytes).map(Opened::Files),
            _ => ModelDescription::read(&path).map(Opened::Description),
        };
        let stored = preview.map(|preview| (preview.weight_bytes, preview.weight_files));
        match opened {
            Ok(Opened::Files(files)) => Ok(Self::of_files(&files, name, stored)),
            Ok(Opened::Description(description)) => Ok(Self::of_description(&description, name, stored)),
            // What cannot be read at all is an error, and no description.
            Err(ModelError::Config { source, .. }) => {
                let outline = Outline::read(&path, gguf_bytes);
                Ok(Self::of_refused(&source, outline, &path, name, stored))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// `stored`: bytes and files on the hub, where the model is there.
    fn of_files(files: &ModelFiles, name: Option<String>, stored: Option<(u64, usize)>) -> Self {
        let info = files.describe();
        let (bytes, count) = stored.unwrap_or((info.weight_bytes, info.weight_files));
        let mut weights = Weights::stored(bytes, count, &info.formats);
        match CpuModel::plan(&files.spec, &files.checkpoint) {
            Ok(plan) => weights.planned(&plan),
            // Tensors of other parts are not known yet.
            Err(_) if stored.is_some() && count > 1 => weights.estimated(bytes),
            Err(refused) => weights.refused = Some(refused.to_string()),
        }
        let name = name.unwrap_or_else(|| files.name.clone());
        Self { name, path: files.path.clone(), info: Ok(info), weights }
    }

    fn of_description(model: &ModelDescription, name: Option<String>, stored: Option<(u64, usize)>) -> Self {
        let info = ModelInfo::of(&model.spec);
        let (bytes, count) = stored.unwrap_or_default();
        let mut weights = Weights::stored(bytes, count, &[]);
        weights.estimated(bytes);
        let name = name.unwrap_or_else(|| model.name.clone());
        Self { name, path: model.path.clone(), info: Ok(info), weights }
    }

    fn of_refused(
        error: &ConfigError,
        outline: Outline,
        path: &Path,
        name: Option<String>,
        stored: Option<(u64, usize)>,
    ) -> Self {
        let all = outline.formats.iter().map(|share| share.bytes).sum();
        let (bytes, count) = stored.unwrap_or((all, 0));
        let weights = Weights::stored(bytes, count, &outline.formats);
        let name = name.unwrap_or_else(|| {
            let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
            stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
        });
        Self { name, path: path.to_owned(), info: Err(Box::new((error.to_string(), outline))), weights }
    }

    fn report(&self, available: Option<u64>) -> Report {
        let (name, weights) = (self.name.clone(), self.weights.clone());
        match &self.info {
            Ok(info) => Report::of(name, &self.path, info, weights, available),
            Err(refused) => Report::of_refused(name, &self.path, &refused.1, &refused.0, weights, available),
        }
    }

    /// Lines of names and values.
    fn rows(&self, report: &Report) -> Vec<[String; 2]> {
        let mut rows = vec![("name", self.name.clone()), ("path", self.path.display().to_string())];
        if let Some(family) = &report.family {
            rows.push(("family", family.clone()));
        }
        match &self.info {
            Ok(info) => {
                rows.push(("parameters", grouped(info.parameters)));
                rows.extend(shape(&info.spec));
                let parts = info.other_parts;
                if parts.tensors > 0 {
                    let bytes = human_bytes(parts.bytes);
                    rows.push((
                        "other parts",
                        format!("{} tensors, {bytes}: such as for images, not served", parts.tensors),
                    ));
                }
            }
            Err(refused) => rows.extend(refused.1.sizes.iter().map(|&(name, size)| (name, grouped(size)))),
        }
        let weights = &self.weights;
        if weights.stored_bytes > 0 {
            rows.push(("weights", weights.in_words()));
        }
        if let Some(told) = weights.plan.as_ref().and_then(repacking::told) {
            rows.push(("repacked", told));
        }
        rows.extend(report.memory_rows());
        rows.into_iter().map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// A model that is served, open or described.
enum Opened {
    Files(ModelFiles),
    Description(ModelDescription),
}

/// Returns lines about the shape of a model.
fn shape(spec: &ModelSpec) -> Vec<(&'static str, String)> {
    let windows: Vec<u32> = spec.windows().into_iter().flatten().collect();
    let attention = match windows.first() {
        None => "full".to_owned(),
        Some(window) => format!("window of {window} tokens in {} of {} layers", windows.len(), spec.layers),
    };
    let rope = spec.ropes.last().expect("a model has layers");
    let scaling = match &rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", linear scaling by {factor}"),
        RopeScaling::Llama3 { factor, .. } => format!(", llama3 scaling by {factor}"),
        RopeScaling::Yarn(yarn) => format!(", yarn scaling by {}", yarn.factor),
        RopeScaling::Long { .. } => ", longrope scaling".to_owned(),
    };
    let local = spec.ropes.iter().find(|other| other.theta != rope.theta);
    let local = local.map_or(String::new(), |local| format!(", {} in layers with a window", local.theta));
    vec![
        ("layers", spec.layers.to_string()),
        ("hidden, feed-forward", format!("{}, {}", spec.hidden, spec.feed_forward_width_max())),
        ("heads", format!("{} of {}, {} for KV", spec.heads, spec.head_dim, spec.kv_heads)),
        ("attention", attention),
        ("rotary base", format!("{}{scaling}{local}", rope.theta)),
        ("vocabulary", format!("{}{}", grouped(spec.vocab as u64), if spec.tied { ", tied" } else { "" })),
        ("context", format!("{} tokens", grouped(spec.context as u64))),
    ]
}

/// Returns lines about the number formats that weights are stored in. The last column says what they become, or that
/// the model cannot be run yet.
fn formats(shares: &[FormatShare]) -> Vec<[String; 4]> {
    let header = ["format", "tensors", "bytes", ""].map(str::to_owned);
    let row = |share: &FormatShare| {
        let note = match share.packed {
            _ if !share.is_read => "not supported yet: the model cannot be run".to_owned(),
            Some(format) => format!("packed as {format}"),
            None => String::new(),
        };
        [share.format.clone(), share.tensors.to_string(), human_bytes(share.bytes), note]
    };
    std::iter::once(header).chain(shares.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::quant::WeightFormat;

    #[test]
    fn every_format_is_named_with_its_bytes() {
        let share = |format: &str, is_read, packed, tensors, bytes| {
            let format = format.to_owned();
            FormatShare { format, is_read, packed, tensors, bytes }
        };
        let shares = [
            share("IQ4_XS", false, None, 210, 66 << 20),
            share("GPTQ INT4", true, Some(WeightFormat::Q4_0), 3, 30 << 20),
            share("Q8_0", true, None, 1, 28 << 20),
        ];
        let text = "\
format     tensors  bytes
IQ4_XS     210      66 MiB  not supported yet: the model cannot be run
GPTQ INT4  3        30 MiB  packed as Q4_0
Q8_0       1        28 MiB
";
        assert_eq!(table(&formats(&shares)), text);
    }
}
