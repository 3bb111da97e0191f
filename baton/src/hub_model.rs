//! Models of a hub, for people: progress, and what a pull does not do at once.

use crate::progress::Progress;
use engine::checkpoint::CheckpointError;
use engine::cpu::CpuModel;
use engine::models::bind::LoadError;
use engine::models::{ModelDescription, ModelError, ModelFiles};
use hub::{Hub, HubError, ModelName, Notice, Preview};
use std::path::PathBuf;

/// Why a model is not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// The hub does not give it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// It could not be served; its weights stay where they are.
    #[error("{name} is not fetched: {source}")]
    NotServed {
        /// The model.
        name: ModelName,
        /// Why not.
        source: Box<ModelError>,
    },
}

/// Returns the path of a model: what the cache has of it if it is complete, else what the hub sends.
///
/// # Errors
///
/// See [`PullError`].
pub(crate) fn cached_or_pulled(name: &ModelName) -> Result<PathBuf, PullError> {
    let hub = Hub::from_env()?;
    if let Some(path) = hub.cached(name) {
        tracing::info!("{name} comes from {}; `baton model pull {name}` looks for a newer one", path.display());
        return Ok(path);
    }
    pull(&hub, name)
}

/// Fetches what is missing of a model, its weights only if it can be served; says on the terminal how far it is.
///
/// # Errors
///
/// See [`PullError`].
pub(crate) fn pull(hub: &Hub, name: &ModelName) -> Result<PathBuf, PullError> {
    let mut progress = Progress::begin(format!("fetching {name}"));
    let mut total = 0;
    let mut notify = |notice: Notice<'_>| match notice {
        Notice::Found { bytes, .. } => total = bytes,
        Notice::Bytes(done) => progress.update(done, total),
        other => tell(name, other),
    };
    let refused = |source| PullError::NotServed { name: name.clone(), source: Box::new(source) };
    let path = hub.pull(name, |preview| judge(preview).map_err(refused), &mut notify)?;
    progress.end();
    Ok(path)
}

/// Fetches of a model what says what it is, and no weights.
///
/// # Errors
///
/// See [`HubError`].
pub(crate) fn preview(hub: &Hub, name: &ModelName) -> Result<Preview, HubError> {
    hub.preview(name, &mut |notice| tell(name, notice))
}

/// Says why a pull waits.
fn tell(name: &ModelName, notice: Notice<'_>) {
    match notice {
        Notice::Waiting { reason, wait } => {
            tracing::warn!("fetching {name}: {reason}; trying again in {:.0} s", wait.as_secs_f64());
        }
        Notice::Locked { file } => tracing::info!("another process fetches {file} of {name}; waiting for it"),
        Notice::Found { .. } | Notice::Bytes(_) => {}
    }
}

/// Refuses a model that is not served, by its config.json or by the beginning of its GGUF file. What that does not say
/// is found out when the model is loaded.
fn judge(preview: &Preview) -> Result<(), ModelError> {
    let Some(bytes) = preview.gguf_bytes else { return ModelDescription::read(&preview.path).map(drop) };
    let files = match ModelFiles::load_head(&preview.path, bytes) {
        Ok(files) => files,
        // The metadata is longer than what came, or goes on in another part.
        Err(ModelError::Gguf(_)) => return Ok(()),
        Err(refused) => return Err(refused),
    };
    match CpuModel::plan(&files.spec, &files.checkpoint) {
        Err(LoadError::Checkpoint(refused @ CheckpointError::UnsupportedFormat { .. })) => Err(refused.into()),
        _ => Ok(()),
    }
}
