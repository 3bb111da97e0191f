//! The model that a measurement runs: one that a person names, or one with random weights.

use crate::commands::model::parse_dtype;
use crate::error::CommandError;
use crate::model_dir;
use crate::progress::Progress;
use engine::random::RandomSpec;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where the random weights come from.
const SEED: u64 = 1;

/// Where the model is; a random one is gone when this is.
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// What a random one is called.
    pub(super) name: Option<String>,
    _dir: Option<TempDir>,
}

impl Source {
    /// Returns the model at the path; without one, a Llama of the shape in the number format, in a temporary folder.
    /// Errors: there is none, or it cannot be written.
    pub(super) fn of(model: Option<&Path>, shape: &str, dtype: &str) -> Result<Self, CommandError> {
        if let Some(path) = model {
            let located = model_dir::locate(path).map_err(|error| CommandError::Usage(error.into()))?;
            return Ok(Self { path: located.path, name: located.name, _dir: None });
        }
        let spec = RandomSpec::named("llama", shape, SEED, Some(parse_dtype(dtype)?))?;
        let dir = tempfile::tempdir()?;
        let mut progress = Progress::begin(format!("making a random {shape}"));
        spec.write(dir.path(), &mut |done, total| progress.update(done, total))?;
        progress.end();
        Ok(Self { path: dir.path().to_owned(), name: Some(format!("random {shape}")), _dir: Some(dir) })
    }
}
