//! `baton model`.

mod info;

pub(crate) use info::info;

use crate::cli::RandomArgs;
use crate::error::CommandError;
use crate::hub_model::{self, PullError};
use crate::output::{human_bytes, print, table};
use crate::progress::Progress;
use domain::Dtype;
use engine::random::RandomSpec;
use hub::{CachedModel, Hub, ModelName, NameError};

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

fn failed(error: impl Into<PullError>) -> CommandError {
    CommandError::Failed(Box::new(error.into()))
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

pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
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
