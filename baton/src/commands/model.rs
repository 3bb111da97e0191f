//! `baton model`.

use crate::cli::RandomArgs;
use crate::error::CommandError;
use crate::hub_model;
use crate::model_dir;
use crate::output::{grouped, human_bytes, print, table};
use crate::progress::Progress;
use domain::Dtype;
use engine::checkpoint::FormatShare;
use engine::models::{ModelFiles, ModelInfo};
use engine::random::RandomSpec;
use engine::spec::RopeScaling;
use hub::{CachedModel, Hub, HubError, ModelName, NameError};
use std::path::{Path, PathBuf};

/// Describes a model; `None`: the bundled one.
pub(crate) fn info(path: &Option<PathBuf>, tensors: bool) -> Result<(), CommandError> {
    let located = model_dir::locate(path.as_deref().unwrap_or(Path::new("")));
    let dir = located.map_err(|error| CommandError::Usage(error.into()))?.path;
    let info = ModelFiles::load(&dir)?.describe();
    let mut text = table(&rows(&info, &dir));
    text.push('\n');
    text += &table(&formats(&info.formats));
    if tensors {
        text.push('\n');
        let header = ["tensor", "shape", "count", "numbers"].map(str::to_owned);
        let tensor = |row: &engine::models::TensorRow| {
            [row.name.clone(), format!("{:?}", row.shape), row.count.to_string(), grouped(row.numbers)]
        };
        text += &table(&std::iter::once(header).chain(info.tensors.iter().map(tensor)).collect::<Vec<_>>());
    }
    Ok(print(&text)?)
}

fn rows(info: &ModelInfo, path: &Path) -> Vec<[String; 2]> {
    let spec = &info.spec;
    let windows = spec.windows.iter().flatten().count();
    let attention = match spec.windows.iter().flatten().next() {
        None => "full".to_owned(),
        Some(window) => format!("window of {window} tokens in {windows} of {} layers", spec.layers),
    };
    let rope = spec.ropes.last().expect("a model has layers");
    let scaling = match &rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", linear scaling by {factor}"),
        RopeScaling::Llama3 { factor, .. } => format!(", llama3 scaling by {factor}"),
        RopeScaling::Long { .. } => ", longrope scaling".to_owned(),
    };
    let local = spec.ropes.iter().find(|other| other.theta != rope.theta);
    let local = local.map_or(String::new(), |local| format!(", {} in layers with a window", local.theta));
    let rotary = format!("{}{scaling}{local}", rope.theta);
    let files = if info.weight_files == 1 { "1 file".to_owned() } else { format!("{} files", info.weight_files) };
    let kv = info.kv_bytes_per_token;
    [
        ("name", info.name.clone()),
        ("path", path.display().to_string()),
        ("family", spec.family.to_owned()),
        ("parameters", grouped(info.parameters)),
        ("weights", format!("{} in {files}", human_bytes(info.weight_bytes))),
        ("layers", spec.layers.to_string()),
        ("hidden, feed-forward", format!("{}, {}", spec.hidden, spec.ffn)),
        ("heads", format!("{} of {}, {} for KV", spec.heads, spec.head_dim, spec.kv_heads)),
        ("attention", attention),
        ("rotary base", rotary),
        ("vocabulary", format!("{}{}", grouped(spec.vocab as u64), if spec.tied { ", tied" } else { "" })),
        ("context", format!("{} tokens", grouped(spec.context as u64))),
        (
            "KV cache",
            format!("{} per token, {} at full context", human_bytes(kv), human_bytes(kv * spec.context as u64)),
        ),
    ]
    .map(|(name, value)| [name.to_owned(), value])
    .into()
}

/// The number formats that weights are stored in. The last column says what they become, or that the model cannot be
/// run yet.
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

/// Fetches a model from a hub, or what is new of it, and prints where it lies.
pub(crate) fn pull(name: &str) -> Result<(), CommandError> {
    let name = parse_name(name)?;
    let hub = Hub::from_env().map_err(failed)?;
    let path = hub_model::pull(&hub, &name).map_err(failed)?;
    Ok(print(&format!("{}\n", path.display()))?)
}

/// Lists the models in the cache.
pub(crate) fn list() -> Result<(), CommandError> {
    let hub = Hub::from_env().map_err(failed)?;
    let models = hub.cache().list().map_err(failed)?;
    if models.is_empty() {
        return Ok(print(&format!("no models in {}\n", hub.cache().folder().display()))?);
    }
    let header = ["model", "size", "revisions", ""].map(str::to_owned);
    let row = |model: &CachedModel| {
        let revision = |(name, commit): &(String, String)| format!("{name} {}", &commit[..commit.len().min(8)]);
        let revisions = model.revisions.iter().map(revision).collect::<Vec<_>>().join(", ");
        let note = if model.incomplete { "not complete: `baton model pull` goes on with it" } else { "" };
        [model.repo.clone(), human_bytes(model.bytes), revisions, note.to_owned()]
    };
    let rows: Vec<_> = std::iter::once(header).chain(models.iter().map(row)).collect();
    Ok(print(&format!("{}\nin {}\n", table(&rows), hub.cache().folder().display()))?)
}

/// Removes a model from the cache, with all its files and revisions.
pub(crate) fn remove(name: &str) -> Result<(), CommandError> {
    let repo = parse_name(name)?.repo;
    let hub = Hub::from_env().map_err(failed)?;
    match hub.cache().remove(&repo).map_err(failed)? {
        Some(bytes) => Ok(print(&format!("removed {repo}: {} are free\n", human_bytes(bytes)))?),
        None => {
            let missing =
                format!("{repo} is not in {}; `baton model list` shows what is", hub.cache().folder().display());
            Err(CommandError::Usage(missing.into()))
        }
    }
}

fn parse_name(name: &str) -> Result<ModelName, CommandError> {
    name.parse().map_err(|error: NameError| CommandError::Usage(error.into()))
}

fn failed(error: HubError) -> CommandError {
    CommandError::Failed(error.into())
}

/// Writes a checkpoint with random weights.
pub(crate) fn random(request: &RandomArgs) -> Result<(), CommandError> {
    let dtype = parse_dtype(&request.dtype)?;
    let spec = RandomSpec::named(&request.family, &request.shape, request.seed, Some(dtype))?;
    let mut progress = Progress::begin(format!("writing {}", request.dir.display()));
    let mut bytes = 0;
    spec.write(&request.dir, &mut |done, total| {
        bytes = total;
        progress.update(done, total);
    })?;
    progress.end();
    let dir = request.dir.display();
    Ok(print(&format!("wrote {dir}: {} of weights; try: baton model info {dir}\n", human_bytes(bytes)))?)
}

fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "f32",
        Dtype::F16 => "f16",
        Dtype::Bf16 => "bf16",
    }
}

/// Returns the number format that `--dtype` names.
pub(crate) fn parse_dtype(name: &str) -> Result<Dtype, CommandError> {
    let known = [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().find(|&dtype| dtype_name(dtype) == name);
    let wrong = || format!("--dtype: there is no number format {name:?}; f32, f16, bf16");
    known.ok_or_else(|| CommandError::Usage(wrong().into()))
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
