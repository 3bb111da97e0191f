//! Models of a hub, for people: progress, and what a pull does not do at once.

use crate::progress::Progress;
use hub::{Hub, HubError, ModelName, Notice};
use std::path::PathBuf;

/// Returns the path of a model: what the cache has of it if it is complete, else what the hub sends.
///
/// # Errors
///
/// See [`HubError`].
pub(crate) fn cached_or_pulled(name: &ModelName) -> Result<PathBuf, HubError> {
    let hub = Hub::from_env()?;
    if let Some(path) = hub.cached(name) {
        tracing::info!("{name} comes from {}; `baton model pull {name}` looks for a newer one", path.display());
        return Ok(path);
    }
    pull(&hub, name)
}

/// Fetches what is missing of a model; says on the terminal how far it is.
///
/// # Errors
///
/// See [`HubError`].
pub(crate) fn pull(hub: &Hub, name: &ModelName) -> Result<PathBuf, HubError> {
    let mut progress = Progress::begin(format!("fetching {name}"));
    let mut total = 0;
    let path = hub.pull(name, &mut |notice| match notice {
        Notice::Found { bytes, .. } => total = bytes,
        Notice::Bytes(done) => progress.update(done, total),
        Notice::Waiting { reason, wait } => {
            tracing::warn!("fetching {name}: {reason}; trying again in {:.0} s", wait.as_secs_f64());
        }
        Notice::Locked { file } => tracing::info!("another process fetches {file} of {name}; waiting for it"),
    })?;
    progress.end();
    Ok(path)
}
